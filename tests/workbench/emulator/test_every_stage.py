"""Every stage that has a plan, in every dtype and layout, on ragged shapes, in the emulator against the reference.

Stages are taken from the loader, so a new one is covered as soon as its files exist. Shapes and the remaining options
(beta and C, padding and offsets, wider output, alpha) rotate over the combinations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import pytest

from dgw.model import Device, Operand, Problem, Variant, gemm
from dgw.toolchain.cache import CompileCache
from dgw.workbench.collectors.emulator import Emulation, emulate
from tests.workbench.emulator.stages import STAGES, machine_for, planned

LAYOUTS = ("nn", "nt", "tn", "tt")
ALIGNED = ((136, 264, 40), (200, 72, 104), (8, 16, 8))  # 16-byte accesses of f16 everywhere
RAGGED = ((127, 255, 33), (1, 257, 97), (129, 1, 7), (1, 1, 1))  # one element at a time


@dataclass(frozen=True)
class Trial:
    """Problems of several shapes that one compiled program solves, and the machine that it is compiled for."""

    name: str
    variant: Variant
    problems: tuple[Problem, ...]
    machine: Device


def _options(problem: Problem, turn: int) -> Problem:
    """The plain problem, or with one of the options that a GEMM has."""
    replaced = msgspec.structs.replace
    match turn % 5:
        case 1:
            return replaced(problem, alpha=0.5, beta=2.0, c=Operand(dtype=problem.d.dtype), seed=1)
        case 2:
            a = replaced(problem.a, ld=problem.leading_dimension("a") + 8, offset=8)
            return replaced(problem, a=a, d=replaced(problem.d, ld=problem.n + 3, offset=1))
        case 3:
            wide = "s32" if problem.a.dtype in ("s8", "s4") else "f32"
            return replaced(problem, d=Operand(dtype=wide), data="integer")
        case 4:
            return replaced(problem, b=replaced(problem.b, ld=problem.leading_dimension("b") + 1), alpha=-1.5)
    return replaced(problem, seed=problem.m)


def _trial(variant: Variant, dtype: str, layout: str, turn: int) -> Trial | None:
    """Ragged and aligned shapes in turn, with an option where the stage knows it."""
    shapes = (RAGGED, ALIGNED)[turn % 2]
    plain = tuple(gemm(m, n, k, dtype, layout) for m, n, k in shapes)
    for problems, option in ((tuple(_options(p, turn) for p in plain), f"option{turn % 5}"), (plain, "plain")):
        machine = machine_for(variant, problems)
        if machine is not None:
            name = f"{variant.id}-{dtype}-{layout}-{'aligned' if shapes is ALIGNED else 'ragged'}-{option}"
            return Trial(name, variant, problems, machine)
    return None


def trials() -> Iterator[Trial]:
    """Every stage x dtype x layout; of Triton, which takes a second to compile each shape, one of each dtype."""
    every = [(variant, dtype, layout) for variant in STAGES.values() for dtype in variant.dtypes for layout in LAYOUTS]
    for turn, (variant, dtype, layout) in enumerate(every):
        if variant.family == "triton" and (turn + variant.dtypes.index(dtype)) % len(LAYOUTS):
            continue
        found = _trial(variant, dtype, layout, turn + turn // 8)
        if found is not None and variant.family == "triton":
            found = replace(found, problems=found.problems[turn % 2 :][:1])
        if found is not None:
            yield found


TRIALS = list(trials())


def run(trial: Trial, problem: Problem, cache: CompileCache) -> Emulation:
    """Compile and emulate one problem."""
    case, plan, ptx_of = planned(trial.variant.id, problem, trial.machine, cache)
    return emulate(case, plan, ptx_of, None, trial.machine)


def test_every_stage_takes_part_with_every_dtype_and_layout() -> None:
    assert {trial.variant.id for trial in TRIALS} == set(STAGES)
    for variant in STAGES.values():
        taken = {(t.problems[0].a.dtype, t.problems[0].layout) for t in TRIALS if t.variant is variant}
        for dtype in variant.dtypes:
            refused = machine_for(variant, [gemm(64, 64, 64, dtype)]) is None
            layouts = {layout for kind, layout in taken if kind == dtype}
            if variant.family != "triton" and not refused:
                assert layouts == set(LAYOUTS)


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_the_compiled_kernel_computes_the_reference(trial: Trial, cache: CompileCache) -> None:
    for problem in trial.problems:
        found = run(trial, problem, cache)
        assert found.findings == (), problem.shape
        assert found.check.passed, f"{problem.shape}: {found.check.detail}"
        assert found.check.compared == problem.m * problem.n
