"""A small kernel for the exact gate to guard: tests change one thing of it at a time."""

from __future__ import annotations

from dgw.kernels.declaring import ceil_div, gemm_arguments, refuses_epilogue
from dgw.model import Config, Device, Launch, Plan, Problem, Source, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Row-major operands without C only."""
    if problem.layout != "nn" or problem.beta != 0.0 or problem.batch != 1:
        return "layout nn, beta 0 and batch 1 only"
    return refuses_epilogue(problem)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One thread for a row of 32 elements of D."""
    launch = Launch(
        source=Source(path="column.cu"),
        entry="column",
        grid=(ceil_div(problem.n, 32), ceil_div(problem.m, 32), 1),
        block=(32, 1, 1),
        arguments=gemm_arguments(problem),
    )
    return Plan(steps=(launch,), tile=(32, 32))


VARIANT = Variant(id="gated/column", version=1, idea="a padded tile", dtypes=("f32",), refuses=refuses, plan=plan)
