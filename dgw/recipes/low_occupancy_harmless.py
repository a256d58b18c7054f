"""Low occupancy that costs nothing, because a pipe is busy all the same."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.occupancy import BUSY, LOW
from dgw.recipes.recipe import Recipe


def judge(facts: Facts) -> Finding | None:
    """Said so that nobody spends a day on it."""
    occupied, (pipe, share) = facts.number("achieved_occupancy"), facts.busiest
    if occupied is None or occupied >= LOW or share < BUSY or not facts.measured:
        return None
    return Finding(
        recipe=RECIPE.name,
        verdict=(
            f"low occupancy does not matter: {100 * occupied:.0f} % of the warps, "
            f"and {pipe} is busy {100 * share:.0f} % of the time"
        ),
        confidence="medium",
        evidence=(
            facts.evidence("achieved_occupancy", LOW),
            Evidence(metric="busiest pipe", value=share, threshold=BUSY, why=pipe),
        ),
        next_step="leave it as it is",
    )


RECIPE = Recipe(
    name="low-occupancy-harmless",
    about="low occupancy that costs nothing",
    needs=("achieved_occupancy", "tensor_pipe_util", "fma_pipe_util"),
    judge=judge,
)
