"""Verdicts from pairs that are made up: what is flagged, confirmed, certified, or left open."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dgw.workbench.gate import decide, statistics
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.rounds import PairRounds, Round, Stage, collect
from tests.workbench.gate.simulated import Noise

POLICY = GatePolicy()


def rounds(log_ratios: Any, **more: Any) -> tuple[Round, ...]:
    return tuple(Round(base=1e-4, head=1e-4 * math.exp(value), **more) for value in log_ratios)


def measured(
    effects: dict[str, float], stage: Stage, pairs: int, sigma: float = 0.002, seed: int = 0, attempt: int = 1,
    flagged: tuple[str, ...] = (), **more: Any,
) -> list[PairRounds]:  # fmt: skip
    """Pairs in which each case is slower by its effect."""
    rng = np.random.default_rng([seed, pairs, attempt])
    noise = Noise(sigma, outliers=0.0, drift=0.0, process=0.0005)
    data = {key: noise.log_ratios(rng, np.array([value]), pairs, POLICY.rounds)[0] for key, value in effects.items()}
    return [
        PairRounds(
            stage=stage, number=n, cases={key: rounds(data[key][n], **more) for key in effects}, flagged=flagged,
            attempt=attempt,
        )
        for n in range(pairs)
    ]  # fmt: skip


def gate(effects: dict[str, float], sentinels: dict[str, float] | None = None, **more: Any) -> decide.Judgement:
    """A whole gate over these effects: the screen, then fresh pairs of what it asks for."""
    pairs = measured(effects | (sentinels or {}), "screen", 4, **more)
    seen = decide.look(pairs, list(effects), POLICY)
    again = {key: effects[key] for key in effects if key in seen.again}
    if again:
        pairs += measured(again, "confirm", 8, flagged=tuple(seen.flagged), **more)
    return decide.judge(pairs, list(effects), list(sentinels or {}), POLICY)


def statuses(judgement: decide.Judgement) -> dict[str, str]:
    return {key: one.status for key, one in judgement.cases.items()}


def test_a_slower_case_is_regressed_on_fresh_pairs_and_the_others_are_unchanged() -> None:
    found = gate({"slow": 0.03, "a": 0.0, "b": 0.0})
    assert statuses(found) == {"slow": "regressed", "a": "unchanged", "b": "unchanged"}
    slow = found.cases["slow"]
    assert slow.stage == "confirm"
    assert slow.pairs == 8
    assert slow.ratio is not None
    assert slow.ratio.low < math.exp(0.03) < slow.ratio.high
    assert slow.p_adjusted is not None
    assert slow.p_adjusted <= 0.01
    assert "slower" in slow.reasons[0]


def test_a_faster_case_is_improved_and_fails_nothing() -> None:
    assert statuses(gate({"fast": -0.05, "a": 0.0})) == {"fast": "improved", "a": "unchanged"}


def test_a_slowdown_below_the_floor_is_not_regressed_however_certain() -> None:
    found = gate({"a": 0.007, "b": 0.0}, sigma=0.0005)
    assert statuses(found)["a"] == "unchanged"
    assert found.cases["a"].p is not None
    assert found.cases["a"].p < 0.01


def test_a_case_that_scatters_too_much_is_inconclusive_and_says_how_many_pairs_would_do() -> None:
    found = gate({"noisy": 0.0, "other": 0.0}, sigma=0.04)
    noisy = found.cases["noisy"]
    assert noisy.status == "inconclusive"
    assert noisy.pairs_needed is not None
    assert noisy.pairs_needed > 4
    assert f"about {noisy.pairs_needed} pairs would tell" in " ".join(noisy.reasons)
    assert noisy.mde is not None
    assert noisy.mde > POLICY.underpowered


def test_a_hopeless_case_gets_no_more_pairs_but_a_merely_imprecise_one_does() -> None:
    hopeless = [decide.look(measured({"a": 0.0}, "screen", 4, sigma=0.2, seed=n), ["a"], POLICY) for n in range(12)]
    assert not any(seen.imprecise for seen in hopeless)
    imprecise = [
        decide.look(measured({"a": 0.004}, "screen", 4, sigma=0.01, seed=seed), ["a"], POLICY) for seed in range(12)
    ]
    assert any(seen.imprecise for seen in imprecise)


def test_only_pairs_after_the_screen_decide_about_what_it_flagged() -> None:
    pairs = measured({"a": 0.05, "b": 0.0}, "screen", 4) + measured({"a": 0.0}, "confirm", 8, flagged=("a",))
    found = decide.judge(pairs, ["a", "b"], [], POLICY)
    assert found.cases["a"].status == "unchanged"


def test_a_flagged_case_without_fresh_pairs_is_inconclusive() -> None:
    pairs = measured({"a": 0.05, "b": 0.0}, "screen", 4)
    assert decide.judge(pairs, ["a", "b"], [], POLICY).cases["a"].status == "inconclusive"


def test_retries_pool_so_that_repeating_cannot_wash_a_regression_away() -> None:
    first = measured({"a": 0.02}, "screen", 4) + measured({"a": 0.02}, "confirm", 8, flagged=("a",))
    lucky = measured({"a": 0.0}, "screen", 4, attempt=2)
    seen = decide.look([*first, *lucky], ["a"], POLICY)
    assert seen.flagged == {"a"}
    again = measured({"a": 0.02}, "confirm", 8, attempt=2, flagged=("a",))
    found = decide.judge([*first, *lucky, *again], ["a"], [], POLICY).cases["a"]
    assert found.status == "regressed"
    assert found.pairs == 16


def test_sentinels_that_moved_make_every_time_doubtful() -> None:
    found = gate({"a": 0.03, "b": 0.0}, sentinels={"same": 0.02})
    assert set(statuses(found).values()) == {"inconclusive"}
    assert "the machine is not steady" in found.fault
    assert found.mean is None
    assert found.sentinels["same"].status == "inconclusive"


def test_steady_sentinels_leave_the_verdicts_alone() -> None:
    found = gate({"a": 0.03, "b": 0.0}, sentinels={"same": 0.0})
    assert statuses(found) == {"a": "regressed", "b": "unchanged"}
    assert found.sentinels["same"].status == "unchanged"


def test_rounds_under_a_thermal_brake_do_not_count_and_many_of_them_leave_it_open() -> None:
    found = gate({"a": 0.0, "b": 0.0}, throttle=("HwThermalSlowdown",))
    assert found.cases["a"].status == "inconclusive"
    assert "0 pairs" in found.cases["a"].reasons[0]
    hot, fine = measured({"a": 0.0}, "screen", 2, throttle=("HwSlowdown",)), measured({"a": 0.0}, "screen", 4)
    judged = decide.judge([*fine, *hot], ["a"], [], POLICY).cases["a"]
    assert judged.status == "inconclusive"
    assert judged.reasons[0] == "10 of 30 rounds are invalid (10 x HwSlowdown)"


def test_a_power_cap_is_normal_work() -> None:
    assert statuses(gate({"a": 0.0}, throttle=("SwPowerCap",))) == {"a": "unchanged"}


def test_a_round_is_dropped_where_the_clocks_of_its_turns_differ_more_than_usual() -> None:
    usual = [Round(base=1.0, head=1.0, base_clock=1.9e9, head_clock=1.8e9)] * 8
    odd = Round(base=1.0, head=1.1, base_clock=1.9e9, head_clock=1.6e9)
    pairs = [PairRounds(stage="screen", number=1, cases={"a": (*usual, odd)})]
    found = collect(pairs, "a", POLICY)
    assert found.dropped == {"SM clocks apart": 1}
    assert np.isnan(found.screen[0, 8])


def test_a_uniform_slowdown_shows_in_the_geometric_mean() -> None:
    effects = {f"case {number}": 0.008 for number in range(16)}
    found = gate(effects, sigma=0.001)
    assert "regressed" not in statuses(found).values()
    assert found.mean is not None
    assert found.mean.status == "regressed"
    assert found.mean.ratio.value == pytest.approx(math.exp(0.008), abs=0.001)


def test_one_case_has_no_geometric_mean_of_its_own() -> None:
    assert gate({"a": 0.0}).mean is None


def test_the_spread_of_pairs_is_told_from_that_of_rounds() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(0, 0.01, (200, 20)) + rng.normal(0, 0.02, (200, 1))
    within, between = statistics.spreads(values)
    assert within == pytest.approx(0.01, rel=0.05)
    assert between == pytest.approx(0.02, rel=0.15)


@pytest.mark.parametrize(("failures", "runs", "bound"), [(0, 50, 0.058), (0, 100, 0.0295), (0, 300, 0.00994)])
def test_the_bound_of_a_rate_is_that_of_the_reference(failures: int, runs: int, bound: float) -> None:
    assert statistics.upper_bound(failures, runs) == pytest.approx(bound, rel=0.01)


def test_a_rate_that_always_failed_is_bounded_by_one() -> None:
    assert statistics.upper_bound(3, 3) == 1.0


def test_holm_adjusts_the_family_and_nothing_else() -> None:
    adjusted = statistics.holm([0.01, 0.04, 0.03, 0.0001], [True, True, True, False])
    assert adjusted.tolist() == pytest.approx([0.03, 0.06, 0.06, 1.0])


@pytest.mark.parametrize(
    ("values", "mean"),
    [((1, 2, 3, 4, 100), 3.0), ((1, 2, math.nan, 3, math.nan), 2.0), ((5, math.nan), 5.0), ((1, 2, 3, 40), 2.5)],
)
def test_the_trimmed_mean_leaves_the_ends_out_and_what_is_missing(values: Any, mean: float) -> None:
    assert float(statistics.trimmed_mean(np.array(values))) == pytest.approx(mean)


def test_nothing_at_all_has_no_mean() -> None:
    assert np.isnan(statistics.trimmed_mean(np.array([math.nan, math.nan])))


def test_values_without_any_scatter_are_certain() -> None:
    assert float(statistics.t_test(np.full(4, 0.02)).slower) == 0.0
    assert float(statistics.t_test(np.zeros(4)).slower) == 0.5
