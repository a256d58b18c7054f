"""Synthetic events of the machine for tests of what counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgw.workbench.emulator.observer import Access, InstructionInfo, SourceLine

_KINDS = {"ld": "ld", "st": "st", "ldmatrix": "ldmatrix", "stmatrix": "stmatrix", "cp": "cp.async", "atom": "atom"}


def instruction(index: int, text: str, line: int, width: int = 0, matrices: int = 0) -> InstructionInfo:
    """A description of the PTX instruction `text`, on PTX line 100 + index and source line `line` of kernel.cu."""
    opcode, *modifiers = text.split(" ")[0].rstrip(";").split(".")
    space = next((word for word in modifiers if word in ("shared", "global", "local")), "")
    return InstructionInfo(
        index=index, opcode=opcode, modifiers=tuple(modifiers), text=text, line=100 + index,
        source=SourceLine("kernel.cu", line), kind=_KINDS.get(opcode, "") if width else "",
        space=space if width else "", width_bytes=width, matrices=matrices,
    )  # fmt: skip


def access(
    infos: Sequence[InstructionInfo], addresses: Any, mask: Any = True, pattern: Any = None, sources: Any = None,
    space: str = "",
) -> Access:  # fmt: skip
    """A memory event; `addresses` int [n, warps, 32]."""
    address = np.asarray(addresses, dtype=np.int64)
    active = np.broadcast_to(np.asarray(mask, dtype=bool), address.shape)
    origin = None if sources is None else np.asarray(sources, dtype=np.int64)
    key = pattern if pattern is not None else (tuple(i.index for i in infos), address.tobytes(), active.tobytes())
    return Access(
        tuple(infos), space or infos[0].space, lambda: address, active, key,
        None if origin is None else lambda: origin, None if origin is None else active,
    )  # fmt: skip
