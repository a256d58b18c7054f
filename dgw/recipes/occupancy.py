"""What the recipes on occupancy share: what the blocks that a resource keeps off the SM would have been worth."""

from __future__ import annotations

from dgw.model import Evidence
from dgw.recipes.facts import Facts
from dgw.recipes.tiling import held_back_by

BUSY = 0.70
"""Share of the cycles from which a pipe is so busy that more warps could not add much."""
LOW = 0.5
"""Share of the warps from which pipes that have work enough are kept busy: what is below is low occupancy."""
UNMEASURED = 0.25
"""Share of the time that the blocks kept away are taken to be worth where nothing was measured: an assumption."""

ASSUMED = Evidence(metric="worth of twice the blocks", value=UNMEASURED / 2, why="of the time, by assumption")


def kept_away(facts: Facts, resource: str) -> tuple[float, float, float] | None:
    """Blocks an SM holds, how many it could hold but for `resource`, and the share of the time they would be worth: the
    slack, as far as more blocks would fill it. None where occupancy is not what is missing: a pipe is busy, or where
    nothing was measured, there are warps enough to keep the one busy that has most to do."""
    kept = held_back_by(facts, resource)
    blocks = facts.blocks
    if kept is None or (blocks is not None and blocks <= kept[0] * facts.device.sms):
        return None
    if facts.busiest[1] >= BUSY if facts.measured else (facts.number("theoretical_occupancy") or 0.0) >= LOW:
        return None
    now, could = kept
    if blocks is not None:
        could = min(could, max(now, blocks / facts.device.sms))
    missing = 1 - now / could if could else 0.0
    worth = max(0.0, facts.slack - facts.idle) if facts.measured else UNMEASURED
    return now, could, missing * worth


def evidence(facts: Facts, limit: str) -> tuple[Evidence, ...]:
    """The figures behind a finding on occupancy. How busy a pipe is, only a GPU tells: without one, how few warps it is
    left to."""
    if not facts.measured:
        few = facts.evidence("theoretical_occupancy", LOW, "from which warps keep a pipe busy, by assumption")
        return facts.evidence(limit), few, ASSUMED
    return (
        facts.evidence(limit),
        facts.evidence("theoretical_occupancy"),
        facts.evidence("achieved_occupancy"),
        Evidence(metric="busiest pipe", value=facts.busiest[1], threshold=BUSY, why=facts.busiest[0]),
    )


def pipes(facts: Facts) -> str:
    """How busy the busiest pipe is, as the end of a sentence; nothing where it was not measured."""
    return f"; no pipe is busier than {100 * facts.busiest[1]:.0f} %" if facts.measured else ""
