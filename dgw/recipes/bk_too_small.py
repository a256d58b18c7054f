"""K tiles so thin that the copies, although they run ahead, are not far enough ahead of the products.

The seeds call BK too small when memory is below 60 % and the tensor cores below 70 %. Those two shares have many
causes; what a thin tile changes is the work between the request for a tile and its use, which follows from the tiles
themselves.
"""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes import retyping
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found
from dgw.recipes.tiling import K_TILE, LATENCY, Loop, loop

GUESSED = "guessed from the barriers: declare BK and STAGES"
MEMORY, PIPE = 0.60, 0.90
"""Shares up to which it is suspected: neither memory nor the multiplying pipe is at its limit."""


def applies(facts: Facts) -> bool:
    """Kernels that declare their k tile and run ahead; a ring that is too short is the matter of producer-starved."""
    own = loop(facts)
    return own is not None and not facts.ring and own.ahead >= 1 and facts.problem.k > own.depth


def thin(facts: Facts) -> Loop | None:
    """The main loop, if the work that covers a copy takes less than the copy."""
    own = loop(facts)
    return own if own is not None and own.ahead >= 1 and own.cover < LATENCY and own.count > 4 else None


def judge(facts: Facts) -> Finding | None:
    """Thin tiles cost what warps wait for copies and at the barrier of each tile."""
    own = thin(facts)
    if own is None:
        return None
    pipe = max(facts.share("tensor"), facts.share("fma"))
    if facts.measured and (facts.share("dram") > MEMORY or pipe > PIPE):
        return None
    waiting = facts.late("long_scoreboard", "barrier", "short_scoreboard", "wait", "membar", "no_instruction")
    cost = waiting if facts.measured else 1 - own.cover / LATENCY
    better = own.depth * 4 if own.cover * 2 < LATENCY else own.depth * 2
    evidence = (
        Evidence(metric="cycles of work that cover a copy", value=own.cover, threshold=LATENCY, why="latency of DRAM"),
        Evidence(metric="multiplying pipe", value=pipe, threshold=PIPE),
        Evidence(metric="dram", value=facts.share("dram"), threshold=MEMORY),
        *((Evidence(metric="k tile", value=own.depth, why=GUESSED),) if own.guessed else ()),
    )
    verdict = (
        f"BK too small: a k tile of {own.depth} keeps an SM busy for {own.work:.0f} cycles, so copies that run "
        f"{own.ahead:.2g} ahead have {own.cover:.0f} cycles where DRAM takes about {LATENCY:.0f}"
    )
    name = next((name for name in K_TILE if name in facts.case.config), "")
    step = retyping.profile(facts.case, tunables={name: better}) if name else f"k tiles of {better}"
    return found(RECIPE.name, verdict, cost, evidence, step, sure=not own.guessed)


RECIPE = Recipe(
    name="bk-too-small",
    about="k tiles so thin that copies cannot keep ahead",
    needs=("tensor_pipe_util|tensor_inst", "fma_pipe_util|fma_inst"),
    judge=judge,
    applies=applies,
)
