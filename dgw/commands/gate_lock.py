"""One gate on one GPU at a time: the second waits and says so, or gives up after the time it was given."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from dgw.commands.console import note
from dgw.errors import Missing


@contextlib.contextmanager
def hold_gpu(wait_s: float | None) -> Iterator[dict[str, str]]:
    """Hold the first GPU there is; gives the variables that pin it. `wait_s` None waits as long as it takes.

    Raises Missing when another process holds it for longer.
    """
    from dgw.workbench import slots

    began = time.monotonic()

    def stopped() -> bool:
        if wait_s is not None and time.monotonic() - began >= wait_s:
            raise Missing(
                "the GPU is held by another dgw process that measures on it",
                f"wait for it: --wait {max(600.0, 2 * wait_s):.0f}, or CUDA_VISIBLE_DEVICES with another GPU",
            )
        return False

    with slots.hold(slots.visible()[:1], note, stopped) as held:
        yield dict(held.environment)
