"""Every stage that has a plan, in every dtype and layout, on ragged shapes, in the emulator against the reference.

Stages are taken from the loader, so a new one is covered as soon as its files exist. Shapes and the remaining options
(beta and C, padding and offsets, wider output, alpha) rotate over the combinations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest

from dgw.kernels.loader import load
from dgw.model import Case, Device, Operand, Problem, Source, Variant, gemm
from dgw.toolchain.build import Build, build
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device
from dgw.workbench.collectors.emulator import emulate

LAYOUTS = ("nn", "nt", "tn", "tt")
SHAPES = (
    (127, 255, 96), (129, 136, 40), (1, 257, 64), (200, 72, 33), (16, 8, 7), (256, 128, 128), (65, 1, 129), (8, 264, 16),
    (63, 130, 72), (1, 1, 1), (136, 264, 104), (130, 17, 65),
)  # fmt: skip
MACHINES = tuple(device(name) for name in ("a100", "l4", "h200"))
SHAPES_EACH = 2


@dataclass(frozen=True)
class Trial:
    """One case and the machine that it is compiled for."""

    name: str
    variant: Variant
    problem: Problem
    machine: Device


def _options(problem: Problem, turn: int) -> Problem:
    """The plain problem, or with one of the options that a GEMM has."""
    replace = msgspec.structs.replace
    m, n, _ = problem.m, problem.n, problem.k
    match turn % 5:
        case 1:
            return replace(problem, alpha=0.5, beta=2.0, c=Operand(dtype=problem.d.dtype), seed=1)
        case 2:
            a = replace(problem.a, ld=problem.leading_dimension("a") + 8, offset=8)
            return replace(problem, a=a, d=replace(problem.d, ld=n + 3, offset=1))
        case 3:
            wide = "s32" if problem.a.dtype in ("s8", "s4") else "f32"
            return replace(problem, d=Operand(dtype=wide), data="integer")
        case 4:
            return replace(problem, b=replace(problem.b, ld=problem.leading_dimension("b") + 1), alpha=-1.5)
    return replace(problem, seed=m)


def _machine(variant: Variant, problem: Problem) -> Device | None:
    """The oldest machine that takes the problem."""
    for machine in MACHINES:
        if variant.runs_on(machine.arch) and variant.refuses(problem, variant.defaults(), machine) is None:
            return machine
    return None


def trials() -> Iterator[Trial]:
    """Every stage x dtype x layout, SHAPES_EACH shapes of each, with options where the stage knows them."""
    turn = 0
    for variant in load().values():
        if variant.plan is None or variant.synchronises == "mbarrier":
            continue
        for dtype in variant.dtypes:
            for layout in LAYOUTS:
                for _ in range(SHAPES_EACH):
                    turn += 1
                    m, n, k = SHAPES[turn % len(SHAPES)]
                    plain = gemm(m, n, k, dtype, layout)
                    for problem in (_options(plain, turn), plain):
                        machine = _machine(variant, problem)
                        if machine is not None:
                            option = "plain" if problem is plain else f"option{turn % 5}"
                            name = f"{variant.id}-{dtype}-{layout}-{m}x{n}x{k}-{option}"
                            yield Trial(name, variant, problem, machine)
                            break


TRIALS = list(trials())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> CompileCache:
    return CompileCache(tmp_path_factory.mktemp("compiled"))


def run(trial: Trial, cache: CompileCache, full_grid: bool = False):
    """Compile and emulate."""
    variant, config = trial.variant, trial.variant.defaults()
    assert variant.plan is not None
    plan = variant.plan(trial.problem, config, trial.machine)
    builds: dict[Source, Build] = {
        launch.source: build(launch.source, variant.root, variant.includes, trial.machine.arch, cache)
        for launch in plan.launches
    }
    case = Case(problem=trial.problem, variant=variant.id, config=config)
    return emulate(case, plan, lambda source: builds[source].ptx, None, trial.machine, full_grid)


def test_every_stage_takes_part_in_every_layout() -> None:
    staged = {v.id for v in load().values() if v.plan is not None and v.synchronises != "mbarrier"}
    assert {trial.variant.id for trial in TRIALS} == staged
    assert {trial.problem.layout for trial in TRIALS} == set(LAYOUTS)


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_the_compiled_kernel_computes_the_reference(trial: Trial, cache: CompileCache) -> None:
    found = run(trial, cache)
    assert found.findings == ()
    assert found.check.passed, found.check.detail
    assert found.check.compared == trial.problem.m * trial.problem.n * trial.problem.batch
