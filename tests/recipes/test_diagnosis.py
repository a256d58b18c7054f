from __future__ import annotations

import json
from pathlib import Path

import msgspec

from dgw.model import Run
from dgw.recipes.diagnosis import diagnose

ROOT = Path(__file__).resolve().parents[2]


def test_the_costliest_cause_comes_first_and_what_cannot_be_told_last() -> None:
    stored = json.loads((ROOT / "docs" / "h200" / "first-profile.json").read_text())["run"]
    run = msgspec.convert(stored, type=Run)
    tiled = next(record for record in run.records if record.case.variant == "cuda/tiled")
    found = diagnose(tiled, others=run.records)
    costs = [finding.cost for finding in found if finding.cost is not None]
    assert found[0].recipe == "bank-conflicts"
    assert costs == sorted(costs, reverse=True)
