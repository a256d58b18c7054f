"""Shapes as text, and small sets of shapes in which every pair of sizes meets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from dgw.errors import UsageError

LARGEST_SIZE = 2**31

Triple = tuple[int, int, int]

_FORM = "write MxNxK or BxMxNxK, for example 4096x4096x4096 or 8x512x512x64"


def parse_shape(text: str) -> tuple[int, int, int, int]:
    """(batch, m, n, k) of `MxNxK` or `BxMxNxK`; UsageError unless every size is in 1 .. 2^31."""
    parts = re.split("[xX\u00d7]", text.strip())
    if len(parts) not in (3, 4):
        raise UsageError(f"shape {text!r} has {len(parts)} sizes", _FORM)
    for part in parts:
        if not re.fullmatch(r"[+-]?[0-9]+", part.strip(), re.ASCII):
            raise UsageError(f"shape {text!r}: {part.strip()!r} is not a whole number", _FORM)
    sizes = [int(part) for part in parts]
    for size in sizes:
        if not 1 <= size <= LARGEST_SIZE:
            raise UsageError(f"shape {text!r}: {size} is not in 1 .. {LARGEST_SIZE}", _FORM)
    batch, m, n, k = sizes if len(sizes) == 4 else [1, *sizes]
    return batch, m, n, k


def covering_shapes(sizes: Sequence[int], strength: int = 2) -> list[Triple]:
    """(m, n, k) triples over `sizes` such that every choice of `strength` sizes for as many dimensions occurs.

    Strength 2 of v sizes takes v^2 triples, the fewest possible: m = sizes[i], n = sizes[j], k = sizes[i + j mod v], a
    Latin square, so that m-n, m-k and n-k each see all v^2 pairs once. Strength 1 takes v triples, strength 3 all v^3.
    The order is that of (m, n); duplicates in `sizes` are dropped.
    """
    levels = list(dict.fromkeys(sizes))
    count = len(levels)
    if strength == 1:
        return [(size, size, size) for size in levels]
    if strength == 2:
        square = itertools.product(range(count), range(count))
        return [(levels[i], levels[j], levels[(i + j) % count]) for i, j in square]
    if strength == 3:
        return list(itertools.product(levels, levels, levels))
    raise UsageError(f"there is no covering of strength {strength} over m, n and k", "use strength 1, 2 or 3")
