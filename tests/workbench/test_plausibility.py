"""What cannot be is said with the figures."""

from __future__ import annotations

import pytest

from dgw.model import Case, Measurement, Record, gemm
from dgw.toolchain.devices import device
from dgw.workbench.plausibility import flags, ranked

H200 = device("h200")


def record(**values: float) -> Record:
    found = tuple(Measurement(metric=name, value=value, collector="timing") for name, value in values.items())
    return Record(case=Case(problem=gemm(4096, 4096, 4096), variant="t/a"), outcome="ok", measurements=found)


def flagged(**values: float) -> Record:
    made = record(**values)
    return Record(case=made.case, outcome="ok", measurements=made.measurements, flags=flags(made, H200))


def test_a_time_that_the_hardware_can_reach_is_not_flagged() -> None:
    assert flags(record(time_cold=211e-6, time_hot=205e-6), H200) == ()


def test_a_time_below_the_roofline_is_flagged_and_not_ranked() -> None:
    impossible = flagged(time_cold=50e-6)
    assert "above the roofline" in impossible.flags[0]
    assert "50 us" in impossible.flags[0]
    assert not ranked(impossible)


def test_a_hot_time_may_be_shorter_than_dram_allows_while_l2_holds_the_operands() -> None:
    small = Record(
        case=Case(problem=gemm(1, 4096, 4096), variant="t/a"),
        outcome="ok",
        measurements=(Measurement(metric="time_hot", value=5e-6, collector="timing"),),
    )
    assert flags(small, H200) == ()


def test_zero_time_is_flagged_and_not_ranked() -> None:
    zero = flagged(time_hot=0.0)
    assert zero.flags == ("zero time: time_hot is 0 s",)
    assert not ranked(zero)


def test_cycles_under_ncu_must_agree_with_time_and_clock() -> None:
    assert flags(record(time_cold=200e-6, sm_clock=1.8e9, elapsed_cycles=350_000), H200) == ()
    (flag,) = flags(record(time_cold=200e-6, sm_clock=1.8e9, elapsed_cycles=500_000), H200)
    assert flag.startswith("cycles apart")
    assert "+39 %" in flag


def test_a_cold_lane_with_a_hit_rate_that_cold_operands_forbid_is_flagged() -> None:
    inputs = 2 * 4096 * 4096 * 2 / 32
    honest = record(time_cold=211e-6, l2_hit_rate=0.70, l2_sectors=inputs / 0.3)
    assert flags(honest, H200) == ()
    (flag,) = flags(record(time_cold=211e-6, l2_hit_rate=0.99, l2_sectors=inputs / 0.3), H200)
    assert flag.startswith("cold lane with a hot L2")


def test_a_cold_time_that_needs_more_than_the_dram_rate_is_flagged() -> None:
    (flag,) = flags(record(time_cold=200e-6, l2_hit_rate=0.5, dram_read_bytes=2e9), H200)
    assert "4.8 TB/s" in flag


@pytest.mark.parametrize("outcome", ["wrong", "crashed", "timed-out"])
def test_only_ok_is_ranked(outcome: str) -> None:
    assert not ranked(Record(case=record().case, outcome=outcome))  # type: ignore[arg-type]
