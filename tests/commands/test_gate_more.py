"""What `dgw gate` counts, calibrates, waits for, and how trends and anchors are printed; on a played GPU."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.commands import gate_lock
from dgw.model import Measurement, Record
from dgw.reports.gate_text import about
from dgw.workbench import clocks, counters, gpu_state, slots
from dgw.workbench.counters import Harvest
from dgw.workbench.gate import counting, policy
from dgw.workbench.gate.verdict import GateCase
from dgw.workbench.gpu_state import GpuState
from dgw.workbench.slots import Slot
from dgw.workbench.store import open_store
from dgw.workbench.store.gates import kept
from tests.commands.conftest import Dgw
from tests.commands.gates import report_of, write_kernel
from tests.commands.test_gate_time import SHAPES, Gate, cache, gate, lab
from tests.workbench.gate.fake_lab import Lab, PlayedChild
from tests.workbench.gate.test_trend import night, noisy

__all__ = ["cache", "gate", "lab"]  # fixtures
REAL_LOCK = gate_lock.hold_gpu


class Ncu:
    """Stands in for Nsight Compute; what head's kernels count differs from base's by `head`."""

    version = "2025.3"
    both: dict[str, float] = {}
    head: dict[str, float] = {}
    reason = ""
    protocol = ""

    def __init__(self, tool: Path, names: str, arch: str) -> None:
        self.names = names.split(",")

    def command(self, report: Path) -> list[str]:
        return ["ncu"]

    def environment(self, env: Mapping[str, str], scratch: Path) -> dict[str, str]:
        return dict(env)

    def harvest(self, report: Path, output: str, status: int | None) -> Harvest:
        job = PlayedChild.profiled
        keys = [member.case.key for group in job.groups for member in group.members]
        side = report.name.partition("-")[0]
        return Harvest({} if self.reason else {key: [side] * keys.count(key) for key in keys}, self.reason)

    def measurements(self, kernels: Sequence[Any], reason: str) -> tuple[Measurement, ...]:
        values = dict.fromkeys(self.names, 0.0) | self.both | (self.head if kernels[0] == "head" else {})
        return tuple(
            Measurement(metric=metric, value=value, collector="ncu", protocol=self.protocol)
            for metric, value in values.items()
        )


@pytest.fixture
def ncu(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> type[Ncu]:
    class Profiled(PlayedChild):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            PlayedChild.profiled = self.job  # type: ignore[attr-defined]

    for name in ("both", "head"):
        monkeypatch.setattr(Ncu, name, {})
    monkeypatch.setattr(Ncu, "protocol", "")
    monkeypatch.setattr(counting, "Child", Profiled)
    monkeypatch.setattr(counters, "NcuLane", Ncu)
    monkeypatch.setattr("dgw.workbench.tools.find_tool", lambda name: Path("ncu"))
    return Ncu


def test_conflicts_out_of_nothing_fail_although_the_time_is_the_same(gate: Gate, ncu: type[Ncu]) -> None:
    ncu.head = {"conflict_ratio_ld": 0.25}
    ended = gate("--json")
    assert ended.code == 1
    (case,) = [c for c in report_of(ended).cases if c.label.startswith("mine/changed 64x")]
    assert case.status == "regressed"
    assert case.reasons[0] == "conflict_ratio_ld: none in base, some in head, whatever the time"
    assert case.changed[0].worse


def changed_case(ended: Any) -> GateCase:
    (case,) = [c for c in report_of(ended).cases if c.label.startswith("mine/changed 64x")]
    return case


def test_a_calibrated_rise_of_conflicts_fails_and_one_that_is_not_does_not(
    dgw: Dgw, gate: Gate, ncu: type[Ncu]
) -> None:
    ncu.both, ncu.head = {"conflict_ratio_ld": 0.2}, {"conflict_ratio_ld": 0.25}
    before = gate("--json")
    assert (before.code, changed_case(before).status) == (0, "unchanged")
    assert [(c.rule, c.worse) for c in changed_case(before).changed] == [("band", False)]
    ncu.head = {}
    ended = dgw("gate", "--kernels", "mine", *SHAPES, "--calibrate")
    assert ended.code == 0, ended.err
    ncu.head = {"conflict_ratio_ld": 0.25}
    after = gate("--json")
    assert (after.code, changed_case(after).status) == (1, "regressed")
    reason = "conflict_ratio_ld 0.2 -> 0.25: more than in base, and no gain in time is proven"
    assert changed_case(after).reasons[0] == reason


def test_more_conflicts_in_a_kernel_that_is_faster_are_shown_and_fail_nothing(
    dgw: Dgw, gate: Gate, ncu: type[Ncu], lab: Lab
) -> None:
    lab.slow["head"]["mine/changed"] = 0.9
    ncu.both = {"conflict_ratio_ld": 0.2}
    ended = dgw("gate", "--kernels", "mine", *SHAPES, "--calibrate")
    assert ended.code == 0, ended.err
    ncu.head = {"conflict_ratio_ld": 0.25}
    ended = gate("--json")
    assert (ended.code, changed_case(ended).status) == (0, "improved")
    assert [(c.metric, c.rule, c.worse) for c in changed_case(ended).changed] == [("conflict_ratio_ld", "exact", False)]


def test_a_changed_count_of_instructions_is_said_and_fails_nothing(gate: Gate, ncu: type[Ncu]) -> None:
    ncu.both, ncu.head = {"inst_executed": 1000.0}, {"inst_executed": 1100.0}
    ended = gate()
    assert ended.code == 0
    assert "unchanged  mine/changed 64x" in ended.out
    assert "1,000 -> 1,100" in ended.out


def test_a_slower_case_is_explained_by_what_its_warps_waited_for(gate: Gate, ncu: type[Ncu], lab: Lab) -> None:
    lab.slow["head"]["mine/changed"] = 1.3
    ncu.both = {"elapsed_cycles": 1000.0, "sm_active_cycles": 1000.0, "stall_short_scoreboard": 0.1, "stall_wait": 0.9}
    ncu.head = {
        "elapsed_cycles": 1300.0, "sm_active_cycles": 1300.0, "stall_short_scoreboard": 0.31, "stall_wait": 0.69
    }  # fmt: skip
    case = next(case for case in report_of(gate("--json")).cases if case.variant == "mine/changed")
    assert case.status == "regressed"
    assert "takes 1,300 cycles where" in case.explanation[0]
    assert "warps wait for shared memory +303 cycles" in " ".join(case.explanation)
    plain = gate("--no-store", "--no-explain", "--json")
    assert {case.explanation for case in report_of(plain).cases} == {()}


def test_a_calibration_is_kept_and_used_by_the_gates_after_it(dgw: Dgw, gate: Gate, ncu: type[Ncu]) -> None:
    ended = dgw("gate", "--kernels", "mine", *SHAPES, "--calibrate")
    assert ended.code == 0, ended.err
    assert "constant over 10 repeats of 4 cases" in ended.out
    assert "kept" in ended.err
    report = report_of(gate("--json"))
    assert any("counters are constant over 10 repeats" in note for note in report.notes)
    constant = msgspec.json.decode(dgw("gate", "--kernels", "mine", *SHAPES, "--calibrate", "--json").out)["constant"]
    assert set(counting.COUNTERS) <= set(constant)


def test_a_calibration_without_ncu_is_6(dgw: Dgw, gate: Gate) -> None:
    ended = dgw("gate", "--kernels", "mine", *SHAPES, "--calibrate")
    assert ended.code == 6
    assert ended.error_is_two_lines(), ended.err


def test_counters_that_the_driver_keeps_back_are_a_note(gate: Gate, ncu: type[Ncu], monkeypatch: Any) -> None:
    monkeypatch.setattr(ncu, "reason", "the driver allows only administrators to read them")
    ended = gate("--json")
    assert ended.code == 0
    assert any("only administrators" in note for note in report_of(ended).notes)


def test_counters_that_cannot_be_had_are_said_and_fail_nothing(gate: Gate) -> None:
    ended = gate("--json")
    assert any("counters: unavailable" in note for note in report_of(ended).notes)
    assert not any("counters" in note for note in report_of(gate("--json", "--no-counters")).notes)


def test_the_order_of_turns_and_of_shapes_follows_the_seed(gate: Gate, lab: Lab) -> None:
    first = report_of(gate("--json", "--no-store", "--gate-seed", "1"))
    again = report_of(gate("--json", "--no-store", "--gate-seed", "1"))
    assert [case.ratio for case in first.cases] == [case.ratio for case in again.cases]


@pytest.fixture
def one_gpu(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slot:
    """A machine with one GPU whose lock is the real one."""
    slot = Slot("GPU-1", "h200")
    monkeypatch.setenv("DGW_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(slots, "visible", lambda: [slot])
    monkeypatch.setattr(gate_lock, "hold_gpu", REAL_LOCK)
    return slot


def test_a_second_gate_on_the_same_gpu_says_who_holds_it_and_gives_up(gate: Gate, one_gpu: Slot) -> None:
    with slots.hold([one_gpu]):
        ended = gate("--wait", "0")
    assert ended.code == 6
    assert "another dgw process" in ended.err
    assert "--wait" in ended.err


def test_a_second_gate_on_the_same_gpu_waits_for_it(
    gate: Gate, one_gpu: Slot, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, told = threading.Event(), threading.Event()

    def first() -> None:
        with slots.hold([one_gpu]):
            held.set()
            told.wait(30)

    monkeypatch.setattr(gate_lock, "note", lambda text: told.set())
    thread = threading.Thread(target=first)
    thread.start()
    assert held.wait(30)
    ended = gate()
    thread.join(30)
    assert told.is_set()
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (GpuState(uuid="GPU-1", processes=2), "2 other processes compute on it"),
        (GpuState(uuid="GPU-1", mig=True), "MIG mode"),
    ],
)
def test_a_gpu_that_others_use_too_is_refused_unless_it_is_allowed(
    gate: Gate, one_gpu: Slot, monkeypatch: pytest.MonkeyPatch, state: GpuState, said: str
) -> None:
    monkeypatch.setattr(gpu_state, "gpu_states", lambda: [GpuState(uuid="GPU-0", processes=9), state])
    monkeypatch.setattr(gate_lock, "GRACE_S", 0.0)
    ended = gate()
    assert ended.code == 6
    assert ended.error_is_two_lines(), ended.err
    assert said in ended.err
    allowed = gate("--allow-shared", "--json")
    assert allowed.code == 0
    assert any(said in note for note in report_of(allowed).notes)


def test_a_mig_slice_is_refused() -> None:
    assert "MIG" in gpu_state.shared_by("MIG-5", [])
    assert gpu_state.shared_by("GPU-1", [GpuState(uuid="GPU-1"), GpuState(uuid="GPU-2", processes=1)]) == ""


def test_clocks_are_locked_while_a_gate_measures_and_rounds_beside_them_do_not_count(
    gate: Gate, one_gpu: Slot, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    @contextlib.contextmanager
    def locked(uuid: str, megahertz: int, warn: Any) -> Iterator[None]:
        asked.append((uuid, megahertz))
        yield

    monkeypatch.setattr(clocks, "locked", locked)
    held = report_of(gate("--lock-clocks", "1980", "--json"))
    assert held.policy["locked_sm_clock_hz"] == 1.98e9
    assert {case.status for case in held.cases} == {"identical", "unchanged"}
    ended = gate("--lock-clocks", "1500", "--json")  # the played GPU stays at 1980
    assert ended.code == 3
    assert "the SM clock left the locked one" in ended.out
    assert asked == [("GPU-1", 1980), ("GPU-1", 1500)]


def test_figures_at_a_locked_clock_have_a_protocol_of_their_own_and_are_pooled_with_their_like_only(
    gate: Gate, one_gpu: Slot, lab: Lab, ncu: type[Ncu], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Measurement] = []

    def explained(*records: Record) -> tuple[str, ...]:
        told.extend(m for record in records for m in record.measurements)
        return ()

    monkeypatch.setattr(clocks, "locked", lambda uuid, megahertz, warn: contextlib.nullcontext())
    monkeypatch.setattr("dgw.commands.gate_time.sentences", explained)
    ncu.protocol = "std/1"
    lab.slow["head"]["mine/changed"] = 1.03
    free = report_of(gate("--json"))
    assert {m.protocol for m in told if m.collector in ("gate", "ncu")} == {free.protocol, "std/1"}
    told.clear()
    for attempt in (1, 2):
        ended = gate("--lock-clocks", "1980", "--json")
        locked, case = report_of(ended), changed_case(ended)
        assert locked.protocol == f"{free.protocol} at 1980 MHz"
        assert (case.status, case.attempts) == ("regressed", attempt)
    assert {m.protocol for m in told if m.collector in ("gate", "ncu")} == {locked.protocol, "std/1 at 1980 MHz"}
    machine = dict(about(free))["machine"]
    assert dict(about(locked))["machine"] == f"{machine}, SM clock locked at 1980 MHz"


def test_self_tests_at_a_locked_clock_are_tallied_apart(
    dgw: Dgw, gate: Gate, one_gpu: Slot, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "locked", lambda uuid, megahertz, warn: contextlib.nullcontext())
    ended = dgw("gate", "--kernels", "mine", *SHAPES, "--self-test", "1", "--lock-clocks", "1980")
    assert ended.code == 0, ended.err
    tally = report_of(gate("--lock-clocks", "1980", "--json")).self_test
    assert tally is not None
    assert tally.runs == 1
    assert report_of(gate("--json")).self_test is None


def test_another_seed_does_not_measure_from_the_beginning(gate: Gate, lab: Lab) -> None:
    lab.slow["head"]["mine/changed"] = 1.03
    assert gate("--gate-seed", "1").code == 1
    again = report_of(gate("--gate-seed", "2", "--floor", "0.02", "--json"))
    assert {case.attempts for case in again.cases if case.variant == "mine/changed"} == {2}


def nights(values: list[float]) -> None:
    store = open_store()
    for number, value in enumerate(values):
        store.begin(night(number, value))


def test_a_trend_shows_its_steps_with_the_library(dgw: Dgw) -> None:
    nights(noisy([(0.9, 12), (0.8, 8)]))
    ended = dgw("trend")
    assert ended.code == 0, ended.err
    assert "cuBLAS 13.0.1" in ended.out
    assert "2027-01-13 c12" in ended.out
    assert "1 series, 1 dropped" in ended.out
    assert dgw("trend", "--fail-on-drop").code == 1
    content = msgspec.json.decode(dgw("trend", "--json", "-v", "tiled").out)
    assert content["schema"] == "dgw.trend/1"
    assert content["series"][0]["steps"][0]["index"] == 12


@pytest.mark.parametrize("options", [(), ("-v", "other"), ("--shape", "1x1x1"), ("--metric", "ratio_to_base")])
def test_a_trend_of_nothing_is_4(dgw: Dgw, options: tuple[str, ...]) -> None:
    if options:
        nights([0.9, 0.9])
    ended = dgw("trend", *options)
    assert ended.code == 4
    assert ended.error_is_two_lines(), ended.err


def test_a_program_for_otava_that_is_not_there_is_a_usage_error(dgw: Dgw, monkeypatch: pytest.MonkeyPatch) -> None:
    nights([0.9, 0.9])
    monkeypatch.setenv("DGW_OTAVA", "nowhere/otava")
    assert dgw("trend").code == 2


def test_an_anchor_without_a_release_is_a_usage_error(dgw: Dgw) -> None:
    ended = dgw("trend", "--anchor", "release")
    assert ended.code == 2
    assert "no release is tagged" in ended.err


def test_an_anchor_measures_head_against_a_release_in_pairs(
    dgw: Dgw, gate: Gate, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "base"
    subprocess.run(["git", "tag", "v1"], cwd=repository, check=True)
    monkeypatch.chdir(repository)
    monkeypatch.setitem(policy.PLANS, "release", policy.PLANS["default"])
    write_kernel(repository / "mine", "changed", "3")
    lab.slow["head"]["mine/changed"] = 1.03
    ended = dgw("trend", "--anchor", "release", "--kernels", "mine", *SHAPES, "--json")
    assert ended.code == 1, ended.err
    assert report_of(ended).base.label == "v1"
    assert [row.kind for row in kept(open_store(), "anchor")] == ["anchor"]
