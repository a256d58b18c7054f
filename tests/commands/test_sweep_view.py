"""The progress line of a sweep."""

from __future__ import annotations

import io
import sys

import pytest

from dgw.commands.sweep_view import Tally, watching
from dgw.model import Case, Record, gemm
from tests.reports.samples import timed


def record(number: int, outcome: str = "ok", seconds: float = 1e-3) -> Record:
    case = Case(problem=gemm(64, 64, 64), variant="cuda/x", config={"BM": number})
    measured = (timed("time_cold", seconds),) if outcome == "ok" else ()
    return Record(case=case, outcome=outcome, measurements=measured)  # type: ignore[arg-type]


def test_the_line_tells_failures_what_is_left_the_best_the_rate_and_the_time_to_go() -> None:
    tally = Tally(total=10)
    tally.measuring(100.0)
    for number in range(4):
        tally.add(record(number, seconds=1e-3 * (4 - number)))
    tally.add(record(9, "wrong"))
    assert tally.line("cuda/x: check", 110.0) == (
        "1 failed, 5 left, best 1.000 ms BM3, 0.5 cases/s, 0:10 to go, cuda/x: check"
    )


def test_a_record_that_comes_again_counts_once() -> None:
    tally = Tally(total=2)
    tally.add(record(1))
    tally.add(record(1, seconds=2e-3))
    assert tally.done == 1


def test_what_was_taken_over_is_no_part_of_the_rate() -> None:
    tally = Tally(total=4)
    tally.add(record(1))
    tally.measuring(0.0)
    assert "cases/s" not in tally.line("", 10.0)


def test_nothing_is_shown_where_standard_error_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with watching("dgw sweep") as view:
        view.begins(3)
        view.doing("compiling")
        view.record(record(1))
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_line_that_goes_away_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with watching("dgw sweep") as view:
        view.begins(3)
        view.doing("compiling 1 of 3")
        view.record(record(1))
        view.doing("measuring")
    assert "dgw sweep" in stream.getvalue()
