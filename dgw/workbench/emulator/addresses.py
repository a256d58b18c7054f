"""Addresses of a group of memory instructions, recognised again when the same pattern returns at another place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.group import U32, U64, Group
from dgw.workbench.emulator.operation import Source, malformed
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import Address, Immediate, Operand, Register, Symbol

_SERIAL = count()
REMEMBERED = 512


def split_address(instruction: Instruction, operand: Operand) -> tuple[Source, int]:
    """The base (a register, a symbol or 0) and the offset of an address operand."""
    if not isinstance(operand, Address):
        raise malformed(instruction, "an address in brackets is missing")
    if isinstance(operand.base, Register) and operand.base.bits not in (32, 64):
        raise malformed(instruction, "an address register is 32 or 64 bits wide")
    if operand.base is None:
        return Immediate(0), operand.offset
    return operand.base, operand.offset


class Pattern:
    """Addresses relative to the first active lane's base. `relative` int64 [n, lanes] repeats an active one where
    masked off.

    `low` and `high` bound it over the active lanes, `bits` is the bitwise or of all of them (for alignment), `mask` is
    None when every lane takes part, else bool [1 or n, lanes].
    """

    __slots__ = ("_indices", "bits", "high", "low", "mask", "relative", "serial")

    def __init__(self, relative: NDArray[np.int64], mask: NDArray[np.bool_] | None) -> None:
        self.serial = next(_SERIAL)
        self.mask = mask
        self.relative = relative
        active = relative if mask is None else relative[np.broadcast_to(mask, relative.shape)]
        self.low, self.high = int(active.min()), int(active.max())
        self.bits = int(np.bitwise_or.reduce(active, axis=None))
        self._indices: dict[int, NDArray[np.int64]] = {}

    def indices(self, shift: int) -> NDArray[np.int64]:
        """`relative` in units of 2**shift bytes."""
        found = self._indices.get(shift)
        if found is None:
            found = self._indices[shift] = self.relative >> shift
        return found


class Addressing:
    """Computes the addresses of one operand position of a group. `offsets` are the constant parts, one per member."""

    def __init__(self, group: Group, position: int, offsets: list[int], mask: NDArray[np.bool_] | None) -> None:
        reads = [operation.reads[position] for operation in group.operations]
        self.lanes = group.lanes.count
        self.mask = mask
        self.offsets = np.array(offsets, dtype=np.int64).reshape(-1, 1)
        first = reads[0]
        if isinstance(first, Register):
            one = all(read is first for read in reads)
            dtype = U64 if first.bits == 64 else U32
            self._fetch: Callable[[], Any] = group.source(position, dtype).fetch
            self._rows = slice(0, 1) if one else slice(None)
        else:
            values = [_constant(group, read) for read in reads]
            self.offsets = self.offsets + np.array(values, dtype=np.int64).reshape(-1, 1)
            zeros = np.zeros((1, self.lanes), dtype=np.int64)
            self._fetch, self._rows = (lambda: zeros), slice(0, 1)
        self._patterns: dict[Any, Pattern] = {}

    def resolve(self) -> tuple[Pattern, int] | None:
        """The pattern and the base address of the first active lane; None when no lane is active."""
        bases = self._fetch()[self._rows].astype(np.int64)
        mask = self.mask
        if mask is None:
            first = int(bases[0, 0])
            relative = bases - first
            key: Any = relative.tobytes()
        else:
            wanted = mask.reshape(-1, self.lanes)
            together = wanted if len(bases) == len(wanted) else wanted.any(axis=0, keepdims=True)
            place = int(np.argmax(np.broadcast_to(together, bases.shape)))
            if not np.broadcast_to(together, bases.shape).flat[place]:
                return None
            first = int(bases.flat[place])
            relative = np.where(together, bases - first, 0)
            key = (relative.tobytes(), wanted.tobytes())
        pattern = self._patterns.get(key)
        if pattern is None:
            if len(self._patterns) >= REMEMBERED:
                self._patterns.clear()
            full = relative + self.offsets
            kept = None
            if mask is not None:
                kept = mask.reshape(-1, self.lanes).copy()
                full = np.where(kept, full, full[np.broadcast_to(kept, full.shape)][0])
            pattern = self._patterns[key] = Pattern(full, kept)
        return pattern, first


def _constant(group: Group, read: Source) -> int:
    if isinstance(read, Symbol):
        return int(group.engine.address_of(read, group.first.instruction.line))
    return read.value if isinstance(read, Immediate) else 0
