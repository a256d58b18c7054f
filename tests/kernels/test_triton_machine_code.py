"""The Triton stages compiled without a GPU, and executed from their sm_80 PTX by the emulator."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from dgw.kernels.loader import load
from dgw.model import DECIDED_LATER, Case, Config, Device, Epilogue, Operand, Plan, Problem, Source, Variant, gemm
from dgw.toolchain.build import Build, build
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device, device_for_arch
from dgw.toolchain.launches import complete, too_large
from dgw.workbench.collectors.emulator import Emulation, emulate
from dgw.workbench.prepare import prepare

STAGES = [variant for variant in load().values() if variant.family == "triton"]
BY_NAME = {variant.name: variant for variant in STAGES}
A100, H200 = device("a100"), device("h200")
SMALL: Config = {"BM": 32, "BN": 32, "BK": 32, "WARPS": 4}
replace = msgspec.structs.replace


def compiled(
    variant: Variant, problem: Problem, target: Device, cache: CompileCache, **config: int
) -> tuple[Plan, dict[Source, Build]]:
    """The complete plan and its builds."""
    wanted = variant.defaults() | config
    assert variant.refuses(problem, wanted, target) is None
    assert variant.plan is not None
    plan = variant.plan(problem, wanted, target)
    assert plan.launches[0].shared_bytes == DECIDED_LATER
    builds = {x.source: build(x.source, variant.root, variant.includes, target.arch, cache) for x in plan.launches}
    return complete(plan, builds), builds


def emulated(variant: Variant, problem: Problem, cache: CompileCache, **config: int) -> Emulation:
    plan, builds = compiled(variant, problem, A100, cache, **config)
    case = Case(problem=problem, variant=variant.id, config=variant.defaults() | config)
    return emulate(case, plan, lambda s: builds[s].ptx, None, A100)


def sound(variant: Variant, problem: Problem, target: Device, cache: CompileCache) -> tuple[Plan, Build]:
    plan, builds = compiled(variant, problem, target, cache)
    (launch,) = plan.launches
    (result,) = builds.values()
    used = result.resources(launch.entry)
    assert (used.spill_store_bytes, used.spill_load_bytes) == (0, 0)
    assert result.coded_remarks == ()
    # For Blackwell Triton before 3.9 transposes 32-bit tiles through more shared memory than there is: refused, unless
    # STAGES is lowered. Nothing else is.
    may_refuse = problem.a.dtype == "tf32" and target.arch == "sm_100a" and problem.layout != "nt"
    assert may_refuse or not too_large(plan, target)
    assert launch.block[0] <= used.max_threads
    return plan, result


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.name)
def test_the_default_config_compiles_without_spills(variant: Variant, arch: str, cache: CompileCache) -> None:
    sound(variant, gemm(4096, 4096, 4096), device_for_arch(arch), cache)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.name)
def test_every_dtype_and_layout_compiles_without_spills(variant: Variant, arch: str, cache: CompileCache) -> None:
    for dtype in variant.dtypes:
        for layout in ("nn", "nt", "tn", "tt"):
            sound(variant, gemm(4096, 4096, 4096, dtype, layout), device_for_arch(arch), cache)


def test_too_much_shared_memory_that_only_the_compiler_could_tell_is_a_refusal_and_no_failure(
    cache: CompileCache,
) -> None:
    variant = dataclasses.replace(BY_NAME["tensor-core"], refuses=lambda *_: None)  # a declaration that does not guess
    small = replace(A100, shared_per_block=1024)
    case = Case(problem=gemm(64, 64, 64), variant=variant.id, config=variant.defaults() | SMALL)
    record = prepare(case, variant, small, cache).record
    assert record.outcome == "refused"
    assert "bytes of shared memory a block, but a100 has 1024" in record.reason


def test_each_stage_is_compiled_to_what_it_is_about(cache: CompileCache) -> None:
    text = {}
    for variant in STAGES:
        for name, target in (("a100", A100), ("h200", H200)):
            (result,) = compiled(variant, gemm(4096, 4096, 4096), target, cache)[1].values()
            text[variant.name, name] = result.ptx
    for stage in ("tiled", "swizzled"):
        assert "cp.async" not in text[stage, "a100"]
        assert "mma" not in text[stage, "a100"]
    assert "cp.async.c" in text["double-buffered", "a100"]
    assert "mma" not in text["double-buffered", "h200"]
    for stage in ("tensor-core", "fused-epilogue", "persistent"):
        assert "mma.sync.aligned.m16n8k16" in text[stage, "a100"]
        assert "cp.async.c" in text[stage, "a100"]
        assert "wgmma.mma_async" in text[stage, "h200"]
    assert "cp.async.bulk.tensor" in text["persistent", "h200"]


def test_a_persistent_launch_has_one_program_per_sm_and_scratch_for_its_descriptors(cache: CompileCache) -> None:
    plan, _ = compiled(BY_NAME["persistent"], gemm(4096, 4096, 4096), H200, cache)
    (launch,) = plan.launches
    assert launch.grid == (132, 1, 1)
    assert plan.workspaces == {"scratch_0": 132 * 3 * 128}
    assert [a.name for a in launch.arguments[-2:]] == ["scratch_0", "null"]  # type: ignore[union-attr]
    unaligned, _ = compiled(BY_NAME["persistent"], gemm(4096, 4095, 4095), H200, cache, BM=64, BN=64)
    assert unaligned.workspaces == {}


@pytest.mark.parametrize("layout", ["nt", *(pytest.param(one, marks=pytest.mark.slow) for one in ("nn", "tn", "tt"))])
@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.name)
def test_the_emulator_finds_the_compiled_code_right(variant: Variant, layout: str, cache: CompileCache) -> None:
    found = emulated(variant, gemm(65, 70, 33, "bf16", layout), cache, **SMALL)  # type: ignore[arg-type]
    assert found.check.passed, found.check.detail
    assert found.findings == ()


@pytest.mark.slow  # in the default config the emulator's own tests run every stage and type
@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.name)
def test_the_emulator_finds_aligned_and_wide_problems_right(variant: Variant, cache: CompileCache) -> None:
    for dtype in [d for d in variant.dtypes if d != "bf16"]:
        found = emulated(variant, gemm(64, 64, 96, dtype, "nt"), cache, **SMALL)  # type: ignore[arg-type]
        assert found.check.passed, found.check.detail
        assert found.findings == ()


@pytest.mark.parametrize(
    "activation", ["gelu-tanh", *(pytest.param(one, marks=pytest.mark.slow) for one in ("relu", "gelu", "silu"))]
)
def test_the_emulator_finds_every_epilogue_right(activation: str, cache: CompileCache) -> None:
    operand = Operand(dtype="f16")
    problem = replace(
        gemm(40, 48, 32, alpha=0.5, beta=2.0, c=operand, bias=operand, residual=operand),
        epilogue=Epilogue(activation=activation),  # type: ignore[arg-type]
    )
    for name in ("fused-epilogue", "persistent"):
        found = emulated(BY_NAME[name], problem, cache, **SMALL)  # type: ignore[arg-type]
        assert found.check.passed, found.check.detail


def test_a_second_build_comes_from_the_cache_and_completes_alike(cache: CompileCache) -> None:
    plan, builds = compiled(BY_NAME["tiled"], gemm(128, 128, 128), A100, cache)
    again, cached = compiled(BY_NAME["tiled"], gemm(128, 128, 128), A100, cache)
    assert again == plan
    assert all(result.cached for result in cached.values())
    assert complete(plan, builds) == plan


def test_logs_and_sources_name_no_folder_of_this_machine(cache: CompileCache) -> None:
    (result,) = compiled(BY_NAME["tiled"], gemm(128, 128, 128), A100, cache)[1].values()
    assert "ptxas" in result.log
    assert str(Path(__file__).parents[2]) not in result.log
