"""Kernels of Hopper, in which most warps wait at any time: what the recipes make of their counters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.kernels.loader import load
from dgw.model import Config, Epilogue, Finding, Operand, Problem, Record, Run, gemm
from dgw.recipes.diagnosis import diagnose
from dgw.recipes.facts import Facts
from dgw.recipes.tiling import loop
from dgw.toolchain.devices import device
from tests.recipes.making import record

ROOT = Path(__file__).resolve().parents[2]
H200 = device("h200")
CUBE = gemm(4096, 4096, 4096, layout="nt")
PER_ISSUE = {
    "barrier": 7.5, "mio_throttle": 2.8, "long_scoreboard": 2.7, "wait": 1.5, "selected": 1.0, "gmma": 0.87,
    "math_pipe_throttle": 0.3, "not_selected": 0.1, "short_scoreboard": 0.1, "branch_resolving": 0.06,
}  # fmt: skip
"""Warps that wait an issued instruction, as an H200 counted them for hopper/persistent at 4096^3."""
NO_DEFECT = {
    "barrier-bound", "not-overlapped", "bk-too-small", "bk-too-large", "producer-starved", "epilogue-bound",
    "registers-limit-occupancy", "shared-memory-limits-occupancy", "no-tensor-cores", "no-reuse", "bank-conflicts",
    "uncoalesced", "unfused-epilogue", "wgmma-serialised", "latency-bound",
}  # fmt: skip


def hopper(
    name: str = "persistent",
    problem: Problem = CUBE,
    config: Config | None = None,
    numbers: Mapping[str, float | None] | None = None,
    stalls: Mapping[str, float] | None = None,
    **fields: Any,
) -> Record:
    """A stage of the Hopper family with its real plan and the figures of an H200, but for what is given."""
    variant = load()[f"hopper/{name}"]
    full = variant.config_for(problem, H200, config or {})
    plan = variant.plan(problem, full, H200)
    blocks = plan.launches[-1].grid[0]
    figures: dict[str, float | str | None] = {
        "elapsed_cycles": 284_000, "sm_active_cycles": 272_000, "tensor_pipe_util": 0.90,
        "tensor_pipe_util_active": 0.94, "achieved_occupancy": 0.14, "theoretical_occupancy": 0.1875,
        "l2_hit_rate": 0.80, "tensor_inst": 4.2e6, "wgmma_inst": 4.2e6, "tma_inst": 4e4, "ldgsts_inst": 0,
        "ldsm_inst": 0, "inst_executed": 1.7e7, "issued": 1.7e7, "global_requests_ld": 0, "global_requests_st": 0,
        "global_sectors_hw_ld": 0, "global_sectors_st": 0, "global_sectors_hw_st": 0, "registers_per_thread": 168,
        "threads_per_block": plan.launches[-1].block[0], "shared_mem_per_block": plan.launches[-1].shared_bytes,
        "barrier_inst": blocks * 12 * 40, "waves_per_sm": 1.0, "time_cold": 186e-6, "time_hot": 185e-6,
        "smem_wavefronts_actual": 2.6e7, "smem_wavefronts_ideal": 2.6e7, "smem_wavefronts_sass_ldsm": 0,
        "smem_wavefronts_sass_ldgsts": 0, "smem_wavefronts_sass_stsm": 2.6e5, "dram_throughput": 0.2,
    }  # fmt: skip
    made = record(
        {**figures, **(numbers or {})}, problem=problem, config=full, stalls={**PER_ISSUE, **(stalls or {})},
        variant=variant.id, **fields,
    )  # fmt: skip
    return msgspec.structs.replace(made, plan=plan)


def costly(one: Record, least: float = 0.05) -> list[Finding]:
    return [found for found in diagnose(one, H200) if (found.cost or 0.0) >= least]


def test_warps_that_wait_by_design_are_no_defect_of_a_persistent_kernel() -> None:
    found = diagnose(hopper(), H200, unknown=False)
    assert costly(hopper()) == []
    assert {one.recipe for one in found} & NO_DEFECT == set()
    (note,) = [one for one in found if one.recipe == "low-occupancy-harmless"]
    assert "does not matter" in note.verdict


@pytest.mark.parametrize("name", ["tensor-core", "warp-specialised", "fused-epilogue", "persistent"])
def test_no_stage_that_keeps_its_pipe_busy_has_a_defect(name: str) -> None:
    one = hopper(name, numbers={"tensor_pipe_util": 0.83, "tensor_pipe_util_active": 0.85})
    assert {found.recipe for found in costly(one)} & NO_DEFECT == set()
    own = loop(Facts(one, H200))
    assert own is not None
    assert (own.depth, own.ahead) == (64, one.case.config["STAGES"] - 1)


def stored() -> list[Record]:
    """What an H200 counted of kernels that keep the pipe of wgmma busy: cuBLAS, and the Hopper family once measured."""
    found: list[Record] = []
    for path in (ROOT / "docs" / "h200" / f"{topic}.json" for topic in ("first-profile", "ladder", "hopper")):
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for run in (content.get("run"), *(part.get("run") for part in content.get("parts", {}).values())):
            found += msgspec.convert(run, type=Run).records if run else ()
    named = ("baselines/cublas", "hopper/")
    return [r for r in found if r.case.variant.startswith(named) and (r.number("tensor_pipe_util") or 0.0) > 0.85]


def test_what_was_counted_of_kernels_that_keep_their_pipe_busy_shows_no_defect() -> None:
    records = stored()
    assert "baselines/cublas" in {one.case.variant for one in records}
    for one in records:
        assert {found.recipe for found in costly(one, 0.1)} & NO_DEFECT == set(), one.case.variant


def test_an_epilogue_that_other_warps_multiply_beside_costs_no_more_than_the_pipe_pauses() -> None:
    gelu = gemm(4096, 4096, 4096, layout="nt", bias=Operand(dtype="f16"), epilogue=Epilogue(activation="gelu"))
    one = hopper(problem=gelu, numbers={"issued": 4.5e7, "inst_executed": 4.5e7, "tensor_pipe_util": 0.87})
    (found,) = [found for found in diagnose(one, H200) if found.recipe == "epilogue-bound"]
    assert found.cost == pytest.approx(0.13)
    alone = hopper("tensor-core", gelu, numbers={"issued": 4.5e7, "inst_executed": 4.5e7, "tensor_pipe_util": 0.4})
    assert [f.confidence for f in diagnose(alone, H200) if f.recipe == "epilogue-bound"] == ["high"]


def test_a_ring_that_is_too_short_starves_the_pipe_and_is_named_first() -> None:
    thin: Config = {"BM": 128, "BN": 64, "STAGES": 2}
    pauses = {
        "tensor_pipe_util": 0.4,
        "tensor_pipe_util_active": 0.42,
        "elapsed_cycles": 640_000,
        "sm_active_cycles": 620_000,
    }
    first = diagnose(hopper(config=thin, numbers=pauses, stalls={"long_scoreboard": 9.0}), H200)[0]
    assert (first.recipe, first.confidence) == ("producer-starved", "high")
    assert "the ring covers" in first.verdict
    deep = diagnose(hopper(numbers=pauses, stalls={"long_scoreboard": 9.0}), H200)[0]
    assert (deep.recipe, deep.confidence) == ("producer-starved", "medium")


def test_the_first_tile_of_a_short_product_is_not_a_ring_that_starves() -> None:
    short = gemm(4096, 4096, 64, layout="nt")
    one = hopper("tensor-core", short, numbers={"tensor_pipe_util": 0.5, "tensor_pipe_util_active": 0.5})
    assert "producer-starved" not in {found.recipe for found in diagnose(one, H200, unknown=False)}


def test_a_remark_of_the_compiler_comes_first_where_the_pipe_pauses() -> None:
    remark = "ptxas: (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    one = hopper(numbers={"tensor_pipe_util": 0.3, "tensor_pipe_util_active": 0.32}, flags=(remark,))
    assert diagnose(one, H200)[0].recipe == "wgmma-serialised"


def test_copies_that_align_operands_are_no_unfused_epilogue_and_no_blocks_of_the_product() -> None:
    odd = gemm(4095, 4095, 4095, bias=Operand(dtype="f16"), epilogue=Epilogue(activation="relu"))
    one = hopper(problem=odd, config={"COPY_AHEAD": 0}, kernels={"elapsed_cycles": [40_000, 284_000]})
    assert one.plan is not None
    assert len(one.plan.launches) == 2
    found = {finding.recipe for finding in diagnose(one, H200, unknown=False)}
    assert found & {"unfused-epilogue", "launch-bound", "latency-bound"} == set()
    assert Facts(one, H200).blocks == 132


@pytest.mark.parametrize(("size", "named"), [(2047, False), (2048, True)])
def test_copies_that_blocks_make_for_each_other_are_no_epilogue(size: int, named: bool) -> None:
    one = hopper(problem=gemm(size, size, size, layout="nt"), numbers={"issued": 4.5e7, "inst_executed": 4.5e7})
    assert one.plan is not None
    assert one.plan.launches[-1].together == (not named)
    assert ("epilogue-bound" in {found.recipe for found in diagnose(one, H200)}) == named


def test_a_record_of_a_gpu_without_counted_cycles_is_judged_by_its_time() -> None:
    one = hopper(numbers={"elapsed_cycles": None, "sm_active_cycles": None, "dram_throughput": None})
    facts = Facts(one, H200)
    assert facts.cycles == pytest.approx(186e-6 * 1.95e9)
    assert facts.busiest[0] == "tensor"
    assert facts.busiest[1] == pytest.approx(0.90)
    assert "dram" not in facts.busy
