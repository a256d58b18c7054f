"""The stages that run on machines before Hopper, compiled to PTX alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from dgw.kernels.loader import load
from dgw.model import Case, Config, Device, Plan, Problem, Source, Variant, sm
from dgw.toolchain.build import build
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device
from dgw.toolchain.launches import complete
from dgw.toolchain.nvrtc import compile_program

MACHINES = tuple(device(name) for name in ("a100", "l4"))  # without asynchronous copies of whole tensors
STAGES = {
    variant.id: variant
    for variant in load().values()
    if variant.plan is not None and any(variant.runs_on(machine.arch) for machine in MACHINES)
}


def machine_for(variant: Variant, problems: Iterable[Problem]) -> Device | None:
    """The oldest machine on which the stage takes all problems."""
    for machine in MACHINES:
        if variant.runs_on(machine.arch) and all(
            variant.refuses(problem, variant.defaults(), machine) is None for problem in problems
        ):
            return machine
    return None


@lru_cache(maxsize=16)
def stage_ptx(stage: str, source: Source, arch: str) -> str:
    """The PTX of a CUDA source. Machine code is not made, which would take three times as long."""
    variant = STAGES[stage]
    path = variant.root / source.path
    virtual = f"compute_{sm(arch)}"
    return compile_program(path.read_text(), str(path), virtual, source.defines, variant.includes, source.flags).ptx


def planned(
    stage: str, problem: Problem, machine: Device, cache: CompileCache | None = None, config: Config | None = None
) -> tuple[Case, Plan, Callable[[Source], str]]:
    """The case, its complete plan, and where its PTX comes from; `cache` serves Triton, which is compiled in full."""
    variant = STAGES[stage]
    assert variant.plan is not None
    chosen = variant.defaults() | (config or {})
    plan = variant.plan(problem, chosen, machine)
    case = Case(problem=problem, variant=variant.id, config=chosen)
    if variant.family != "triton":
        return case, plan, lambda source: stage_ptx(stage, source, machine.arch)
    builds = {x.source: build(x.source, variant.root, variant.includes, machine.arch, cache) for x in plan.launches}
    return case, complete(plan, builds), lambda source: builds[source].ptx
