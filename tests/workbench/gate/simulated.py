"""A device that carries its own noise: bias of processes, drift of clocks, outliers, and turns in random order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dgw.workbench.gate import statistics
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.statistics import Floats, Test

SIGMA_PROCESS = 0.002
OUTLIERS = (5, 12)  # in sigmas; with these all of the reference's tables come out, in all plans


@dataclass(frozen=True)
class Noise:
    """`sigma`: a turn's scatter. One turn in `1 / outliers` is slower by OUTLIERS. `drift`: over the rounds of a pair.
    `process`: the bias of a pair of processes in its log ratio, for each shape its own."""

    sigma: float
    outliers: float = 0.03
    drift: float = 0.01
    process: float = SIGMA_PROCESS

    def log_ratios(self, rng: Any, effect: Floats, pairs: int, rounds: int) -> Floats:
        """Of each round: effect's axes, then pairs, then rounds. The sides take turns in random order."""
        shape = (*effect.shape, pairs, rounds)
        first = rng.random(shape) < 0.5
        place = np.arange(rounds) * 2.0
        base, head = place + ~first, place + first
        bias = rng.standard_normal((*effect.shape, pairs, 1)) * self.process
        slope = self.drift / (2 * rounds)
        return self._turns(rng, shape, head * slope + bias + effect[..., None, None]) - self._turns(
            rng, shape, base * slope
        )

    def _turns(self, rng: Any, shape: tuple[int, ...], level: Floats) -> Floats:
        hit = rng.random(shape) < self.outliers
        return np.asarray(
            level + self.sigma * (rng.standard_normal(shape) + np.where(hit, rng.uniform(*OUTLIERS, shape), 0.0))
        )


H200 = Noise(0.016, drift=0.13, process=0.003)
"""At least what ten clean gates of one kernel at four shapes showed of the machine, its worst figures together
(docs/h200/gate.json). Most of the drift is the clock, which falls under power: both sides drift alike."""


@dataclass(frozen=True)
class Outcome:
    """Of many gates: which cases were called regressed, whether the geometric mean was, rounds measured for a case."""

    regressed: Any
    mean_regressed: Any
    rounds: float

    @property
    def failed(self) -> float:
        """The share of gates that fail."""
        return float((self.regressed.any(axis=-1) | self.mean_regressed).mean())


def gates(rng: Any, noise: Noise, effect: Floats, policy: GatePolicy) -> Outcome:
    """The whole gate, as decide.py does it, for effects of shape (gates, cases)."""
    first = statistics.trimmed_mean(noise.log_ratios(rng, effect, policy.screen_pairs, policy.rounds))
    flagged = statistics.flagged(statistics.t_test(first), policy)
    where = np.nonzero(flagged)
    fresh = statistics.trimmed_mean(noise.log_ratios(rng, effect[where], policy.confirm_pairs, policy.rounds))
    test = statistics.t_test(fresh)
    p = np.ones(effect.shape)
    p[where] = test.slower
    mean = np.zeros(effect.shape)
    mean[where] = test.mean
    adjusted = statistics.holm(p, flagged)
    regressed = flagged & statistics.rejected(Test(mean, mean, test.pairs, p, p), adjusted, policy)
    overall = statistics.t_test(first.mean(axis=-2))
    rounds = (policy.screen_pairs + float(flagged.mean()) * policy.confirm_pairs) * policy.rounds
    return Outcome(regressed, statistics.mean_rejected(overall, policy), rounds)


@lru_cache
def clean(noise: Noise, policy: GatePolicy, count: int, cases: int = 63) -> Floats:
    """Of `count` gates over clean cases: the p of the confirmation of each, 2 for what the screen did not flag."""
    rng, effect = np.random.default_rng(10), np.zeros((count, cases))
    flagged = statistics.flagged(statistics.t_test(_pair_means(rng, noise, effect, policy, "screen")), policy)
    p = np.full(effect.shape, 2.0)
    p[flagged] = statistics.t_test(_pair_means(rng, noise, effect[flagged], policy, "confirm")).slower
    return p


def power(rng: Any, noise: Noise, slowdown: float, policy: GatePolicy, count: int, others: int) -> float:
    """The share of `count` gates that call one slower case of 64 regressed. The other 63 are independent of it, so that
    gates of these alone (`others`, drawn once) are combined with every draw of the slower one."""
    effect = np.full(count, slowdown)
    flagged = statistics.flagged(statistics.t_test(_pair_means(rng, noise, effect, policy, "screen")), policy)
    test = statistics.t_test(_pair_means(rng, noise, effect, policy, "confirm"))
    beside = clean(noise, policy, others)[rng.integers(0, others, count)]
    p = np.concatenate([test.slower[:, None], beside], axis=-1)
    adjusted = statistics.holm(p, np.concatenate([flagged[:, None], beside < 2.0], axis=-1))[:, 0]
    return float((flagged & statistics.rejected(test, adjusted, policy)).mean())


def _pair_means(rng: Any, noise: Noise, effect: Floats, policy: GatePolicy, stage: str) -> Floats:
    pairs = policy.screen_pairs if stage == "screen" else policy.confirm_pairs
    return statistics.trimmed_mean(noise.log_ratios(rng, effect, pairs, policy.rounds))


def one_slower(count: int, slowdown: float, cases: int = 64) -> Floats:
    """Effects in which the first of the cases is slower."""
    effect = np.zeros((count, cases))
    effect[:, 0] = slowdown
    return effect
