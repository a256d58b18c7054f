"""Kernel durations from a trace of torch's profiler."""

from __future__ import annotations

import pytest

from dgw.workbench.collectors import activity

TRACE = {
    "traceEvents": [
        {"cat": "kernel", "name": "gemm", "ts": 20.0, "dur": 110.0},
        {"cat": "kernel", "name": "reduce", "ts": 140.0, "dur": 10.0},
        {"cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": 1.0, "dur": 500.0},
        {"cat": "kernel", "name": "gemm", "ts": 5.0, "dur": 100.0},
        {"cat": "kernel", "name": "reduce", "ts": 16.0, "dur": 12.0},
        {"ph": "M", "name": "process_name"},
    ]
}


def test_only_kernels_count_and_in_the_order_they_ran() -> None:
    assert activity.kernel_durations(TRACE) == pytest.approx([100e-6, 12e-6, 110e-6, 10e-6])


def test_the_kernels_of_a_launch_are_added_up() -> None:
    found = activity.measurement(activity.kernel_durations(TRACE), 2, "cold")
    assert found.samples == pytest.approx((112e-6, 120e-6))
    assert found.value == pytest.approx(116e-6)
    assert (found.metric, found.collector, found.tier) == ("kernel_duration", "cupti", "cupti")


@pytest.mark.parametrize("launches", [0, 3])
def test_kernels_that_do_not_divide_into_launches_give_no_number(launches: int) -> None:
    found = activity.measurement(activity.kernel_durations(TRACE), launches, "cold")
    assert found.value is None
    assert "4 kernels" in found.absent
