"""The seeds' seven steps: baseline, bank conflicts, tensor utilisation, coalescing, spills, persistence, validation.

Steps two to six look at the recipes that belong to them. Where one of them costs something, other tunables of the same
kernel and the stages of its ladder that have the cure are timed in turn with it, and the fastest goes on. As long as a
round of these steps changed something, it is made again: a cure shows the next ailment.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from dgw.model import Case, Finding, Problem, Record, Step
from dgw.recipes import retyping
from dgw.recipes.diagnosis import diagnose
from dgw.recipes.facts import Facts
from dgw.recipes.sequence import (
    COUNTED_ONLY,
    TIMED_ONLY,
    Request,
    Rung,
    Start,
    Talk,
    evidence,
    faster,
    figure,
    metrics,
    speed,
    unanswered,
    untested,
    with_config,
    with_problem,
)
from dgw.recipes.tiling import K_TILE

WORTH = 0.05
"""Share of the time that a finding must cost before anything is tried against it."""
ROUNDS = 6
NOTHING = "nothing here costs 5 % of the time or more"
REMEDY: Mapping[str, tuple[str, ...]] = {
    "bank-conflicts": ("swizzled",),
    "shared-memory-bound": ("tiled",),
    "no-reuse": ("tiled",),
    "uncoalesced": ("tiled",),
    "l2-locality": ("tensor-core", "persistent"),
    "no-tensor-cores": ("tensor-core",),
    "not-overlapped": ("double-buffered", "warp-specialised"),
    "producer-starved": ("warp-specialised", "persistent"),
    "barrier-bound": ("double-buffered", "warp-specialised"),
    "bk-too-small": ("tensor-core",),
    "partial-wave": ("persistent",),
    "epilogue-bound": ("fused-epilogue", "persistent"),
    "unfused-epilogue": ("fused-epilogue",),
    "launch-bound": ("persistent",),
}
"""Ideas of the ladder that cure what a recipe finds."""
SIMT = ("tiled", "swizzled", "double-buffered")
"""Those whose stages have no tensor cores: for a kernel that has them, the stage that has both is tried instead."""


@dataclass(frozen=True)
class Look:
    """One of the middle steps: what it is about, its recipes, its figures, and ideas that are tried in any case."""

    title: str
    recipes: tuple[str, ...]
    figures: tuple[str, ...]
    always: tuple[str, ...] = ()


LOOKS = (
    Look(
        "2 bank conflicts",
        ("bank-conflicts", "shared-memory-bound"),
        ("conflict_ratio_ld", "conflict_ratio_st", "smem_wavefronts_actual"),
    ),
    Look(
        "3 tensor utilisation",
        (
            "no-tensor-cores", "bk-too-small", "bk-too-large", "not-overlapped", "barrier-bound", "producer-starved",
            "wgmma-serialised",
        ),
        ("tensor_pipe_util", "fma_pipe_util", "dram_throughput", "stall_long_scoreboard", "stall_barrier"),
    ),
    Look(
        "4 coalescing",
        ("uncoalesced", "no-reuse", "l2-locality", "wrong-path-for-m1"),
        ("gld_sectors_per_request", "gst_sectors_per_request", "l2_hit_rate", "dram_bytes"),
    ),
    Look(
        "5 spills and registers",
        ("spills", "registers-limit-occupancy", "shared-memory-limits-occupancy"),
        ("registers_per_thread", "spill_store_bytes", "local_load_sectors", "theoretical_occupancy"),
    ),
    Look(
        "6 persistence",
        ("partial-wave", "latency-bound", "epilogue-bound", "unfused-epilogue", "launch-bound", "tile-waste"),
        ("waves_per_sm", "achieved_occupancy", "sm_active_cycles"),
        always=("persistent",),
    ),
)  # fmt: skip


@dataclass
class _Now:
    """Where the walk is: the record in hand, the cases tried, the round, and whether nothing cures any more."""

    record: Record
    tried: dict[str, Record]
    round: int = 0
    settled: bool = False


def seven_step(start: Start) -> Talk:
    """The walk from one case; its last step is the validation of what it ended with."""
    (first, *_) = yield Request((start.case,), "the baseline", metrics=metrics())
    now = _Now(first, {first.case.key: first})
    yield baseline(start, first)
    for number in range(ROUNDS):
        before, now.round = now.record.case.key, number
        for look in LOOKS:
            yield from _look(start, look, now)
        if now.record.case.key == before and now.settled:
            break
        now.settled = now.record.case.key == before
    yield from _validate(start, first, now)


def baseline(start: Start, record: Record) -> Step:
    """The first step, which ends the walk where there is nothing to improve."""
    found = diagnose(record, start.device, unknown=False)
    names = (
        "time_cold",
        "time_hot",
        "tflops",
        "ratio_to_cublas",
        "bound_time",
        "achieved_occupancy",
        "l2_hit_rate",
        "energy",
    )
    right = record.outcome == "ok"
    return Step(
        title="1 baseline",
        evidence=evidence(record, start.device, *names),
        findings=found[:3],
        seen=(
            f"{record.case.variant} at {record.case.problem.shape}: {figure(record)}",
            *([lacking] if (lacking := untested(record)) else []),
        ),
        decision="go on" if right else "stop",
        why=_after_baseline(record),
        variant=record.case.variant,
        config=record.case.config,
    )


def _after_baseline(record: Record) -> str:
    if record.outcome != "ok":
        return retyping.failed(record)
    checked = "its result was not checked" if untested(record) else "its result is right"
    return f"{checked}; what it costs comes next"


def _look(start: Start, look: Look, now: _Now) -> Generator[Request | Step, tuple[Record, ...], None]:
    every = diagnose(now.record, start.device, unknown=False)
    found = [finding for finding in every if finding.recipe in look.recipes]
    costly = [finding for finding in found if (finding.cost or 0.0) >= WORTH]
    earlier = {name for other in LOOKS[: LOOKS.index(look)] for name in other.recipes}
    ripe = not any(finding.recipe in earlier and (finding.cost or 0.0) >= WORTH for finding in every)
    ideas = look.always if ripe or now.settled else ()  # not before the steps above have done what they can
    cases = [case for case in _candidates(start, costly, ideas, now) if case.key not in now.tried]
    if not costly and not cases:
        if now.round == 0:
            lacking = unanswered(now.record, start.device, look.recipes)
            said = (lacking,) if lacking else ()
            why = "nothing that is known here costs 5 % of the time or more" if lacking else NOTHING
            yield _step(start, look, now, found, said, why)
        return
    if not cases and now.round > 0:
        return  # it has been said
    records: tuple[Record, ...] = ()
    if cases:
        why = costly[0].verdict if costly else f"{look.title}: worth a try"
        timed = yield Request((now.record.case, *cases), why, TIMED_ONLY, again=True)
        now.record, records = timed[0], timed[1:]
        now.tried.update({record.case.key: record for record in records})
    seen = tuple(f"{_called(record.case, now.record.case)}: {figure(record)}" for record in records)
    better = [record for record in records if faster(record, now.record) and _may_take(start, record)]
    if better:
        before = now.record
        fastest = min(better, key=lambda record: (speed(record) or ("", 0.0))[1])
        (now.record,) = yield Request((fastest.case,), "the counters of what goes on", COUNTED_ONLY, metrics())
        why = f"{_called(now.record.case, before.case)} is faster than {before.case.variant} ({figure(before)})"
    elif records:
        why = "none of what was tried is faster"
        ahead = [record for record in records if faster(record, now.record)]
        if start.own and ahead:
            stage = min(ahead, key=lambda record: (speed(record) or ("", 0.0))[1]).case
            why = f"a stage of the ladder is faster, whose idea can be taken over: {retyping.show(stage, '--source')}"
    else:
        why = f"no stage and no tunable is known that cures it: {costly[0].next_step}" if costly else "nothing to try"
    yield _step(start, look, now, found, seen, why)


def _step(start: Start, look: Look, now: _Now, found: list[Finding], seen: tuple[str, ...], why: str) -> Step:
    return Step(
        title=look.title,
        evidence=evidence(now.record, start.device, *look.figures),
        findings=tuple(found),
        seen=seen,
        why=why,
        variant=now.record.case.variant,
        config=now.record.case.config,
    )


def _may_take(start: Start, record: Record) -> bool:
    """A user's kernel stays the user's: only its own tunables change."""
    return not start.own or record.case.variant == start.case.variant


def _called(case: Case, other: Case) -> str:
    changed = [f"{name}={value}" for name, value in case.config.items() if other.config.get(name) != value]
    return " ".join([case.variant, *(changed if case.variant == other.variant else [])])


def _candidates(start: Start, costly: list[Finding], always: tuple[str, ...], now: _Now) -> list[Case]:
    """Other depths of the k tile, and the stages with an idea that cures what was found or is tried in any case."""
    case = now.record.case
    found: list[Case] = []
    names = {finding.recipe for finding in costly}
    if (
        names & {"bk-too-small", "bk-too-large", "not-overlapped", "producer-starved"}
        and case.variant == start.case.variant
    ):
        found += _depths(start, case)
    ideas = [idea for finding in costly for idea in REMEDY.get(finding.recipe, ())]
    if Facts(now.record, start.device).uses_tensor_cores:
        ideas = ["tensor-core" if idea in SIMT else idea for idea in ideas]
    ideas += always
    here = next((rung for rung in start.rungs if rung.variant == case.variant), None)
    for rung in start.rungs:
        above = here is None or rung.family != here.family or rung.stage > here.stage
        if rung.idea in ideas and above:
            found.append(_rung_case(rung, case.problem))
    return [one for one in _unique(found) if start.accepts(one)]


def _unique(cases: list[Case]) -> list[Case]:
    return list({case.key: case for case in cases}.values())


def _depths(start: Start, case: Case) -> list[Case]:
    for tunable in start.space:
        if tunable.name in K_TILE:
            now = case.config.get(tunable.name)
            values = [value for value in tunable.values if isinstance(value, int) and isinstance(now, int)]
            near = sorted((v for v in values if v != now), key=lambda v: abs(v - int(now or 0)))[:2]
            return [with_config(case, {tunable.name: value}) for value in near]
    return []


def _rung_case(rung: Rung, problem: Problem) -> Case:
    return Case(problem=problem, variant=rung.variant, version=rung.version, config=rung.config)


def _validate(start: Start, first: Record, now: _Now) -> Generator[Request | Step, tuple[Record, ...], None]:
    """Numerics of the end on the same problem with other data, and what was gained."""
    import msgspec

    problem = first.case.problem
    others = [msgspec.structs.replace(problem, data=data) for data in ("integer", "outliers") if problem.data != data]
    cases = tuple(with_problem(now.record.case, other) for other in others)
    records = yield Request(cases, "the result on whole numbers and on outliers", lanes=frozenset({"check"}))
    tops = [_rung_case(rung, problem) for rung in start.beside]
    ends = _unique([now.record.case, first.case, *(case for case in tops if start.accepts(case))])
    timed = yield Request(tuple(ends), "what was gained, and other ladders beside it", TIMED_ONLY, again=True)
    now.record = timed[0]
    checked = (now.record, *records)
    wrong = [record for record in checked if record.outcome not in ("ok", "refused")]
    reason = retyping.look_for_reason(wrong[0].case) if wrong else ""
    seen = tuple(f"{record.case.problem.data}: {_result(record)}" for record in checked)
    yield Step(
        title="7 validation",
        evidence=evidence(
            now.record, start.device, "time_cold", "tflops", "ratio_to_cublas", "energy", "sm_clock", "power"
        ),
        findings=diagnose(now.record, start.device, unknown=False)[:3],
        seen=(
            *seen,
            f"ends at {_called(now.record.case, first.case)}: {figure(now.record)}",
            *(said for record in timed[1:] if (said := _beside(now.record, record, first))),
        ),
        decision="stop",
        why=f"the result is wrong; its reason: {reason}" if wrong else "this is the end of the seven steps",
        variant=now.record.case.variant,
        config=now.record.case.config,
    )


def _beside(end: Record, other: Record, first: Record) -> str:
    """How the end of the walk stands to its beginning, or to the top of another ladder; empty where no time tells."""
    mine, theirs = speed(end), speed(other)
    if mine is None or theirs is None or mine[0] != theirs[0] or not mine[1] or not theirs[1]:
        return ""
    name = other.case.variant
    if other.case.key == first.case.key:
        return f"{theirs[1] / mine[1]:.3g} times as fast as {name}"
    if not faster(other, end):
        return f"the top of another ladder, {name}, is not faster: {figure(other)}"
    return f"another ladder goes further: {name} takes {figure(other)}, {mine[1] / theirs[1]:.3g} times as fast"


def _result(record: Record) -> str:
    return "not checked" if untested(record) else f"{record.outcome}{_error(record)}"


def _error(record: Record) -> str:
    check = record.check
    if check is None or check.error is None or check.bound is None:
        return ""
    return f", worst error {check.error:.3g} of {check.bound:.3g} allowed"
