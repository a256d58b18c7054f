"""Locked SM clocks for as long as something is measured: a guardian locks them, and unlocks them when we are gone.

Only a process of its own can promise that, because nothing of ours runs after kill -9. It holds one end of a pipe: when
the other end is closed, by whatever way this process ended, the driver's own choice of clocks is restored.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dgw.errors import Missing, UsageError

if TYPE_CHECKING:
    from dgw.workbench.slots import Held, Slot

WITHIN = 0.01
"""How far (relative) the SM clock may be from the locked one; below it the power or heat limit took over."""
_LOCKED = "locked"


@contextlib.contextmanager
def locked(uuid: str, megahertz: int, warn: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Hold the SM clock of the GPU at so many MHz inside the block.

    Raises UsageError for a clock that no GPU has, Missing where it cannot be locked: no right to, no NVML.
    """
    if megahertz <= 0:
        raise UsageError(f"the SM clock cannot be locked at {megahertz} MHz", "--lock-clocks 1500")
    command = [sys.executable, "-m", "dgw.workbench.clocks", uuid, str(megahertz)]
    guardian = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )  # fmt: skip
    assert guardian.stdin is not None
    assert guardian.stdout is not None
    said = ""
    try:
        said = guardian.stdout.readline().strip()
        if said != _LOCKED:
            why = said or "the process that holds them did not start"
            raise Missing(f"clocks cannot be locked at {megahertz} MHz: {why}", "as root, or without --lock-clocks")
        yield
    finally:
        guardian.stdin.close()
        if guardian.wait() != 0 and said == _LOCKED:
            warn("the clocks may still be locked: nvidia-smi --reset-gpu-clocks")


@contextlib.contextmanager
def hold(
    gpus: Sequence[Slot],
    megahertz: int = 0,
    say: Callable[[str], None] = lambda text: None,
    stopped: Callable[[], bool] = lambda: False,
    look: Callable[[Slot], None] = lambda slot: None,
) -> Iterator[Held]:
    """`slots.hold`, with the SM clock of the GPU that it takes at so many MHz inside (0: its clocks are left alone).

    `look` sees the GPU before anything of it is changed, and may raise. Raises Missing, UsageError as `locked` does.
    """
    from dgw.workbench import slots

    with slots.hold(gpus, say, stopped) as held:
        look(held.slot)
        with locked(held.slot.uuid, megahertz, say) if megahertz else contextlib.nullcontext():
            yield held


class _Taken(Exception):
    """Another process measures on every GPU that was asked for."""


def try_lock(gpus: Sequence[Slot], megahertz: int, say: Callable[[str], None] = lambda text: None) -> None:
    """Lock the SM clock of the first GPU that is free and unlock it at once, to know whether `hold` will be able to.

    Raises Missing, UsageError as `locked` does. GPUs that another process measures on are left alone: where there is no
    other, nothing is known yet.
    """

    def taken() -> bool:
        raise _Taken

    with contextlib.suppress(_Taken), hold(gpus, megahertz, say, taken):
        pass


def guard(uuid: str, megahertz: int, api: Any) -> int:
    """The guardian: lock, say so, wait for the end of standard input, unlock. 1 where one of these failed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when whoever started it does, and not before
    try:
        api.nvmlInit()
        handle = api.nvmlDeviceGetHandleByUUID(uuid) if uuid else api.nvmlDeviceGetHandleByIndex(0)
        api.nvmlDeviceSetGpuLockedClocks(handle, megahertz, megahertz)
    except Exception as error:
        print(f"NVML: {error}", flush=True)
        return 1
    try:
        with contextlib.suppress(BrokenPipeError):
            print(_LOCKED, flush=True)
        sys.stdin.read()
    finally:
        api.nvmlDeviceResetGpuLockedClocks(handle)
    return 0


def main() -> int:
    """What `python -m dgw.workbench.clocks UUID MHZ` does."""
    uuid, megahertz = sys.argv[1:]
    try:
        import pynvml
    except ImportError:
        print("NVML needs the Python package nvidia-ml-py, which is not installed", flush=True)
        return 1
    return guard(uuid, int(megahertz), pynvml)


if __name__ == "__main__":
    sys.exit(main())
