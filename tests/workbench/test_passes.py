"""Timelines and sanitizers through the whole runner: real processes behind stub tools, and the child's own side."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from dgw.kernels.loader import load
from dgw.model import Artifact, Case, gemm
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device
from dgw.workbench.collectors.sanitizer import refusal
from dgw.workbench.device import timeline
from dgw.workbench.device.context import Gpu
from dgw.workbench.emulator.errors import EmulatorError
from dgw.workbench.lines_pass import LinesPass
from dgw.workbench.prepare import prepare
from dgw.workbench.protocol import Begin, Done
from dgw.workbench.runner import Job
from dgw.workbench.sanitizer_pass import SanitizerPass
from dgw.workbench.timeline_pass import TimelinePass
from tests.workbench import test_child, test_runner
from tests.workbench.collectors import stub_tools
from tests.workbench.test_child import PROBLEM, Listen
from tests.workbench.test_runner import Bench, case

folder, bench, listen = test_runner.folder, test_runner.bench, test_child.listen

CHECKED = frozenset({"check"})


def keep(path: Path, kind: str, name: str) -> Artifact:
    content = path.read_bytes()
    return Artifact(kind=kind, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content), name=name)


def test_records_are_handed_on_again_with_what_a_sanitizer_found(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("t/base")
    monkeypatch.setenv("STUB_SANITIZER", "memcheck:oob")
    monkeypatch.setenv("STUB_SANITIZER_KEYS", str(keys))
    lanes = CHECKED | {"sanitize"}
    jobs = [Job(case(name), lanes) for name in ("good", "base", "wrong", "crashes", "refuses")]
    found = bench.run(
        jobs, passes=(SanitizerPass(stub_tools.SANITIZER, ["memcheck"]),), keep_artifact=keep, deadline_s=20.0
    )
    assert {name: record.outcome for name, record in found.items()} == {
        "good": "ok", "base": "wrong", "wrong": "wrong", "crashes": "crashed", "refuses": "refused",
    }  # fmt: skip
    assert found["good"].number("memcheck_errors") == 0
    assert found["base"].number("memcheck_errors") == 2
    assert found["base"].defects[0].place == "planted.cu:12"
    assert found["base"].reason.startswith("memcheck: Invalid __global__ write")
    assert [artifact.kind for artifact in found["base"].artifacts] == ["log"]
    assert found["wrong"].reason == "1 of 1 elements are wrong"
    assert "under memcheck: ended with" in found["crashes"].get("memcheck_errors").absent  # type: ignore[union-attr]
    assert found["refuses"].get("memcheck_errors") is None


def test_cases_that_did_not_ask_for_a_pass_do_not_take_part(bench: Bench) -> None:
    bench.run([Job(case("good"), CHECKED)], passes=(SanitizerPass(stub_tools.SANITIZER, ["memcheck"]),))
    assert bench.children == ["probe 0", "measure 1"]


def test_timelines_come_after_the_time_lane_and_only_for_what_is_right(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = tmp_path / "ranges"
    ranges.write_text(f"{case('good').key} gemm 10 10\n")
    monkeypatch.setenv("STUB_NSYS_RANGES", str(ranges))
    jobs = [Job(case(name), CHECKED | {"timeline"}) for name in ("good", "wrong")]
    found = bench.run(jobs, passes=(TimelinePass(stub_tools.NSYS),), keep_artifact=keep)
    assert bench.children == ["probe 0", "measure 2", "timeline 1"]
    assert found["good"].number("kernel_duration") == pytest.approx(10e-6)
    assert [artifact.kind for artifact in found["good"].artifacts] == ["sqlite", "trace.json"]
    assert found["wrong"].get("kernel_time") is None


def test_an_nsys_without_its_importer_costs_the_timeline_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_NSYS", "libdw")
    found = bench.run([Job(case("good"), CHECKED | {"timeline"})], passes=(TimelinePass(stub_tools.NSYS),))
    assert found["good"].outcome == "ok"
    assert "libdw.so.1" in found["good"].get("kernel_time").absent  # type: ignore[union-attr]


def test_the_child_marks_launches_and_replays_and_reports_their_time(listen: Listen) -> None:
    import nvtx

    ranges: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvtx, "push_range", lambda name, domain: ranges.append((name, domain)))
        patch.setattr(nvtx, "pop_range", lambda domain: None)
        _, messages, cuda = listen("correct", "breaks_the_context", "baseline", kind="timeline")
    key = Case(problem=PROBLEM, variant="t/correct").key
    assert ranges[: 1 + timeline.REPLAYS] == [(key, "dgw"), *[(f"{key}/replay", "dgw")] * timeline.REPLAYS]
    assert cuda.launched.count("correct") >= 1 + timeline.DIRECT
    first, second = (m for m in messages if isinstance(m, Done))
    assert {one.metric for one in first.measurements} == {"replay_launches", "replay_time"}
    assert (first.outcome, second.outcome) == ("ok", "crashed")
    assert [m.phase for m in messages if isinstance(m, Begin)][:2] == ["inputs", "timeline"]


def test_under_a_sanitizer_every_operand_ends_where_its_allocation_ends(listen: Listen) -> None:
    sizes: list[int] = []
    allocate = Gpu.allocate

    def watched(self: Gpu, size: int) -> int:
        sizes.append(size)
        return allocate(self, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gpu, "allocate", watched)
        _, messages, cuda = listen("correct", kind="profile", separate=True)
    m, n, k = PROBLEM.m, PROBLEM.n, PROBLEM.k
    assert sizes[-3:] == [2 * m * k, 2 * k * n, 2 * m * n]
    assert cuda.launched.count("correct") == 1
    assert [m.outcome for m in messages if isinstance(m, Done)] == ["ok"]


def test_figures_by_line_of_the_emulator_stand_beside_what_was_measured(bench: Bench, tmp_path: Path) -> None:
    lanes = CHECKED | {"lines"}
    further = LinesPass(tmp_path / "cache", device("h200"))
    found = bench.run([Job(case(name), lanes) for name in ("good", "wrong", "needs")], passes=(further,))
    counted = {m.scope: m.collector for m in found["good"].measurements if m.metric == "inst_executed"}
    assert counted == {"line nothing.cu:1": "emulator"}
    assert not [m for m in found["wrong"].measurements if m.scope.startswith("line")]


def test_what_the_emulator_cannot_execute_is_flagged_and_costs_nothing_else(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise EmulatorError("unknown instruction `tcgen05.mma`")

    monkeypatch.setattr("dgw.workbench.collectors.emulator.emulate", refuse)
    further = LinesPass(tmp_path / "cache", device("h200"))
    found = bench.run([Job(case("good"), CHECKED | {"lines"})], passes=(further,))["good"]
    assert found.outcome == "ok"
    assert found.flags == ("no emulated figures by line: unknown instruction `tcgen05.mma`",)


def test_the_planted_race_compiles_and_is_one_that_racecheck_may_judge(tmp_path: Path) -> None:
    found = load((Path(__file__).parents[1] / "planted",))["planted/shared-race"]
    problem = gemm(64, 64, 64, "f32")
    prepared = prepare(Case(problem=problem, variant=found.id), found, device("h200"), CompileCache(tmp_path))
    assert prepared.record.outcome == "ok"
    assert refusal("racecheck", found) == ""
    lines = (found.root / "shared_race.cu").read_text().splitlines()
    assert [number for number, line in enumerate(lines, 1) if line.endswith(("// the write", "// the read"))] == [
        10,
        12,
    ]
