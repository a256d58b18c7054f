"""The script that shows on a GPU what the time gate can do, run against a played GPU: its rows and its verdicts."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from dgw.workbench.gate.verdict import Change, GateCase, Ratio, Side
from dgw.workbench.gpu_state import GpuState
from tests.commands.conftest import Dgw, dgw
from tests.commands.gates import prepare_lab
from tests.workbench.gate.fake_lab import Lab

__all__ = ["dgw"]
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab()
    prepare_lab(monkeypatch, made)
    return made


@pytest.fixture
def gate(dgw: Dgw, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script, whose commands run in this process."""
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
    yield module
    for name in ("gate", "parts", "topic"):
        sys.modules.pop(name, None)


def rows(topic: Any) -> dict[str, Any]:
    return {row["claim"]: row for row in topic.shows}


@pytest.mark.slow
def test_clean_gates_hold_on_a_steady_machine(gate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "GATES", 1)
    topic = importlib.import_module("topic").Topic("gate")
    kept = gate.clean(topic)
    found = rows(topic)
    assert found["A/A gates that failed"]["holds"]
    assert found["resampled gates that failed"]["holds"]
    assert found["gates resampled from these pairs with the sides exchanged at random"]["value"] >= 1000
    assert found["pairs of processes of these gates in which every shape was timed"]["value"] == 8
    assert len(kept["gates"]) == 2
    assert len(kept["run"].records) == 4
    assert {len(values) for values in kept["pair_values"].values()} == {8}


@pytest.mark.slow
def test_planted_slowdowns_are_judged_by_their_size(gate: ModuleType, lab: Lab) -> None:
    lab.slow["head"] = {f"planted/{name}": 1.05 for name in gate.SLOWDOWNS} | {"planted/extra-2": 1.012}
    topic = importlib.import_module("topic").Topic("gate")
    for part in ("work", "unfused", "swizzle"):
        gate.PARTS[part](topic)
    found = rows(topic)
    statuses = [row for claim, row in found.items() if claim.endswith(": status")]
    assert len(statuses) >= len(gate.SLOWDOWNS)
    assert all(row["holds"] for row in statuses)
    codes = {claim: row for claim, row in found.items() if "exit code" in claim}
    assert len(codes) == len(gate.SLOWDOWNS) + 3
    assert all(row["holds"] and row["value"] in (1, 3) for row in codes.values())
    assert found["processes of others on the GPU"]["holds"]
    assert found["one gate of the seeds suite with flagged shapes"]["holds"]


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
    reports, tally = gate.aa_gates(topic)
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
    assert gate.shared(topic) == gate.shared(topic) == ("--allow-shared",)
    assert [row["holds"] for row in topic.shows] == [False]


def case(effect: float, mde: float, status: Any, worse: bool = False) -> GateCase:
    changed = (Change(metric="spill_store_bytes", base=0, head=4, worse=True),) if worse else ()
    return GateCase(
        key="k", label="l", status=status, ratio=Ratio(value=1 + effect, low=1, high=2), mde=mde, changed=changed
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (case(0.03, 0.012, "regressed"), "regressed"),
        (case(0.03, 0.012, "inconclusive"), "regressed"),
        (case(0.013, 0.012, "inconclusive"), "inconclusive"),
        (case(0.013, 0.012, "regressed"), "regressed"),
        (case(0.013, 0.012, "unchanged"), "inconclusive"),
        (case(0.001, 0.012, "unchanged", worse=True), "regressed"),
    ],
)
def test_what_a_gate_must_say_follows_from_its_own_detectable_effect(
    gate: ModuleType, found: GateCase, wanted: str
) -> None:
    assert gate.expected(found) == wanted
