"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TextIO

import typer

from dgw.errors import DgwError, Exit

PIPED_WIDTH = 120
"""Columns of a table that goes to a file or a pipe, where no terminal says how wide it is."""


PATIENCE_S = 5.0
"""After this long a command that is not on a terminal says that it is at work."""


def width(stream: TextIO | None = None) -> int:
    """Columns to use on `stream` (standard output by default): COLUMNS, else the terminal's, else 120."""
    stream = stream or sys.stdout
    if os.environ.get("COLUMNS", "").isdigit() or stream.isatty():
        return shutil.get_terminal_size((80, 24)).columns
    return PIPED_WIDTH


def colour(stream: TextIO | None = None) -> bool:
    """Whether to colour `stream`: a terminal that can, and no NO_COLOR (https://no-color.org: set and not empty)."""
    stream = stream or sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(text: str = "") -> None:
    """A line or more of result. Ends the command quietly when whoever reads it has gone."""
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # nothing more may be written there, not even what the interpreter flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(int(Exit.OK)) from None


def note(text: str) -> None:
    """A line on standard error: what was done, not what came of it."""
    sys.stderr.write(f"{text}\n")


def warn(text: str, hint: str = "", typed: Sequence[str] = ()) -> None:
    """One line of warning and one of advice on standard error; `typed` is the command line, as for `complain`."""
    note(f"warning: {one_line(text)}")
    if hint:
        note(f"  try: {one_line(_finding_kernels(hint, typed))}")


def complain(error: DgwError, typed: Sequence[str] = ()) -> None:
    """One line of error and one of advice on standard error. Where `typed`, the command line, names the user's own
    kernels, the commands of the advice name them too."""
    note(f"error: {one_line(error.message)}")
    if error.hint:
        note(f"  try: {one_line(_finding_kernels(error.hint, typed))}")


def _finding_kernels(hint: str, typed: Sequence[str]) -> str:
    if not any(word.startswith("--kernel") for word in typed):
        return hint
    from dgw.recipes.retyping import kernel_options, knowing

    return knowing(hint, kernel_options(typed))


def one_line(text: str) -> str:
    """Text on one line, whatever it was."""
    return " ".join(text.split())


class Progress(Protocol):
    """A line that says how far a run is."""

    def __call__(self, done: int, total: int, doing: str) -> None:
        """`done` of `total` cases are finished and `doing` is under way."""


@contextmanager
def _lines(label: str) -> Iterator[Progress]:
    begun = time.monotonic()
    state = {"done": 0, "total": 0}
    told = threading.Event()

    def tell() -> None:
        told.set()
        note(f"{label}: {state['total']} cases, {state['done']} of them finished so far ...")

    timer = threading.Timer(PATIENCE_S, tell)
    timer.daemon = True
    timer.start()

    def update(done: int, total: int, doing: str) -> None:
        state.update(done=done, total=total)

    try:
        yield update
    finally:
        timer.cancel()
        timer.join()
        if told.is_set():
            note(f"{label}: ended after {time.monotonic() - begun:.0f} s")


@contextmanager
def progress(label: str) -> Iterator[Progress]:
    """A progress line on standard error while cases run; where that is no terminal, what takes long is said in a line
    after PATIENCE_S, and again when it has ended."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        with _lines(label) as lines:
            yield lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(label), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    shown = Console(stderr=True, no_color=not colour(sys.stderr))
    with Bar(*columns, TextColumn("{task.description}", markup=False), console=shown, transient=True) as bar:
        task = bar.add_task("", total=None)

        def update(done: int, total: int, doing: str) -> None:
            bar.update(task, completed=done, total=total, description=doing)

        yield update
