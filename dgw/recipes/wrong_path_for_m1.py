"""One row (or column) computed with tiles made for many."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

FEW = 8
"""Rows up to which the other operand is read once and used so little that only bytes a second count."""
GOOD = 0.90
"""Share of the peak of DRAM that a kernel made for it reaches."""


def applies(facts: Facts) -> bool:
    """Products with at most a few rows or columns."""
    return facts.problem.known and min(facts.problem.m, facts.problem.n) <= FEW


def judge(facts: Facts) -> Finding | None:
    """Tiles of many rows for a few, and DRAM far from its limit."""
    problem = facts.problem
    tile, few = facts.tile, min(problem.m, problem.n)
    edge = 1 if tile is None else tile[0 if problem.m <= problem.n else 1]
    if edge < 2 * few or edge < 16:
        return None
    bytes_a_second = facts.device.dram_bytes_per_s * GOOD
    needed = problem.compulsory_bytes / bytes_a_second * facts.device.clock_hz
    cycles = (
        facts.cycles if facts.measured else max(facts.cycles * (facts.device.sms / max(1.0, facts.blocks or 1.0)), 1.0)
    )
    cost = 1 - needed / cycles
    evidence = (
        Evidence(metric="rows of a tile", value=edge, threshold=float(few), why="rows that there are"),
        facts.evidence("dram_throughput", GOOD),
        Evidence(metric="blocks", value=facts.blocks, threshold=float(facts.device.sms), why="SMs"),
    )
    verdict = (
        f"wrong path for {'M' if problem.m <= problem.n else 'N'}={few}: tiles of {edge} rows waste "
        f"{100 * (1 - few / edge):.0f} % of the "
        f"products, and the matrix is read by {facts.blocks or 0:.0f} blocks; DRAM alone would need "
        f"{needed:,.0f} cycles of "
        f"{cycles:,.0f}"
    )
    return found(RECIPE.name, verdict, cost, evidence, "a kernel with a warp for each column and no tiles (GEMV)")


RECIPE = Recipe(
    name="wrong-path-for-m1",
    about="one row computed with tiles made for many",
    needs=("elapsed_cycles|bound_time",),
    judge=judge,
    applies=applies,
)
