"""Values that did not fit the registers and travel through local memory."""

from __future__ import annotations

from dgw.model import Finding
from dgw.recipes import retyping
from dgw.recipes.facts import LINE_SECTORS, Facts
from dgw.recipes.recipe import Recipe, found

MOVED = ("local_load_sectors", "local_store_sectors", "spill_sectors")

UNKNOWN = "how often that happens is not known"


def judge(facts: Facts) -> Finding | None:
    """Bytes the compiler spilled, and the sectors that went through local memory because of it. They cost their share
    of what L1 moves, and of the time that warps wait for L1."""
    spilled = facts.total("spill_store_bytes", "spill_load_bytes")
    local = moved(facts)
    if spilled <= 0 and not local:
        return None
    if facts.measured and not local:
        return None  # on a path that was not taken
    registers = facts.number("registers_per_thread") or 255.0
    cost = _cost(facts, local, spilled / 4 / registers)
    evidence = (
        facts.evidence("spill_store_bytes", 0),
        facts.evidence("spill_load_bytes", 0),
        *(facts.evidence(metric, 0) for metric in MOVED if facts.number(metric)),
        facts.evidence("registers_per_thread"),
    )
    times = UNKNOWN if local is None else f"{local:,.0f} sectors of them are moved"
    verdict = (
        f"register spills: {spilled:.0f} bytes a thread go to local memory and back with {registers:.0f} registers"
        f"{facts.line('local_load_sectors')}; {times}"
    )
    step = f"fewer sums a thread or a looser __launch_bounds__: {retyping.show(facts.case, '--configs')}"
    return found(RECIPE.name, verdict, cost, evidence, step, sure=local is not None)


def _cost(facts: Facts, local: float | None, overflow: float) -> float:
    """Share of the time that spilled values take. Where none was measured, L1 is taken to hand them over while nothing
    multiplies: on an H200 `capped` and `capped-f32` (tests/data/bottlenecks.json.gz) lose more than that.
    Where it is not known how many are moved, the values that do not fit (`overflow` of those that do) say how many
    may."""
    if local is None:
        return min(0.9, overflow)
    cycles = local / LINE_SECTORS / facts.device.sms
    if not facts.measured:
        own = {"l1": cycles if facts.local_sectors else 0.0}  # of what is counted as work of L1
        rest = max((busy - own.get(pipe, 0.0) for pipe, busy in facts.busy.items()), default=0.0)
        return cycles / (cycles + rest) if cycles else 0.0
    waiting = facts.late("long_scoreboard", "lg_throttle", "barrier", "mio_throttle", "wait", "short_scoreboard")
    return max(facts.relief({"l1": cycles}), local_share(facts) * waiting)


def moved(facts: Facts) -> float | None:
    """Sectors of local memory that were moved: as counted, or as the emulator finds them in the machine code. None
    where neither is known: PTX has no spills to count."""
    known = facts.measured or facts.local_sectors > 0
    return facts.local_sectors if known else facts.number("spill_sectors")


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
