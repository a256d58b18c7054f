"""Registers that keep blocks off the SM while nothing is busy."""

from __future__ import annotations

from dgw.model import Finding
from dgw.recipes import occupancy, retyping
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

BESIDE_SUMS = 128
"""Registers that a thread may need beside its sums: two sets of fragments, addresses and loop state."""


def judge(facts: Facts) -> Finding | None:
    """Registers that the sums of a declared tile explain are half excused: they pay by being reused."""
    seen = occupancy.kept_away(facts, "registers")
    registers = facts.number("registers_per_thread") or 0.0
    if seen is None:
        return None
    now, could, cost = seen
    sums = sums_a_thread(facts)
    excused = sums >= 32 and registers <= sums + BESIDE_SUMS
    excused = excused or (facts.tile is None and facts.share("shared") > 0)  # tiles of which nobody knows the size
    verdict = (
        f"registers limit occupancy: {registers:.0f} a thread leave room for {now:.0f} "
        f"block{'s' if now > 1 else ''} an SM where {could:.3g} could be there{occupancy.pipes(facts)}"
    )
    step = f"fewer values held over the loop, or a tighter __launch_bounds__: {retyping.show(facts.case, '--configs')}"
    evidence = occupancy.evidence(facts, "occ_limit_registers")
    return found(
        RECIPE.name, verdict, cost / 2 if excused else cost, evidence, step, sure=facts.measured and not excused
    )


def sums_a_thread(facts: Facts) -> float:
    """Sums that a thread holds when the tile of a CTA is spread over its threads; 0 when no tile is declared."""
    threads = facts.number("threads_per_block")
    return 0.0 if facts.tile is None or not threads else facts.tile[0] * facts.tile[1] / threads


RECIPE = Recipe(
    name="registers-limit-occupancy",
    about="registers that keep blocks off the SM while nothing is busy",
    needs=("occ_limit_registers", "occ_limit_shared_mem", "occ_limit_warps", "registers_per_thread"),
    judge=judge,
)
