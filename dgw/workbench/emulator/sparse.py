"""The 2:4 sparsity metadata of mma.sp."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # a NumPy array


def expand(stored: Array, metadata: Array, name: str, selector: int) -> Array:
    """Compressed A [p, warps, m, k / 2] and metadata registers [p, lanes] as the dense [p, warps, m, k]."""
    raise NotImplementedError
