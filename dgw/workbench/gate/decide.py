"""From pairs to verdicts: what the screen asks to be measured again, and what each case is called in the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dgw.workbench.gate import statistics
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.rounds import CaseRounds, PairRounds, collect, pair_values
from dgw.workbench.gate.statistics import LEAST_PAIRS, Floats, Test, t_test
from dgw.workbench.gate.verdict import GeometricMean, Ratio, Status

POWER = 0.8


@dataclass(frozen=True)
class Look:
    """What the screen saw. `imprecise` cases can neither be called unchanged nor are they flagged: more pairs."""

    flagged: frozenset[str] = frozenset()
    faster: frozenset[str] = frozenset()
    imprecise: frozenset[str] = frozenset()

    @property
    def again(self) -> frozenset[str]:
        """Everything that wants fresh pairs."""
        return self.flagged | self.faster | self.imprecise


@dataclass(frozen=True)
class Judged:
    """The verdict on the time of one case."""

    status: Status
    reasons: tuple[str, ...]
    ratio: Ratio | None = None
    mde: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    stage: Literal["", "screen", "confirm"] = ""
    pairs: int = 0
    pairs_needed: int | None = None
    rounds: CaseRounds | None = None


@dataclass(frozen=True)
class Judgement:
    """All verdicts of a time gate. `fault` says what is wrong with the machine, by its sentinels; empty: nothing."""

    cases: dict[str, Judged]
    sentinels: dict[str, Judged] = field(default_factory=dict)
    mean: GeometricMean | None = None
    fault: str = ""


def look(pairs: Sequence[PairRounds], keys: Sequence[str], policy: GatePolicy) -> Look:
    """What to measure again after the screen. What an earlier attempt flagged stays flagged.

    An imprecise case that could not be called unchanged even with every further pair is left out: that would cost time
    and decide nothing.
    """
    flagged = {key for pair in pairs for key in pair.flagged if key in keys}
    faster, imprecise = set(), set()
    for key in keys:
        rounds = collect(pairs, key, policy)
        values = pair_values(rounds.screen)
        if len(values) < LEAST_PAIRS:
            continue
        test = t_test(values)
        if statistics.flagged(test, policy):
            flagged.add(key)
        elif statistics.looks_faster(test, policy):
            faster.add(key)
        elif not statistics.certified(test, policy):
            count = len(values) + policy.confirm_pairs
            hoped = statistics.t_quantile(policy.certainty, count - 1) * rounds.spread / math.sqrt(count)
            if hoped < policy.floor:
                imprecise.add(key)
    return Look(frozenset(flagged), frozenset(faster), frozenset(imprecise))


def judge(pairs: Sequence[PairRounds], keys: Sequence[str], sentinels: Sequence[str], policy: GatePolicy) -> Judgement:
    """The verdict on every case that was timed. Cases are regressed or improved by fresh pairs alone."""
    seen = look([pair for pair in pairs if pair.stage == "screen"], keys, policy)
    flagged = sorted(seen.flagged | {key for pair in pairs for key in pair.flagged if key in keys})
    data = {key: collect(pairs, key, policy) for key in keys}
    slower = _family({key: data[key] for key in flagged}, policy)
    faster = _family({key: data[key] for key in sorted(seen.faster)}, policy, up=False)
    cases = {}
    for key, rounds in data.items():
        if key in slower:
            cases[key] = _confirmed(rounds, *slower[key], len(flagged), policy)
        elif key in faster:
            cases[key] = _confirmed(rounds, *faster[key], len(faster), policy, up=False)
        elif key in flagged and not len(pair_values(rounds.confirm)):
            cases[key] = Judged("inconclusive", ("looked slower in the screen, and no fresh pair could be measured",))
        else:
            cases[key] = _unflagged(rounds, policy, max(1, len(flagged)))
    fault, watched = _environment(pairs, sentinels, policy)
    mean = geometric_mean(pairs, keys, policy)
    if fault:
        cases = {key: _doubtful(one, fault) for key, one in cases.items()}
        mean = None
    return Judgement(cases, watched, mean, fault)


def _family(data: Mapping[str, CaseRounds], policy: GatePolicy, up: bool = True) -> dict[str, tuple[Test, float]]:
    """The tests of one family on its confirmation alone, with Holm's p. What has too few fresh pairs counts as p 1."""
    tests: dict[str, Test] = {}
    for key, rounds in data.items():
        values = pair_values(rounds.confirm)
        if len(values) >= LEAST_PAIRS:
            tests[key] = t_test(values)
    p = [float(tests[key].slower if up else tests[key].faster) if key in tests else 1.0 for key in data]
    adjusted = statistics.holm(p) if p else np.empty(0)
    return {key: (tests[key], float(value)) for key, value in zip(data, adjusted, strict=True) if key in tests}


