"""The sampling policy on a device that carries its own time."""

from __future__ import annotations

import random

import pytest

from dgw.workbench.collectors import timing
from dgw.workbench.collectors.timing import Entrant, Replay, Telemetry
from dgw.workbench.protocol import SCREEN, Policy


class MockBench:
    """A device whose clock moves only when something is replayed."""

    def __init__(self, seconds: dict[str, float], launches: int = 10, drift: float = 0.0) -> None:
        self.time = 0.0
        self.seconds, self.launches, self.drift = seconds, launches, drift
        self.log: list[tuple[str, str]] = []
        self.said: list[tuple[str, str]] = []
        self.noise = random.Random(1)

    def replay(self, key: str, cache: timing.Cache, sensors: bool) -> Replay:
        factor = (1.0 if cache == "hot" else 1.5) * (1 + self.drift * self.time) * self.noise.uniform(0.99, 1.01)
        seconds = self.seconds[key] * self.launches * factor
        self.time += seconds
        self.log.append((key, cache))
        clock = 1980e6 - (200e6 if self.time < 0.05 else 0)
        return Replay(seconds, Telemetry(clock, 400.0, 50.0, ("SwPowerCap",)) if sensors else None)

    def now(self) -> float:
        return self.time

    def announce(self, key: str, phase: str) -> None:
        self.said.append((key, phase))


def entrants(*keys: str, launches: int = 10) -> list[Entrant]:
    return [Entrant(key, launches, launches) for key in keys]


def test_members_take_turns_and_the_order_changes_between_turns() -> None:
    bench = MockBench({"x": 1e-3, "y": 1e-3, "z": 1e-3})
    timing.sample(bench, entrants("x", "y", "z"), Policy(turns=12))
    turns = [[key for key, _ in bench.said[i : i + 3]] for i in range(0, 36, 3)]
    assert all(sorted(turn) == ["x", "y", "z"] for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1


def test_the_order_is_the_same_for_the_same_seed() -> None:
    logs = []
    for _ in range(2):
        bench = MockBench({"x": 1e-3, "y": 1e-3})
        timing.sample(bench, entrants("x", "y"), Policy(turns=8, seed=3))
        logs.append(bench.log)
    assert logs[0] == logs[1]


def test_a_sample_is_one_replay_divided_by_its_launches() -> None:
    series = timing.sample(MockBench({"x": 2e-3}), entrants("x"), Policy(turns=6))
    assert all(value == pytest.approx(2e-3, rel=0.02) for value in series["x"].hot.values())
    assert all(value == pytest.approx(3e-3, rel=0.02) for value in series["x"].cold.values())


def test_a_slow_member_leaves_after_its_budget_and_the_others_go_on() -> None:
    bench = MockBench({"slow": 0.1, "fast": 1e-4})
    series = timing.sample(bench, entrants("slow", "fast"), Policy(turns=30, min_turns=6, budget_s=1.0))
    assert len(series["slow"].cold) == 6
    assert len(series["fast"].cold) == 30


def test_a_drift_that_meets_both_members_leaves_their_ratio_alone() -> None:
    bench = MockBench({"own": 1e-3, "cublas": 0.8e-3}, drift=0.5)
    series = timing.sample(bench, entrants("own", "cublas"), Policy(turns=30))
    ratio = timing.ratio_measurement("cublas", series["own"], series["cublas"], Policy())
    assert ratio.metric == "ratio_to_cublas"
    assert ratio.value == pytest.approx(0.8, rel=0.03)
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.protocol == "paired/1 cold-graph/1"
    plain = timing.time_measurements(series["own"], 10**9, 10**6, Policy(), "")
    assert plain[0].high / plain[0].low > ratio.high / ratio.low


def test_a_ratio_without_its_baseline_is_absent_with_the_reason() -> None:
    series = timing.sample(MockBench({"own": 1e-3}), entrants("own"), Policy(turns=6))
    ratio = timing.ratio_measurement("cublas", series["own"], None, Policy(), "cublas crashed")
    assert ratio.value is None
    assert ratio.absent == "cublas crashed"


def test_without_cold_samples_the_cold_time_is_absent_and_the_rate_says_hot() -> None:
    series = timing.sample(MockBench({"x": 1e-3}), [Entrant("x", 10)], Policy(turns=6))["x"]
    found = {m.metric: m for m in timing.time_measurements(series, 10**9, 10**6, Policy(), "too small")}
    assert found["time_cold"].absent == "too small"
    assert found["tflops"].protocol == "hot-graph/1"
    assert found["tflops"].value == pytest.approx(1e12, rel=0.02)
    assert found["sm_clock"].unit == "Hz"
    assert found["throttle"].value == "SwPowerCap"


def test_screening_has_a_protocol_of_its_own() -> None:
    assert timing.protocol_name("cold", SCREEN) == "screen/1 cold-graph/1"
    assert timing.protocol_name("cold", Policy()) == "cold-graph/1"


def test_warm_up_ends_when_the_clock_holds_still() -> None:
    bench = MockBench({"x": 1e-3})
    spent = timing.settle(bench, "x", Policy(warm_up_s=2.0))
    assert 0.5 <= spent < 1.0


def test_warm_up_ends_at_its_limit_when_there_is_no_clock_to_read() -> None:
    class Silent(MockBench):
        def replay(self, key: str, cache: timing.Cache, sensors: bool) -> Replay:
            return Replay(super().replay(key, cache, sensors).seconds)

    assert timing.settle(Silent({"x": 1e-3}), "x", Policy(warm_up_s=1.0)) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (5, 1), (6, 1), (8, 1), (9, 2), (20, 6), (30, 10)])
