"""Products made by FMA units where the device has tensor cores for their type."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

SMALLEST = 16
"""Rows and columns from which an instruction of the tensor cores is not mostly empty."""
MOSTLY = 0.4
"""Share of the instructions that multiply, from which the issue slots are theirs."""
BESIDE = 0.04
"""What it is said to cost where something else binds at present."""


def applies(facts: Facts) -> bool:
    """Types that the tensor cores of the device multiply. f32 is not one of them: tf32 has other results."""
    problem = facts.problem
    if not problem.known or min(problem.m, problem.n, problem.k) < SMALLEST:
        return False
    return problem.a.dtype in facts.device.tensor_flops_per_sm_per_clock


def judge(facts: Facts) -> Finding | None:
    """As far as the FMA pipe and its instructions bind: what the time would be at the rate of mma.sync."""
    if facts.uses_tensor_cores or facts.launches > 3:
        return None
    rates = facts.device.mma_flops_per_sm_per_clock or facts.device.tensor_flops_per_sm_per_clock
    rate = rates.get(facts.problem.a.dtype) or max(rates.values())
    ideal = facts.problem.flops / rate / facts.device.sms
    others = max((c for pipe, c in facts.busy.items() if pipe not in ("fma", "issue", "tensor")), default=0.0)
    binding = facts.busy.get("fma", 0.0)
    issued = facts.number("issued") or facts.number("inst_executed")
    if issued and facts.problem.flops / 64 >= MOSTLY * issued:
        binding = max(binding, facts.busy.get("issue", 0.0))
    if binding >= others and (facts.number("issued") is None or binding >= facts.busy.get("issue", 0.0)):
        cost = 1 - max(ideal, 0.0) / facts.cycles if facts.cycles else 0.0
    else:
        cost = BESIDE
    evidence = (
        facts.evidence("tensor_inst" if facts.number("tensor_inst") is not None else "tensor_pipe_util", 0),
        facts.evidence("fma_pipe_util"),
        Evidence(metric="cycles at the rate of mma.sync", value=ideal, threshold=facts.cycles, why="cycles now"),
    )
    verdict = (
        f"no tensor cores: FMA units make the products of {facts.problem.a.dtype}, {facts.cycles / ideal:.1f} "
        "times the "
        "cycles that mma.sync would need"
    )
    return found(RECIPE.name, verdict, cost, evidence, facts.command(variant="cuda/tensor-core"))


RECIPE = Recipe(
    name="no-tensor-cores",
    about="products made by FMA units where tensor cores could make them",
    needs=("tensor_inst|tensor_pipe_util", "fma_pipe_util|fma_inst"),
    judge=judge,
    applies=applies,
)
