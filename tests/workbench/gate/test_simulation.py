"""The promises of the time gate, by simulation: rates of false alarms and power, against the reference's tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dgw.workbench.gate import statistics
from dgw.workbench.gate.policy import PLANS, GatePolicy
from tests.workbench.gate.simulated import H200, SIGMA_PROCESS, Noise, gates, one_slower, power

EVIDENCE = Path(__file__).resolve().parents[3] / "docs" / "h200" / "gate.json"
SIGMAS = (0.003, 0.01, 0.03)
POLICY = GatePolicy()
WITHIN = 0.03  # three points, as the issue asks

POWER = [  # sigma, true slowdown, share of gates that call it regressed (reference 2.4, two-stage)
    (0.003, 0.015, 1.00), (0.003, 0.02, 1.00), (0.003, 0.03, 1.00),
    (0.01, 0.015, 0.73), (0.01, 0.02, 0.92), (0.01, 0.03, 0.98), (0.01, 0.05, 1.00),
    (0.03, 0.02, 0.06), (0.03, 0.03, 0.32), (0.03, 0.05, 0.84), (0.03, 0.10, 0.98),
]  # fmt: skip
ROUNDS = {0.003: 20.7, 0.01: 21.9, 0.03: 22.3}
UNIFORM = [  # a slowdown of all 64 shapes, and how often the test of the mean alone rejects (reference 2.4)
    (0.003, 0.003, 1.00), (0.01, 0.003, 0.78), (0.003, 0.005, 1.00), (0.01, 0.005, 0.997),
]  # fmt: skip
UNIFORM_NOISY = {0.003: 0.18, 0.005: 0.31}  # at sigma 3 %: two figures that no t test over four pairs can both have
DETECTABLE = {  # reference 2.5, independent rounds, 90 % power: sigma -> {rounds: slowdown}
    0.003: {6: 0.0088, 8: 0.0068, 10: 0.0058, 12: 0.0051, 15: 0.0044, 20: 0.0037, 30: 0.0029, 50: 0.0022},
    0.01: {6: 0.0293, 8: 0.0227, 10: 0.0193, 12: 0.0169, 15: 0.0146, 20: 0.0123, 30: 0.0098, 50: 0.0074},
    0.03: {6: 0.0877, 8: 0.0679, 10: 0.0575, 12: 0.0506, 15: 0.0438, 20: 0.0367, 30: 0.0293, 50: 0.0223},
}
WHOLE_GATE = [  # reference 2.5: plan, sigma, slowdowns found with 50, 80 and 90 % power
    ("default", 0.003, (0.0100, 0.0109, 0.0115)), ("default", 0.01, (0.0125, 0.0159, 0.0187)),
    ("default", 0.03, (0.0355, 0.0476, 0.0564)), ("wide", 0.003, (0.0100, 0.0107, 0.0111)),
    ("wide", 0.01, (0.0103, 0.0119, 0.0128)), ("wide", 0.03, (0.0218, 0.0291, 0.0338)),
    ("release", 0.003, (0.0100, 0.0106, 0.0109)), ("release", 0.01, (0.0100, 0.0112, 0.0118)),
    ("release", 0.03, (0.0147, 0.0191, 0.0221)),
]  # fmt: skip
DRAWN = {"default": (4000, 400), "wide": (3000, 200), "release": (2000, 80)}  # gates: of the slower case, of the others


@pytest.mark.parametrize("drift", [0.0, 0.03])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_at_most_one_clean_gate_in_a_hundred_fails(sigma: float, drift: float) -> None:
    found = gates(np.random.default_rng(1), Noise(sigma, drift=drift), np.zeros((1000, 64)), POLICY)
    assert found.failed <= 0.01


def test_at_most_one_clean_gate_in_a_hundred_fails_where_noise_is_that_of_an_h200() -> None:
    found = gates(np.random.default_rng(1), H200, np.zeros((2000, 64)), POLICY)
    assert found.failed <= 0.01


def test_an_h200_was_not_seen_to_be_noisier_than_is_simulated() -> None:
    seen = json.loads(EVIDENCE.read_text(encoding="utf-8"))["parts"]["clean"]["noise"]
    assert len(seen) == 4
    for one in seen.values():
        assert one["sigma"] / 2**0.5 <= H200.sigma
        assert one["sigma_process"] <= H200.process
        assert one["drift"] <= H200.drift


@pytest.mark.parametrize(("sigma", "slowdown", "expected"), POWER)
def test_power_for_one_slower_shape_of_64_is_that_of_the_table(sigma: float, slowdown: float, expected: float) -> None:
    found = power(np.random.default_rng(2), Noise(sigma, drift=0.0), slowdown, POLICY, *DRAWN["default"])
    assert found == pytest.approx(expected, abs=WITHIN)


def test_power_drawn_from_clean_gates_is_that_of_whole_gates() -> None:
    noise = Noise(0.01, drift=0.0)
    whole = gates(np.random.default_rng(2), noise, one_slower(800, 0.016), POLICY).regressed[:, 0].mean()
    assert power(np.random.default_rng(3), noise, 0.016, POLICY, *DRAWN["default"]) == pytest.approx(whole, abs=0.04)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_case_costs_as_many_rounds_as_the_table_says(sigma: float) -> None:
    found = gates(np.random.default_rng(3), Noise(sigma, drift=0.0), one_slower(400, 0.03), POLICY)
    assert found.rounds == pytest.approx(ROUNDS[sigma], abs=0.6)


@pytest.mark.parametrize(("sigma", "slowdown", "expected"), UNIFORM)
def test_the_geometric_mean_finds_what_no_single_shape_shows(sigma: float, slowdown: float, expected: float) -> None:
    assert rejected_means(sigma, slowdown) == pytest.approx(expected, abs=WITHIN)


def rejected_means(sigma: float, slowdown: float) -> float:
    """The share of 800 gates in which the mean over 64 shapes, all of them slower, is."""
    ratios = Noise(sigma, drift=0.0).log_ratios(np.random.default_rng(4), np.full((800, 64), slowdown), 4, 5)
    test = statistics.t_test(statistics.trimmed_mean(ratios).mean(axis=-2))
    return float((test.slower <= POLICY.alpha).mean())


def test_where_the_table_of_the_mean_contradicts_itself_the_gate_lies_between_its_figures() -> None:
    """What rejects 18 % at 0.3 % rejects far more than 31 % at 0.5 %; so the two are compared by their mean."""
    small, large = UNIFORM_NOISY
    standard_errors = statistics.noncentrality(POLICY.screen_pairs, POLICY.alpha, UNIFORM_NOISY[small])
    implied = statistics.rejects(standard_errors * large / small, POLICY.screen_pairs, POLICY.alpha)
    assert implied > UNIFORM_NOISY[large] + 2 * WITHIN
    found = [rejected_means(0.03, slowdown) for slowdown in UNIFORM_NOISY]
    assert float(np.mean(found)) == pytest.approx(np.mean(list(UNIFORM_NOISY.values())), abs=WITHIN)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_detectable_slowdown_of_one_test_is_that_of_the_table(sigma: float) -> None:
    """Power at the tabulated slowdown, which has two digits, so the slowdown is compared to its rounding."""
    for rounds, slowdown in DETECTABLE[sigma].items():
        computed = statistics.detectable(2**0.5 * sigma, rounds, 0.01, 0.9)
        assert computed == pytest.approx(slowdown, rel=0.03)
        rng = np.random.default_rng(5)
        values = slowdown + 2**0.5 * sigma * rng.standard_normal((2000, rounds))
        assert float((statistics.t_test(values).slower <= 0.01).mean()) == pytest.approx(0.9, abs=WITHIN)


@pytest.mark.parametrize(("plan", "sigma", "slowdowns"), WHOLE_GATE)
def test_power_of_the_whole_gate_is_that_of_the_table(
    plan: str, sigma: float, slowdowns: tuple[float, float, float]
) -> None:
    policy = PLANS[plan]
    for slowdown, expected in zip(slowdowns, (0.5, 0.8, 0.9), strict=True):
        rng, noise = np.random.default_rng(6), Noise(sigma, drift=0.0)
        assert power(rng, noise, slowdown, policy, *DRAWN[plan]) == pytest.approx(expected, abs=WITHIN)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_gate_knows_what_it_can_detect(sigma: float) -> None:
    """The minimum detectable effect computed from the spread of pairs is found in 80 of 100 gates."""
    rng, noise = np.random.default_rng(7), Noise(sigma, drift=0.0)
    values = statistics.trimmed_mean(noise.log_ratios(rng, np.zeros((2000, 1)), 4, 5))
    spread = float(np.sqrt(np.var(values)))
    effect = statistics.two_stage_detectable(spread, POLICY, family=3)
    assert power(rng, noise, effect, POLICY, *DRAWN["default"]) == pytest.approx(0.8, abs=WITHIN)


def test_a_gate_over_rounds_instead_of_pairs_would_cry_wolf() -> None:
    """Why the pair is the unit: 100 rounds of one pair see its bias as certainty."""
    noise = Noise(0.01, drift=0.0, outliers=0.0, process=SIGMA_PROCESS)
    ratios = noise.log_ratios(np.random.default_rng(8), np.zeros(4000), 1, 100)
    over_rounds = statistics.t_test(ratios.reshape(4000, 100)).slower <= 0.01
    ratios = noise.log_ratios(np.random.default_rng(9), np.zeros(4000), 10, 10)
    over_pairs = statistics.t_test(statistics.trimmed_mean(ratios)).slower <= 0.01
    assert over_rounds.mean() == pytest.approx(0.087, abs=WITHIN)  # reference, decision 2
    assert over_pairs.mean() <= 0.015