def _confirmed(
    rounds: CaseRounds, test: Test, adjusted: float, family: int, policy: GatePolicy, up: bool = True
) -> Judged:
    """A case with fresh pairs: decided on these alone."""
    status: Status = "inconclusive"
    after = f"p {adjusted:.2g} after Holm over {family} flagged, {test.pairs} fresh pairs"
    if bool(statistics.rejected(test, adjusted, policy, up)):
        status, why = ("regressed" if up else "improved"), f"{effect(test)}; {after}"
    elif bool(statistics.certified(test, policy)):
        status, why = "unchanged", f"looked different in the screen, fresh pairs say {effect(test)}; {after}"
    else:
        why = f"{effect(test)} is neither certain nor excluded; {after}"
    p = float(test.slower if up else test.faster)
    return _checked(_made(status, (why,), rounds, test, policy, family, "confirm", p, adjusted), rounds, policy)


def _unflagged(rounds: CaseRounds, policy: GatePolicy, family: int) -> Judged:
    """A case that the screen did not flag: unchanged where a slowdown of the floor is excluded, else inconclusive."""
    values = pair_values(rounds.all)
    if len(values) < LEAST_PAIRS:
        why = f"only {len(values)} pairs could be measured, {LEAST_PAIRS} are needed"
        return Judged("inconclusive", (why, *_dropped(rounds)), pairs=len(values), rounds=rounds)
    test = t_test(values)
    sure = bool(statistics.certified(test, policy))
    said = f"{effect(test)}, at most {percent(float(test.bound(policy.certainty)))} slower with 95 %"
    status: Status = "unchanged" if sure else "inconclusive"
    why = said if sure else f"{said}: a slowdown of {percent(policy.floor)} is not excluded"
    stage: Literal["screen", "confirm"] = "confirm" if len(rounds.confirm) else "screen"
    made = _made(status, (why,), rounds, test, policy, family, stage, float(test.slower), None)
    return _checked(made, rounds, policy)


def _made(
    status: Status,
    reasons: tuple[str, ...],
    rounds: CaseRounds,
    test: Test,
    policy: GatePolicy,
    family: int,
    stage: Literal["screen", "confirm"],
    p: float,
    adjusted: float | None,
) -> Judged:
    mde = statistics.two_stage_detectable(rounds.spread, policy, family, POWER)
    needed = None
    if status == "inconclusive":
        needed = statistics.pairs_needed(rounds.spread, policy.floor, 1 - policy.certainty, POWER)
        found = f"slowdowns above {percent(mde)} are found in {100 * POWER:.0f} % of tries"
        reasons = (*reasons, f"{found}; {_enough(needed)}")
    return Judged(
        status, reasons, ratio(test), mde, p, adjusted, stage, test.pairs, needed, rounds
    )  # fmt: skip


def _enough(needed: int | None) -> str:
    return f"about {needed} pairs would tell" if needed else "more pairs would not tell"


def _checked(judged: Judged, rounds: CaseRounds, policy: GatePolicy) -> Judged:
    """Too many invalid rounds, or too little power for a green verdict: inconclusive."""
    if rounds.dropped_share > policy.most_dropped:
        return _as(judged, "inconclusive", "; ".join(_dropped(rounds)))
    if judged.status == "unchanged" and judged.mde is not None and judged.mde > policy.underpowered:
        needed = statistics.pairs_needed(rounds.spread, policy.floor, 1 - policy.certainty, POWER)
        why = (
            f"under-powered: only slowdowns above {percent(judged.mde)} would be found in {100 * POWER:.0f} % of tries"
        )
        return _as(judged, "inconclusive", f"{why}; {_enough(needed)}", needed)
    return judged


