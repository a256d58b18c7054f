"""`dgw diagnose --sequence seven-step` with a runner that plays a GPU: what is measured beside what."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.model import Environment, Record
from dgw.toolchain.devices import device
from dgw.workbench import runner
from tests.commands.conftest import Dgw
from tests.recipes.making import H200, TIMED, record
from tests.recipes.test_sequences import LADDER

ROOT = Path(__file__).resolve().parents[2]
WALK = ("diagnose", "--sequence", "seven-step", "--variant", "naive", "--shape", "4096x4096x4096")
TIMES = {"hopper/persistent": {"time_cold": 185e-6}, "cuda/fused-epilogue": {"time_cold": 269e-6}}
KEPT = (*TIMED, "registers_per_thread")


@dataclass
class Gpu:
    """Answers from a table of figures: times where they are asked for, counters where those are."""

    groups: list[list[runner.Job]] = field(default_factory=list)
    interrupts: bool = False
    counts: bool = True

    def probe(self, child_argv: Sequence[str], **more: Any) -> tuple[Environment, Any]:
        return H200, device("h200")

    def run(
        self, jobs: Sequence[runner.Job], setup: runner.Session, keep: Callable[[Record], None], progress: Any
    ) -> list[Record]:
        self.groups.append(list(jobs))
        if self.interrupts and len(self.groups) > 1:
            raise KeyboardInterrupt
        for job in jobs:
            if job.known is not None and not self.counts:
                continue
            full = record(dict({**LADDER, **TIMES}.get(job.case.variant, {})), variant=job.case.variant)
            full = msgspec.structs.replace(full, case=job.case)
            timed = tuple(m for m in full.measurements if m.metric in KEPT)
            counted = tuple(m for m in full.measurements if m.collector == "ncu")
            made = job.known or msgspec.structs.replace(full, measurements=timed)
            if "counters" in job.lanes:
                made = msgspec.structs.replace(made, measurements=(*made.measurements, *counted))
            keep(made)
        return []


@pytest.fixture
def gpu(dgw: Dgw, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    fake = Gpu()
    monkeypatch.setattr("dgw.commands.session.gpu_is_here", lambda: True)
    monkeypatch.setattr("dgw.workbench.probing.probe", fake.probe)
    monkeypatch.setattr(runner, "run", fake.run)
    return fake


def names(jobs: Sequence[runner.Job]) -> list[str]:
    return [job.case.variant for job in jobs]


def test_the_walk_from_naive_stays_in_its_ladder_and_times_what_it_compares_in_one_group(dgw: Dgw, gpu: Gpu) -> None:
    ended = dgw(*WALK, "--json")
    (walked,) = json.loads(ended.out)["walks"]
    hands = list(dict.fromkeys(step["variant"] for step in walked["steps"]))
    assert ended.code == 0, ended.err
    assert hands == ["cuda/naive", "cuda/tiled", "cuda/swizzled", "cuda/tensor-core", "cuda/persistent"]
    assert "cuda/persistent" in names(gpu.groups[-1])
    assert names(gpu.groups[-1]) == ["cuda/persistent", "cuda/naive", "hopper/persistent"]
    assert any("another ladder goes further: hopper/persistent" in one for one in walked["steps"][-1]["seen"])
    for hand, jobs in zip(hands, [g for g in gpu.groups if len(g) > 1 and "check" in g[0].lanes], strict=False):
        assert names(jobs)[0] == hand
        assert all(name.startswith("cuda/") for name in names(jobs)) or jobs is gpu.groups[-1]
    counted = [jobs for jobs in gpu.groups if "counters" in jobs[0].lanes]
    assert [names(jobs) for jobs in counted] == [[hand] for hand in hands]
    assert [jobs[0].known is not None for jobs in counted] == [False, True, True, True, True]
    stored = json.loads(dgw("report", "last", "--json").out)  # what is timed again keeps its counters
    records = [one for one in stored["records"] if one["case"]["problem"].get("data", "normal") == "normal"]
    held = {one["case"]["variant"]: {m["metric"] for m in one["measurements"]} for one in records}
    for name in ("cuda/naive", "cuda/tiled", "cuda/persistent"):
        assert {"time_cold", "elapsed_cycles", "smem_wavefronts_actual"} <= held[name]
    assert "elapsed_cycles" not in held["hopper/persistent"]


def test_a_walk_goes_on_with_what_is_known_where_the_counters_add_nothing(dgw: Dgw, gpu: Gpu) -> None:
    gpu.counts = False
    ended = dgw(*WALK, "--json")
    assert ended.code == 0, ended.err
    (walked,) = json.loads(ended.out)["walks"]
    assert walked["steps"][-1]["title"] == "7 validation"


def test_a_walk_that_is_interrupted_keeps_its_steps_and_ends_with_130(dgw: Dgw, gpu: Gpu) -> None:
    gpu.interrupts = True
    ended = dgw(*WALK, "--json")
    assert ended.code == 130
    (walked,) = json.loads(ended.out)["walks"]
    assert [step["title"] for step in walked["steps"]] == ["1 baseline", "2 bank conflicts", "3 tensor utilisation"]


def test_the_evidence_of_the_walk_judges_its_end_by_its_own_ladder(
    dgw: Dgw, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "evidence"))
    topics, script = importlib.import_module("topic"), importlib.import_module("diagnosis")

    class Played(topics.Topic):  # type: ignore[name-defined, misc]
        def dgw(self, *arguments: str, **more: Any) -> Any:
            ended = dgw(*arguments)
            return topics.Done(ended.code, ended.out, ended.err, 100.0)

    topic = Played("diagnosis")
    kept = script.seven_step(topic)
    rows = {row["claim"].partition(":")[0]: row for row in topic.shows}
    for name in ("diagnosis", "parts", "topic"):
        sys.modules.pop(name, None)
    assert [row["claim"] for row in topic.shows if not row.get("holds", True)] == []
    assert rows["seven steps from cuda/naive end at cuda/persistent"]["value"] == 1.0
    assert rows["hopper/persistent, the top of another ladder, beside the end of the walk, speed-up"]["value"] > 1.4
    assert "7 validation" in kept["transcript"]
    assert len(gpu.groups[-1]) == 8
