"""Faults of a declaration that show only when its kernel is compiled or run: where they are mended."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dgw.kernels.declaring import UNFINISHED
from dgw.model import Record, Variant
from dgw.toolchain.parameters import MISDECLARED


def mended_in(record: Record, variants: Mapping[str, Variant]) -> str:
    """Where to mend the declaration of a case that failed for it; empty where it did not."""
    variant = variants.get(record.case.variant)
    if variant is None or not record.reason.startswith((MISDECLARED, UNFINISHED)):
        return ""
    near = os.path.relpath(variant.declaration)
    file = str(variant.declaration) if near.startswith("..") else near
    if record.reason.startswith(UNFINISHED):
        return f"write its Pointer, Scalar or Workspace into {file}, instead of declaring.fill_in"
    return f'the arguments of the Launch in {file}: dtype "i64" is 8 bytes, "i32", "u32" and "f32" are 4'
