"""Whether the stages of a ladder did to the counters what they claim, and how much faster each rung is than the last.

Pure functions of stored records. A claim is judged only when both figures come from the same collector, protocol and
device, of results that are right; otherwise it is said what would be needed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from dgw.model import Case, Claim, Device, Evidence, Finding, Measurement, Record
from dgw.recipes import retyping

RECIPE = "claims"
HELD, DID_NOT_HOLD, CANNOT_TELL = "held", "did not hold", "cannot tell"
SHORT_K = 1024
_EQUAL = 1e-9  # of ratios and shares, which are quotients of whole numbers
_SAME_CASE_FIELDS = ("device", "driver", "engine")


def check(
    records: Sequence[Record], claims: Mapping[str, Sequence[Claim]], device: Device | None = None
) -> tuple[Finding, ...]:
    """A Finding for every claim that applies, in the order of `records`, which are one problem's ladder, lowest first.

    `claims`: by variant id. `records` may hold other variants, such as baselines, which claims name in `against`; the
    previous rung of a stage is the record before it of the same family. The verdict starts with `held`, `did not hold`
    or `cannot tell: needs ...`; the evidence is the metric with its value and what it was compared with. Claims whose
    `when` needs a figure of the device are left out without one, as are those of a refused record.
    """
    found = []
    for place, record in enumerate(records):
        for claim in claims.get(record.case.variant, ()):
            if record.outcome == "refused" or not applies(claim, record.case, device):
                continue
            other = _other(records, place, claim)
            found.append(_finding(claim, record, other))
    return tuple(found)


def applies(claim: Claim, case: Case, device: Device | None) -> bool:
    """Whether the claim is made for this case."""
    problem = case.problem
    if claim.dtypes and problem.a.dtype not in claim.dtypes:
        return False
    if claim.layouts and problem.layout not in claim.layouts:
        return False
    return all(_WHEN[condition](case, device) for condition in claim.when)


def _has_epilogue(case: Case, device: Device | None) -> bool:
    problem, epilogue = case.problem, case.problem.epilogue
    extra = problem.bias is not None or problem.residual is not None
    return extra or epilogue.activation != "none" or epilogue.quantise != "none"


def _many_tiles(case: Case, device: Device | None) -> bool:
    rows, cols = case.config.get("BM"), case.config.get("BN")
    if device is None or not isinstance(rows, int) or not isinstance(cols, int):
        return False
    problem = case.problem
    return -(-problem.m // rows) * -(-problem.n // cols) * problem.batch > device.sms


def _beyond_l2(case: Case, device: Device | None) -> bool:
    problem = case.problem
    an_item = min(problem.bytes_of(name) // problem.batch for name in ("a", "b"))
    return device is not None and an_item > device.l2_bytes


_WHEN: Mapping[str, Callable[[Case, Device | None], bool]] = {
    "epilogue": _has_epilogue,
    "short-k": lambda case, device: case.problem.k <= SHORT_K,
    "many-tiles": _many_tiles,
    "beyond-l2": _beyond_l2,
}


def _other(records: Sequence[Record], place: int, claim: Claim) -> Record | None:
    """The record that the claim compares with: the variant it names, else the rung before of the same family."""
    mine = records[place].case
    if claim.against:
        named = [r for r in records if r.case.variant == claim.against and r.case.problem == mine.problem]
        return named[-1] if named else None
    family = mine.variant.partition("/")[0]
    before = [r for r in records[:place] if r.case.variant.partition("/")[0] == family and r.outcome != "refused"]
    return next((r for r in reversed(before) if r.case.problem == mine.problem), None)


def _finding(claim: Claim, record: Record, other: Record | None) -> Finding:
    relative = claim.relation in ("falls", "rises", "keeps")
    subject = f"{record.case.variant}: {statement(claim, other)}"
    missing = _needs(claim, record, other if relative else None, relative)
    own = _measured(record, claim.metric)
    if missing or own is None:
        return Finding(
            recipe=RECIPE,
            verdict=f"{CANNOT_TELL}: needs {missing}: {subject}",
            confidence="low",
            evidence=(Evidence(metric=claim.metric, value=_value(own), why=claim.why),),
            next_step=_next_step(record, other if relative else None, claim),
        )
    value = float(own.value or 0)
    reference = None
    if relative and other is not None:
        compared = _measured(other, claim.metric, own)
        reference = float(compared.value or 0) if compared is not None else 0.0
    threshold = claim.value if reference is None else reference
    verdict = HELD if _holds(claim, value, reference) else DID_NOT_HOLD
    return Finding(
        recipe=RECIPE,
        verdict=f"{verdict}: {subject} ({_figures(value, reference)})",
        confidence="high" if own.collector != "emulator" else "medium",
        evidence=(Evidence(metric=claim.metric, value=value, threshold=threshold, why=claim.why),),
        next_step="" if verdict == HELD else retyping.again("diagnose", record.case),
    )


def statement(claim: Claim, other: Record | None = None) -> str:
    """The claim in words, without the figures measured."""
    against = claim.against or (other.case.variant if other else "the previous rung")
    factor = f" by a factor of {claim.value:g}" if claim.value > 1 else ""
    return {
        "is": f"{claim.metric} is {claim.value:g}",
        "above": f"{claim.metric} is above {claim.value:g}",
        "below": f"{claim.metric} is below {claim.value:g}",
        "falls": f"{claim.metric} falls{factor} against {against}",
        "rises": f"{claim.metric} rises{factor} against {against}",
        "keeps": f"{claim.metric} stays as in {against}",
    }[claim.relation]


def _holds(claim: Claim, value: float, reference: float | None) -> bool:
    if reference is None:
        if claim.relation == "is":
            return abs(value - claim.value) <= _EQUAL * max(1.0, abs(claim.value))
        return value > claim.value if claim.relation == "above" else value < claim.value
    factor = max(claim.value, 1.0)
    if claim.relation == "falls":
        return value < reference and value * factor <= reference
    if claim.relation == "rises":
        return value > reference and value >= reference * factor
    return abs(value - reference) <= max(claim.value, _EQUAL) * abs(reference)


def _figures(value: float, reference: float | None) -> str:
    if reference is None:
        return f"{value:.6g}"
    quotient = f", {value / reference:.3g} of it" if reference else ""
    return f"from {reference:.6g} to {value:.6g}{quotient}"


def _needs(claim: Claim, record: Record, other: Record | None, relative: bool) -> str:
    """What is missing for a judgement; empty when nothing is."""
    for one in (record, *((other,) if other is not None else ())):
        if one.outcome != "ok":
            return f"a right result of {one.case.variant}, which is {one.outcome}"
    own = _measured(record, claim.metric)
    if own is None:
        return _absent(record, claim.metric)
    if not relative:
        return ""
    if other is None:
        return f"a record of {claim.against}" if claim.against else "a record of the rung before it"
    before = _measured(other, claim.metric, own)
    if before is None:
        if _measured(other, claim.metric) is not None:
            return f"{claim.metric} of {other.case.variant} by {own.collector} {own.protocol}".rstrip()
        return _absent(other, claim.metric)
    for name in _SAME_CASE_FIELDS:
        mine, theirs = getattr(record.environment, name), getattr(other.environment, name)
        if mine != theirs and {mine, theirs} != {"", mine or theirs}:
            return f"both records of one {name}, not {mine} and {theirs}"
    if claim.relation == "falls" and not before.value:
        return f"a {claim.metric} above 0 of {other.case.variant}"
    return ""


def _measured(record: Record, metric: str, like: Measurement | None = None) -> Measurement | None:
    """The number of `metric`, case-wide; with `like`, only from the same collector under the same protocol."""
    for found in record.measurements:
        if (found.metric, found.scope) != (metric, "case") or found.absent or not isinstance(found.value, int | float):
            continue
        if like is None or (found.collector, found.protocol) == (like.collector, like.protocol):
            return found
    return None


def _value(found: Measurement | None) -> float | int | str | None:
    return None if found is None else found.value


def _absent(record: Record, metric: str) -> str:
    found = record.get(metric)
    reason = f" ({found.absent})" if found is not None and found.absent else ""
    return f"{metric} of {record.case.variant}{reason}"


def _next_step(record: Record, other: Record | None, claim: Claim) -> str:
    names = [claim.against or (other.case.variant if other else ""), record.case.variant]
    words = [*(name for name in names if name), *retyping.problem_options(record.case.problem)]
    return shlex.join(["dgw", "compare", *words, "--counters", claim.metric])
