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
    actual, ideal = facts.number("smem_wavefronts_actual"), facts.number("smem_wavefronts_ideal")
    if not actual or ideal is None or (actual - ideal) / actual < LEAST_EXCESS:
        return None
    excess = (actual - ideal) / facts.device.sms
    waiting = facts.late("short_scoreboard", "mio_throttle") * (actual - ideal) / actual
    cost = max(facts.relief("shared", excess), min(facts.share("shared"), waiting))
    evidence = (
        Evidence(metric="smem_wavefronts_actual", value=actual, threshold=ideal, why="so many would do"),
        Evidence(metric="shared", value=facts.share("shared"), why="share of the cycles that the banks were busy"),
        *(e for name in KINDS for e in _excess(facts, name)),
    )
    kind = worst(facts)
    where = facts.line(f"smem_bank_conflicts_{'st' if kind == 'stores' else 'ld'}", "smem_wavefronts_actual")
    verdict = (
        f"bank conflicts of {kind}{where}: {actual:.4g} passes over the banks where {ideal:.4g} would do; they are "
        f"busy {facts.share('shared'):.0%} of the time"
    )
    step = "XOR the row into the number of the 16-byte slot, as stage swizzled does: dgw show cuda/swizzled --source"
    return found(RECIPE.name, verdict, cost, evidence, step)


KINDS = ("loads", "stores", "ldmatrix", "cp.async")


def _excesses(facts: Facts) -> dict[str, float]:
    loads, stores = (
        (facts.number(f"conflict_ratio_{side}") or 0.0)
        * facts.total(f"smem_wavefronts_sass_{side}", f"smem_wavefronts_sass_{side}sm")
        for side in ("ld", "st")
    )
    matrices = facts.total("smem_wavefronts_sass_ldsm")
    scalars = facts.total("smem_wavefronts_sass_ld")
    share = matrices / (matrices + scalars) if matrices + scalars else 0.0
    everything = facts.total("smem_wavefronts_actual") - facts.total("smem_wavefronts_ideal")
    copies = everything - loads - stores
    return {"loads": loads * (1 - share), "stores": stores, "ldmatrix": loads * share, "cp.async": max(0.0, copies)}


def _excess(facts: Facts, kind: str) -> tuple[Evidence, ...]:
    value = _excesses(facts)[kind]
    return (Evidence(metric=f"excess wavefronts of {kind}", value=value),) if value > 0 else ()


def worst(facts: Facts) -> str:
    """The kind of instruction with the most excess."""
    excess = _excesses(facts)
    return max(excess, key=lambda kind: excess[kind])


RECIPE = Recipe(
    name="bank-conflicts",
    about="lanes of one shared-memory access that meet in a bank",
    needs=("smem_wavefronts_actual", "smem_wavefronts_ideal"),
    judge=judge,
)
