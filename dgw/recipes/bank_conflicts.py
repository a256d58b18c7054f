"""Lanes of one access that meet in a bank of shared memory, so that the access takes several passes."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

LEAST_EXCESS = 0.10
"""Share of the wavefronts from which conflicts are worth a word: below it the loss hides behind other work."""


def judge(facts: Facts) -> Finding | None:
    """Excess wavefronts are passes over the banks that the same instructions would not need. What they cost is what the
    busiest pipe loses with them, or their share of the time that warps wait for shared memory."""
    actual, excesses = facts.number("smem_wavefronts_actual"), excess_by_kind(facts)
    excess = sum(excesses.values())
    if not actual or excess / actual < LEAST_EXCESS:
        return None
    waiting = facts.late("short_scoreboard", "mio_throttle") * excess / actual
    cost = max(facts.relief({"shared": excess / facts.device.sms}), min(facts.share("shared"), waiting))
    evidence = (
        Evidence(metric="smem_wavefronts_actual", value=actual, threshold=actual - excess, why="so many would do"),
        Evidence(metric="shared", value=facts.share("shared"), why="share of the cycles that the banks were busy"),
        *(Evidence(metric=f"excess wavefronts of {kind}", value=many) for kind, many in excesses.items() if many > 0),
    )
    kind = max(excesses, key=lambda name: excesses[name])
    where = facts.line(f"smem_bank_conflicts_{'st' if kind == 'stores' else 'ld'}", "smem_wavefronts_actual")
    verdict = (
        f"bank conflicts of {kind}{where}: {actual:.4g} passes over the banks where {actual - excess:.4g} would do; "
        f"they are busy {100 * facts.share('shared'):.0f} % of the time"
    )
    step = "XOR the row into the number of the 16-byte slot, as stage swizzled does: dgw show cuda/swizzled --source"
    return found(RECIPE.name, verdict, cost, evidence, step)


def excess_by_kind(facts: Facts) -> dict[str, float]:
    """Wavefronts beyond the ideal by kind of instruction. What cp.async takes beyond it for other reasons than banks
    (rows that its lanes copy from) is none of these."""
    everything = facts.total("smem_wavefronts_actual") - facts.total("smem_wavefronts_ideal")
    loads, stores = (
        (facts.number(f"conflict_ratio_{side}") or 0.0)
        * facts.total(f"smem_wavefronts_sass_{side}", f"smem_wavefronts_sass_{side}sm")
        for side in ("ld", "st")
    )
    if not facts.known("conflict_ratio_ld") and not facts.known("smem_wavefronts_sass_ldgsts"):
        loads = everything - stores
    matrices, scalars = facts.total("smem_wavefronts_sass_ldsm"), facts.total("smem_wavefronts_sass_ld")
    share = matrices / (matrices + scalars) if matrices + scalars else 0.0
    copies = min(facts.total("smem_bank_conflicts_ldgsts"), max(0.0, everything - loads - stores))
    return {"loads": loads * (1 - share), "stores": stores, "ldmatrix": loads * share, "cp.async": copies}


RECIPE = Recipe(
    name="bank-conflicts",
    about="lanes of one shared-memory access that meet in a bank",
    needs=("smem_wavefronts_actual", "smem_wavefronts_ideal"),
    judge=judge,
)
