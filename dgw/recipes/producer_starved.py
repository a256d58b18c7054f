"""Tensor cores that wait for the warp that copies: a ring of tiles that runs empty."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found
from dgw.recipes.tiling import LATENCY, STAGES, loop

BUSY = 0.80
"""Share of the active cycles from which the tensor pipe is fed well enough."""


def applies(facts: Facts) -> bool:
    """Kernels whose tiles come by TMA, or whose products are wgmma."""
    return facts.uses_wgmma or facts.copy_engine


def judge(facts: Facts) -> Finding | None:
    """Pauses of the tensor pipe beyond those that every tile begins with, while memory could do more.

    Warps say little of it: in a ring most of them wait at any time. It is sure only where the ring is too short to
    cover the way to DRAM.
    """
    pipe = facts.number("tensor_pipe_util_active") or facts.share("tensor")
    memory = max(facts.share("dram"), facts.share("l2"))
    fed = facts.stall("gmma", "math_pipe_throttle", "mio_throttle")
    waiting = facts.stall("long_scoreboard", "barrier", "sleeping", "branch_resolving", "wait", "membar", "misc")
    if pipe >= BUSY or waiting <= fed:
        return None
    own, first = loop(facts), filling(facts)
    cost = (1 - pipe - first) * waiting / (waiting + fed) * (1 - min(1.0, memory)) - facts.idle / 2
    short = own is not None and own.cover < LATENCY
    evidence = (
        facts.evidence("tensor_pipe_util_active", BUSY),
        Evidence(metric="waiting for tiles", value=waiting, threshold=fed, why="waiting for the tensor pipe"),
        Evidence(metric="memory", value=memory, why="DRAM or L2, the busier of both"),
        Evidence(
            metric="cycles of work that cover a copy",
            value=None if own is None else own.cover,
            threshold=LATENCY,
            why="latency of DRAM",
        ),
        Evidence(metric="filling the ring", value=first, why="share of the time, once for each block"),
    )
    ring = f"; the ring covers {own.cover:.0f} cycles where DRAM takes about {LATENCY:.0f}" if own and short else ""
    verdict = (
        f"producer starved: the tensor pipe is at work {100 * pipe:.0f} % of the active cycles and "
        f"{100 * waiting:.0f} % of "
        f"the warp cycles wait for tiles, while memory is not at its limit{ring}"
    )
    step = (
        f"more stages than {facts.tunable(*STAGES) or 'now'}, a producer warp of its own, or multicast of the shared "
        "operand in clusters: dgw list --family hopper"
    )
    return found(RECIPE.name, verdict, cost, evidence, step, sure=short or own is None)


def filling(facts: Facts) -> float:
    """Share of a block's time until its first tile is there; 0 where its tiles are not known."""
    own = loop(facts)
    work = own.count * own.work * facts.rounds if own is not None else 0.0
    return LATENCY / (LATENCY + work) if work else 0.0


RECIPE = Recipe(
    name="producer-starved",
    about="tensor cores that wait for the warp that copies",
    needs=("tensor_pipe_util_active", "stall_barrier", "stall_long_scoreboard"),
    judge=judge,
    applies=applies,
)
