"""The Hopper stages run in the emulator: copy engine, barriers in shared memory, wgmma, clusters."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dgw.kernels.hopper import alignment
from dgw.kernels.loader import load
from dgw.model import Case, Config, Device, Epilogue, Operand, Problem, Variant, gemm
from dgw.toolchain.build import build
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device
from dgw.workbench.collectors.emulator import Emulation, emulate
from dgw.workbench.emulator.launching import PlanRun
from dgw.workbench.emulator.operands import POISON

H200 = device("h200")
PERSISTENT = load()["hopper/persistent"]
STAGES = [variant for variant in load().values() if variant.family == "hopper"]
ALONE: Config = {"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT": 1}


def executed(
    variant: Variant, problem: Problem, config: Config, cache: CompileCache, where: Device = H200
) -> Emulation:
    """The whole grid, with what was found; nothing is wrong with it."""
    full = variant.config_for(problem, where, config)
    assert variant.refuses(problem, full, where) is None
    assert variant.plan is not None
    plan = variant.plan(problem, full, where)
    found = emulate(
        Case(problem=problem, variant=variant.id, config=full), plan,
        lambda source: build(source, variant.root, variant.includes, where.arch, cache).ptx, None, where, True,
    )  # fmt: skip
    assert found.findings == ()
    assert found.check.passed, found.check.detail
    return found


def totals(found: Emulation) -> dict[str, Any]:
    """Metric to what all launches together did."""
    return {one.metric: one.value for one in found.measurements if one.scope == "case"}


@pytest.mark.parametrize(("layout", "dtype"), [("nn", "f16"), ("nt", "bf16"), ("tn", "f16"), ("tt", "bf16")])
@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.id)
def test_every_stage_is_right_in_every_layout(variant: Variant, layout: str, dtype: Any, cache: CompileCache) -> None:
    executed(variant, gemm(129, 72, 136, dtype, layout), {}, cache)


@pytest.mark.parametrize(("ld", "offset", "copied"), [(272, 3, ("a", "b")), (272, 8, ()), (266, 8, ("a", "b"))])
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_operands_off_sixteen_bytes_are_copied_first(
    layout: str, ld: int, offset: int, copied: tuple[str, ...], cache: CompileCache
) -> None:
    plain = gemm(257, 131, 99, layout=layout)
    a, b = (msgspec.structs.replace(operand, ld=ld, offset=offset) for operand in (plain.a, plain.b))
    problem = msgspec.structs.replace(plain, a=a, b=b)
    assert alignment.copied(problem) == copied
    executed(PERSISTENT, problem, {**ALONE, "BM": 128, "BN": 64}, cache)


@pytest.mark.parametrize("config", [
    {"CLUSTER_M": 2, "CLUSTER_N": 1, "BN": 128}, {"CLUSTER_M": 1, "CLUSTER_N": 2}, {"SPLIT": 2, "CLUSTER_M": 1},
    {"SPLIT": 4, "CLUSTER_M": 1, "BN": 128},
], ids=str)  # fmt: skip
def test_ctas_of_a_cluster_share_tiles_or_k(config: Config, cache: CompileCache) -> None:
    for layout in ("nt", "nn"):
        executed(PERSISTENT, gemm(200, 264, 328, layout=layout), {"BM": 64, "BN": 64, **config}, cache)


FEW = msgspec.structs.replace(H200, sms=3)
"""So few CTAs that each has several tiles of D."""


@pytest.mark.parametrize("k", [40, 104, 200])
@pytest.mark.parametrize("config", [
    {"BN": 192}, {"PINGPONG": 1, "BN": 64}, {"PINGPONG": 1, "BN": 96}, {"PINGPONG": 1, "BM": 128, "BN": 64},
], ids=str)  # fmt: skip
def test_epilogues_that_overlap_with_the_next_tile_change_nothing(config: Config, k: int, cache: CompileCache) -> None:
    epilogue, bias = Epilogue(activation="gelu-tanh"), Operand(dtype="f16")
    problem = gemm(330, 520, k, layout="nt", epilogue=epilogue, bias=bias)
    executed(PERSISTENT, problem, {**ALONE, "BM": 64, **config}, cache, FEW)


def test_elements_of_four_bytes_are_stored_while_the_next_tile_is_multiplied(cache: CompileCache) -> None:
    problem = gemm(330, 264, 104, layout="nt", out="f32", epilogue=Epilogue(activation="silu"))
    executed(PERSISTENT, problem, {**ALONE, "BM": 64, "BN": 96, "PINGPONG": 1}, cache, FEW)


@pytest.mark.parametrize(("shape", "layout", "config"), [
    ((257, 131, 99), "nn", {"BM": 64, "BN": 64}),  # one chunk of k
    ((130, 131, 519), "tt", {"BM": 128, "BN": 64}),  # two at once and one behind
    ((65, 140, 1285), "nt", {"BM": 128, "BN": 64, "PINGPONG": 1}),  # chunks whose barriers begin again
    ((65, 72, 1031), "tn", {"BM": 64, "BN": 128, "CLUSTER_M": 2}),  # one operand, and half the tile is another CTA's
], ids=str)  # fmt: skip
def test_operands_are_copied_ahead(
    shape: tuple[int, int, int], layout: str, config: Config, cache: CompileCache
) -> None:
    m, n, k = shape
    executed(PERSISTENT, gemm(m, n, k, layout=layout), {**ALONE, "COPY_AHEAD": 1, **config}, cache, FEW)


@pytest.mark.parametrize(("ld", "offset"), [(304, 3), (305, 0), (306, 1), (308, 7), (309, 6), (311, 5)])
def test_lines_are_copied_wherever_they_begin(ld: int, offset: int, cache: CompileCache) -> None:
    plain = gemm(65, 72, 300, layout="nt")
    a, b = (msgspec.structs.replace(operand, ld=ld, offset=offset) for operand in (plain.a, plain.b))
    problem = msgspec.structs.replace(plain, a=a, b=b)
    executed(PERSISTENT, problem, {**ALONE, "BM": 64, "BN": 128, "COPY_AHEAD": 1}, cache, FEW)


def test_counts_of_what_is_copied_begin_anew_with_every_launch(cache: CompileCache) -> None:
    problem = gemm(65, 131, 1031, layout="nt")
    config = PERSISTENT.config_for(problem, FEW, {**ALONE, "BM": 64, "BN": 64, "COPY_AHEAD": 1})
    plan = PERSISTENT.plan(problem, config, FEW)  # type: ignore[misc]
    case = Case(problem=problem, variant=PERSISTENT.id, config=config)
    run = PlanRun(case, plan, lambda source: build(source, PERSISTENT.root, PERSISTENT.includes, H200.arch, cache).ptx)
    for _ in range(2):
        (one,) = run.run()
        assert one.coverage.findings == []
        assert set(run.workspaces[alignment.PROGRESS].tolist()) == {POISON}


def test_products_and_what_is_stored_are_counted(cache: CompileCache) -> None:
    found = executed(PERSISTENT, gemm(128, 128, 128, layout="nt"), {**ALONE, "BM": 128, "BN": 128}, cache)
    counts = totals(found)
    tiles_k, steps, warps = 2, 4, 8
    assert counts["wgmma_inst"] == tiles_k * steps * warps
    assert counts["smem_bank_conflicts_st"] == 0


def test_nothing_beside_the_pipes_of_warps_is_called_exact(cache: CompileCache) -> None:
    problem = gemm(64, 64, 64, layout="nt")
    config = PERSISTENT.config_for(problem, H200, ALONE)
    plan = PERSISTENT.plan(problem, config, H200)  # type: ignore[misc]
    made = build(plan.launches[0].source, PERSISTENT.root, PERSISTENT.includes, H200.arch, cache)
    case = Case(problem=problem, variant=PERSISTENT.id, config=config)
    found = emulate(case, plan, lambda source: made.ptx, lambda source: made.cubin, H200)
    families = ("smem_", "global_", "tensor_", "mma_", "wgmma_")
    tiers = {one.metric: one.tier for one in found.measurements if one.metric.startswith(families)}
    assert {name for name, tier in tiers.items() if tier == "exact"} == {  # there is no cp.async
        "smem_wavefronts_least_ldgsts", "smem_wavefronts_sass_ldgsts", "smem_bank_conflicts_ldgsts",
    }  # fmt: skip
