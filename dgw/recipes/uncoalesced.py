"""Lanes of one global access that touch more 32-byte sectors than their bytes fill."""

from __future__ import annotations

from collections.abc import Mapping

from dgw.model import Evidence, Finding
from dgw.recipes.facts import L2_BYTES_PER_SM_PER_CLOCK, LINE_SECTORS, SECTOR, Facts
from dgw.recipes.overlap import assumed
from dgw.recipes.recipe import Recipe, found
from dgw.recipes.tiling import element_bytes

LEAST_FACTOR = 1.5
"""Sectors over those that the bytes fill; rows that begin in the middle of a sector alone give up to 1.3."""
IDLE_BANKS = 0.3
MOST_SECTORS = 16
"""Sectors that 32 lanes of 16 bytes side by side fill: the most that a request can need."""


def judge(facts: Facts) -> Finding | None:
    """The sectors beyond those needed, of loads and of stores: what L1 and L2 would not have to move."""
    sides = {"loads": loads(facts), "stores": stores(facts)}
    excess = wasted_by_side(sides)
    if not excess:
        return None
    side = max(excess, key=lambda name: excess[name])
    sectors, ideal = sides[side]
    cost = price(facts, sides)
    evidence = (
        Evidence(metric=f"sectors of global {side}", value=sectors, threshold=ideal, why="so many do the bytes fill"),
        facts.evidence("gld_sectors_per_request" if side == "loads" else "gst_sectors_per_request"),
        *assumed(facts.overlap),
    )
    metric = "global_sectors_hw_ld" if side == "loads" else "global_sectors_hw_st"
    where = facts.line(metric, "global_sectors_ld" if side == "loads" else "global_sectors_st")
    verdict = (
        f"uncoalesced global {side}{where}: {sectors:,.0f} sectors of 32 bytes where the bytes fill {ideal:,.0f} "
        f"({sectors / ideal:.1f} times)"
    )
    step = "let neighbouring lanes take neighbouring 16-byte pieces of a row: dgw show cuda/tiled --source"
    return found(RECIPE.name, verdict, cost, evidence, step)


Sides = Mapping[str, tuple[float, float]]


def wasted_by_side(sides: Sides) -> dict[str, float]:
    """Sectors beyond those needed, of the sides that have many of them."""
    return {side: sectors - ideal for side, (sectors, ideal) in sides.items() if sectors > LEAST_FACTOR * ideal > 0}


def price(facts: Facts, sides: Sides) -> float:
    """What L1, L2 and, for cp.async, shared memory lose with these sectors, or the part of the waiting that is theirs.

    Where the banks have little to do, warps that wait for shared memory stand behind global accesses in one queue.
    """
    sms, every = facts.device.sms, sum(total for total, _ in sides.values())
    excess = wasted_by_side(sides)
    wasted, needed = sum(excess.values()), every - sum(excess.values())
    # a sector alone is a line looked up
    tags = facts.number("l1_tag_requests_global") or needed / LINE_SECTORS + wasted
    less = {
        "l1": max(wasted / LINE_SECTORS, tags - needed / LINE_SECTORS) / sms,
        "l2": wasted * SECTOR / L2_BYTES_PER_SM_PER_CLOCK / sms,
        "shared": scattered_copies(facts) / sms if wasted_share(facts) else 0.0,
    }
    queue = ("short_scoreboard", "mio_throttle") if facts.share("shared") < IDLE_BANKS else ()
    tiles = () if facts.ring else ("long_scoreboard", "barrier")
    waiting = facts.late("lg_throttle", "drain", *tiles, *queue)
    last = 0.0 if facts.measured else _at_the_end(excess.get("stores", 0.0), facts)
    return max(facts.relief(less, {"l1": tags / sms}), waiting * wasted / every, last)


