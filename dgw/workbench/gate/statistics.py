"""The arithmetic of a time gate, on arrays: the last axis holds what is averaged, the axes before it anything else.

The unit of inference is the pair of processes: rounds of one pair share its bias (addresses, JIT state), so a test over
rounds would see certainty that is not there. Values are log ratios, log(time of head / time of base): above 0, head is
slower. The test is Student's t over pairs, one-sided; under heavy one-sided outliers it is conservative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dgw.workbench.gate.policy import GatePolicy

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
LEAST_PAIRS = 3  # fewer pairs decide nothing


def trimmed_mean(values: Any) -> Floats:
    """Mean over the last axis without the smallest and the largest value; NaN marks what does not count.

    With fewer than four values nothing is left out; with none the mean is NaN.
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)  # NaN goes to the end
    count = (~np.isnan(ordered)).sum(axis=-1)
    trim = (count >= 4).astype(np.int64)
    place = np.arange(ordered.shape[-1])
    kept = (place >= trim[..., None]) & (place < (count - trim)[..., None])
    total = np.where(kept, ordered, 0.0).sum(axis=-1)
    size = count - 2 * trim
    return np.asarray(np.divide(total, size, out=np.full(total.shape, np.nan), where=size > 0))


@dataclass(frozen=True)
class Test:
    """Mean over pairs, its standard error, the number of pairs, and p of "head is slower" and of "head is faster"."""

    mean: Floats
    error: Floats
    pairs: int
    slower: Floats
    faster: Floats

    def bound(self, certainty: float) -> Floats:
        """The one-sided upper bound of the mean."""
        return np.asarray(self.mean + t_quantile(certainty, self.pairs - 1) * self.error)

    def half_width(self, certainty: float) -> Floats:
        """Half the two-sided interval whose each side has `certainty`."""
        return np.asarray(t_quantile(certainty, self.pairs - 1) * self.error)


def t_test(values: Any) -> Test:
    """The test over pairs, the last axis. At least two pairs."""
    from scipy.special import stdtr

    found = np.asarray(values, np.float64)
    pairs = found.shape[-1]
    mean = found.mean(axis=-1)
    error = found.std(axis=-1, ddof=1) / math.sqrt(pairs)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, mean / error, np.sign(mean) * np.inf)
    t = np.where(np.isnan(t), 0.0, t)
    return Test(mean, error, pairs, stdtr(pairs - 1, -t), stdtr(pairs - 1, t))


@lru_cache(maxsize=1024)
def t_quantile(certainty: float, freedom: int) -> float:
    """The quantile of Student's distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, certainty))


def holm(p: Any, tested: Any = None) -> Floats:
    """Holm's adjusted p over the last axis: rejecting where it is <= alpha errs with probability <= alpha in all.

    `tested` marks what belongs to the family; the rest gets 1. (Holm 1979, Scandinavian Journal of Statistics 6.)
    """
    found = np.asarray(p, np.float64)
    family = np.ones(found.shape, np.bool_) if tested is None else np.asarray(tested, np.bool_)
    size = family.sum(axis=-1, keepdims=True)
    order = np.argsort(np.where(family, found, np.inf), axis=-1, kind="stable")
    ordered = np.take_along_axis(np.where(family, found, 1.0), order, axis=-1)
    factors = np.maximum(size - np.arange(found.shape[-1]), 1)
    adjusted = np.minimum(np.maximum.accumulate(ordered * factors, axis=-1), 1.0)
    back = np.argsort(order, axis=-1, kind="stable")
    return np.where(family, np.take_along_axis(adjusted, back, axis=-1), 1.0)


def flagged(test: Test, policy: GatePolicy) -> Bools:
    """Whether the screen calls for a confirmation: head looks slower by at least half the floor."""
    return _beyond(test.slower, test.mean, policy.flag_p, policy.floor / 2)


def looks_faster(test: Test, policy: GatePolicy) -> Bools:
    """The same for an improvement."""
    return _beyond(test.faster, -test.mean, policy.flag_p, policy.floor / 2)


def certified(test: Test, policy: GatePolicy) -> Bools:
    """Whether a slowdown of `floor` or more is excluded with the policy's certainty."""
    return np.asarray(test.bound(policy.certainty) < policy.floor)


def rejected(test: Test, adjusted: Any, policy: GatePolicy, up: bool = True) -> Bools:
    """Whether the confirmation says REGRESSED: significant over the family, and at least the floor.

    With `up` False whether it says IMPROVED: the same the other way.
    """
    return _beyond(adjusted, test.mean if up else -test.mean, policy.alpha, policy.floor)


