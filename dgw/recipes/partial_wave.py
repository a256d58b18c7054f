"""A last wave of tiles that fills only part of the SMs."""

from __future__ import annotations

from math import ceil

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.latency_bound import ENOUGH
from dgw.recipes.recipe import Recipe, found

HALF_EMPTY = 1.25
"""What the idle time of SMs may understate the loss by, an assumption: an SM on which one of several blocks has ended
is not idle. In no stored record of an H200 that loses 5 % or more does it matter (tests/recipes/test_constants.py)."""


def judge(facts: Facts) -> Finding | None:
    """Tiles for each SM, rounded up, against the average: the SMs with one tile less wait for the others."""
    work = float(facts.tiles) if facts.tiles is not None else facts.blocks
    sms = facts.device.sms
    if work is None or work < ENOUGH * sms or facts.launches > 2:
        return None
    mean = work / sms
    lost = 1 - mean / ceil(mean)
    counted = facts.number("sm_active_cycles") is not None and facts.measured
    cost = min(lost, facts.idle * HALF_EMPTY) if counted else lost
    why = f"and {HALF_EMPTY:g} times the idle time, by assumption, is the most that is said to be lost"
    evidence = (
        Evidence(metric="tiles an SM", value=mean, threshold=float(ceil(mean)), why="the busiest SM"),
        facts.evidence("sm_active_cycles", facts.number("elapsed_cycles"), why if cost < lost else ""),
    )
    verdict = (
        f"partial wave: {work:.0f} tiles on {sms} SMs are {mean:.2f} for each, but the busiest has {ceil(mean)}; "
        f"{100 * lost:.0f} % of the SM time waits for the last wave"
    )
    cure = "persistent blocks that share the last tiles"
    if facts.rounds > 1:
        cure = "parts of k for the blocks that have no tile left"
    step = f"another tile size, or {cure}: {facts.other_tiles}"
    return found(RECIPE.name, verdict, cost, evidence, step)


RECIPE = Recipe(
    name="partial-wave",
    about="a last wave that fills only part of the SMs",
    needs=("blocks|waves_per_sm",),
    judge=judge,
)
