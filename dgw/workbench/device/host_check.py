"""The check on the host, for problems that the GPU check does not know: all of a small D, or tiles of a large one."""

from __future__ import annotations

import random

import msgspec

from dgw.model import Check, Problem
from dgw.operands import bounds, dtypes, layouts, references
from dgw.workbench.device.buffers import BufferSet, element_bytes
from dgw.workbench.device.context import Gpu

TILE = 64
WHOLE_FLOPS = 1 << 32  # up to this much arithmetic everything is compared


def tiles(problem: Problem) -> list[tuple[int, slice, slice]]:
    """(batch item, rows, columns) to compare: everything when small, else the four corners and four seeded tiles."""
    if problem.flops <= WHOLE_FLOPS:
        return [(item, slice(0, problem.m), slice(0, problem.n)) for item in range(problem.batch)]
    last_row, last_col = max(0, problem.m - TILE), max(0, problem.n - TILE)
    chosen = {(0, row, col) for row in (0, last_row) for col in (0, last_col)}
    draw = random.Random(problem.seed)
    while len(chosen) < 8:
        chosen.add((draw.randrange(problem.batch), draw.randint(0, last_row), draw.randint(0, last_col)))
        if last_row == last_col == 0 and problem.batch == 1:
            break
    return [
        (item, slice(row, min(row + TILE, problem.m)), slice(col, min(col + TILE, problem.n)))
        for item, row, col in sorted(chosen)
    ]


def host_check(gpu: Gpu, buffers: BufferSet, roundings: int = 0) -> Check:
    """The verdict of bounds.compare on each tile; the worst of them, and how many elements were compared in all.

    `roundings` is what Variant.roundings says.
    """
    problem = buffers.problem
    size = layouts.extent(problem, "d") * element_bytes(problem.d.dtype)
    flat = gpu.download(buffers.address("d"), size).view(dtypes.numpy_dtype(problem.d.dtype))
    whole = layouts.view(flat, problem, "d")
    chosen = tiles(problem)
    where = "all elements" if problem.flops <= WHOLE_FLOPS else f"{len(chosen)} tiles of at most {TILE}x{TILE}"
    found = []
    for item, rows, cols in chosen:
        got = (whole[item] if problem.batch > 1 else whole)[rows, cols]
        origin = (rows.start, cols.start) if problem.batch == 1 else (item, rows.start, cols.start)
        expected = references.block_reference(problem, rows, cols, item)
        found.append(bounds.compare(problem, got, expected, where, origin, "gpu", roundings=roundings))
    return msgspec.structs.replace(bounds.worst_of(found), compared=sum(check.compared for check in found))