def _at_the_end(sectors: float, facts: Facts) -> float:
    """Share of the time in which so many sectors are stored, where none was measured: a block that stores its tile
    multiplies nothing meanwhile, the others on its SM do."""
    cycles = sectors * SECTOR / L2_BYTES_PER_SM_PER_CLOCK / facts.device.sms
    return cycles / (cycles + facts.cycles) / facts.resident if cycles else 0.0


def wasted_share(facts: Facts) -> float:
    """Share of the sectors of global loads that are beyond those needed."""
    sectors, ideal = loads(facts)
    return 1 - ideal / sectors if sectors > LEAST_FACTOR * ideal > 0 else 0.0


def scattered_copies(facts: Facts) -> float:
    """Wavefronts that cp.async takes beyond those of its bytes: one for each line that its lanes copy from."""
    wavefronts, copied = facts.total("smem_wavefronts_sass_ldgsts"), facts.number("ldgsts_inst")
    return max(0.0, wavefronts - 4 * copied) if copied else 0.0


def loads(facts: Facts) -> tuple[float, float]:
    """Sectors of global loads (cp.async included) that their addresses touch, and how many their bytes fill."""
    addressed = facts.number("global_sectors_addressed_ld")
    sectors, ideal = _loads((facts.sectors_loaded or 0.0) if addressed is None else addressed, facts)
    if addressed is None and moved_for_the_place(facts):
        return ideal, ideal  # their addresses alone cannot be the reason
    return sectors, ideal


def moved_for_the_place(facts: Facts) -> float:
    """Sectors of global loads that no address asks for, at least.

    cp.async past L1 takes a sector from each line that supplies a part of 32 bytes of shared memory. Without a count of
    those that the addresses touch, they are at most four for each line looked up, and stores look up lines as well.
    """
    sectors, addressed = facts.sectors_loaded or 0.0, facts.number("global_sectors_addressed_ld")
    lines = facts.number("l1_tag_requests_global")
    if addressed is not None:
        return max(0.0, sectors - addressed)
    if lines is None or not facts.number("ldgsts_inst"):
        return 0.0
    return max(0.0, sectors - max(0.0, LINE_SECTORS * lines - (facts.sectors_stored or 0.0)))


def _loads(sectors: float, facts: Facts) -> tuple[float, float]:
    asked = facts.number("global_bytes_ld")
    if asked is not None:
        return sectors, max(asked / SECTOR, 1.0)
    requests = facts.number("global_requests_ld") or 0.0
    copies, per_sector = facts.number("ldgsts_inst") or 0.0, facts.number("gld_bytes_per_sector")
    if per_sector and not copies:
        return sectors, sectors * min(1.0, per_sector / SECTOR)
    if copies and facts.tile is not None and facts.tiles and facts.problem.known:
        rows, columns = (min(*sizes) for sizes in zip(facts.tile, (facts.problem.m, facts.problem.n), strict=True))
        return sectors, facts.tiles * (rows + columns) * facts.problem.k * element_bytes(facts) / SECTOR
    if requests and sectors / requests > MOST_SECTORS:
        return sectors, requests * MOST_SECTORS
    return sectors, sectors


def stores(facts: Facts) -> tuple[float, float]:
    """Sectors of global stores, and how many D fills; what goes to other places cannot be told from it."""
    sectors = facts.sectors_stored or 0.0
    asked = facts.number("global_bytes_st")
    if asked is not None:
        return sectors, max(asked / SECTOR, 1.0)
    requests = facts.number("global_requests_st") or 0.0
    plan = facts.record.plan
    if facts.problem.known and facts.launches == 1 and (plan is None or not plan.workspaces):
        return sectors, max(facts.bytes_of_d / SECTOR, requests)
    return sectors, min(sectors, requests * MOST_SECTORS) if requests else sectors


RECIPE = Recipe(
    name="uncoalesced",
    about="lanes of one global access that touch more sectors than their bytes fill",
    needs=("global_sectors_hw_ld|global_sectors_ld", "global_requests_ld", "global_requests_st", "global_sectors_st"),
    judge=judge,
)
