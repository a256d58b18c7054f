"""What the kernel tests share: the stages of dgw's own ladder, and a count of shared-memory accesses in PTX."""

from __future__ import annotations

import re
from collections import Counter

from dgw.kernels.loader import load
from dgw.model import Variant

VARIANTS = load()
STAGES: list[Variant] = [v for v in VARIANTS.values() if v.family == "cuda"]
SHARED = re.compile(r"\b(ld|st)\.(?:volatile\.)?shared(?:\.v([24]))?\.[bufs](\d+)")
MATRIX = re.compile(r"\bldmatrix\.sync\.aligned\.m8n8\.x([124])")
COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\S*\s+\[[^\]]+\],\s*\[[^\]]+\],\s*(\d+)")
TENSOR = re.compile(r"\bmma\.sync\.aligned\.m16n8k")


def shared_accesses(ptx: str) -> Counter[tuple[str, int]]:
    """(SASS opcode, bytes a lane) -> how often the PTX asks for it; tensor-core instructions count as width 0."""
    found: Counter[tuple[str, int]] = Counter()
    for direction, vector, bits in SHARED.findall(ptx):
        found["LDS" if direction == "ld" else "STS", int(vector or 1) * int(bits) // 8] += 1
    for matrices in MATRIX.findall(ptx):
        found["LDSM", 4 * int(matrices)] += 1
    for width in COPY.findall(ptx):
        found["LDGSTS", int(width)] += 1
    found["HMMA", 0] = len(TENSOR.findall(ptx))
    return +found
