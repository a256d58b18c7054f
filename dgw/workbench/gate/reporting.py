"""From what a gate measured to its report: time, counters and correctness put together, nothing measured any more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from dgw.model import Measurement, Record, digest
from dgw.workbench.gate.counting import Calibration, Explain, changes
from dgw.workbench.gate.decide import Judged, Judgement, judge
from dgw.workbench.gate.measure import SENTINEL, Found, Measured
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.verdict import Change, GateCase, GateReport, Side, Status
from dgw.workbench.locked_clock import named

_TIME_ALONE = ("unchanged", "improved", "inconclusive")


@dataclass(frozen=True)
class Heading:
    """What a report says of the gate itself."""

    id: str
    created: str
    command: tuple[str, ...]
    dgw: str
    base: Side
    head: Side
    suite: str = ""


def report(
    heading: Heading,
    measured: Measured,
    policy: GatePolicy,
    calibration: Calibration | None = None,
    explain: Explain | None = None,
    shown: Callable[[str], str] = lambda source: "",
) -> GateReport:
    """The report. `explain` turns two records into sentences, `shown` a source file into its name in the repository."""
    judgement = judge(measured.pooled, measured.timed, measured.sentinels, policy)
    build = _Build(measured, judgement, policy, calibration, explain, shown)
    first = next((one.head.record for one in measured.found.values() if one.head.record is not None), None)
    toolchain = f"nvrtc {first.environment.nvrtc}" if first is not None and first.environment.nvrtc else ""
    notes = [*measured.notes, *([judgement.fault] if judgement.fault else [])]
    if calibration is not None:
        notes.append(calibration.says)
    hot = [one.comparison.label for one in measured.found.values() if one.hot]
    if hot:
        notes.append(f"timed with inputs in the L2 cache, because buffer sets do not fit: {', '.join(hot)}")
    return GateReport(
        id=heading.id,
        created=heading.created,
        command=heading.command,
        dgw=heading.dgw,
        gate="time",
        base=msgspec.structs.replace(heading.base, digest=build.code("base")),
        head=msgspec.structs.replace(heading.head, digest=build.code("head")),
        suite=heading.suite,
        device=measured.environment.device,
        toolchain=toolchain,
        protocol=policy.protocol,
        environment=measured.environment,
        cases=tuple(build.case(key, one) for key, one in measured.found.items()),
        sentinels=tuple(build.sentinel(key) for key in measured.sentinels),
        geometric_mean=judgement.mean,
        policy={
            "pairs": f"{policy.screen_pairs} + {policy.confirm_pairs}",
            "rounds": policy.rounds,
            "floor": policy.floor,
            "geometric_mean_floor": policy.mean_floor,
            "alpha": policy.alpha,
            "turn_s": policy.turn_s,
            "seed": policy.seed,
            **({"locked_sm_clock_hz": policy.locked_hz} if policy.locked_hz else {}),
        },
        notes=tuple(notes),
        interrupted=measured.interrupted,
    )


@dataclass(frozen=True)
class _Build:
    measured: Measured
    judgement: Judgement
    policy: GatePolicy
    calibration: Calibration | None
    explain: Explain | None
    shown: Callable[[str], str]

    def code(self, side: str) -> str:
        """A hash of all machine code of a side."""
        entries = [one.base if side == "base" else one.head for one in self.measured.found.values()]
        return digest([[entry.key, entry.identity] for entry in entries])[:16]

    def case(self, key: str, found: Found) -> GateCase:
        """One comparison. Correctness comes first, then counters, then time."""
        judged = self.judgement.cases.get(key) if found.timed else None
        changed = self._changes(key, found, judged)
        status, reasons = self._status(found, judged, changed)
        explanation: tuple[str, ...] = ()
        if self.explain is not None and status in ("regressed", "improved") and not found.identical:
            base, head = (self.record(key, found, side, judged) for side in ("base", "head"))
            if base is not None and head is not None:
                explanation = self.explain(base, head)
        comparison = found.comparison
        made = GateCase(
            key=key, label=comparison.label, status=status, variant=comparison.variant, problem=comparison.problem,
            config=comparison.asked, reasons=reasons, changed=changed, explanation=explanation,
            attempts=self.measured.attempt if judged is not None else 1,
            source=self.shown(found.head.source) if found.head.source else "",
        )  # fmt: skip
        return _timed(made, judged) if judged is not None else made

    def _status(
        self, found: Found, judged: Judged | None, changed: Sequence[Change]
    ) -> tuple[Status, tuple[str, ...]]:  # fmt: skip
        if found.status is not None:
            return found.status, tuple(found.reasons)
        if judged is None:
            return "inconclusive", ("the gate ended before this case was measured",)
        worse = [change for change in changed if change.worse]
        if worse and judged.status in _TIME_ALONE:
            return "regressed", (*_why_worse(worse), *judged.reasons)
        return judged.status, judged.reasons

    def _changes(self, key: str, found: Found, judged: Judged | None) -> tuple[Change, ...]:
        if found.identical or found.status is not None:
            return ()
        base, head = (self._measurements(key, found, side) for side in ("base", "head"))
        return changes(base, head, self.calibration, judged is not None and judged.status == "improved")

    def _measurements(self, key: str, found: Found, side: str) -> tuple[Measurement, ...]:
        entry = found.base if side == "base" else found.head
        counts = self.measured.counts.get(side)
        counted = counts.cases.get(key) if counts is not None else None
        return (*entry.measurements, *(counted[0] if counted else ()))

    def record(self, key: str, found: Found, side: str, judged: Judged | None) -> Record | None:
        """Everything known of one side of a case, as the recipes read it."""
        entry = found.base if side == "base" else found.head
        if entry.record is None:
            return None
        seconds = None
        if judged is not None and judged.rounds is not None:
            seconds = judged.rounds.time_base if side == "base" else judged.rounds.time_head
        measured = self._measurements(key, found, side)
        if seconds is not None and not math.isnan(seconds):
            metric = "time_hot" if found.hot else "time_cold"
            time = Measurement(metric=metric, value=seconds, unit="s", collector="gate", protocol=self.policy.protocol)
            measured = (*measured, time)
        return msgspec.structs.replace(
            entry.record,
            outcome="ok",
            environment=self.measured.environment,
            measurements=named(measured, self.policy.locked_hz),
        )

    def sentinel(self, key: str) -> GateCase:
        """One sentinel."""
        found = self.measured.found[key.removeprefix(SENTINEL)]
        judged = self.judgement.sentinels.get(key)
        made = GateCase(
            key=key, label=found.comparison.label, status="inconclusive" if judged is None else judged.status,
            variant=found.comparison.variant, problem=found.comparison.problem, config=found.comparison.asked,
            reasons=("too few pairs",) if judged is None else judged.reasons,
        )  # fmt: skip
        return _timed(made, judged) if judged is not None else made


def _why_worse(worse: Sequence[Change]) -> tuple[str, ...]:
    """One reason for what is new, one for what became more."""
    new = ", ".join(change.metric for change in worse if not change.base)
    more = ", ".join(f"{change.metric} {change.base:,.4g} -> {change.head:,.4g}" for change in worse if change.base)
    return (
        *((f"{new}: none in base, some in head, whatever the time",) if new else ()),
        *((f"{more}: more than in base, and no gain in time is proven",) if more else ()),
    )


def _timed(made: GateCase, judged: Judged) -> GateCase:
    """The case with its figures of time."""
    rounds = judged.rounds
    sigma, process = rounds.sigmas if rounds is not None else (math.nan, math.nan)
    return msgspec.structs.replace(
        made,
        ratio=judged.ratio,
        mde=judged.mde,
        p=judged.p,
        p_adjusted=judged.p_adjusted,
        stage=judged.stage,
        pairs=judged.pairs,
        pairs_needed=judged.pairs_needed,
        time_base=_known(rounds.time_base) if rounds is not None else None,
        time_head=_known(rounds.time_head) if rounds is not None else None,
        dropped_rounds=sum(rounds.dropped.values()) if rounds is not None else 0,
        sigma=_known(sigma),
        sigma_process=_known(process),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
