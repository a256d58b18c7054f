"""K tiles so deep that their shared memory keeps other blocks off the SM.

The seeds call BK too large when memory is above 85 % and the tensor cores below 50 %. A deep tile moves no more bytes
than a thin one; what it takes is room, and the blocks that would have worked while this one waits.
"""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes import retyping
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found
from dgw.recipes.tiling import K_TILE, LATENCY, Loop, held_back_by, loop

DEEP = 64
"""Elements of 16 bits: a row of 128 bytes, what one line of a cache holds. Deeper tiles gain nothing by being deep."""
OWN = 0.7
"""Share of the shared memory that the declared tiles must explain."""


def applies(facts: Facts) -> bool:
    """Kernels that declare their k tile."""
    return loop(facts) is not None


def deep(facts: Facts) -> tuple[Loop, float, float] | None:
    """The main loop and the blocks an SM holds, now and with half the depth, where the tiles keep them off."""
    own, kept = loop(facts), held_back_by(facts, "shared memory")
    used = facts.number("shared_mem_per_block")
    if own is None or kept is None or not used or own.bytes < OWN * used or own.depth <= DEEP:
        return None
    now, others = kept
    half = min(others, facts.device.shared_per_sm // (used / 2 + facts.device.shared_reserved_per_block))
    enough = own.ahead * own.work / 2 * half >= LATENCY
    return (own, now, half) if half > now and enough else None


def judge(facts: Facts) -> Finding | None:
    """The slack that the blocks kept away could have filled."""
    seen = deep(facts)
    if seen is None:
        return None
    own, now, half = seen
    cost = (facts.slack - facts.idle) * (1 - now / half) if facts.measured else (1 - now / half) / 2
    evidence = (
        Evidence(metric="shared memory of the k tiles", value=own.bytes, why=f"{own.depth} deep"),
        Evidence(metric="blocks an SM", value=now, threshold=half, why="with half the depth"),
        facts.evidence("achieved_occupancy"),
    )
    verdict = (
        f"BK too large: k tiles of {own.depth} take {own.bytes:,} bytes of shared memory, so that an SM holds "
        f"{now:.0f} where half the depth would let it hold {half:.0f}; nothing works while it waits"
    )
    name = next((name for name in K_TILE if name in facts.case.config), "")
    better = int(facts.tunable(name) or own.depth) // 2
    step = retyping.profile(facts.case, tunables={name: better}) if name else f"k tiles of {better}"
    return found(RECIPE.name, verdict, cost, evidence, step, sure=not own.guessed)


RECIPE = Recipe(
    name="bk-too-large",
    about="k tiles so deep that their shared memory keeps other blocks off",
    needs=("occ_limit_shared_mem", "occ_limit_registers", "shared_mem_per_block"),
    judge=judge,
    applies=applies,
)
