"""Values that did not fit the registers and travel through local memory."""

from __future__ import annotations

from dgw.model import Finding
from dgw.recipes import retyping
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found


def judge(facts: Facts) -> Finding | None:
    """Bytes the compiler spilled, and the sectors that went through local memory because of it. They cost their share
    of what L1 moves, and of the time that warps wait for L1."""
    spilled = facts.total("spill_store_bytes", "spill_load_bytes")
    local = facts.local_sectors
    if spilled <= 0 and local <= 0:
        return None
    if facts.measured and local <= 0:
        return None  # on a path that was not taken
    share = local_share(facts)
    waiting = facts.late("long_scoreboard", "lg_throttle", "barrier", "mio_throttle", "wait", "short_scoreboard")
    relief = facts.relief({"l1": local / 4 / facts.device.sms})
    registers = facts.number("registers_per_thread") or 255.0
    static = min(0.9, spilled / 4 / registers)  # share of the values in use that do not fit
    cost = max(relief, share * waiting) if facts.measured else max(relief, static)
    evidence = (
        facts.evidence("spill_store_bytes", 0),
        facts.evidence("spill_load_bytes", 0),
        facts.evidence("local_load_sectors", 0),
        facts.evidence("local_store_sectors", 0),
        facts.evidence("registers_per_thread"),
    )
    verdict = (
        f"register spills: {spilled:.0f} bytes a thread go to local memory and back with {registers:.0f} registers"
        f"{facts.line('local_load_sectors')}; {local:.4g} sectors of them were moved"
    )
    step = "fewer sums a thread or a looser __launch_bounds__: " + f"{retyping.show(facts.case, '--configs')}"
    return found(RECIPE.name, verdict, cost, evidence, step)


def local_share(facts: Facts) -> float:
    """Share of the sectors that L1 moves for loads which are spilled values."""
    moved = facts.local_sectors + (facts.sectors_loaded or 0.0)
    return facts.local_sectors / moved if moved else 0.0


RECIPE = Recipe(
    name="spills",
    about="values that did not fit the registers",
    needs=("spill_store_bytes|local_store_sectors", "local_load_sectors|spill_load_bytes"),
    judge=judge,
)