def test_the_interval_of_the_median_uses_the_tabulated_order_statistics(n: int, rank: int) -> None:
    values = list(range(1, n + 1))
    middle, low, high = timing.median_interval([float(v) for v in values])
    assert middle == (n + 1) / 2
    assert (low, high) == (rank, n + 1 - rank)


def test_the_interval_covers_the_true_median_at_least_as_often_as_it_claims() -> None:
    rng = random.Random(0)
    hits = 0
    for _ in range(400):
        _, low, high = timing.median_interval([rng.expovariate(1.0) for _ in range(20)])
        hits += low <= 0.6931471805599453 <= high
    assert hits >= 0.94 * 400


def test_rotation_reaches_twice_the_l2_or_says_why_not() -> None:
    assert timing.rotation(100 << 20, 60 << 20, 100 << 30).sets == 2
    assert timing.rotation(6 << 20, 60 << 20, 100 << 30).sets == 20
    small = timing.rotation(1000, 60 << 20, 100 << 30)
    assert small.sets == 1
    assert "hot only" in small.absent
    assert "free memory" in timing.rotation(4 << 30, 60 << 20, 5 << 30).absent


@pytest.mark.parametrize(
    ("single", "sets", "expected"), [(200e-6, 2, 50), (0.1, 2, 2), (0.1, 1, 1), (10e-6, 21, 1008), (3e-6, 256, 3584)]
)
def test_a_replay_uses_every_set_equally_often(single: float, sets: int, expected: int) -> None:
    launches = timing.launches_per_replay(single, sets, 0.010)
    assert launches == expected
    assert launches % sets == 0


def test_energy_says_how_it_was_obtained() -> None:
    assert timing.energy_measurement(400.0, 300.0, 1e-3).protocol == "nvml-energy-counter/1"
    fallback = timing.energy_measurement(None, 300.0, 1e-3)
    assert (fallback.value, fallback.protocol) == (0.3, "nvml-power-sensor/1")
    assert timing.energy_measurement(None, None, 1e-3, "no NVML").absent == "no NVML"


def test_power_is_taken_between_updates_of_the_energy_counter() -> None:
    readings = [(0.01 * i, 50.0 * (i // 10)) for i in range(45)]  # a step of 50 J every 0.1 s
    assert timing.counter_power(readings) == pytest.approx(500.0)
    assert timing.counter_power(readings[:12]) is None


RACING = Policy(turns=30, min_turns=11, hot=False, race=0.999)


def test_in_a_race_the_clearly_slower_leave_early_and_what_cannot_be_told_apart_stays() -> None:
    bench = MockBench({"a": 1.00e-3, "b": 1.0005e-3, "c": 1.10e-3})
    series = timing.sample(bench, entrants("a", "b", "c"), RACING)
    assert len(series["c"].cold) == 11
    assert len(series["a"].cold) == len(series["b"].cold) == 30
    assert timing.still_racing(series, RACING.race) == {"a", "b"}


def test_a_race_ends_when_one_is_left() -> None:
    bench = MockBench({"a": 1.0e-3, "b": 1.2e-3})
    series = timing.sample(bench, entrants("a", "b"), RACING)
    assert len(series["a"].cold) == 11


def test_a_drift_that_meets_all_decides_no_race() -> None:
    bench = MockBench({"a": 1.0e-3, "b": 1.0e-3}, drift=0.5)
    series = timing.sample(bench, entrants("a", "b"), RACING)
    assert timing.still_racing(series, RACING.race) == {"a", "b"}


def test_few_turns_tell_nothing_with_much_confidence() -> None:
    one, other = timing.Series(cold=dict.fromkeys(range(9), 2.0)), timing.Series(cold=dict.fromkeys(range(9), 1.0))
    assert not timing.slower(one, other, 0.999)
    assert timing.slower(one, other, 0.95)


def test_without_hot_turns_the_hot_time_is_absent_with_the_reason() -> None:
    bench = MockBench({"a": 1.0e-3})
    series = timing.sample(bench, [Entrant("a", 0, 10)], SCREEN)["a"]
    assert {cache for _, cache in bench.log} == {"cold"}
    found = {m.metric: m for m in timing.time_measurements(series, 1, 1, SCREEN, "")}
    assert found["time_hot"].absent == timing.NOT_HOT
    assert found["time_cold"].protocol == "screen/1 cold-graph/1"
