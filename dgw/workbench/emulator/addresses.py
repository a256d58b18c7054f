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

    __slots__ = ("_bounds", "_indices", "bits", "high", "low", "mask", "relative", "serial")

    def __init__(self, relative: NDArray[np.int64], mask: NDArray[np.bool_] | None) -> None:
        self.serial = next(_SERIAL)
        self.mask = mask
        self.relative = relative
        self.low, self.high = int(relative.min()), int(relative.max())
        self.bits = int(np.bitwise_or.reduce(relative, axis=None))
        self._indices: dict[int, NDArray[np.int64]] = {}
        self._bounds: list[tuple[int, int]] | None = None

    def indices(self, shift: int) -> NDArray[np.int64]:
        """`relative` in units of 2**shift bytes."""
        found = self._indices.get(shift)
        if found is None:
            found = self._indices[shift] = self.relative >> shift
        return found

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Per member of the group, the least and greatest relative address (masked off lanes repeat an active one)."""
        if self._bounds is None:
            lows, highs = self.relative.min(axis=1).tolist(), self.relative.max(axis=1).tolist()
            self._bounds = list(zip(lows, highs, strict=True))
        return self._bounds


def masked(values: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """`values` [n, lanes] with an active value where masked off, of the same member if it has one."""
    chosen = np.broadcast_to(mask, values.shape)
    place = chosen.argmax(axis=1)
    members = np.arange(len(values))
    fill = values[members, place]
    empty = ~chosen[members, place]
    if empty.any():
        fill = np.where(empty, values[chosen][0], fill)
    return np.where(chosen, values, fill[:, None])


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
            if mask.ndim > 1 and len(bases) == len(mask):
                together: Any = mask
            else:
                together = mask if mask.ndim == 1 else mask.any(axis=0)
            flat = together.reshape(-1)
            place = int(flat.argmax())
            if not flat[place]:
                return None
            row, lane = divmod(place, self.lanes)
            first = int(bases[row, lane])
            relative = np.where(together, bases - first, 0)
            key = (relative.tobytes(), mask.tobytes())
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._patterns[key] = self._make(relative)
        return pattern, first

    def _make(self, relative: NDArray[np.int64]) -> Pattern:
        if len(self._patterns) >= REMEMBERED:
            self._patterns.clear()
        full = relative + self.offsets
        if self.mask is None:
            return Pattern(full, None)
        kept = self.mask.reshape(-1, self.lanes).copy()
        return Pattern(masked(full, kept), kept)


def _constant(group: Group, read: Source) -> int:
    if isinstance(read, Symbol):
        return int(group.engine.address_of(read, group.first.instruction.line))
    return read.value if isinstance(read, Immediate) else 0
