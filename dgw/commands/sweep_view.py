"""The progress of a sweep on a terminal: done, failed and left, the best so far, the rate and the time left."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dgw.commands.console import colour
from dgw.commands.sweeping import View
from dgw.model import Record
from dgw.reports.units import show

BAD = ("wrong", "compile-failed", "launch-failed", "timed-out", "crashed", "out-of-memory")


@dataclass
class Tally:
    """What is known of a sweep under way. Cases count once, however often their records come."""

    total: int = 0
    begun: float = 0.0
    best: Record | None = None

    def __post_init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.fresh = 0  # finished since the clock of the rate began

    def add(self, record: Record) -> None:
        """Take note of a record."""
        if record.case.key not in self.outcomes:
            self.fresh += 1
        self.outcomes[record.case.key] = record.outcome
        mine, best = _seconds(record), _seconds(self.best)
        if record.outcome == "ok" and mine is not None and (best is None or mine < best):
            self.best = record

    def measuring(self, now: float) -> None:
        """From now on cases are measured, which sets the rate."""
        self.begun, self.fresh = now, 0

    @property
    def done(self) -> int:
        """Cases that have a record."""
        return len(self.outcomes)

    def line(self, doing: str, now: float) -> str:
        """In words."""
        failed = sum(outcome in BAD for outcome in self.outcomes.values())
        parts = [f"{failed} failed"] if failed else []
        parts.append(f"{self.total - self.done} left")
        seconds = _seconds(self.best)
        if self.best is not None and seconds is not None:
            parts.append(f"best {show(seconds, 'seconds')} {_short(self.best)}")
        elapsed = now - self.begun
        if self.begun and self.fresh and elapsed > 1:
            rate = self.fresh / elapsed
            parts.append(f"{rate:.1f} cases/s")
            parts.append(f"{_clock((self.total - self.done) / rate)} to go")
        return ", ".join([*parts, doing] if doing else parts)


def _seconds(record: Record | None) -> float | None:
    if record is None:
        return None
    return record.number("time_cold") or record.number("time_hot")


def _short(record: Record) -> str:
    return " ".join(f"{name}{value}" for name, value in record.case.config.items())


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


@contextmanager
def watching(label: str) -> Iterator[View]:
    """A line on standard error while a sweep runs; nothing where standard error is no terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield View()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    tally = Tally()
    shown = Console(stderr=True, no_color=not colour(sys.stderr))
    columns = (TextColumn(label), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}", markup=False), console=shown, transient=True) as bar:
        task = bar.add_task("", total=None)
        now_doing = ""

        def update() -> None:
            text = tally.line(now_doing, time.monotonic())
            bar.update(task, completed=tally.done, total=tally.total or None, description=text)

        def doing(text: str) -> None:
            nonlocal now_doing
            if not tally.begun and not text.startswith("compiling"):
                tally.measuring(time.monotonic())
            now_doing = text
            update()

        def begins(total: int) -> None:
            tally.total = total
            update()

        def record(found: Record) -> None:
            tally.add(found)
            update()

        yield View(doing, begins, record)
