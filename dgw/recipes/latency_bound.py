"""A problem with too few tiles to go round: most SMs have nothing to do."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

ENOUGH = 0.75
"""Blocks for each SM from which it is called a matter of waves, not of too few blocks: where one name ends and the
other begins, not a measurement."""


def judge(facts: Facts) -> Finding | None:
    """Blocks against SMs: those without one wait for the others, which go through all of k alone."""
    blocks, sms = facts.blocks, facts.device.sms
    if blocks is None or blocks >= ENOUGH * sms or facts.launches > 2 or not facts.problem.known:
        return None
    if min(facts.problem.m, facts.problem.n) <= 8:
        return None
    empty = 1 - blocks / sms
    counted = facts.measured and facts.number("sm_active_cycles") is not None
    cost = min(empty, facts.idle) if counted else empty  # an SM without a block is idle for as long as the others work
    evidence = (
        Evidence(metric="blocks", value=blocks, threshold=float(sms), why="SMs"),
        facts.evidence("sm_active_cycles", facts.number("elapsed_cycles")),
    )
    tile = f" of {facts.tile[0]} x {facts.tile[1]}" if facts.tile else ""
    verdict = (
        f"latency-bound small problem: {blocks:.0f} blocks{tile} for {sms} SMs, so {100 * empty:.0f} % of them have "
        "nothing to do "
        f"while each block goes through {facts.problem.k} k alone"
    )
    step = "smaller tiles, or parts of k for several blocks (split-K): " + facts.other_tiles
    return found(RECIPE.name, verdict, cost, evidence, step)


RECIPE = Recipe(
    name="latency-bound",
    about="too few tiles to go round",
    needs=("blocks|waves_per_sm",),
    judge=judge,
)
