"""The script that shows on a GPU what the time gate can do, run against a played GPU: its rows and its verdicts."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from dgw.workbench.gate import verdict
from dgw.workbench.gate.verdict import Change, GateCase, Ratio, Side
from dgw.workbench.gpu_state import GpuState
from dgw.workbench.store import gates, open_store
from tests.commands.conftest import Dgw, dgw
from tests.commands.gates import prepare_lab
from tests.commands.test_gate_more import Ncu, ncu
from tests.commands.test_gate_time import cache
from tests.workbench.gate.fake_lab import Lab

__all__ = ["cache", "dgw", "ncu"]
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab()
    prepare_lab(monkeypatch, made)
    return made


@pytest.fixture
def gate(dgw: Dgw, lab: Lab, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script, whose commands run in this process."""
    monkeypatch.setenv("DGW_CACHE", str(cache))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "evidence"))
    module = importlib.import_module("gate")
    parts, topic = (importlib.import_module(name) for name in ("parts", "topic"))
    monkeypatch.setattr(parts, "ROOT", tmp_path)

    def run(self: Any, *arguments: str, limit_s: float = 0.0, folder: Path | None = None) -> Any:
        before = Path.cwd()
        monkeypatch.setenv("DGW_STORE", str(self.folder / "dgw.db"))
        os.chdir(folder or before)
        try:
            ended = dgw(*arguments)
        finally:
            os.chdir(before)
        return topic.Done(ended.code, ended.out, ended.err, 1.0)

    monkeypatch.setattr(topic.Topic, "dgw", run)
    monkeypatch.setattr(topic, "ncu_version", lambda: "2025.3")
    yield module
    for name in ("gate", "parts", "topic"):
        sys.modules.pop(name, None)


def content(folder: Path) -> Any:
    return json.loads((folder / "docs" / "h200" / "gate.json").read_text(encoding="utf-8"))


def rows(found: Any, part: str) -> dict[str, Any]:
    return {row["claim"]: row for row in found["shows"] if row["part"] == part}


def measured(module: ModuleType, *typed: str) -> None:
    assert importlib.import_module("parts").measure("gate", module.PARTS, module.chosen(typed)) == 0


@pytest.mark.slow
def test_clean_gates_hold_on_a_steady_machine(
    gate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "GATES", 1)
    measured(gate, "clean")
    kept = content(tmp_path)
    found = rows(kept, "clean")
    assert [row["claim"] for row in found.values() if not row.get("holds", True)] == []
    assert found["gates resampled from these pairs with the sides exchanged at random"]["value"] >= 1000
    assert found["pairs of processes of these gates in which every shape was timed"]["value"] == 8
    part = kept["parts"]["clean"]
    assert len(part["gates"]) == part["tally"]["runs"] == 2
    assert (kept["run_of"], len(kept["run"]["records"])) == ("clean", 4)
    assert {len(values) for values in part["pair_values"].values()} == {8}
    assert part["measured"]["gpu"] == "h200"


@pytest.mark.slow
def test_planted_alone_is_judged_by_its_size_and_explained_to_the_end(
    gate: ModuleType, lab: Lab, ncu: type[Ncu], tmp_path: Path
) -> None:
    lab.slow["head"] = {f"planted/{name}": 1.05 for name in gate.SLOWDOWNS} | {"planted/extra-2": 1.012}
    stalls = {"stall_short_scoreboard": 0.1, "stall_wait": 0.9, "sm_active_cycles": 1000.0}
    ncu.both = {"elapsed_cycles": 1000.0, "tensor_inst": 1e6, "dram_bytes": 1e6, "smem_wavefronts_actual": 10, **stalls}
    ncu.head = {"elapsed_cycles": 1100.0, "tensor_inst": 1.1e6, "dram_bytes": 3e6, "smem_wavefronts_actual": 90}
    measured(gate, "planted")
    assert list(tmp_path.glob("dgw-evidence-*")) == []
    kept = content(tmp_path)
    assert list(kept["parts"]) == list(gate.PLANTED)
    assert kept["run_of"] == "work"
    assert [row["claim"] for row in kept["shows"] if not row.get("holds", True)] == []
    assert rows(kept, "work")["2 % of extra work: exit code for it alone, never 0"]["value"] in (1, 3)
    for part in ("work", "unfused", "swizzle"):
        codes = [row["value"] for claim, row in rows(kept, part).items() if "exit code" in claim]
        assert set(codes) <= {1, 3}
        assert any("sentences of explanation" in claim for claim in rows(kept, part))
    assert "one gate of the seeds suite with flagged shapes" in rows(kept, "swizzle")


