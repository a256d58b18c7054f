"""What is known of a kernel's main loop: how long a k tile keeps an SM busy, how far copies are ahead.

The emulator sees both (`k_tiles`, `copy_lead`). On a GPU they are those of the declared tunables, or guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from dgw.model import DTYPE_BITS, TensorMap
from dgw.recipes.facts import Facts

LATENCY = 800.0
"""Cycles from a request to DRAM until its data have arrived on an unloaded H200 or A100 (published: 560 to 900)."""
K_TILE = ("BK", "BLOCK_K", "TILE_K", "BLOCK_SIZE_K")
STAGES = ("STAGES", "NUM_STAGES", "num_stages")
FMA_FLOPS = 64
"""FLOP of one warp instruction of FMA."""


@dataclass(frozen=True)
class Loop:
    """One k tile: `depth` elements, `work` cycles of an SM for the tile of one CTA, `bytes` of shared memory.

    `ahead` is how many tiles copies run ahead of the products, `resident` how many CTAs take turns on an SM. `guessed`:
    from barriers, because nobody declared or saw it.
    """

    depth: int
    count: int
    work: float
    bytes: int
    ahead: float
    resident: float
    guessed: bool = False

    @property
    def cover(self) -> float:
        """Cycles of work between the request for a tile and its use."""
        return self.ahead * self.work * self.resident


def rate(facts: Facts) -> float:
    """FLOP an SM and clock of the pipe that multiplies."""
    if not facts.uses_tensor_cores:
        return 2.0 * facts.device.fma_per_sm_per_clock
    rates = facts.device.tensor_flops_per_sm_per_clock
    if not facts.uses_wgmma and facts.device.mma_flops_per_sm_per_clock:
        rates = facts.device.mma_flops_per_sm_per_clock
    return float(rates.get(facts.problem.a.dtype) or max(rates.values(), default=2 * facts.device.fma_per_sm_per_clock))


def element_bytes(facts: Facts) -> float:
    """Bytes of an element of A."""
    return DTYPE_BITS.get(facts.problem.a.dtype, 16) / 8


def loop(facts: Facts) -> Loop | None:
    """The main loop of a kernel of which the tile of D is declared."""
    tile = facts.tile
    if tile is None or not facts.problem.known:
        return None
    seen = facts.number("k_tiles")
    depth = facts.tunable(*K_TILE) or brought(facts)
    if depth is not None and facts.problem.a.dtype == "tf32":
        depth //= 2  # tensor stages count their depth in elements of 16 bits
    depth = depth or (_multiplied(facts, tile, seen) if seen else None)
    if depth is None:
        return _guessed(facts, tile) if facts.measured else None
    ahead = facts.number("copy_lead")
    stages = facts.tunable(*STAGES) or 1
    if ahead is None:
        if seen and not facts.tunable(*STAGES):
            return None  # everything was asked for before the first product
        ahead = stages - 1.0
    else:
        stages = round(ahead) + 1
    rows, columns = tile
    return Loop(
        depth=depth,
        count=-(-facts.problem.k // max(1, depth)),
        work=2.0 * rows * columns * depth / rate(facts),
        bytes=int((rows + columns) * depth * element_bytes(facts)) * stages,
        ahead=ahead,
        resident=facts.resident,
    )


def _multiplied(facts: Facts, tile: tuple[int, int], tiles: float) -> int | None:
    """The depth of a k tile by what a block multiplies in one, of the k tiles that a warp was seen to pass."""
    blocks = facts.blocks
    flops = (
        facts.total("tensor_inst") * facts.mma_flops if facts.uses_tensor_cores else facts.total("fma_inst") * FMA_FLOPS
    )
    if not blocks or not flops:
        return None
    return round(flops / (blocks * tiles) / (2 * tile[0] * tile[1])) or None


def brought(facts: Facts) -> int | None:
    """The depth of a k tile that is no tunable: what the copy engine brings of A at a time."""
    launches = facts.record.plan.launches if facts.record.plan is not None else ()
    maps = [argument for launch in launches for argument in launch.arguments if isinstance(argument, TensorMap)]
    along = 1 if facts.problem.a.order == "row" else 0
    return next((one.box[along] for one in maps if one.operand == "a"), None)


def _guessed(facts: Facts, tile: tuple[int, int]) -> Loop | None:
    """The main loop of a kernel that does not declare its depth, from the barriers that a warp passes: one a tile where
    copies run ahead, two where they do not. None where that gives no depth of a tensor instruction or more."""
    passed, copied = barriers(facts), bool(facts.number("ldgsts_inst"))
    if not passed or passed < 4 or facts.uses_wgmma:  # a ring of tiles needs none
        return None
    count = round(passed if copied else passed / 2)
    depth = round(facts.problem.k / count / 8) * 8
    if not 16 <= depth <= 512:
        return None
    rows, columns = tile
    size = element_bytes(facts)
    return Loop(
        depth=depth, count=count, work=2.0 * rows * columns * depth / rate(facts), resident=facts.resident,
        bytes=int((rows + columns) * depth * size) * (2 if copied else 1), ahead=1.0 if copied else 0.0, guessed=True,
    )  # fmt: skip


def barriers(facts: Facts) -> float | None:
    """Barriers that one warp passes, on average; None when they were not counted."""
    counted = facts.number("barrier_inst")
    if counted is None:
        counted = facts.opcode("BAR")
    threads, blocks = facts.number("threads_per_block"), facts.blocks
    if counted is None or not threads or not blocks:
        return None
    return counted / (blocks * max(1.0, threads / 32))


def limits(facts: Facts) -> dict[str, float]:
    """Blocks an SM would hold by each resource."""
    names = {
        "registers": "occ_limit_registers",
        "shared memory": "occ_limit_shared_mem",
        "warps": "occ_limit_warps",
        "blocks": "occ_limit_blocks",
    }
    return {name: value for name, metric in names.items() if (value := facts.number(metric)) is not None}


def held_back_by(facts: Facts, resource: str) -> tuple[float, float] | None:
    """Blocks an SM holds because of `resource`, and how many the others would allow; None where it is not alone."""
    found = limits(facts)
    own = found.pop(resource, None)
    others = min(found.values(), default=None)
    if own is None or others is None or others <= own:
        return None
    return own, others
