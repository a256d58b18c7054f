"""The counter gate: what repeats exactly, what differs, and what fails whatever the time says."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dgw.model import Case, Measurement, gemm
from dgw.workbench.counters import Harvest
from dgw.workbench.gate import counting
from dgw.workbench.gate.counting import Calibration, Counts, calibrate, changes, count
from dgw.workbench.gate.sides import SideSetup
from dgw.workbench.gate.verdict import Side
from dgw.workbench.protocol import Member
from tests.workbench.gate.fake_lab import Lab, PlayedChild

SIDE = SideSetup("head", Side(label="here"), [sys.executable])


def counted(**values: float) -> tuple[Measurement, ...]:
    return tuple(Measurement(metric=metric, value=value, collector="ncu") for metric, value in values.items())


class PlayedLane:
    """A profiler whose kernels are numbers: the n-th launch of a case counts n more cycles."""

    version = "2025.3"

    def __init__(self, harvests: list[Harvest]) -> None:
        self.harvests, self.commands = harvests, 0

    def command(self, report: Path) -> list[str]:
        self.commands += 1
        return ["ncu"]

    def environment(self, env: Mapping[str, str], scratch: Path) -> dict[str, str]:
        return dict(env)

    def harvest(self, report: Path, output: str, status: int | None) -> Harvest:
        return self.harvests.pop(0)

    def measurements(self, kernels: Sequence[Any], reason: str) -> tuple[Measurement, ...]:
        return counted(inst_executed=1000, dram_bytes=sum(kernels))


def member(m: int) -> Member:
    return Member(case=Case(problem=gemm(m, 64, 64), variant="cuda/tiled"))


def run(lane: PlayedLane, members: dict[str, Member], folder: Path, repeats: int = 1) -> Counts:
    return count(lane, SIDE, members, {}, folder, {}, 30.0, repeats)


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlayedChild, "lab", Lab(), raising=False)
    monkeypatch.setattr(counting, "Child", PlayedChild)
    monkeypatch.setattr(SideSetup, "child_argv", property(lambda self: [self.name]))


def test_repeats_of_a_case_with_several_kernels_are_told_apart(tmp_path: Path) -> None:
    one = member(1)
    lane = PlayedLane([Harvest({one.case.key: [1, 2, 3, 4]})])
    found = run(lane, {"a": one}, tmp_path, repeats=2)
    assert [[m.value for m in part if m.metric == "dram_bytes"] for part in found.cases["a"]] == [[3], [7]]


def test_a_lane_that_asks_for_less_is_asked_once_more(tmp_path: Path) -> None:
    one = member(1)
    lane = PlayedLane([Harvest({}, "no permission", retry=True), Harvest({one.case.key: [1]})])
    assert "a" in run(lane, {"a": one}, tmp_path).cases
    assert lane.commands == 2


def test_nothing_counted_says_why(tmp_path: Path) -> None:
    found = run(PlayedLane([Harvest({}, "the driver forbids it", fatal=True)]), {"a": member(1)}, tmp_path)
    assert found.absent == "the driver forbids it"
    assert found.cases == {}


def test_many_cases_are_counted_in_portions_and_one_that_is_lost_costs_no_other(tmp_path: Path) -> None:
    members = {str(m): member(m) for m in range(1, 31)}
    keys = [one.case.key for one in members.values()]
    first = {key: [1] for key in keys[1:25]}
    found = run(PlayedLane([Harvest(first, "one is missing"), Harvest({k: [1] for k in keys[25:]})]), members, tmp_path)
    assert len(found.cases) == 29
    assert "1" not in found.cases


def test_what_never_moved_in_any_case_is_constant_and_the_rest_gets_a_band() -> None:
    steady = tuple(counted(inst_executed=7, dram_bytes=1000 + n % 3) for n in range(10))
    other = tuple(counted(inst_executed=9, dram_bytes=2000 + 100 * (n % 2)) for n in range(10))
    found = calibrate(Counts(cases={"a": steady, "b": other}), "h200", "580", "2025.3")
    assert found.constant == ("inst_executed",)
    assert found.repeats == 10
    assert found.bands["dram_bytes"] == pytest.approx(6 * 50 / 2050)
    assert "1 counters are constant over 10 repeats of 2 cases" in found.says


CALIBRATION = Calibration(
    device="h200", driver="580", ncu="x", repeats=10, cases=1, constant=("inst_executed",), bands={"dram_bytes": 0.05}
)


def compared(base: dict[str, float], head: dict[str, float], known: Calibration | None = CALIBRATION) -> list[Any]:
    return [(c.metric, c.rule, c.worse) for c in changes(counted(**base), counted(**head), known)]


def test_a_constant_counter_is_compared_exactly_and_another_one_in_its_band() -> None:
    assert compared({"inst_executed": 1000}, {"inst_executed": 1001}) == [("inst_executed", "exact", False)]
    assert compared({"dram_bytes": 1000}, {"dram_bytes": 1040}) == []
    assert compared({"dram_bytes": 1000}, {"dram_bytes": 1060}) == [("dram_bytes", "band", False)]


def test_without_a_calibration_nothing_counts_as_constant() -> None:
    assert compared({"inst_executed": 1000}, {"inst_executed": 1001}, None) == []
    assert compared({"inst_executed": 1000}, {"inst_executed": 1100}, None) == [("inst_executed", "band", False)]


@pytest.mark.parametrize("metric", ["conflict_ratio_ld", "spill_store_bytes", "local_load_sectors"])
def test_conflicts_and_spills_from_nothing_fail_and_more_of_them_does_not(metric: str) -> None:
    assert compared({metric: 0}, {metric: 0.5}) == [(metric, "exact", True)]
    assert compared({metric: 2}, {metric: 4}) == [(metric, "exact", False)]
    assert compared({metric: 4}, {metric: 0}) == [(metric, "exact", False)]


def test_what_one_side_lacks_is_not_compared() -> None:
    assert compared({"inst_executed": 1000}, {}) == []


def test_what_fails_comes_first_then_what_changed_most() -> None:
    base = {"inst_executed": 10.0, "registers_per_thread": 32.0, "conflict_ratio_ld": 0.0}
    found = compared(base, {"inst_executed": 11, "registers_per_thread": 64, "conflict_ratio_ld": 0.1})
    assert [metric for metric, _, _ in found] == ["conflict_ratio_ld", "registers_per_thread", "inst_executed"]