def test_the_batches_that_ended_are_kept_when_the_next_one_fails(
    gate: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = importlib.import_module("topic")
    answers = iter(['{"gates": [], "tally": {"runs": 5}}', ""])

    def run(self: Any, *arguments: str, **more: Any) -> Any:
        return topics.Done(5, next(answers), "error: it fell over", 1.0)

    monkeypatch.setattr(topics.Topic, "dgw", run)
    monkeypatch.setattr(gate, "BATCHES", 2)
    topic = topics.Topic("gate")
    with pytest.raises(SystemExit, match="it fell over"):
        gate.aa_gates(topic)  # an empty batch is no batch
    report = msgspec.to_builtins(gate.GateReport(
        id="1", created="", command=(), dgw="0", gate="time", base=Side(label="b"), head=Side(label="h")
    ))  # fmt: skip
    answers = iter([json.dumps({"gates": [report], "tally": {"runs": 5}}), ""])
    reports, tally, _ = gate.aa_gates(topic)
    assert len(reports) == 1
    assert tally == {"runs": 5}


def test_planted_stands_for_all_parts_that_have_a_slowdown(gate: ModuleType) -> None:
    assert gate.chosen([]) == []
    assert gate.chosen(["clean", "planted"]) == list(gate.PARTS)


def test_a_gpu_that_others_use_is_said_and_measured_all_the_same(
    gate: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "gpu_states", lambda: [GpuState(processes=1)])
    topic = importlib.import_module("topic").Topic("gate")
    monkeypatch.setattr(gate, "GRACE_S", 0.0)
    assert gate.shared(topic) == gate.shared(topic) == ("--allow-shared",)
    assert [row["holds"] for row in topic.shows] == [False]


def case(effect: float | None, mde: float, status: Any, worse: bool = False) -> GateCase:
    changed = (Change(metric="spill_store_bytes", base=0, head=4, worse=True),) if worse else ()
    ratio = None if effect is None else Ratio(value=1 + effect, low=1, high=2)
    return GateCase(
        key="k", label="l", status=status, variant="planted/extra-2", ratio=ratio, mde=mde, changed=changed
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "code", "status"),
    [
        (case(0.018, 0.012, "regressed"), (1, True), True),
        (case(0.018, 0.012, "inconclusive"), (3, False), False),
        (case(0.018, 0.012, "unchanged"), (0, False), False),
        (case(0.0179, 0.012, "inconclusive"), (3, True), True),
        (case(0.0179, 0.012, "regressed"), (1, True), True),
        (case(0.0179, 0.012, "unchanged"), (0, False), False),
        (case(0.0179, 0.012, "improved"), (0, False), False),
        (case(0.0179, 0.012, "failed"), (5, False), False),
        (case(0.0179, 0.012, "wrong"), (1, True), False),  # caught by nothing that times
        (case(0.001, 0.012, "inconclusive", worse=True), (3, False), False),
        (case(0.001, 0.012, "regressed", worse=True), (1, True), True),
        (case(None, 0.012, "inconclusive"), (3, True), True),
    ],
)
def test_a_slowdown_is_caught_from_one_and_a_half_detectable_effects_on_and_never_passed(
    gate: ModuleType, found: GateCase, code: tuple[int, bool], status: bool
) -> None:
    topic = importlib.import_module("topic").Topic("gate")
    report = gate.GateReport(
        id="1", created="", command=(), dgw="0", gate="time", base=Side(label="b"), head=Side(label="h"), cases=(found,)
    )
    gate.judge(topic, "extra-2", gate.SLOWDOWNS["extra-2"], report)
    shown = {row["claim"].rpartition(": ")[2]: row for row in topic.shows}
    alone = shown["exit code for it alone, never 0"]
    assert (alone["value"], alone["holds"]) == code
    assert shown["status"]["holds"] is status


def test_of_a_batch_that_did_not_end_the_gates_that_did_are_kept(
    gate: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = importlib.import_module("topic")
    topic = topics.Topic("gate")
    report = gate.GateReport(
        id="1", created="2027", command=(), dgw="0", gate="time", base=Side(label="b"), head=Side(label="h")
    )
    stopped = msgspec.structs.replace(report, id="2", interrupted=True)

    def run(self: Any, *arguments: str, limit_s: float) -> Any:
        for one in (report, stopped):
            body = verdict.encode(one).decode()
            row = gates.KeptGate(id=one.id, created="2027", kind="self-test", subject="s", body=body)
            gates.keep(open_store(str(self.folder / "dgw.db")), row)
        raise subprocess.TimeoutExpired("dgw", limit_s)

    monkeypatch.setattr(topics.Topic, "dgw", run)
    assert gate.aa_gates(topic) == ([report], None, None)


def test_no_further_batch_is_begun_when_the_time_is_nearly_over(
    gate: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = importlib.import_module("topic")
    report = msgspec.to_builtins(gate.GateReport(
        id="1", created="", command=(), dgw="0", gate="time", base=Side(label="b"), head=Side(label="h"), seconds=40.0
    ))  # fmt: skip
    limits = []

    def run(self: Any, *arguments: str, limit_s: float) -> Any:
        limits.append(limit_s)
        return topics.Done(0, json.dumps({"gates": [report], "tally": None}), "", 43.0)

    monkeypatch.setattr(topics.Topic, "dgw", run)
    now = iter([0.0, 0.0, *[gate.WHOLE_S - gate.LEAST_S + 1] * 9])
    monkeypatch.setattr(gate, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda s: None))
    monkeypatch.setattr(gate, "shared", lambda topic: ())
    reports, _, around_s = gate.aa_gates(topics.Topic("gate"))
    assert limits == [gate.WHOLE_S]
    assert (len(reports), around_s) == (1, 3.0)


def test_a_gate_without_a_timed_case_loses_neither_its_rows_nor_the_other_parts(
    gate: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topics = importlib.import_module("topic")
    report = gate.GateReport(
        id="1", created="2027-01-01", command=(), dgw="0", gate="time", base=Side(label="b"), head=Side(label="h"),
        cases=(case(None, 0.01, "failed"),),
    )  # fmt: skip

    def run(self: Any, *arguments: str, folder: Path | None = None, **more: Any) -> Any:
        return topics.Done(5, json.dumps(msgspec.to_builtins(report)), "", 1.0)

    monkeypatch.setattr(topics.Topic, "dgw", run)
    monkeypatch.setattr(gate, "gpu_states", list)
    measured(gate, "unfused", "swizzle")
    assert list(content(tmp_path)["parts"]) == ["unfused", "swizzle"]
    assert not rows(content(tmp_path), "unfused")["exit code of the gate over unfused"]["holds"]
