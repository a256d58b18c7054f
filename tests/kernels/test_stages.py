"""Every stage of the ladder, as soon as its two files exist: it compiles everywhere, spills nowhere, and its PTX says
what the machine code does to shared memory."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from dgw.kernels.declaring import refuses_launch
from dgw.model import Config, Device, Operand, Problem, Variant, gemm
from dgw.toolchain.build import Build, build
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device, device_for_arch
from dgw.toolchain.sass import SassInstruction, disassemble, memory_instructions
from tests.kernels.ladder import STAGES, shared_accesses

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a")
AUDITED = [("f16", "nn"), ("f16", "tt"), ("bf16", "nt"), ("f32", "nn"), ("f32", "tn"), ("tf32", "nt")]
LARGE = 4096


def fitting(variant: Variant, problem: Problem, target: Device) -> Config:
    """The default config, with the stages that its refusal names where the device has too little shared memory."""
    config = variant.defaults()
    reason = variant.refuses(problem, config, target)
    if reason is not None:
        named = re.search(r"STAGES=(\d) fits", reason)
        assert named, reason
        assert target.shared_per_block < 163 * 1024
        config |= {"STAGES": int(named[1])}
        assert variant.refuses(problem, config, target) is None
    return config


def built(variant: Variant, problem: Problem, arch: str, cache: CompileCache) -> list[tuple[str, Build]]:
    """Entry and build of every launch in the default config, or what fits of it."""
    assert variant.plan is not None
    target = device_for_arch(arch)
    plan = variant.plan(problem, fitting(variant, problem, target), target)
    return [(x.entry, build(x.source, variant.root, variant.includes, arch, cache)) for x in plan.launches]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.id)
def test_the_default_config_compiles_without_spills_or_remarks(
    variant: Variant, arch: str, cache: CompileCache
) -> None:
    for entry, result in built(variant, gemm(LARGE, LARGE, LARGE), arch, cache):
        used = result.resources(entry)
        assert (used.spill_store_bytes, used.spill_load_bytes, used.local_bytes) == (0, 0, 0)
        assert result.coded_remarks == ()


@pytest.mark.parametrize(("dtype", "layout"), AUDITED)
@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.id)
def test_machine_code_accesses_shared_memory_as_the_ptx_says(
    variant: Variant, dtype: str, layout: str, cache: CompileCache, listings: Path
) -> None:
    if dtype not in variant.dtypes:
        assert "not supported" in str(
            variant.refuses(gemm(64, 64, 64, dtype, layout), variant.defaults(), device("h200"))
        )
        return
    for entry, result in built(variant, gemm(LARGE, LARGE, LARGE, dtype, layout), "sm_90a", cache):
        used = result.resources(entry)
        assert (used.spill_store_bytes, used.spill_load_bytes) == (0, 0)
        machine = Counter(
            (access.kind, access.width)
            for access in memory_instructions(disassemble(result.cubin, entry, listings))
            if access.kind in ("LDS", "STS", "LDSM", "LDGSTS", "HMMA")
        )
        assert machine == shared_accesses(result.ptx)


def loops(code: list[SassInstruction]) -> list[list[SassInstruction]]:
    """The instructions of every loop: from the target of a branch back to the branch."""
    found = []
    for branch in code:
        target = re.match(r"0x([0-9a-f]+)$", branch.operands) if branch.base == "BRA" else None
        if target and int(target[1], 16) < branch.address:
            found.append([i for i in code if int(target[1], 16) <= i.address <= branch.address])
    return found


@pytest.mark.parametrize("name", ["tensor-core", "fused-epilogue", "persistent"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_inside_the_matrix_the_main_loop_copies_without_a_predicate_and_does_little_else(
    name: str, layout: str, cache: CompileCache, listings: Path
) -> None:
    variant = next(v for v in STAGES if v.name == name)
    ((entry, result),) = built(variant, gemm(LARGE, LARGE, LARGE, layout=layout), "sm_90a", cache)
    code = [i for i in disassemble(result.cubin, entry, listings) if not i.never_executes]
    busy = [loop for loop in loops(code) if any(i.base == "HMMA" for i in loop)]
    main = min(busy, key=lambda loop: sum(i.base not in ("HMMA", "LDSM", "LDGSTS") for i in loop))
    counted = Counter(i.base for i in main)
    assert (counted["HMMA"], counted["LDSM"], counted["LDGSTS"], counted["BAR"]) == (128, 32, 12, 1)
    assert all(re.search(r"\]$", i.operands) for i in main if i.base == "LDGSTS")
    assert len(main) - 128 - 32 - 12 <= 48


def most_copies_together(spread: int, cache: CompileCache) -> int:
    """Copies among any 16 multiplications in a row, half a step, of the main loop of tensor-core."""
    variant, problem = next(v for v in STAGES if v.name == "tensor-core"), gemm(LARGE, LARGE, LARGE)
    assert variant.plan is not None
    (launch,) = variant.plan(problem, variant.defaults() | {"SPREAD": spread}, device("h200")).launches
    result = build(launch.source, variant.root, variant.includes, "sm_90a", cache)
    used = result.resources(launch.entry)
    assert (used.spill_store_bytes, used.spill_load_bytes) == (0, 0)
    code = [i for i in disassemble(result.cubin, launch.entry) if not i.never_executes]
    busy = [loop for loop in loops(code) if any(i.base == "HMMA" for i in loop)]
    bases = [i.base for i in min(busy, key=len) if i.base in ("HMMA", "LDGSTS")] * 2
    at = [bases[:place].count("HMMA") for place, base in enumerate(bases) if base == "LDGSTS"]
    return max(sum(first <= other < first + 16 for other in at) for first in at)


def test_copies_in_all_steps_come_in_smaller_groups(cache: CompileCache) -> None:
    assert most_copies_together(4, cache) == 3
    assert most_copies_together(2, cache) == 6


@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.id)
def test_a_stage_says_in_one_sentence_why_it_refuses(variant: Variant) -> None:
    target, defaults = device("h200"), variant.defaults()
    for problem in (
        gemm(64, 64, 64, "s4"),
        gemm(2**31, 64, 64),
        gemm(64, 64, 64, batch=2),
        gemm(64, 64, 64, accumulator="f16"),
        Problem(m=8, n=8, k=8, a=Operand(dtype="f16"), b=Operand(dtype="bf16"), d=Operand(dtype="f16")),
        Problem(m=8, n=8, k=8, a=Operand(dtype="f16"), b=Operand(dtype="f16"), d=Operand(dtype="f16", order="col")),
    ):
        reason = variant.refuses(problem, defaults, target)
        assert reason
        assert "\n" not in reason


@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.id)
def test_no_value_of_a_single_tunable_breaks_the_plan(variant: Variant) -> None:
    problem, target = gemm(1000, 999, 998), device("a100")
    for tunable in variant.space:
        for value in tunable.values:
            config = variant.defaults() | {tunable.name: value}
            assert variant.plan is not None
            if variant.refuses(problem, config, target) is None:
                for launch in variant.plan(problem, config, target).launches:
                    assert launch.grid[0] <= 2**31 - 1
                    assert max(launch.grid[1:]) <= 65535
                    assert launch.shared_bytes <= target.shared_per_block
                    assert launch.block[0] * launch.block[1] * launch.block[2] <= 1024


def test_more_blocks_than_a_grid_has_are_refused() -> None:
    assert "blocks" in str(refuses_launch(128, 0, 2**31, device("h200")))
    assert "shared memory" in str(refuses_launch(128, 2**20, 1, device("h200")))
    assert "threads" in str(refuses_launch(2048, 0, 1, device("h200")))


def test_tiled_and_swizzled_differ_only_in_the_place_of_a_chunk(cache: CompileCache, listings: Path) -> None:
    by_name = {variant.name: variant for variant in STAGES}
    for dtype, layout in AUDITED[:-1]:
        counts = []
        for name in ("tiled", "swizzled"):
            ((entry, result),) = built(by_name[name], gemm(LARGE, LARGE, LARGE, dtype, layout), "sm_90a", cache)
            code = [i for i in disassemble(result.cubin, entry, listings) if not i.never_executes]
            counted = Counter(i.opcode for i in code if i.base in ("FFMA", "LDS", "STS", "LDG", "STG", "BAR"))
            counts.append(counted)
        assert counts[0] == counts[1]
        assert counts[0]["LDS.128"] > 0
        assert not any(opcode.startswith("LDS") and opcode != "LDS.128" for opcode in counts[0])


def test_sources_name_no_path_outside_the_package() -> None:
    for variant in STAGES:
        source = Path(variant.root) / f"{variant.declaration.stem}.cu"
        assert source.is_file()
