"""Copies that the products wait for, although they could have been asked for earlier."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes import bk_too_small, spills, uncoalesced
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

MEMORY_BUSY = 0.60
"""Share of DRAM or L2 from which a longer way ahead does not help: the bytes themselves take the time."""


def applies(facts: Facts) -> bool:
    """Kernels that keep tiles in shared memory, where anybody knows."""
    wavefronts = facts.number("smem_wavefronts_ideal")
    return wavefronts is None or wavefronts > 0


def judge(facts: Facts) -> Finding | None:
    """Time that warps wait for global memory, and at the barrier for those that do, while memory is not at its
    limit. A ring that runs empty has another name (producer-starved)."""
    loads, barrier = facts.stall("long_scoreboard"), facts.stall("barrier")
    if facts.ring or loads < barrier / 4 or bk_too_small.thin(facts) is not None or facts.launches > 2:
        return None
    memory = max(facts.share("dram"), facts.share("l2"))
    if memory >= MEMORY_BUSY:
        return None
    others = max(uncoalesced.wasted_share(facts), spills.local_share(facts))  # waits that have another reason
    cost = facts.late("long_scoreboard", "barrier", "membar") * (1 - memory) * (1 - others)
    copies = facts.number("ldgsts_inst")
    asynchronous = bool(copies) or facts.uses_wgmma
    evidence = (
        facts.evidence("stall_long_scoreboard", why="share of the warp cycles"),
        facts.evidence("stall_barrier"),
        Evidence(metric="memory", value=memory, threshold=MEMORY_BUSY, why="DRAM or L2, the busier of both"),
        facts.evidence("ldgsts_inst"),
    )
    how = "asynchronous copies are waited for as soon as they are asked for" if asynchronous else "plain loads"
    where = facts.line("stall_samples") if loads > 0.3 else ""
    verdict = (
        f"copies are not overlapped with the products ({how}): {100 * loads:.0f} % of the warp cycles "
        f"wait for global "
        "memory and "
        f"{100 * barrier:.0f} % at barriers{where}, while {facts.busiest[0] or 'the busiest pipe'} is at work "
        f"{100 * facts.busiest[1]:.0f} %"
    )
    step = (
        "ask for a tile STAGES - 1 tiles before its use, and wait for the oldest only: dgw show "
        "cuda/double-buffered --source"
    )
    return found(RECIPE.name, verdict, cost, evidence, step)


RECIPE = Recipe(
    name="not-overlapped",
    about="copies that the products wait for",
    needs=("stall_long_scoreboard", "stall_barrier", "elapsed_cycles", "smem_wavefronts_ideal"),
    judge=judge,
    applies=applies,
)
