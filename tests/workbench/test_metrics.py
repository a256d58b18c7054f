from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from dgw.errors import UsageError
from dgw.workbench import metrics
from dgw.workbench.metrics import ARCHITECTURES, METRICS, SETS, Absent, counter_name, counter_names, members, resolve

TOOL_COMPUTED = ("launch__", "derived__", "memory_", "sass__", "profiler__", "group:", "sm__maximum_warps_per_active")
MEASURED = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"


def _perfworks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("perfworks", Path(__file__).parent / "perfworks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _in_catalogue(names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith(TOOL_COMPUTED)]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_counter_name_exists_in_the_catalogue_of_every_chip_it_claims(arch: str) -> None:
    catalogue = _perfworks().Catalogue(arch)
    names = _in_catalogue(counter_names(METRICS.values(), arch))
    assert len(names) > 80
    assert [name for name in names if not catalogue.has(name)] == []
    assert not catalogue.has("sm__pipe_tensor_op_gmma_cycles_active.sum")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_committed_passes_of_every_set_are_those_of_the_catalogue(arch: str) -> None:
    catalogue = _perfworks().Catalogue(arch)
    for chosen in SETS.values():
        if chosen.passes:
            names = [name for m in members(chosen.name) if isinstance(name := counter_name(m, arch), str)]
            assert catalogue.passes(_in_catalogue(names)) == metrics.passes(chosen, arch), chosen.name


def test_quick_is_thirteen_counters_in_two_passes_everywhere() -> None:
    for arch in ARCHITECTURES:
        assert len(counter_names(members("quick"), arch)) == 13
        assert metrics.passes(SETS["quick"], arch) == 2


def test_the_default_set_holds_what_profile_shows() -> None:
    keys = {metric.key for metric in members("std")}
    shown = """
        achieved_occupancy theoretical_occupancy registers_per_thread smem_wavefronts_ld smem_wavefronts_st
        smem_bank_conflicts_ld smem_bank_conflicts_st smem_wavefronts_actual smem_wavefronts_ideal
        smem_wavefronts_sass_ld smem_wavefronts_sass_st conflict_ratio_ld conflict_ratio_st conflict_ratio_hw_ld
        conflict_ratio_hw_st tensor_pipe_util dram_bytes dram_bandwidth l2_hit_rate stall_barrier
        stall_long_scoreboard stall_gmma
    """
    assert set(shown.split()) <= keys


def test_inputs_and_weights_of_a_set_are_in_the_set_so_that_cases_of_several_kernels_combine() -> None:
    for chosen in SETS.values():
        keys = {metric.key for metric in members(chosen.name)}
        extra = {metric.key for metric in metrics.with_inputs(members(chosen.name))} - keys
        assert extra == set(), chosen.name


def test_the_exact_set_holds_what_single_accesses_were_measured_with() -> None:
    names = counter_names(members("exact"), "sm_90a")
    for op in ("ld", "st", "ldsm", "stsm", "ldgsts", "atom"):
        assert f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" in names
    for op in ("ld", "st"):
        assert f"smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_{op}.sum" in names
        assert f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" in names
    assert {"memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"} <= set(names)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.key)
def test_every_metric_explains_itself_and_refers_only_to_metrics_that_exist(metric: metrics.Metric) -> None:
    assert metric.meaning.endswith(".")
    assert metric.collectors
    assert set(metric.sets) <= set(SETS)
    assert set(metric.absent) <= set(ARCHITECTURES)
    assert {*metric.inputs, *([metric.weight] if metric.weight else [])} <= set(METRICS)
    assert (metric.combine == "mean") == bool(metric.weight)
    assert (metric.combine == "derived") == bool(metric.inputs)
    assert "%" not in metric.unit
    if metric.names:
        assert metric.tier
        for arch in ARCHITECTURES:
            name = counter_name(metric, arch)
            assert isinstance(name, Absent) == (arch in metric.absent)


def test_no_key_or_set_hides_an_alias_of_something_else() -> None:
    for metric in METRICS.values():
        for alias in metric.aliases:
            assert alias not in METRICS
            assert alias not in SETS or metric.key in {member.key for member in members(alias)}


def test_an_unknown_name_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(UsageError) as raised:
        resolve("acheived_occupancy")
    assert "achieved_occupancy" in raised.value.message
    assert "dgw metrics" in raised.value.hint


def test_names_may_be_sets_keys_aliases_or_counters_of_ncu_mixed() -> None:
    keys = [metric.key for metric in resolve("tflops, conflicts,lts__t_bytes.sum,quick")]
    assert keys[0] == "tflops"
    assert {"conflict_ratio_ld", "l2_bytes", "elapsed_cycles"} <= set(keys)
    assert len(keys) == len(set(keys))


def test_the_set_none_is_empty() -> None:
    assert resolve("none") == []


def test_a_metric_of_another_gpu_is_absent_with_the_reason() -> None:
    found = counter_name(METRICS["wgmma_inst"], "sm_80")
    assert isinstance(found, Absent)
    assert found.reason.startswith("not on this GPU because only sm_90")


def test_names_differ_by_architecture_and_an_unlisted_one_uses_the_nearest_older() -> None:
    assert counter_name(METRICS["tensor_pipe_util"], "sm_89") != counter_name(METRICS["tensor_pipe_util"], "sm_90a")
    assert metrics.table_arch("sm_90a") == "sm_90"
    assert metrics.table_arch("sm_103a") == "sm_100"
    assert metrics.table_arch("sm_75") == "sm_80"


def test_without_permission_only_instruction_level_and_launch_data_are_asked_for() -> None:
    names = counter_names(members("std"), "sm_90", tier="sass")
    assert "memory_l1_wavefronts_shared" in names
    assert not [name for name in names if name.startswith(("l1tex__", "dram__", "lts__", "gpc__"))]
