"""FP8 sums kept in the tensor cores of Hopper, which carry fewer bits than f32, over all of k."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes import retyping
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe

EVERY = 128
"""Elements of k after which sums are added to f32 registers by kernels that promote."""
LONG = 2048
"""Depth from which what is lost shows: the sum of so many products needs more bits than the adder of Hopper keeps
(about 14 of the fraction)."""
NEAR = 0.5
"""Share of the error bound."""


def applies(facts: Facts) -> bool:
    """e4m3 on Hopper over a long k."""
    return facts.problem.known and facts.problem.a.dtype == "e4m3" and facts.device.arch in ("sm_90", "sm_90a")


def judge(facts: Facts) -> Finding | None:
    """A promotion adds every sum once in 128 k outside the tensor cores; half as many additions are none."""
    problem = facts.problem
    if problem.k < LONG:
        return None
    added = facts.opcode("FADD", "FFMA", "FADD2", "FFMA2")
    if added is None:
        added = facts.busy.get("fma", 0.0) * facts.device.sms * facts.device.fma_per_sm_per_clock / 32
    promotions = problem.m * problem.n * problem.batch * (problem.k / EVERY) / 32
    if added >= promotions / 2:
        return None
    check = facts.record.check
    near = bool(check and check.error is not None and check.bound and check.error > NEAR * check.bound)
    error = None if check is None else check.error
    bound = None if check is None or check.bound is None else float(check.bound)
    return Finding(
        recipe=RECIPE.name,
        verdict=(
            f"FP8 without promotion: {added:.3g} additions outside the tensor cores where a promotion each "
            f"{EVERY} k makes "
            f"{promotions:.3g}; the tensor cores of Hopper keep about 14 bits of a sum over {problem.k} products"
        ),
        confidence="high" if near else "medium",
        evidence=(
            Evidence(metric="additions outside the tensor cores", value=added, threshold=promotions / 2),
            Evidence(metric="worst error", value=error, threshold=bound, why="bound of the check"),
        ),
        next_step=retyping.look_for_reason(facts.case),
    )


RECIPE = Recipe(
    name="fp8-without-promotion",
    about="FP8 sums kept in the tensor cores over all of k",
    needs=("inst_per_opcode|fma_pipe_util",),
    judge=judge,
    applies=applies,
)
