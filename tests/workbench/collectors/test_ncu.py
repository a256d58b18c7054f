from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from dgw.model import Measurement
from dgw.workbench.collectors.ncu import Instance, KernelCounters, line_measurements, measurements
from dgw.workbench.metrics import METRICS, counter_name, members, resolve

ARCH = "sm_90a"


def _values(**by_key: float) -> dict[str, Any]:
    return {str(counter_name(METRICS[key], ARCH)): value for key, value in by_key.items()}


def _found(kernels: list[KernelCounters], names: str, scope: str = "case", **options: Any) -> dict[str, Measurement]:
    return {m.metric: m for m in measurements(kernels, resolve(names, ARCH), ARCH, **options) if m.scope == scope}


def _stalls(**shares: float) -> dict[str, Any]:
    keys = [m.key for m in METRICS.values() if m.key.startswith("stall_") and m.key.endswith("_per_issue")]
    return _values(**{key: shares.get(key.removeprefix("stall_").removesuffix("_per_issue"), 0.0) for key in keys})


def test_percent_becomes_a_ratio_and_the_tier_protocol_and_collector_are_named(fakes: ModuleType) -> None:
    kernel = fakes.kernel(_values(tensor_pipe_util=90.3, registers_per_thread=168, sm_active_cycles=10))
    found = _found([kernel], "tensor_pipe_util,registers_per_thread")
    assert found["tensor_pipe_util"].value == pytest.approx(0.903)
    assert (found["tensor_pipe_util"].unit, found["tensor_pipe_util"].tier) == ("ratio", "hardware")
    assert found["registers_per_thread"].value == 168
    assert found["registers_per_thread"].tier == "sass"
    assert {m.collector for m in found.values()} == {"ncu"}
    assert all(m.protocol.startswith("ncu-kernel-replay") for m in found.values())


def test_counts_of_several_kernels_add_up_and_each_kernel_is_kept(fakes: ModuleType) -> None:
    kernels = [fakes.kernel(_values(dram_bytes=value)) for value in (100, 50, 7)]
    assert _found(kernels, "dram_bytes")["dram_bytes"].value == 157
    assert [_found(kernels, "dram_bytes", f"kernel {i}")["dram_bytes"].value for i in range(3)] == [100, 50, 7]


def test_ratios_of_several_kernels_come_from_summed_numerators_and_denominators(fakes: ModuleType) -> None:
    kernels = [
        fakes.kernel(_values(l2_hit_rate=80.0, l2_sectors=1000, dram_bandwidth=2e12, duration_under_ncu=100)),
        fakes.kernel(_values(l2_hit_rate=20.0, l2_sectors=3000, dram_bandwidth=1e12, duration_under_ncu=300)),
    ]
    found = _found(kernels, "l2_hit_rate,dram_bandwidth")
    assert found["l2_hit_rate"].value == pytest.approx((800 + 600) / 4000)
    assert found["dram_bandwidth"].value == pytest.approx((2e12 * 100 + 1e12 * 300) / 400)


def test_a_ratio_that_lacks_its_denominator_is_absent_for_several_kernels_only(fakes: ModuleType) -> None:
    kernels = [fakes.kernel(_values(l2_hit_rate=80.0)), fakes.kernel(_values(l2_hit_rate=20.0))]
    assert "l2_sectors" in _found(kernels, "l2_hit_rate")["l2_hit_rate"].absent
    assert _found(kernels[:1], "l2_hit_rate")["l2_hit_rate"].value == pytest.approx(0.8)


def test_launch_values_that_differ_between_kernels_have_no_value_for_the_case(fakes: ModuleType) -> None:
    kernels = [fakes.kernel(_values(registers_per_thread=value)) for value in (128, 40)]
    assert "differs" in _found(kernels, "registers")["registers_per_thread"].absent
    assert _found(kernels, "registers", "kernel 1")["registers_per_thread"].value == 40


def test_a_counter_that_one_kernel_lacks_names_the_kernel(fakes: ModuleType) -> None:
    kernels = [fakes.kernel(_values(dram_bytes=1)), fakes.kernel({})]
    assert _found(kernels, "dram_bytes")["dram_bytes"].absent.startswith(
        "kernel 1: ncu did not collect dram__bytes.sum"
    )


