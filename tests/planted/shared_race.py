"""A kernel with a race on shared memory, for racecheck to find."""

from __future__ import annotations

from dgw.kernels.declaring import ceil_div, gemm_arguments, refuses_epilogue
from dgw.model import Config, Device, Launch, Plan, Problem, Source, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Row-major operands without C only."""
    if problem.layout != "nn" or problem.beta != 0.0 or problem.batch != 1:
        return "layout nn, beta 0 and batch 1 only"
    return refuses_epilogue(problem)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One thread for each element of D, a tile of B in shared memory."""
    launch = Launch(
        source=Source(path="shared_race.cu"),
        entry="shared_race",
        grid=(ceil_div(problem.n, 16), ceil_div(problem.m, 16), 1),
        block=(16, 16, 1),
        arguments=gemm_arguments(problem),
    )
    return Plan(steps=(launch,), tile=(16, 16))


VARIANT = Variant(
    id="planted/shared-race", version=1, idea="reads before the barrier", dtypes=("f32",), refuses=refuses, plan=plan
)
