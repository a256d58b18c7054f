"""What the script for two GPUs makes of its sweeps, on answers made here."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from dgw.model import Case, Environment, Measurement, Problem, Record, Run, gemm
from dgw.workbench.slots import Slot

FOLDER = Path(__file__).resolve().parents[1] / "evidence"
Verdicts = dict[str, str]
"""What the race said of each config of both shapes."""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("heatmap-2")
    monkeypatch.setattr(sys.modules["topic"], "ROOT", tmp_path)
    monkeypatch.setattr(module, "visible", lambda: [Slot("GPU-0"), Slot("GPU-1")])
    monkeypatch.setenv("DGW_CACHE", "")
    yield module
    for name in ("heatmap-2", "parts", "topic"):
        sys.modules.pop(name, None)


def record(problem: Problem, name: str, verdict: str) -> Record:
    case = Case(problem=problem, variant="cuda/tensor-core", config={"STAGES": int(name)})
    said = Measurement(metric="sweep_verdict", value=verdict, unit="text", collector="sweep", protocol="race/1")
    time = Measurement(
        metric="time_cold", value=1e-3 * int(name), unit="s", collector="timing", protocol="screen/1 cold-graph/1"
    )
    environment = Environment(device="h200", driver="1")
    return Record(case=case, outcome="ok", environment=environment, measurements=(time, said))


def answers(monkeypatch: pytest.MonkeyPatch, script: ModuleType, verdicts: dict[str, Verdicts]) -> None:
    """Each way of sweeping takes its own seconds; `verdicts` of `one`, `two` and `dask`, where one without breaks."""

    @contextmanager
    def dask(gpus: object) -> Iterator[str]:
        yield "dask://here:1"

    seconds = {"one": 37.0, "idle": 7.0, "two": 23.0, "dask": 24.0, "dask_idle": 8.0, "static": 10.0}

    def dgw(topic: Any, *arguments: str, **more: Any) -> Any:
        engine = arguments[arguments.index("--engine") + 1] if "--engine" in arguments else ""
        way = "dask" if engine.startswith("dask") else engine or ("two" if "0,1" in arguments else "one")
        if "--resume" in arguments:
            way = "dask_idle" if way == "dask" else "idle"
        told = verdicts.get(way)
        records = [
            record(gemm(4096, 4096, k), name, verdict) for k in (4096, 2048) for name, verdict in (told or {}).items()
        ]
        run = Run(id=way, created="2026-01-01", command=("dgw",), version="0", records=tuple(records))
        out = "" if way in ("one", "two", "dask") and told is None else msgspec.json.encode(run).decode()
        return sys.modules["topic"].Done(0, out, "no worker answers", seconds[way])

    monkeypatch.setattr(script, "dask", dask)
    monkeypatch.setattr(sys.modules["topic"].Topic, "dgw", dgw)


def rows(folder: Path) -> tuple[dict[str, Any], Any]:
    content = json.loads((folder / "docs" / "h200" / "heatmap-2.json").read_text())
    return {row["claim"]: row for row in content["shows"]}, content


def test_throughput_leaves_out_what_a_finished_sweep_takes_the_same_way_and_all_seconds_are_kept(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"3": "best", "4": "slower"}
    answers(monkeypatch, script, {"one": told, "two": told, "dask": told})
    script.main()
    shows, content = rows(tmp_path)
    ratios = {claim.partition(":")[0]: row["value"] for claim, row in shows.items() if "throughput" in claim}
    assert ratios == {"local slots": 30 / 16, "dask": 30 / 16}
    assert content["seconds"] == {"one": 37.0, "idle": 7.0, "two": 23.0, "dask": 24.0, "dask_idle": 8.0}
    assert {content["run"]["id"], content["one"]["id"], content["dask"]["id"]} == {"one", "two", "dask"}
    assert all(row.get("holds", True) for row in shows.values())


@pytest.mark.parametrize(
    ("alone", "apart", "same"),
    [
        ({"3": "tied", "4": "best"}, {"3": "best", "4": "slower"}, 2),
        ({"3": "slower", "4": "best"}, {"3": "best", "4": "tied"}, 0),
        ({"3": "slower", "4": "best"}, {"3": "best", "4": "slower"}, 0),
        ({"4": "best"}, {"3": "best"}, 0),
    ],
)
def test_winners_are_the_same_where_the_race_of_one_gpu_cannot_tell_them_apart(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: Verdicts, apart: Verdicts, same: int
) -> None:
    answers(monkeypatch, script, {"one": alone, "two": apart, "dask": apart})
    script.main()
    shows, _ = rows(tmp_path)
    found = [row for claim, row in shows.items() if "best or tied" in claim]
    assert [(row["value"], row["bar"], row["holds"]) for row in found] == [(same, 2, same == 2)] * 2
    figures = [row for claim, row in shows.items() if "single screening" in claim]
    screened = alone.keys() >= {"3", "4"}
    assert [row["value"] for row in figures] == [0.75 if screened else None] * 2
    assert [row.get("holds") for row in figures] == [None if screened else False] * 2


@pytest.mark.parametrize("broken", ["one", "two"])
def test_what_one_way_measured_is_written_whatever_else_breaks(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    told: dict[str, Verdicts] = {name: {"3": "best"} for name in ("one", "two", "dask") if name != broken}
    answers(monkeypatch, script, told)
    script.main()
    shows, content = rows(tmp_path)
    assert {content["run"]["id"], *(content[name]["id"] for name in told if name in content)} == told.keys()
    assert sum(claim.endswith("measured to its end") for claim in shows) >= 1


def test_a_step_that_breaks_is_a_row_and_loses_nothing_of_the_others(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"3": "best"}
    answers(monkeypatch, script, {"one": told, "two": told})
    script.main()
    shows, content = rows(tmp_path)
    assert any("throughput" in claim and row["holds"] for claim, row in shows.items())
    broken = shows["dask: measured to its end"]
    assert not broken["holds"]
    assert "no worker answers" in broken["value"]
    assert "dask" not in content["seconds"]
