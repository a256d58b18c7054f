"""Shared memory that keeps blocks off the SM while nothing is busy."""

from __future__ import annotations

from dgw.model import Finding
from dgw.recipes import bk_too_large, occupancy, retyping
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found
from dgw.recipes.tiling import loop


def judge(facts: Facts) -> Finding | None:
    """Shared memory beyond the declared tiles is wasted; where deep k tiles explain it, that is the finding."""
    seen = occupancy.kept_away(facts, "shared memory")
    if seen is None or bk_too_large.deep(facts) is not None:
        return None
    now, could, cost = seen
    used, own = facts.number("shared_mem_per_block") or 0.0, loop(facts)
    explained = own is not None and own.bytes >= bk_too_large.OWN * used
    tiles = f"; the declared tiles take {own.bytes:,}" if own is not None else ""
    verdict = (
        f"shared memory limits occupancy: {used:,.0f} bytes a block leave room for {now:.0f} block"
        f"{'s' if now > 1 else ''} an SM where {could:.3g} could be there{tiles}{occupancy.pipes(facts)}"
    )
    step = f"ask for less shared memory, or fewer stages: {retyping.show(facts.case, '--configs')}"
    evidence = (facts.evidence("shared_mem_per_block"), *occupancy.evidence(facts, "occ_limit_shared_mem"))
    return found(
        RECIPE.name, verdict, cost / 2 if explained else cost, evidence, step, sure=facts.measured and not explained
    )


RECIPE = Recipe(
    name="shared-memory-limits-occupancy",
    about="shared memory that keeps blocks off the SM while nothing is busy",
    needs=("occ_limit_registers", "occ_limit_shared_mem", "occ_limit_warps", "shared_mem_per_block"),
    judge=judge,
)
