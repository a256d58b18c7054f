"""Tiles that reach beyond the edges of D and multiply nothing there."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found
from dgw.recipes.tiling import element_bytes
from dgw.recipes.wrong_path_for_m1 import FEW

LEAST = 0.05


def applies(facts: Facts) -> bool:
    """Kernels with a declared tile, on more than a few rows and columns."""
    return facts.tile is not None and facts.problem.known and min(facts.problem.m, facts.problem.n) > FEW


def judge(facts: Facts) -> Finding | None:
    """The share of the tiles' area that lies outside D, and the bytes of padding and of tiles that fit."""
    problem, tile = facts.problem, facts.tile
    assert tile is not None
    rows, columns = (-(-size // edge) * edge for size, edge in zip((problem.m, problem.n), tile, strict=True))
    waste = 1 - problem.m * problem.n / (rows * columns)
    if waste < LEAST:
        return None
    size = element_bytes(facts)
    padded = (rows + columns) * problem.k * size
    exact = (problem.m + problem.n) * problem.k * size
    evidence = (
        Evidence(
            metric="elements of the tiles", value=rows * columns, threshold=float(problem.m * problem.n), why="of D"
        ),
        Evidence(metric="bytes of padded operands", value=padded, threshold=exact, why="with predicated edges"),
    )
    verdict = (
        f"tile waste: tiles of {tile[0]} x {tile[1]} cover {rows} x {columns} where D is {problem.m} x {problem.n}; "
        f"{100 * waste:.0f} % of the products are thrown away"
    )
    step = f"tiles that divide {problem.m} and {problem.n} better: {facts.other_tiles}"
    return found(RECIPE.name, verdict, waste, evidence, step)


RECIPE = Recipe(
    name="tile-waste", about="tiles that reach beyond the edges of D", needs=(), judge=judge, applies=applies
)
