"""The 2:4 sparsity metadata of mma.sp: which columns the stored elements of A belong to.

Each pair of stored elements belongs to four consecutive columns, two bits of metadata per element. Lanes 4 g + t hold
the metadata of rows g and g + 8; the selector names the lanes t that count:

16-bit types, k 16: lane t = selector; low half word row g, high half word row g + 8.
16-bit types, k 32: lanes t = 2 selector + c for columns 16 c to 16 c + 15; half words as above.
8-bit types, k 32: lanes t = 2 selector + h for row g + 8 h.
8-bit types, k 64: lanes t = 2 c + h for row g + 8 h and columns 32 c to 32 c + 31.

This is the arrangement that CUTLASS and PyTorch produce when they reorder metadata for these instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # a NumPy array


def column_indices(metadata: Array, name: str, columns: int, selector: int) -> Array:
    """The two-bit indices of metadata registers [p, warps, 8, 4] as [p, warps, 16, columns]: one per stored element."""
    narrow = name in ("f16", "bf16")
    p, warps = metadata.shape[:2]
    if narrow:
        count = columns // 8
        chosen = metadata[..., selector * count : (selector + 1) * count]
        halves = np.ascontiguousarray(chosen)[..., None].view(np.uint16)  # [p, warps, g, c, h]
        order, width = (0, 1, 4, 2, 3, 5), 8
    else:
        count = columns // 16
        chosen = metadata if count == 2 else metadata[..., 2 * selector : 2 * selector + 2]
        halves = np.ascontiguousarray(chosen).reshape(p, warps, 8, count, 2)  # [p, warps, g, c, h]
        order, width = (0, 1, 4, 2, 3, 5), 16
    shifts = np.arange(width, dtype=halves.dtype) * 2
    pairs = (halves[..., None] >> shifts.astype(halves.dtype)) & halves.dtype.type(3)
    return pairs.transpose(order).reshape(p, warps, 16, columns).astype(np.int64)


def expand(stored: Array, metadata: Array, name: str, selector: int) -> Array:
    """Compressed A [p, warps, 16, k / 2] and metadata registers [p, lanes] as the dense [p, warps, 16, k]."""
    p, warps, rows, columns = stored.shape
    indices = column_indices(metadata.reshape(p, warps, 8, 4), name, columns, selector)
    places = np.arange(columns) // 2 * 4 + indices
    dense = np.zeros((p, warps, rows, 2 * columns))
    np.put_along_axis(dense, places, stored, axis=-1)
    return dense