def test_what_the_report_lacks_is_absent_with_the_reason_and_never_zero(fakes: ModuleType) -> None:
    found = _found([fakes.kernel({})], "std", reason="the driver allows only administrators to read counters")
    assert all(m.absent and m.value is None for m in found.values())
    assert found["dram_bytes"].absent.endswith("administrators to read counters")


def test_a_metric_of_another_gpu_says_so_instead_of_zero(fakes: ModuleType) -> None:
    found = measurements([fakes.kernel({})], resolve("wgmma_inst,stall_gmma", "sm_80"), "sm_80")
    assert [m.absent.startswith("not on this GPU because only sm_90") for m in found] == [True, True]


def test_without_kernels_every_metric_is_absent_with_the_cause() -> None:
    found = measurements([], members("quick"), ARCH, reason="ncu was killed")
    assert {m.absent for m in found} == {"ncu was killed"}


def test_a_value_that_is_no_number_is_absent(fakes: ModuleType) -> None:
    found = _found([fakes.kernel(_values(l2_hit_rate=float("nan")))], "l2_hit_rate")
    assert "no number" in found["l2_hit_rate"].absent


def test_the_duration_under_ncu_is_never_reported(fakes: ModuleType) -> None:
    found = measurements([fakes.kernel(_values(duration_under_ncu=180_000))], members("full"), ARCH)
    assert not [m for m in found if "duration" in m.metric or m.unit == "s"]


def test_metrics_of_other_collectors_are_left_to_them(fakes: ModuleType) -> None:
    assert measurements([fakes.kernel({})], resolve("tflops,time_cold,energy"), ARCH) == ()


def test_conflict_ratios_count_the_instructions_of_their_kind_only(fakes: ModuleType) -> None:
    actual = {"LDS.128": 60.0, "LDSM.16.M88.4": 20.0, "STS": 30.0, "ATOMS.ADD": 99.0, "LDGSTS.E.128": 7.0}
    ideal = {"LDS.128": 20.0, "LDSM.16.M88.4": 20.0, "STS": 15.0, "ATOMS.ADD": 3.0, "LDGSTS.E.128": 7.0}
    found = _found([fakes.kernel({}, actual=actual, ideal=ideal)], "conflicts")
    assert found["conflict_ratio_ld"].value == pytest.approx(0.5)
    assert found["conflict_ratio_st"].value == pytest.approx(0.5)
    assert found["conflict_ratio_ld"].tier == "sass"


def test_conflict_ratios_of_several_kernels_are_derived_from_their_sums(fakes: ModuleType) -> None:
    kernels = [
        fakes.kernel({}, actual={"LDS": 40.0}, ideal={"LDS": 10.0}),
        fakes.kernel({}, actual={"LDS": 60.0}, ideal={"LDS": 60.0}),
    ]
    assert _found(kernels, "conflict_ratio_ld")["conflict_ratio_ld"].value == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("totals", "sass", "loads", "stores"),
    [
        ((80, 80), (50, 30), 0.0, 0.0),
        ((80, 20), (80, 0), 0.75, "no shared-memory stores"),
        ((80, 20), (0, 80), "no shared-memory loads", 0.75),
        ((80, 20), (50, 30), "cannot be told apart", "cannot be told apart"),
        ((0, 0), (0, 0), "no shared-memory loads", "no shared-memory stores"),
    ],
)
def test_without_opcodes_totals_decide_where_they_can(
    fakes: ModuleType, totals: tuple[int, int], sass: tuple[int, int], loads: float | str, stores: float | str
) -> None:
    values = _values(
        smem_wavefronts_actual=totals[0],
        smem_wavefronts_ideal=totals[1],
        smem_wavefronts_sass_ld=sass[0],
        smem_wavefronts_sass_ldsm=0,
        smem_wavefronts_sass_st=sass[1],
        smem_wavefronts_sass_stsm=0,
    )
    found = _found([fakes.kernel(values)], "conflict_ratio_ld,conflict_ratio_st")
    for key, expected in (("conflict_ratio_ld", loads), ("conflict_ratio_st", stores)):
        if isinstance(expected, str):
            assert expected in found[key].absent
        else:
            assert found[key].value == expected


def test_the_hardware_conflict_ratio_stands_beside_the_exact_one(fakes: ModuleType) -> None:
    values = _values(smem_bank_conflicts_ld=25, smem_wavefronts_ld=100, smem_bank_conflicts_st=0, smem_wavefronts_st=0)
    found = _found([fakes.kernel(values)], "conflict_ratio_hw_ld,conflict_ratio_hw_st")
    assert found["conflict_ratio_hw_ld"].value == 0.25
    assert found["conflict_ratio_hw_st"].absent == "no shared-memory stores"


