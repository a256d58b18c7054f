"""Pairs of real processes that take turns: order, faults, and what is left of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgw.errors import ChildFault, Missing
from dgw.model import Case, gemm
from dgw.workbench.gate import pairs as pairs_module
from dgw.workbench.gate.pairs import Lab, Pair, PairCase
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.sides import SideSetup
from dgw.workbench.gate.verdict import Side
from dgw.workbench.protocol import Member
from tests.workbench.gate import fake_turns

MEMBER = Member(case=Case(problem=gemm(8, 8, 8), variant="x/y"))
Make = Callable[..., Pair]


def side(name: str, what: str) -> SideSetup:
    root = str(Path(fake_turns.__file__).parents[3])
    made = SideSetup(name, Side(label=name), [sys.executable, "-m", fake_turns.__name__], [], {"PYTHONPATH": root})
    object.__setattr__(made, "argv", [sys.executable, "-m", fake_turns.__name__, name, what])
    return made


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setattr(SideSetup, "child_argv", property(lambda self: self.argv))

    def pair(base: str = "ok", head: str = "ok", deadline_s: float = 20.0) -> Pair:
        policy = GatePolicy(rounds=3)
        lab = Lab(side("base", base), side("head", head), policy, {}, tmp_path, deadline_s)
        return Pair(lab, "pair", 0.0)

    return pair


def cases(*keys: str) -> list[PairCase]:
    return [PairCase(key, MEMBER, MEMBER) for key in keys]


def journal(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "journal").read_text().splitlines()]


def test_both_sides_take_turns_in_two_processes_with_the_same_number_of_launches(make: Make, tmp_path: Path) -> None:
    pair = make()
    pair.run(cases("a", "b"), seed=3)
    assert {key: len(rounds) for key, rounds in pair.rounds.items()} == {"a": 3, "b": 3}
    assert all(one.head / one.base == pytest.approx(1.1) for rounds in pair.rounds.values() for one in rounds)
    lines = journal(tmp_path)
    assert len({line[-1] for line in lines}) == 2
    assert [line[2] for line in lines if line[1] == "Prepare"] == ["0", "50"] * 2
    turns = [line[0] for line in lines if line[1] == "Turn"]
    assert all({turns[at], turns[at + 1]} == {"base", "head"} for at in range(0, len(turns), 2))
    assert len(set(turns[::2])) == 2  # now one side begins, now the other


@pytest.mark.parametrize(("what", "outcome", "deadline"), [("hangs", "timed-out", 1.0), ("dies", "crashed", 20.0)])
def test_a_case_that_ends_its_process_costs_itself_only(
    make: Make, tmp_path: Path, what: str, outcome: str, deadline: float
) -> None:
    pair = make(head=what, deadline_s=deadline)
    pair.run(cases("a", "bad", "c"), seed=1)
    assert set(pair.rounds) == {"a", "c"}
    assert pair.faults["bad"].outcome == outcome
    assert pair.faults["bad"].side == "head"
    alive = {line[-1] for line in journal(tmp_path) if Path(f"/proc/{line[-1]}").exists()}
    assert alive == set()


def test_no_gpu_is_missing_and_nothing_is_left_running(make: Make) -> None:
    pair = make(base="no-gpu")
    with pytest.raises(Missing, match="CUDA_ERROR_NO_DEVICE"):
        pair.run(cases("a"), seed=1)
    assert pair._children == {}


def test_a_side_that_does_not_start_is_a_fault_in_its_own_words(make: Make) -> None:
    with pytest.raises(ChildFault, match="the process of head did not start: ended with status 1: it does not"):
        make(head="does-not-start").run(cases("a"), seed=1)


def test_ctrl_c_leaves_what_was_measured_and_no_process(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, seen, measure = make(), list[str](), Pair._measure

    def interrupted(self: Pair, case: PairCase, draw: Any) -> Any:
        seen.append(case.key)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return measure(self, case, draw)

    monkeypatch.setattr(Pair, "_measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pair.run(cases("a", "b"), seed=1)
    assert list(pair.rounds) == seen[:1]
    assert all(not os.path.exists(f"/proc/{line[-1]}") for line in journal(tmp_path))


def test_warming_up_ends_when_the_clock_holds_still(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = make()
    now = iter(range(10_000))
    object.__setattr__(pair.lab, "clock", lambda: float(next(now)))
    clocks = iter([1.2e9, 1.4e9, 1.6e9, 1.8e9, *[1.98e9] * 100])
    turned = []

    def turn(self: Pair, name: str, key: str) -> pairs_module.Turned:
        turned.append(name)
        return pairs_module.Turned(name=key, seconds=1e-4, sm_clock=next(clocks))

    monkeypatch.setattr(Pair, "_turn", turn)
    pair.warm_up_s = 3.0
    pair._settle("a")
    assert len(turned) == 10  # the first two turns after which five readings are alike
    turned.clear()
    clocks = iter([1.0e9, 1.9e9] * 100)
    pair._settle("a")
    assert len(turned) == 2 * 14  # five times as long as it should have taken, and no longer
