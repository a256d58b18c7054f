"""What the recipes say of records of the planted kernels."""

from __future__ import annotations

from collections.abc import Sequence

from dgw.errors import NotComparable
from dgw.model import Finding, Record
from dgw.recipes.diagnosis import diagnose
from dgw.recipes.explain import explain
from tests.bottlenecks.plants import FAMILY, GOOD, PLANTED


def of(records: Sequence[Record], name: str, shape: str = "") -> Record | None:
    """The record of one kernel, at one shape if it is given."""
    mine = [record for record in records if record.case.variant == f"{FAMILY}/{name}"]
    return next((record for record in mine if shape in ("", record.case.problem.shape)), None)


def findings(records: Sequence[Record], name: str, shape: str = "") -> tuple[Finding, ...]:
    """What is found on one kernel, without what cannot be told."""
    record = of(records, name, shape)
    return () if record is None else diagnose(record, unknown=False)


def first_named(records: Sequence[Record]) -> dict[str, str]:
    """The recipe of the first finding on every planted kernel, `nothing` where there is none."""
    named = {}
    for name, plant in PLANTED.items():
        found = findings(records, name, plant.shape)
        named[name] = found[0].recipe if found else "nothing"
    return named


def high_on_good(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Findings of high confidence on good kernels, with their recipe."""
    return [
        (name, finding.recipe)
        for name, plant in GOOD.items()
        for finding in findings(records, name, plant.shape)
        if finding.confidence == "high"
    ]


def attributed(records: Sequence[Record]) -> dict[str, float]:
    """The share of the difference between each planted kernel and its good one that is accounted for."""
    shares = {}
    for name, plant in PLANTED.items():
        good, bad = (of(records, one, plant.shape) for one in (plant.good, name))
        if good is not None and bad is not None:
            try:
                shares[name] = explain(good, bad).attributed
            except NotComparable:
                shares[name] = 0.0
    return shares
