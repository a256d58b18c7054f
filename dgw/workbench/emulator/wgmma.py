"""wgmma.mma_async: the product of a warpgroup, B in shared memory and A there or in registers, done when it is issued.

That sums are used before their group was waited for is therefore not found. The products of 16 k are exact, they and
the sum are added in float64 and rounded once: at least as exact as the hardware, which cuts them off (see tensor.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgw.workbench.emulator.errors import EmulatorError
from dgw.workbench.emulator.group import BOOL, F32, U32, U64, Group
from dgw.workbench.emulator.operation import Operation, Source, Thunk, destination, items, malformed, source, unknown
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import Immediate, Vector
from dgw.workbench.emulator.tensor import elements, left_matrix
from dgw.workbench.emulator.tensor_maps import SWIZZLES, permuted

Array = Any  # a NumPy array
LANES = 128  # of a warpgroup
ROWS, DEPTH = 64, 16
_SHAPE = re.compile(r"m64n(\d+)k16\Z")
_SWIZZLE = {0: "none", 1: "128", 2: "64", 3: "32"}  # of a descriptor's two highest bits


@dataclass(frozen=True, slots=True)
class Form:
    """`columns` of B; `fragments`: A is in registers; `across_*`: the operand is stored with m or n along its lines."""

    columns: int
    dtype: str
    fragments: bool
    across_a: bool
    across_b: bool

    @property
    def vector(self) -> int:
        """Sums of a lane."""
        return self.columns // 2


def decode(instruction: Instruction) -> Operation:
    """f16 and bf16 products into f32; fences, commits and waits have nothing to do."""
    words = instruction.modifiers
    if words[:1] != ("mma_async",):
        return Operation(instruction, (), (), lambda group: lambda: None, "nothing", False, ordered=True)
    shape = _SHAPE.match(words[3]) if len(words) == 7 else None
    if shape is None or words[1:3] != ("sync", "aligned") or words[4] != "f32" or words[5] != words[6]:
        raise unknown(instruction)
    if words[5] not in ("f16", "bf16") or len(instruction.operands) not in (7, 8):
        raise unknown(instruction)
    sums, a, b, accumulate, *rest = instruction.operands
    flags = [_flag(instruction, operand) for operand in rest]
    fragments = isinstance(a, Vector)
    if flags[:2] != [1, 1] or len(flags) != (3 if fragments else 4):
        raise unknown(instruction)
    form = Form(int(shape[1]), words[5], fragments, not fragments and bool(flags[2]), bool(flags[-1]))
    members = items(instruction, sums, form.vector)
    writes = tuple(destination(instruction, member, 32) for member in members)
    reads: list[Source] = [source(instruction, member, 32) for member in members]
    reads += [source(instruction, member, 32) for member in items(instruction, a, 4)] if fragments else [
        source(instruction, a, 64)
    ]  # fmt: skip
    reads += [source(instruction, b, 64), source(instruction, accumulate, 1)]
    return Operation(instruction, writes, tuple(reads), _build, form, False, loads="shared", ordered=True,
                     adds_if_told=True)  # fmt: skip


def _flag(instruction: Instruction, operand: Any) -> int:
    if not isinstance(operand, Immediate):
        raise malformed(instruction)
    return operand.value


def matrix(data: Array, base: int, descriptor: int, extent: int, across: bool) -> Array:
    """The 16-bit words [extent, 16 of k] of the operand that a descriptor describes, in the bytes `data` of an arena.

    Lines of 128 bytes, in groups of eight that lie a stride apart; where m or n runs along the lines, 64 of it to a
    block, and blocks lie the other stride apart. Source: PTX manual, matrix descriptor and strides of wgmma.
    """
    if _SWIZZLE[descriptor >> 62] != "128":
        raise EmulatorError("of wgmma's swizzles of shared memory only that of 128 bytes is emulated")
    start, leading, stride = ((descriptor >> bit & 0x3FFF) << 4 for bit in (0, 16, 32))
    outer, k = np.arange(extent)[:, None], np.arange(DEPTH)[None, :]
    if across:
        at = start + outer // 64 * leading + k // 8 * stride + k % 8 * 128 + outer % 64 * 2
    else:
        at = start + outer // 8 * stride + outer % 8 * 128 + k * 2
    return data.view(np.uint16)[(permuted(at, SWIZZLES["128"]) + base) // 2]


def _build(group: Group) -> Thunk:
    return group.finish(_Product(group).run)


class _Product:
    def __init__(self, group: Group) -> None:
        form: Form = group.detail
        self.group, self.form = group, form
        vector, first_b = form.vector, form.vector + (4 if form.fragments else 1)
        self.old = group.vector(range(vector), F32).fetch
        self.left = (
            group.vector(range(vector, first_b), U32).fetch if form.fragments else group.source(vector, U64).fetch
        )
        self.right = group.source(first_b, U64).fetch
        self.accumulate = group.source(first_b + 1, BOOL).fetch
        self.store = group.vector_target(range(vector), F32).store
        lane, register = np.arange(LANES), np.arange(vector)[:, None]
        self.rows = lane // 32 * 16 + lane % 32 // 4 + register % 4 // 2 * 8
        self.columns = register // 4 * 8 + lane % 4 * 2 + register % 2

    def run(self) -> None:
        group, form, count = self.group, self.form, self.group.lanes.count
        if group.mask is not None:
            group.engine.require_whole_warps(group.mask, group)
        old = np.broadcast_to(self.old(), (group.n, form.vector, count))
        left, right = self.left(), np.broadcast_to(self.right(), (group.n, count))
        left = np.broadcast_to(left, (*left.shape[:-1], count))
        add = np.broadcast_to(self.accumulate(), (group.n, count))
        active = np.broadcast_to(True if group.mask is None else group.mask, (group.n, count))
        result = old.copy()
        for member in range(group.n):
            for first in self._warpgroups(active[member]):
                lanes = slice(first, first + LANES)
                product = (
                    self._rows(left[member], first)
                    @ self._matrix(int(right[member, first]), first, form.columns, form.across_b).T
                )
                sums = product[self.rows, self.columns]
                total = sums + np.where(add[member, lanes], old[member, :, lanes], 0.0)
                result[member, :, lanes] = total.astype(np.float32)
        self.store(result)

    def _warpgroups(self, active: Array) -> list[int]:
        """The first lanes of the warpgroups that are active: four warps from a multiple of four of their CTA on."""
        per = self.group.lanes.per_cta
        starts = [cta * per + first for cta in range(len(self.group.lanes.ctas)) for first in range(0, per, LANES)]
        return [first for first in starts if active[first : first + LANES].any()]

    def _rows(self, left: Array, first: int) -> Array:
        if not self.form.fragments:
            return self._matrix(int(left[first]), first, ROWS, self.form.across_a)
        rows = left_matrix(np.ascontiguousarray(left[None, :, first : first + LANES]), self.form.dtype, 16, 4)
        return rows.reshape(ROWS, DEPTH)

    def _matrix(self, descriptor: int, first: int, extent: int, across: bool) -> Array:
        shared = self.group.engine.shared
        base = shared.first_byte(int(self.group.lanes.cta[first]))
        words = np.ascontiguousarray(matrix(shared.arena.data, base, descriptor, extent, across))
        return elements(words.view(np.uint32), self.form.dtype).reshape(extent, DEPTH)
