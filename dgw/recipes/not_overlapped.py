"""Copies that the products wait for, although they could have been asked for earlier."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes import bk_too_large, bk_too_small, spills, uncoalesced
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found
from dgw.recipes.tiling import LATENCY, held_back_by, loop

LATE, FEW = 0.5, 4
"""K tiles ahead up to which copies are called not overlapped, and k tiles up to which there is no loop to speak of."""
STEP = (
    "ask for a tile STAGES - 1 tiles before its use, and wait for the oldest only: dgw show cuda/double-buffered "
    "--source"
)
MEMORY_BUSY = 0.60
"""Share of DRAM or L2 from which a longer way ahead does not help: the bytes themselves take the time."""


def applies(facts: Facts) -> bool:
    """Kernels that keep tiles in shared memory, where anybody knows."""
    wavefronts = facts.number("smem_wavefronts_ideal")
    return wavefronts is None or wavefronts > 0


def judge(facts: Facts) -> Finding | None:
    """What was measured to be waited for; without a GPU, what the latency of DRAM makes of copies that are asked for
    when they are needed."""
    return _waited(facts) if facts.measured else _exposed(facts)


def _exposed(facts: Facts) -> Finding | None:
    """A k tile takes the latency and its work one after the other; blocks that share an SM fill it meanwhile."""
    own = loop(facts)
    if own is None or facts.number("copy_lead") is None or own.ahead >= LATE or own.count <= FEW:
        return None
    sms, blocks, tiles = facts.device.sms, facts.blocks or 1.0, facts.tiles or 1
    resident = min(own.resident, max(1.0, blocks / sms))
    work = max(own.work, facts.cycles * sms / (tiles * own.count))  # of the busiest pipe, be it another
    apart = LATENCY + work * (1 - own.ahead)
    if _kept_off(facts, own.bytes) * work >= apart:
        return None
    evidence = (
        facts.evidence("copy_lead", 1.0, "k tiles between asking for data and needing it"),
        Evidence(metric="cycles of work a k tile", value=work * resident, threshold=apart, why="latency and work"),
        Evidence(metric="blocks an SM", value=resident, why="work while another waits"),
        facts.evidence("ldgsts_inst"),
    )
    how = "asynchronous copies are waited for" if facts.number("ldgsts_inst") else "plain loads are needed"
    verdict = (
        f"copies are not overlapped with the products: {how} as soon as they are asked for, so that each k tile takes "
        f"about {LATENCY:.0f} cycles of latency beside {work:.0f} of work"
    )
    return found(RECIPE.name, verdict, max(0.0, 1 - work * resident / apart), evidence, STEP)


def _kept_off(facts: Facts, tiles: int) -> float:
    """Blocks an SM would hold if it were not for shared memory that is not the k tiles': they would fill the latency,
    and what keeps them off has a name of its own. 0 where nothing of that kind does."""
    if tiles >= bk_too_large.OWN * (facts.number("shared_mem_per_block") or 0.0):
        return 0.0
    kept = held_back_by(facts, "shared memory")
    return kept[1] if kept is not None else 0.0


def _waited(facts: Facts) -> Finding | None:
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
    evidence = (
        facts.evidence("stall_long_scoreboard", why="share of the warp cycles"),
        facts.evidence("stall_barrier"),
        Evidence(metric="memory", value=memory, threshold=MEMORY_BUSY, why="DRAM or L2, the busier of both"),
        facts.evidence("ldgsts_inst"),
    )
    how = "" if copies is None else " (plain loads)"
    if copies or facts.uses_wgmma:
        how = " (asynchronous copies are waited for as soon as they are asked for)"
    where = facts.line("stall_samples") if loads > 0.3 else ""
    pipe, share = facts.busiest
    verdict = (
        f"copies are not overlapped with the products{how}: {100 * loads:.0f} % of the warp cycles wait for global "
        f"memory and {100 * barrier:.0f} % at barriers{where}, while {pipe or 'the busiest pipe'} is at work "
        f"{100 * share:.0f} %"
    )
    return found(RECIPE.name, verdict, cost, evidence, STEP)


RECIPE = Recipe(
    name="not-overlapped",
    about="copies that the products wait for",
    needs=(
        "stall_long_scoreboard|copy_lead",
        "stall_barrier|copy_lead",
        "elapsed_cycles|copy_lead",
        "smem_wavefronts_ideal",
    ),
    judge=judge,
    applies=applies,
)
