"""The counter gate: what repeats exactly, what differs, and what fails whatever the time says."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
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


def knowing(*constant: str, **bands: float) -> Calibration:
    return msgspec.structs.replace(CALIBRATION, constant=constant, bands=bands)


@pytest.mark.parametrize("metric", sorted(counting.NEVER_MORE))
@pytest.mark.parametrize("known", [None, CALIBRATION, "constant"])
def test_conflicts_and_spills_from_nothing_fail(metric: str, known: Any) -> None:
    known = knowing(metric) if known == "constant" else known
    assert compared({metric: 0}, {metric: 0.5}, known) == [(metric, "exact", True)]


@pytest.mark.parametrize("metric", sorted(counting.NEVER_MORE))
def test_more_conflicts_and_spills_fail_where_they_repeat_exactly(metric: str) -> None:
    assert compared({metric: 2}, {metric: 2.001}, knowing(metric)) == [(metric, "exact", True)]
    assert compared({metric: 4}, {metric: 0}, knowing(metric)) == [(metric, "exact", False)]


@pytest.mark.parametrize("metric", sorted(counting.NEVER_MORE - set(counting.SPILLS)))
def test_what_is_in_a_band_never_fails(metric: str) -> None:
    assert compared({metric: 2}, {metric: 9}, None) == [(metric, "band", False)]
    assert compared({metric: 2}, {metric: 9}, knowing(**{metric: 0.01})) == [(metric, "band", False)]
    assert compared({metric: 0}, {metric: 9}, knowing(**{metric: 0.01})) == [(metric, "band", False)]
    assert compared({metric: 2}, {metric: 2.01}, None) == []


@pytest.mark.parametrize("metric", sorted({*counting.COUNTERS, *counting.STATIC} - counting.NEVER_MORE))
def test_of_everything_else_more_is_shown_and_fails_nothing(metric: str) -> None:
    assert compared({metric: 0}, {metric: 7}, knowing(metric)) == [(metric, "exact", False)]
    assert compared({metric: 7}, {metric: 9}, knowing(metric)) == [(metric, "exact", False)]


def test_a_kernel_that_is_faster_may_spill_more_but_not_begin_to() -> None:
    base, head = (counted(spill_store_bytes=many, spill_load_bytes=more) for many, more in ((8, 0), (16, 4)))
    assert [c.worse for c in changes(base, head, None)] == [True, True]
    assert {c.metric: c.worse for c in changes(base, head, None, faster=True)} == {
        "spill_load_bytes": True, "spill_store_bytes": False
    }  # fmt: skip


@pytest.mark.parametrize(("after", "worse"), [(60, False), (100, False), (101, True), (None, True)])
def test_conflicts_that_are_now_those_of_stores_fail_only_where_there_are_more_altogether(
    after: float | None, worse: bool
) -> None:
    base = {"conflict_ratio_ld": 0.5, "conflict_ratio_st": 0.0, "smem_wavefronts_actual": 200}
    head = {"conflict_ratio_ld": 0.0, "conflict_ratio_st": 0.4, "smem_wavefronts_actual": 100 + (after or 0)}
    ideal = {"smem_wavefronts_ideal": 100.0} if after is not None else {}
    found = changes(counted(**base, **ideal), counted(**head, **ideal), CALIBRATION)
    assert [c.metric for c in found if c.worse] == (["conflict_ratio_st"] if worse else [])


def test_wavefronts_that_no_conflict_makes_excuse_no_new_conflict() -> None:
    copies = {"conflict_ratio_ld": 0.0, "smem_wavefronts_actual": 200, "smem_wavefronts_ideal": 100}
    found = compared(copies, {**copies, "conflict_ratio_ld": 0.3, "smem_wavefronts_actual": 130})
    assert found[0] == ("conflict_ratio_ld", "exact", True)


def test_a_kernel_without_shared_memory_has_no_conflicts_that_new_ones_could_hide_behind() -> None:
    def absent(why: str) -> tuple[Measurement, ...]:
        return (Measurement(metric="conflict_ratio_st", collector="ncu", absent=why),)

    head = counted(conflict_ratio_st=0.4)
    found = changes(absent("no shared-memory stores"), head, None)
    assert [(c.metric, c.base, c.worse) for c in found] == [("conflict_ratio_st", 0.0, True)]
    assert changes(absent("ncu did not collect wavefronts by instruction"), head, None) == ()


def test_what_one_side_lacks_is_not_compared() -> None:
    assert compared({"inst_executed": 1000}, {}) == []


def test_what_fails_comes_first_then_what_changed_most() -> None:
    base = {"inst_executed": 10.0, "registers_per_thread": 32.0, "conflict_ratio_ld": 0.0}
    found = compared(base, {"inst_executed": 11, "registers_per_thread": 64, "conflict_ratio_ld": 0.1})
    assert [metric for metric, _, _ in found] == ["conflict_ratio_ld", "registers_per_thread", "inst_executed"]
