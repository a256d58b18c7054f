"""One gate on one GPU at a time: the second waits and says so, or gives up after the time it was given."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from dgw.commands.console import note
from dgw.errors import Missing

GRACE_S = 5.0
"""How long a process that has just been seen on the GPU may take to leave it."""


@contextlib.contextmanager
def hold_gpu(wait_s: float | None, lock_mhz: int = 0, allow_shared: bool = False) -> Iterator[dict[str, str]]:
    """Hold the first GPU there is; gives the variables that pin it. `wait_s` None waits as long as it takes.

    Raises Missing when another process holds it for longer, when it is a MIG slice or others compute on it (unless
    `allow_shared`), and when its clocks cannot be locked at `lock_mhz` (0: they are left alone).
    """
    from dgw.workbench import clocks, slots

    began = time.monotonic()

    def stopped() -> bool:
        if wait_s is not None and time.monotonic() - began >= wait_s:
            raise Missing(
                "the GPU is held by another dgw process that measures on it",
                f"wait for it: --wait {max(600.0, 2 * wait_s):.0f}, or CUDA_VISIBLE_DEVICES with another GPU",
            )
        return False

    def look(slot: slots.Slot) -> None:
        why = shared_gpu(slot.uuid, GRACE_S)
        if why and not allow_shared:
            raise Missing(f"the GPU is not free for a measurement: {why}", "wait, another GPU, or --allow-shared")
        if why:
            note(f"warning: {why}; times and counters include that work")

    with clocks.hold(slots.visible()[:1], lock_mhz, note, stopped, look) as held:
        yield dict(held.environment)


def shared_gpu(uuid: str, grace_s: float = 0.0) -> str:
    """Why the GPU is not ours alone; empty where it is, or nothing can tell. Looks again for `grace_s`."""
    from dgw.workbench import gpu_state

    end = time.monotonic() + grace_s
    while (why := gpu_state.shared_by(uuid, gpu_state.gpu_states())) and time.monotonic() < end:
        time.sleep(0.2)
    return why
