"""An end for what runs in this process: the emulator has no child that could be killed.

The signal may come while Python runs a finaliser or a weak reference's callback, which swallow what is raised in them;
so it comes again until the block is left.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 0.5


class TooSlow(Exception):
    """The deadline passed; `seconds` is how long it was."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no end after {seconds:g} s")
        self.seconds = seconds


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises TooSlow inside the block after `seconds` of real time; only the main thread can have a deadline."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        raise TooSlow(seconds)

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        finally:  # one that came at the last moment has set the timer again
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
