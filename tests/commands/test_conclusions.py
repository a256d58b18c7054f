"""What is concluded of a stored run as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from dgw.commands.conclusions import of_run
from dgw.kernels.loader import load
from dgw.model import Run

DOCS = Path(__file__).parents[2] / "docs" / "h200"


def stored(topic: str) -> Run:
    content = json.loads((DOCS / f"{topic}.json").read_text())
    return msgspec.convert(content["run"], type=Run)


def test_a_ladder_has_a_finding_for_every_rung() -> None:
    run = stored("ladder")
    stages = [r.case.variant for r in run.records if r.case.problem.a.dtype == "f16" and r.case.variant[:5] == "cuda/"]
    rungs = [found for found in of_run(run, load()) if found.recipe == "ladder"]
    assert len(stages) == 7
    assert {one.verdict.partition(":")[0] for one in rungs} == set(stages)


def test_the_configs_of_a_sweep_are_no_ladder() -> None:
    run = stored("heatmap")
    assert len(run.records) > 100
    assert of_run(run, load()) == ()
