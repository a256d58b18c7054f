"""Barriers so close together that meeting takes longer than the work between."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found
from dgw.recipes.tiling import barriers, loop

MEETING = 22.0
"""Cycles that all warps of a block take to meet when nobody is late. From a planted pair on an H200
(tests/data/bottlenecks.json.gz): the cycles of `many-barriers` beyond those of `tensor`, over the barriers that it has
more. Where stalls were measured it plays no part."""
PRICE = f"an estimate, {MEETING:g} for each barrier as between two kernels on an H200"
A_TILE = 2.5
"""Barriers a k tile that a loop can need: one when the tile is complete, one when it is free."""


def judge(facts: Facts) -> Finding | None:
    """More barriers than k tiles ask for, and what warps wait at them; not where they wait for late loads,
    nor where warps that have nothing to do sleep at one (a ring)."""
    each, own = barriers(facts), loop(facts)
    if each is None or each < 4 or facts.ring:
        return None
    a_tile = each / own.count / facts.rounds if own is not None else None
    if a_tile is not None and a_tile < A_TILE:
        return None
    loads, waiting = facts.stall("long_scoreboard"), facts.stall("barrier")
    if facts.measured and loads > waiting:
        return None
    rounds = (facts.blocks or 1.0) / facts.device.sms / facts.resident
    meeting = each * max(1.0, rounds) * MEETING
    cost = facts.late("barrier", "membar") if facts.measured else meeting / (meeting + facts.cycles)
    evidence = (
        Evidence(metric="barriers a warp", value=each),
        Evidence(metric="barriers a k tile", value=a_tile, threshold=A_TILE, why="one to fill it, one to free it"),
        facts.evidence("stall_barrier"),
        *(
            ()
            if facts.measured
            else (Evidence(metric="cycles to meet", value=meeting, threshold=facts.cycles, why=PRICE),)
        ),
    )
    often = f", {a_tile:.0f} for each k tile" if a_tile is not None else ""
    verdict = (
        f"barriers: every warp passes {each:.0f}{often}{facts.line('barrier_inst')}, and waits at them for "
        f"{100 * waiting:.0f} % of its cycles"
        if facts.measured
        else f"barriers: every warp passes {each:.0f}{often}{facts.line('barrier_inst')}"
    )
    step = "one barrier a k tile is enough with a ring of tiles: dgw show cuda/double-buffered --source"
    return found(RECIPE.name, verdict, cost, evidence, step)


RECIPE = Recipe(
    name="barrier-bound",
    about="barriers so close together that meeting takes longer than the work between",
    needs=("barrier_inst|inst_per_opcode", "threads_per_block"),
    judge=judge,
)