def _dropped(rounds: CaseRounds) -> tuple[str, ...]:
    """Which rounds do not count, and why; nothing where all do."""
    named = ", ".join(f"{count} x {why}" for why, count in rounds.dropped.items())
    return (f"{sum(rounds.dropped.values())} of {rounds.total} rounds are invalid ({named})",) if named else ()


def _as(judged: Judged, status: Status, why: str, needed: int | None = None) -> Judged:
    needed = judged.pairs_needed if needed is None else needed
    return replace(judged, status=status, reasons=(why, *judged.reasons), pairs_needed=needed)


def _doubtful(judged: Judged, fault: str) -> Judged:
    return _as(judged, "inconclusive", fault)


def _environment(
    pairs: Sequence[PairRounds], sentinels: Sequence[str], policy: GatePolicy
) -> tuple[str, dict[str, Judged]]:
    """Whether cases whose code did not change seem to have become slower or faster: then it is the machine."""
    data = {key: collect(pairs, key, policy) for key in sentinels}
    tests = {key: t_test(v) for key, one in data.items() if len(v := pair_values(one.all)) >= LEAST_PAIRS}
    if not tests:
        return "", {}
    adjusted = statistics.holm([2 * min(float(test.slower), float(test.faster)) for test in tests.values()])
    watched, faults = {}, []
    for (key, test), p in zip(tests.items(), adjusted, strict=True):
        off = p <= policy.alpha and abs(float(test.mean)) >= policy.floor / 2
        if off:
            faults.append(f"unchanged code seems {effect(test)} (p {p:.2g}): the machine is not steady")
        status: Status = "inconclusive" if off else "unchanged"
        found = _made(status, (effect(test),), data[key], test, policy, 1, "screen", float(test.slower), float(p))
        watched[key] = found
    return (faults[0] if faults else ""), watched


def geometric_mean(pairs: Sequence[PairRounds], keys: Sequence[str], policy: GatePolicy) -> GeometricMean | None:
    """The test of the mean over all cases of the screen; None with fewer than two cases or three complete pairs."""
    screen = [pair for pair in pairs if pair.stage == "screen" and all(pair.cases.get(key) for key in keys)]
    if len(keys) < 2 or len(screen) < LEAST_PAIRS:
        return None
    columns: list[Floats] = [pair_values(collect(screen, key, policy).screen) for key in keys]
    if any(len(column) != len(screen) for column in columns):
        return None
    means = np.mean(columns, axis=0)
    test = t_test(means)
    spread = float(np.std(means, ddof=1))
    status: Literal["unchanged", "improved", "regressed", "inconclusive"] = "unchanged"
    if bool(statistics.mean_rejected(test, policy)):
        status = "regressed"
    elif bool(statistics.mean_rejected(test, policy, up=False)):
        status = "improved"
    elif float(test.bound(policy.certainty)) >= policy.floor:
        status = "inconclusive"
    return GeometricMean(
        ratio=ratio(test), p=float(test.slower), floor=policy.mean_floor, shapes=len(keys), pairs=len(screen),
        status=status,
        mde=max(policy.mean_floor, statistics.detectable(spread, len(screen), policy.alpha, POWER)),
    )  # fmt: skip


def ratio(test: Test, certainty: float = 0.975) -> Ratio:
    """Time of head / time of base with its two-sided 95 % interval."""
    mean, half = float(test.mean), float(test.half_width(certainty))
    return Ratio(value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def effect(test: Test) -> str:
    """The estimate in words."""
    found = ratio(test)
    change = found.value - 1
    interval = f"{percent(found.low - 1, True)} to {percent(found.high - 1, True)}"
    return f"{percent(abs(change))} {'slower' if change >= 0 else 'faster'} ({interval})"


def percent(share: float, signed: bool = False) -> str:
    """A share in per cent, two digits behind the point where it is small."""
    digits = 2 if abs(share) < 0.0995 else 1
    return f"{100 * share:{'+' if signed else ''}.{digits}f} %"