def test_stall_shares_are_parts_of_all_stalls(fakes: ModuleType) -> None:
    found = _found([fakes.kernel(_stalls(barrier=3.0, long_scoreboard=1.0, selected=1.0))], "stalls")
    assert found["stall_barrier"].value == pytest.approx(0.6)
    assert found["stall_barrier_per_issue"].value == 3.0
    shares = [m.value for m in found.values() if m.unit == "ratio" and m.metric.startswith("stall_")]
    assert sum(float(share) for share in shares if share is not None) == pytest.approx(1.0)


def test_stall_shares_of_several_kernels_weigh_each_by_what_it_issued(fakes: ModuleType) -> None:
    kernels = [
        fakes.kernel(_stalls(barrier=1.0, selected=1.0) | _values(issued=300)),
        fakes.kernel(_stalls(wait=3.0, selected=1.0) | _values(issued=100)),
    ]
    found = _found(kernels, "stall_barrier,stall_wait,stall_selected")
    assert found["stall_barrier"].value == pytest.approx(300 / 1000)
    assert found["stall_wait"].value == pytest.approx(300 / 1000)


def test_a_share_without_every_reason_is_absent(fakes: ModuleType) -> None:
    values = _stalls(barrier=1.0)
    values.pop(str(counter_name(METRICS["stall_wait_per_issue"], ARCH)))
    assert "every stall reason" in _found([fakes.kernel(values)], "stall_barrier")["stall_barrier"].absent


def test_what_limits_the_occupancy_is_named(fakes: ModuleType) -> None:
    limits = _values(occ_limit_registers=2, occ_limit_shared_mem=2, occ_limit_warps=16, occ_limit_blocks=32)
    assert _found([fakes.kernel(limits)], "occupancy")["occupancy_limiter"].value == "registers, shared memory"


def test_instructions_by_opcode_are_rows_of_their_own(fakes: ModuleType) -> None:
    kernel = fakes.kernel({}, sass__inst_executed_per_opcode={"FFMA": 4096.0, "LDS": 128.0})
    found = measurements([kernel, kernel], resolve("inst_per_opcode"), ARCH)
    assert {m.scope: m.value for m in found if m.scope.startswith("opcode")} == {"opcode FFMA": 8192, "opcode LDS": 256}


def test_matrix_instructions_are_counted_by_their_opcodes_not_by_what_the_tensor_pipe_ran(fakes: ModuleType) -> None:
    name = "sass__inst_executed_per_opcode"
    kernel = fakes.kernel({name: 111}, **{name: {"HMMA": 64.0, "HGMMA": 8.0, "IMMA": 2.0, "HFMA2": 32.0, "FFMA": 5.0}})
    assert _found([kernel, kernel], "mma_inst")["mma_inst"].value == 148
    without = fakes.kernel({name: 37}, **{name: {"HFMA2": 32.0, "FFMA": 5.0}})
    assert _found([without], "mma_inst")["mma_inst"].value == 0
    assert "by opcode" in _found([fakes.kernel({})], "mma_inst")["mma_inst"].absent


def test_stalls_and_wavefronts_are_found_by_source_line() -> None:
    prefix = "smsp__pcsamp_warps_issue_stalled_"
    parts = {
        prefix + "barrier": (Instance("BAR", "g.cu:7", 30.0),),
        prefix + "wait": (Instance("BAR", "g.cu:7", 4.0), Instance("LDS", "", 9.0)),
        prefix + "selected": (Instance("BAR", "g.cu:7", 1000.0),),
        prefix + "wait_not_issued": (Instance("BAR", "g.cu:7", 1000.0),),
        "memory_l1_wavefronts_shared": (Instance("LDS", "g.cu:9", 64.0), Instance("LDS.64", "g.cu:9", 2.0)),
    }
    found = {(m.scope, m.metric): m.value for m in line_measurements([KernelCounters("k", "gemm", {}, {}, parts)])}
    assert found == {
        ("line g.cu:7", "stall_samples"): 34,
        ("line g.cu:7", "stall_reason"): "barrier",
        ("line g.cu:9", "smem_wavefronts_actual"): 66,
    }
