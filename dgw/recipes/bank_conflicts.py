"""Lanes of one access that meet in a bank of shared memory, so that the access takes several passes."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

LEAST_EXCESS = 0.10
"""Share of the wavefronts from which conflicts are worth a word: below it the loss hides behind other work."""


def judge(facts: Facts) -> Finding | None:
    """Excess wavefronts are passes over the banks that the same instructions would not need."""
    actual, ideal = facts.number("smem_wavefronts_actual"), facts.number("smem_wavefronts_ideal")
    if not actual or ideal is None or (actual - ideal) / actual < LEAST_EXCESS:
        return None
    excess = (actual - ideal) / facts.device.sms
    cost = max(
        facts.relief("shared", excess), min(facts.share("shared"), facts.late("short_scoreboard", "mio_throttle"))
    )
    evidence = (
        Evidence(metric="smem_wavefronts_actual", value=actual, threshold=ideal, why="needed without a conflict"),
        Evidence(metric="shared", value=facts.share("shared"), why="share of the cycles that the banks were busy"),
    )
    where = facts.line("smem_bank_conflicts_ld", "smem_bank_conflicts_st", "smem_wavefronts_actual")
    verdict = (
        f"bank conflicts of {side(facts)}{where}: {actual:.4g} passes over the banks where {ideal:.4g} would do; they "
        f"are busy {facts.share('shared'):.0%} of the time"
    )
    return found(RECIPE.name, verdict, cost, evidence, "XOR the row into the 16-byte slot: dgw show swizzled --source")


def side(facts: Facts) -> str:
    """The instructions with the most excess, as far as it is known by kind."""
    excess = {
        "loads": (facts.number("conflict_ratio_ld") or 0.0) * facts.total("smem_wavefronts_sass_ld"),
        "stores": (facts.number("conflict_ratio_st") or 0.0) * facts.total("smem_wavefronts_sass_st"),
        "ldmatrix": facts.total("smem_bank_conflicts_ldsm"),
        "cp.async": facts.total("smem_bank_conflicts_ldgsts"),
    }
    return max(excess, key=lambda name: excess[name])


RECIPE = Recipe(
    name="bank-conflicts",
    about="lanes of one shared-memory access that meet in a bank",
    needs=("smem_wavefronts_actual", "smem_wavefronts_ideal"),
    judge=judge,
)