def mean_rejected(test: Test, policy: GatePolicy, up: bool = True) -> Bools:
    """Whether the geometric mean is slower (or faster, with `up` False): its own alpha, its own floor."""
    p, mean = (test.slower, test.mean) if up else (test.faster, -test.mean)
    return _beyond(p, mean, policy.alpha, policy.mean_floor)


def _beyond(p: Any, mean: Floats, alpha: float, floor: float) -> Bools:
    return np.asarray((np.asarray(p) <= alpha) & (mean >= floor))


@lru_cache(maxsize=4096)
def noncentrality(pairs: int, alpha: float, power: float) -> float:
    """The mean in standard errors at which a one-sided t test over `pairs` at `alpha` rejects with `power`."""
    from scipy.optimize import brentq

    highest = 10 * t_quantile(1 - alpha, pairs - 1) + 40
    return float(brentq(lambda ncp: rejects(ncp, pairs, alpha) - power, 0.0, highest))


def rejects(noncentral: float, pairs: int, alpha: float) -> float:
    """The chance that a one-sided t test over `pairs` at `alpha` rejects when the mean is so many standard errors.

    Far out, where the noncentral distribution of SciPy gives up, a normal one does.
    """
    from scipy.special import nctdtr, ndtr

    critical = t_quantile(1 - alpha, pairs - 1)
    below = float(nctdtr(pairs - 1, noncentral, critical))
    return 1 - (float(ndtr(critical - noncentral)) if math.isnan(below) else below)


def detectable(spread: float, pairs: int, alpha: float, power: float) -> float:
    """The least mean that one test over `pairs` values of standard deviation `spread` finds with `power`."""
    return noncentrality(pairs, alpha, power) * spread / math.sqrt(pairs)


def pairs_needed(spread: float, wanted: float, alpha: float, power: float = 0.8, most: int = 1000) -> int | None:
    """The fewest pairs with which `detectable` is at most `wanted`; None where more than `most` are needed."""
    low, high = LEAST_PAIRS, most
    if detectable(spread, most, alpha, power) > wanted:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if detectable(spread, middle, alpha, power) <= wanted else (middle + 1, high)
    return low


def two_stage_power(effect: float, spread: float, policy: GatePolicy, family: int = 1) -> float:
    """The chance that the whole gate calls a slowdown of `effect` regressed, `spread` being that of pair values.

    Each stage needs a small p and a mean above a floor; the less likely of the two stands for both, which go together.
    """
    if spread <= 0:
        return float(effect >= policy.floor)
    screen = _stage_power(effect, spread, policy.screen_pairs, policy.flag_p, policy.floor / 2)
    return screen * _stage_power(effect, spread, policy.confirm_pairs, policy.alpha / family, policy.floor)


def _stage_power(effect: float, spread: float, pairs: int, alpha: float, floor: float) -> float:
    from scipy.special import ndtr

    error = spread / math.sqrt(pairs)
    return min(rejects(effect / error, pairs, alpha), float(ndtr((effect - floor) / error)))


def two_stage_detectable(spread: float, policy: GatePolicy, family: int = 1, power: float = 0.8) -> float:
    """The minimum detectable effect of the whole gate, by bisection of `two_stage_power`."""
    low, high = 0.0, max(4 * policy.floor, 20 * spread)
    for _ in range(40):
        middle = (low + high) / 2
        if two_stage_power(middle, spread, policy, family) < power:
            low = middle
        else:
            high = middle
    return high


def upper_bound(failures: int, runs: int, certainty: float = 0.95) -> float:
    """The exact (Clopper and Pearson) one-sided upper bound of a rate of which `failures` were seen in `runs`."""
    if failures >= runs:
        return 1.0
    from scipy.special import betaincinv

    return float(betaincinv(failures + 1, runs - failures, certainty))


def spreads(rounds: Any) -> tuple[float, float]:
    """From log ratios (pairs x rounds): the standard deviation of a round, and that of pairs beyond the rounds' share.

    One-way analysis of variance; the latter is 0 where the pairs scatter no more than their rounds explain.
    """
    found = [row[~np.isnan(row)] for row in np.asarray(rounds, np.float64)]
    found = [row for row in found if len(row) >= 2]
    if len(found) < 2:
        return math.nan, math.nan
    within = sum(float(((row - row.mean()) ** 2).sum()) for row in found) / sum(len(row) - 1 for row in found)
    between = float(np.var([row.mean() for row in found], ddof=1))
    size = len(found) / sum(1 / len(row) for row in found)
    return math.sqrt(within), math.sqrt(max(0.0, between - within / size))
