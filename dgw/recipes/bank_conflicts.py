"""Lanes of one access that meet in a bank of shared memory, so that the access takes several passes."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes import uncoalesced
from dgw.recipes.facts import L2_BYTES_PER_SM_PER_CLOCK, LINE_SECTORS, SECTOR, Facts
from dgw.recipes.recipe import Recipe, found
from dgw.recipes.tiling import element_bytes

LEAST_EXCESS = 0.10
"""Share of the wavefronts from which conflicts are worth a word: below it the loss hides behind other work."""
LINES = {
    "loads": "smem_bank_conflicts_ld", "stores": "smem_bank_conflicts_st", "ldmatrix": "smem_bank_conflicts_ldsm",
    "cp.async": "smem_wavefronts_sass_ldgsts",
}  # fmt: skip
COPIES = "keep what comes from one line of global memory in one line of shared memory: "


def swizzle(facts: Facts) -> str:
    """The cure, with the stage that shows it: for tensor cores its copies and ldmatrix are others."""
    stage = "tensor-core" if facts.uses_tensor_cores else "swizzled"
    return f"XOR the row into the number of the 16-byte slot, as stage {stage} does: dgw show cuda/{stage} --source"


def judge(facts: Facts) -> Finding | None:
    """Excess wavefronts are passes over the banks that the same instructions would not need. What they cost is what the
    busiest pipe loses with them, or their share of the time that warps wait for shared memory."""
    actual, excesses = facts.number("smem_wavefronts_actual"), excess_by_kind(facts)
    excess = sum(excesses.values())
    if not actual or excess / actual < LEAST_EXCESS:
        return None
    waiting = facts.late("short_scoreboard", "mio_throttle") * excess / actual
    moved = uncoalesced.moved_for_the_place(facts) if excesses["cp.async"] else 0.0
    less = {
        "shared": excess / facts.device.sms,
        "l1": moved / LINE_SECTORS / facts.device.sms,
        "l2": moved * SECTOR / L2_BYTES_PER_SM_PER_CLOCK / facts.device.sms,
    }
    cost = max(facts.relief(less), min(facts.share("shared"), waiting))
    evidence = [
        Evidence(metric="smem_wavefronts_actual", value=actual, threshold=actual - excess, why="so many would do"),
        Evidence(metric="shared", value=facts.share("shared"), why="share of the cycles that the banks were busy"),
        *(Evidence(metric=f"excess wavefronts of {kind}", value=many) for kind, many in excesses.items() if many > 0),
    ]
    if moved:
        sectors = facts.sectors_loaded or 0.0
        why = "so many at another place in shared memory"
        evidence.append(Evidence(metric="sectors of global loads", value=sectors, threshold=sectors - moved, why=why))
    kind = max(excesses, key=lambda name: excesses[name])
    verdict = (
        f"bank conflicts of {kind}{facts.line(LINES[kind], 'smem_wavefronts_actual')}: {actual:,.0f} passes over the "
        f"banks where {actual - excess:,.0f} would do; they are busy {100 * facts.share('shared'):.0f} % of the time"
    )
    return found(RECIPE.name, verdict, cost, evidence, (COPIES if kind == "cp.async" else "") + swizzle(facts))


def excess_by_kind(facts: Facts) -> dict[str, float]:
    """Wavefronts beyond the ideal by kind of instruction. What cp.async takes beyond it for other reasons than its
    place in shared memory (rows that its lanes copy from) is none of these."""
    everything = facts.total("smem_wavefronts_actual") - facts.total("smem_wavefronts_ideal")
    loads, stores = (
        round(
            (facts.number(f"conflict_ratio_{side}") or 0.0)
            * facts.total(f"smem_wavefronts_sass_{side}", f"smem_wavefronts_sass_{side}sm")
        )
        for side in ("ld", "st")
    )
    if not facts.known("conflict_ratio_ld") and not facts.known("smem_wavefronts_sass_ldgsts"):
        loads = round(everything - stores)
    matrices = min(loads, _of_matrices(facts, loads))
    copies = min(misplaced(facts), max(0.0, everything - loads - stores))
    return {"loads": loads - matrices, "stores": stores, "ldmatrix": matrices, "cp.async": copies}


def _of_matrices(facts: Facts, loads: float) -> float:
    """The part of the excess of all loads that ldmatrix has: counted, else shared out by wavefronts."""
    counted = facts.number("smem_bank_conflicts_ldsm")
    if counted is not None:
        return counted
    matrices, scalars = facts.total("smem_wavefronts_sass_ldsm"), facts.total("smem_wavefronts_sass_ld")
    return loads * matrices / (matrices + scalars) if matrices + scalars else 0.0


def misplaced(facts: Facts) -> float:
    """Wavefronts that cp.async takes because of where it writes: beyond one for each line that it copies from.

    ncu counts conflicts of copies through L1 only. Lines are looked up in L1 once for each, wherever the copies go
    (tests/data/accesses.json.gz), so the look-ups of all global accesses are no less than what the copies need; unless
    rows begin in the middle of a sector, which costs more at any place. Where lanes copy from scattered places too, the
    wavefronts are theirs as far as they are not counted as conflicts.
    """
    counted, wavefronts = facts.total("smem_bank_conflicts_ldgsts"), facts.total("smem_wavefronts_sass_ldgsts")
    least = facts.number("smem_wavefronts_least_ldgsts")
    lines = facts.number("l1_tag_requests_global") if least is None else least
    ragged = least is None and not _rows_begin_at_sectors(facts)
    if lines is None or ragged or uncoalesced.wasted_share(facts):
        return counted
    excess = max(0.0, wavefronts - lines)
    return excess if least is not None else max(counted, excess)


def _rows_begin_at_sectors(facts: Facts) -> bool:
    problem, size = facts.problem, element_bytes(facts)
    places = [
        (problem.leading_dimension(name), operand.offset) for name, operand in (("a", problem.a), ("b", problem.b))
    ]
    return problem.known and all(ld * size % SECTOR == 0 and offset * size % SECTOR == 0 for ld, offset in places)


RECIPE = Recipe(
    name="bank-conflicts",
    about="lanes of one shared-memory access that meet in a bank",
    needs=("smem_wavefronts_actual", "smem_wavefronts_ideal"),
    judge=judge,
)
