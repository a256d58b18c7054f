"""Three launches where one is declared."""

from __future__ import annotations

from dgw.kernels.declaring import ceil_div, gemm_arguments, refuses_epilogue
from dgw.model import Config, Device, Launch, Plan, Problem, Source, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Row-major operands without C only."""
    if problem.layout != "nn" or problem.beta != 0.0 or problem.batch != 1:
        return "layout nn, beta 0 and batch 1 only"
    return refuses_epilogue(problem)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One thread for each element of D."""
    launch = Launch(
        source=Source(path="honest.cu"),
        entry="honest",
        grid=(ceil_div(problem.n, 32), ceil_div(problem.m, 8), 1),
        block=(32, 8, 1),
        arguments=gemm_arguments(problem),
    )
    return Plan(steps=(launch, launch, launch), tile=(8, 32))


VARIANT = Variant(
    id="cheats/launches-three",
    version=1,
    idea="makes three launches and declares one",
    dtypes=("f32",),
    refuses=refuses,
    plan=plan,
)
