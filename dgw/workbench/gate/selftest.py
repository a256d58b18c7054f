"""How often clean gates would fail, from the pairs of A/A gates: resampled with the two sides exchanged at random.

Both sides of an A/A pair run the same code, so exchanging them changes nothing that a clean gate may depend on. Each
resample draws the pairs of a screen and of a confirmation from all that were measured, exchanges the sides of each at
random, and is judged as a gate is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgw.workbench.gate import statistics
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.rounds import PairRounds, collect
from dgw.workbench.gate.statistics import Floats, Test


@dataclass(frozen=True)
class Resampled:
    """Resamples that would have failed: by a case, by the geometric mean, by either."""

    count: int
    by_case: int
    by_mean: int
    failed: int


@dataclass(frozen=True)
class Noise:
    """What A/A pairs say of a machine, for one case: standard deviations of a round's log ratio and between pairs, and
    by how much (relative) times moved from the first to the last round of a pair, at the most in 95 of 100 pairs."""

    sigma: float
    sigma_process: float
    drift: float


def pair_matrix(pairs: Sequence[PairRounds], keys: Sequence[str], policy: GatePolicy) -> Floats:
    """Values of pairs, keys x pairs: only pairs of the screen in which every case has a value."""
    screen = [pair for pair in pairs if pair.stage == "screen" and all(pair.cases.get(key) for key in keys)]
    columns = [statistics.trimmed_mean(collect(screen, key, policy).screen) for key in keys]
    matrix = np.array(columns).reshape(len(keys), -1)
    return np.asarray(matrix[:, ~np.isnan(matrix).any(axis=0)])


def resample(values: Floats, policy: GatePolicy, count: int, seed: int = 0) -> Resampled:
    """`count` clean gates drawn from `values` (cases x pairs, at least as many pairs as a screen has)."""
    rng = np.random.default_rng(seed)
    cases, pairs = values.shape

    def drawn(size: int) -> Floats:
        chosen = rng.integers(0, pairs, (count, size))
        signs = rng.choice((-1.0, 1.0), (count, 1, size))
        return np.asarray(values[:, chosen].transpose(1, 0, 2) * signs)

    first = drawn(policy.screen_pairs)
    screen = statistics.t_test(first)
    flagged = statistics.flagged(screen, policy)
    fresh: Test = statistics.t_test(drawn(policy.confirm_pairs))
    regressed = flagged & statistics.rejected(fresh, statistics.holm(fresh.slower, flagged), policy)
    by_case = regressed.any(axis=-1)
    by_mean = np.zeros(count, np.bool_)
    if cases >= 2:
        by_mean = statistics.mean_rejected(statistics.t_test(first.mean(axis=1)), policy)
    return Resampled(count, int(by_case.sum()), int(by_mean.sum()), int((by_case | by_mean).sum()))


def noise(pairs: Sequence[PairRounds], key: str, policy: GatePolicy) -> Noise:
    """The noise of one case."""
    sigma, process = collect(pairs, key, policy).sigmas
    moved = []
    for pair in pairs:
        rounds = pair.cases.get(key, ())
        if len(rounds) >= 2:
            first, last = (rounds[at].base * rounds[at].head for at in (0, -1))
            moved.append(abs(np.log(last / first)) / 2)
    return Noise(sigma, process, float(np.quantile(moved, 0.95)) if moved else float("nan"))
