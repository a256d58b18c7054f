"""A child that waits for its runner: before the next group, and at the end of a job for another one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from dgw.workbench.protocol import Bye, ChildJob, Message, Pause, read_job


class Forsaken(Exception):
    """The runner is gone, or wants nothing more."""


def await_word(say: Callable[[Message], None]) -> None:
    """Go on when the runner says so, because what it was told is durable. Raises Forsaken."""
    say(Pause())
    if not sys.stdin.readline():
        raise Forsaken


def further_job(say: Callable[[Message], None]) -> ChildJob:
    """The job whose file the runner names next on standard input. Raises Forsaken when there is none."""
    say(Bye(lingers=True))
    path = sys.stdin.readline().strip()
    if not path:
        raise Forsaken
    return read_job(Path(path))
