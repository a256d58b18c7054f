"""How much spilled registers travel: they are in the machine code only, where no emulator counts them.

What stands in the innermost loops of the products is executed as often as the products, and these were counted. All
else is taken once for each warp, so that the figure is rather too small than too large. Of two kernels that spill in
their main loop an H200 moved what this says to 1 % (`capped` and `capped-f32` of tests/data/bottlenecks.json.gz).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dgw.toolchain.sass import SassInstruction, width_bytes

LOCAL = ("LDL", "STL")
PRODUCTS = re.compile(r"[BDHIOQ]G?MMA")
SCALAR_PRODUCTS = re.compile(r"FFMA")
_ADDRESS = re.compile(r"0x[0-9a-f]+$")


def spilled_sectors(code: Sequence[SassInstruction], products: int, scalar_products: int, warps: int) -> int:
    """Sectors of 32 bytes that local memory moves for all warps of a launch.

    `products`: how often a warp executed a tensor-core instruction, all warps together; `scalar_products` the same of
    f32 multiply-adds, which matter where there are none of the first. A lane moves its value beside its neighbours'.
    """
    executed = [one for one in code if not one.never_executes]
    pattern, times = (PRODUCTS, products) if products else (SCALAR_PRODUCTS, scalar_products)
    places = [one.address for one in executed if pattern.match(one.base)]
    inner = _innermost(_loops(executed), places)
    total = 0.0
    for one in executed:
        if one.base in LOCAL:
            looped = any(first <= one.address <= last for first, last in inner)
            total += width_bytes(one.opcode) * (max(times / len(places), warps) if looped else warps)
    return round(total)


def _loops(code: Sequence[SassInstruction]) -> set[tuple[int, int]]:
    """First and last address of each loop: a branch back. One to itself is the padding behind the last exit."""
    found = set()
    for one in code:
        target = _ADDRESS.search(one.operands) if one.base == "BRA" else None
        if target is not None and int(target.group(), 16) < one.address:
            found.add((int(target.group(), 16), one.address))
    return found


def _innermost(loops: set[tuple[int, int]], places: Sequence[int]) -> list[tuple[int, int]]:
    """The loops with one of the `places` that hold no other such loop."""
    own = {(first, last) for first, last in loops if any(first <= place <= last for place in places)}
    return [
        (first, last)
        for first, last in own
        if not any(first <= low and high <= last for low, high in own - {(first, last)})
    ]
