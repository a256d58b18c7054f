"""A kernel that makes no launch at all."""

from __future__ import annotations

from dgw.kernels.declaring import refuses_epilogue
from dgw.model import Config, Device, Plan, Problem, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Row-major operands without C only."""
    if problem.layout != "nn" or problem.beta != 0.0 or problem.batch != 1:
        return "layout nn, beta 0 and batch 1 only"
    return refuses_epilogue(problem)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """No step."""
    return Plan(steps=(), kernels=0)


VARIANT = Variant(
    id="cheats/launches-nothing", version=1, idea="makes no launch at all", dtypes=("f32",), refuses=refuses, plan=plan
)
