"""What recipes say of a stored run, in the form that its report shows."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dgw.errors import NotComparable
from dgw.model import Finding, Record, Run, Variant

if TYPE_CHECKING:
    from dgw.model import Problem
    from dgw.reports.charts.drawing import Chart
    from dgw.reports.html.page import Extras


def extras(run: Run, variants: Mapping[str, Variant]) -> Extras:
    """Findings by case and of the run, the source lines that its figures by line point at, and maps of its sweeps."""
    from dgw.reports.html.page import Extras

    by_case = {r.case.key: findings(r, run, variants) for r in run.records}
    return Extras(
        by_case=by_case, of_run=of_run(run, variants), sources=quoted(run, variants), maps=heatmaps(run)
    )  # fmt: skip


def findings(record: Record, run: Run, variants: Mapping[str, Variant], unknown: bool = False) -> tuple[Finding, ...]:
    """What the recipes find on a record of a run. Where it is of a kernel that is not among `variants`, those of dgw,
    the next steps name the user's file or folder as the run did."""
    from dgw.recipes.diagnosis import diagnose
    from dgw.recipes.retyping import kernel_options, with_kernels

    found = diagnose(record, others=run.records, unknown=unknown)
    own = () if record.case.variant in variants else kernel_options(run.command)
    return tuple(with_kernels(one, own) for one in found)


MAPPED = 4
"""Configs of a variant from which on a run has a map of them."""


def heatmaps(run: Run) -> tuple[Chart, ...]:
    """A map for every problem and variant of which a run has several configs along two tunables: those with the most
    values. A cell is the best over the others, which the title names."""
    from dgw.reports.charts import heatmap
    from dgw.reports.heatmap import grid, widest

    groups: dict[tuple[Problem, str, str], list[Record]] = {}
    for record in run.records:
        if record.case.config:
            key = (record.case.problem, record.case.variant, record.environment.device)
            groups.setdefault(key, []).append(record)
    found = []
    for records in groups.values():
        timed = any(record.number("tflops") is not None for record in records)
        if len(records) < MAPPED:
            continue
        try:
            made = grid(records, "tflops" if timed else "bound", widest(records))
        except NotComparable:  # the configs differ in one tunable only
            continue
        found.append(dataclasses.replace(heatmap.build(made), title=made.heading))
    return tuple(found)


def why(base: Record, head: Record) -> tuple[str, ...]:
    """What explains the difference between two records; nothing where the recipes cannot tell."""
    from dgw.recipes.explain import explain

    try:
        return explain(base, head).sentences
    except NotComparable:
        return ()


def ladders(run: Run, variants: Mapping[str, Variant]) -> list[list[Record]]:
    """The records of every problem that is known, on every device, lowest rung first."""
    from dgw.commands.request import rank

    order = rank(variants)
    groups: dict[tuple[Problem, str], list[Record]] = {}
    for record in sorted(run.records, key=lambda r: order.get(r.case.variant, len(order))):
        if record.case.problem.known:
            groups.setdefault((record.case.problem, record.environment.device), []).append(record)
    return list(groups.values())


def of_run(run: Run, variants: Mapping[str, Variant]) -> tuple[Finding, ...]:
    """The ladder and the claims of every problem, in order; the ladder only of cases that were timed.

    A rung is a stage with one config: what stands there with several, as in a sweep, is no ladder.
    """
    from dgw.recipes import claims, ladder
    from dgw.recipes.diagnosis import of
    from dgw.recipes.retyping import kernel_options, with_kernels

    declared = {variant.id: variant.claims for variant in variants.values()}
    found: list[Finding] = []
    for every in ladders(run, variants):
        configs = Counter(record.case.variant for record in every)
        records = [record for record in every if configs[record.case.variant] == 1]
        if not records:
            continue
        rates = [rate for r in records if (rate := r.number("mma_sync_rate")) is not None]
        device = of(records[0])
        if any(r.number("time_cold") or r.number("time_hot") for r in records):
            found += ladder.ladder(records, device, mma_rate=rates[0] if rates else None)
        found += claims.check(records, declared, device)
    own = () if all(r.case.variant in variants for r in run.records) else kernel_options(run.command)
    return tuple(with_kernels(one, own) for one in found)


def quoted(run: Run, variants: Mapping[str, Variant]) -> dict[tuple[str, str], list[str]]:
    """Lines of the source files that figures by line point at, by variant and file name.

    Only of variants that are installed in the version that was measured; a line of another version would be another.
    """
    from dgw.reports.lines import PREFIX

    found: dict[tuple[str, str], list[str]] = {}
    for record in run.records:
        variant = variants.get(record.case.variant)
        if variant is None or variant.version != record.case.version:
            continue
        scopes = (m.scope for m in record.measurements if m.scope.startswith(PREFIX))
        places = {scope.removeprefix(PREFIX).rpartition(":")[0] for scope in scopes}
        for name in places:
            if (variant.id, name) not in found:
                found[variant.id, name] = _lines(variant, name)
    return found


def _lines(variant: Variant, name: str) -> list[str]:
    for folder in (variant.root, *variant.includes):
        for path in sorted(folder.rglob(name)) if name and folder.is_dir() else ():
            return path.read_text(encoding="utf-8", errors="replace").splitlines()
    return []
