"""The exact gate's rule: the facts of a case against those that were approved. There is no noise and no tolerance, but
for the floors of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from dgw.workbench.gate.facts import Facts, Known
from dgw.workbench.gate.figures import FIGURES, Figure
from dgw.workbench.gate.verdict import Change, GateCase, Status

APPROVE = "dgw baseline approve takes it over"
_FAULTS: dict[str, Status] = {
    "wrong": "wrong", "compile-failed": "failed", "launch-failed": "failed", "crashed": "failed", "timed-out": "failed",
    "out-of-memory": "failed",
}  # fmt: skip


def same(base: Facts, head: Facts) -> bool:
    """Whether both execute the same code, launched alike, with the same choice of tunables."""
    return (base.code, base.launch, base.config) == (head.code, head.launch, head.config) and bool(head.code)


def compiled_only(facts: Facts) -> str:
    """Why nothing is known of what a case does when it runs; empty where the emulator ran it, or nobody tried."""
    return facts.absent.get("inst_executed", "") if "inst_executed" not in facts.figures else ""


def judge(base: Facts | None, head: Known, floors: Mapping[str, float], missing: str = "") -> GateCase:
    """The verdict on one case. `base` None: nothing was approved, for the reason `missing`.

    `floors` maps figures to the relative change for the worse that passes. Raises nothing.
    """
    known: dict[str, Any] = {
        "key": head.facts.key, "label": head.facts.label, "variant": head.facts.variant, "problem": head.facts.problem,
        "config": dict(head.facts.config), "stage": "exact",
    }  # fmt: skip
    if head.outcome in _FAULTS:
        status = _FAULTS[head.outcome]
        reason = head.reason if head.outcome == status else f"{head.outcome}: {head.reason}"
        return GateCase(status=status, reasons=(reason,), **known)
    if head.outcome == "refused":
        return GateCase(status=_refused(base, head), reasons=(_refusal(base, head),), **known)
    if base is None:
        return GateCase(status="missing", reasons=(missing or "nothing was approved for it",), **known)
    if same(base, head.facts):
        return GateCase(status="identical", **known)
    if base.protocol and head.facts.protocol and base.protocol != head.facts.protocol:
        why = f"the counts were approved under {base.protocol}, and here is {head.facts.protocol}"
        return GateCase(status="not-comparable", reasons=(why,), **known)
    changed = changes(base, head.facts, floors)
    status, reasons = _verdict(base, head, changed)
    worse = next((change.metric for change in changed if change.worse), "")
    file, line = head.lines.get(worse, ("", 0))
    if (why := compiled_only(head.facts)) and status != "not-comparable":
        reasons = (*reasons, f"only what was compiled is compared, not the result and not what runs: {why}")
    own = head.source is not None and PurePath(file).name == head.source.name
    return GateCase(status=status, reasons=reasons, changed=changed, line=line if own else None, **known)


def _refused(base: Facts | None, head: Known) -> Status:
    if base is None:
        return "refused"
    return "not-comparable" if _lacks_a_package(head) else "regressed"


def _lacks_a_package(head: Known) -> bool:
    return bool(head.variant.needs) and "which is not installed" in head.reason


def _refusal(base: Facts | None, head: Known) -> str:
    if base is None or _lacks_a_package(head):
        return head.reason
    return f"it is refused now, and was not when it was approved: {head.reason}"


def changes(base: Facts, head: Facts, floors: Mapping[str, float]) -> tuple[Change, ...]:
    """Everything that differs: what is worse first, then in the order of the figures. Floors are relative."""
    found = [*_choices(base, head)]
    for key, figure in FIGURES.items():
        before, now = base.figures.get(key), head.figures.get(key)
        if before != now:
            worse = _is_worse(figure, before, now, floors.get(key, 0.0))
            found.append(Change(metric=key, base=before, head=now, unit=figure.unit, worse=worse))
    return tuple(sorted(found, key=lambda change: not change.worse))


def _choices(base: Facts, head: Facts) -> list[Change]:
    """Tunables and launches that differ. A choice of tunables is somebody's decision, so it has to be approved."""
    found = [
        Change(metric=f"config {name}", base=base.config.get(name), head=head.config.get(name), worse=True)
        for name in dict.fromkeys((*base.config, *head.config))
        if base.config.get(name) != head.config.get(name)
    ]
    if base.launches != head.launches:
        found.append(Change(metric="launch", base="; ".join(base.launches), head="; ".join(head.launches)))
    return found


def _is_worse(figure: Figure, before: float | None, now: float | None, floor: float) -> bool:
    if before is None or now is None or not figure.worse:
        return False
    if figure.worse == "higher":
        return now > before * (1 + floor)
    return now < before * (1 - floor)


def _is_better(change: Change) -> bool:
    figure = FIGURES.get(change.metric)
    if figure is None or not isinstance(change.base, int | float) or not isinstance(change.head, int | float):
        return False
    return (change.head < change.base) if figure.worse == "higher" else figure.worse == "lower" and not change.worse


def _verdict(base: Facts, head: Known, changed: tuple[Change, ...]) -> tuple[Status, tuple[str, ...]]:
    worse = [change for change in changed if change.worse]
    lost = [c for c in changed if c.head is None and c.metric in FIGURES and FIGURES[c.metric].worse]
    if worse:
        return "regressed", tuple(_sentence(change, head) for change in worse)
    if lost:
        labels = ", ".join(FIGURES[change.metric].label for change in lost)
        why = head.facts.absent.get(lost[0].metric, "it is not known here")
        return "not-comparable", (f"{labels}: {why}",)
    better = [change for change in changed if _is_better(change)]
    if better:
        return "improved", (*(_sentence(change, head) for change in better), APPROVE)
    what = "the code" if base.code != head.facts.code else "the launch"
    return "unchanged", (f"{what} changed, and nothing that is judged became worse; {APPROVE}",)


def _sentence(change: Change, head: Known) -> str:
    figure = FIGURES.get(change.metric)
    label = figure.label if figure else change.metric
    sides = " -> ".join(_figure(side) for side in (change.base, change.head))
    file, line = head.lines.get(change.metric, ("", 0))
    at = f", most at {Path(file).name}:{line}" if file and change.head else ""
    return f"{label} {sides}{at}"


def _figure(value: float | int | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
