"""Operands that every thread reads from global memory for itself, instead of tiles that a block shares."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

LEAST_LOADS = 0.25
"""Global loads for each multiply-add of a thread; a tile of 8 x 8 sums in registers alone needs no more than 0.25, and
one in shared memory divides that by its own edge."""
LEAST_SHARE = 0.5
"""Share of the time that such loads are taken to cost at least, an assumption: nothing else in such a kernel can be
seen before they are gone. The stored `naive-f32` of an H200 is beyond it by what was counted alone."""
LEAST_REREADS = 8.0
"""Times that every input element is asked for."""


def applies(facts: Facts) -> bool:
    """Products with anything to share: more than a few rows and columns."""
    return facts.problem.known and min(facts.problem.m, facts.problem.n) >= 16


def judge(facts: Facts) -> Finding | None:
    """Loads a multiply-add, where shared memory is not used and no tensor core multiplies."""
    requests, problem = facts.number("global_requests_ld") or 0.0, facts.problem
    products = problem.flops / 2 / 32  # warp instructions of one multiply-add a lane
    if facts.total("smem_wavefronts_actual", "ldgsts_inst", "tma_inst") or facts.uses_tensor_cores:
        return None
    per_product = requests / products
    elements = (problem.m + problem.n) * problem.k * problem.batch
    if per_product < LEAST_LOADS or requests * 32 < LEAST_REREADS * elements:
        return None
    share = max(facts.share("l1"), facts.share("issue"), facts.late("long_scoreboard", "lg_throttle"))
    why = f"of the time, by assumption; counted {share:.2g}"
    assumed = (Evidence(metric="share of the loads", value=LEAST_SHARE, why=why),) if share < LEAST_SHARE else ()
    share = max(share, LEAST_SHARE)
    evidence = (
        Evidence(metric="global loads a multiply-add", value=per_product, threshold=LEAST_LOADS),
        facts.evidence("smem_wavefronts_actual", why="no tile is kept in shared memory"),
        facts.evidence("stall_long_scoreboard"),
        *assumed,
    )
    verdict = (
        f"no tiles: {per_product:.2g} global loads for each multiply-add; every element of A and B is asked for "
        f"{requests * 32 / elements:.0f} times and only the caches notice"
    )
    step = facts.command(variant="cuda/tiled")
    return found(RECIPE.name, verdict, share * (1 - LEAST_LOADS / 2 / per_product), evidence, step)


RECIPE = Recipe(
    name="no-reuse",
    about="operands read from global memory for every multiply-add",
    needs=("global_requests_ld", "smem_wavefronts_actual"),
    judge=judge,
    applies=applies,
)
