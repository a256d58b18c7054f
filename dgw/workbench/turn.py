"""Whose turn it is on the GPU: children that are started ahead wait for it before they touch the device.

A turn is a locked file. The runner holds the lock and gives it up; the system gives it up when the runner is gone, so
that no child waits for ever.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Turn:
    """Not given yet from the moment it is made. Raises OSError where the file cannot be made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def give(self) -> None:
        """Let the child go on; once is enough."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def wait(path: str) -> None:
    """Return when the turn at `path` is given; at once where there is no such file."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
    finally:
        os.close(file)
