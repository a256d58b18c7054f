"""Every error that dgw raises on purpose: what happened, what to type next, and the exit code."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every dgw command (design: when several hold, see :data:`PRECEDENCE`)."""

    OK = 0
    WRONG = 1  # any wrong or regressed result, or a defect found
    USAGE = 2
    INCONCLUSIVE = 3
    NOT_COMPARABLE = 4  # not comparable, nothing compared, or a baseline is missing
    FAULT = 5  # any crash, hang or compile failure
    MISSING = 6  # a tool, permission or GPU that was demanded is missing
    INTERRUPTED = 130


PRECEDENCE = (
    Exit.INTERRUPTED,
    Exit.USAGE,
    Exit.MISSING,
    Exit.WRONG,
    Exit.FAULT,
    Exit.NOT_COMPARABLE,
    Exit.INCONCLUSIVE,
    Exit.OK,
)


def worst(codes: list[Exit]) -> Exit:
    """The exit code that is reported when several hold at once; ``OK`` for an empty list."""
    return min(codes, key=PRECEDENCE.index, default=Exit.OK)


class DgwError(Exception):
    """An error with one line of what happened (`message`) and one of advice (`hint`)."""

    exit_code: Exit = Exit.USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(DgwError):
    """The command line, a shape, a config or a file asks for something that cannot be."""


class NotComparable(DgwError):
    """Two things that must not be compared, or nothing to compare."""

    exit_code = Exit.NOT_COMPARABLE


class Missing(DgwError):
    """A tool, a permission or a GPU that was demanded is not there."""

    exit_code = Exit.MISSING


class CompileError(DgwError):
    """A source did not compile; `log` is the compiler's own text."""

    exit_code = Exit.FAULT

    def __init__(self, message: str, hint: str = "", log: str = "") -> None:
        super().__init__(message, hint)
        self.log = log


class ChildFault(DgwError):
    """A child process crashed, hung or broke its protocol."""

    exit_code = Exit.FAULT


class StoreError(DgwError):
    """The store cannot be opened, read or written."""


class ReportError(DgwError):
    """A profiler's report is missing, empty or truncated."""

    exit_code = Exit.FAULT
