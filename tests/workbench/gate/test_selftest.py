"""Clean gates out of A/A pairs."""

from __future__ import annotations

import numpy as np
import pytest

from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.rounds import PairRounds
from dgw.workbench.gate.selftest import noise, pair_matrix, resample
from tests.workbench.gate.test_decide import measured, rounds

POLICY = GatePolicy()


def test_resamples_of_a_steady_machine_hardly_ever_fail() -> None:
    rng = np.random.default_rng(0)
    found = resample(rng.normal(0, 0.003, (4, 40)), POLICY, 2000)
    assert found.count == 2000
    assert found.failed <= 20


def test_processes_whose_bias_is_common_to_all_cases_show_that_the_mean_would_fail() -> None:
    """Four pairs have the same sign in one of 16 draws; only cases that are biased independently cancel."""
    rng = np.random.default_rng(1)
    found = resample(np.full((4, 40), 0.02) + rng.normal(0, 1e-3, (4, 40)), POLICY, 2000)
    assert found.by_mean / found.count == pytest.approx(1 / 16, abs=0.02)
    alone = rng.choice((-0.002, 0.002), (4, 40)) + rng.normal(0, 1e-3, (4, 40))
    assert resample(alone, POLICY, 2000).failed <= 20


def test_values_of_pairs_stand_case_by_case_and_incomplete_pairs_are_left_out() -> None:
    pairs = measured({"a": 0.0, "b": 0.0}, "screen", 5)
    pairs.append(PairRounds(stage="screen", number=9, cases={"a": rounds([0.0] * 5)}))
    pairs += measured({"a": 0.0, "b": 0.0}, "confirm", 2)
    assert pair_matrix(pairs, ["a", "b"], POLICY).shape == (2, 5)


def test_noise_is_told_from_the_rounds() -> None:
    found = noise(measured({"a": 0.0}, "screen", 200, sigma=0.002), "a", POLICY)
    assert found.sigma == pytest.approx(0.002 * 2**0.5, rel=0.1)
    assert found.sigma_process == pytest.approx(0.0005 * 2**0.5, rel=0.5)
    assert 0 < found.drift < 0.01
