"""mma.sync: one matrix product per warp, or one for a whole set of crossed instructions.

Accumulation model. Products of f16, bf16, tf32, e4m3 and e5m2 are exact; they and the accumulator are added in float64
and the sum is rounded once, to nearest even, to the accumulator type. NVIDIA publishes no order and no intermediate
format; measured hardware keeps fewer bits (it truncates aligned products), so this model is at least as exact, and
equal wherever all partial sums are representable (small integers). Integer products are exact and wrap to 32 bits, or
saturate with .satfinite. tf32 operands lose their 13 low bits first, as the hardware ignores them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from dgw.workbench.emulator.group import U32, U64, Group
from dgw.workbench.emulator.operation import Operation, Source, Thunk, destination, items, malformed, source, unknown
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.sparse import expand

Array = Any  # a NumPy array

# Bits of an element, and the k sizes of m16n8 products by element type.
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "s4": 4, "u4": 4, "f64": 64}
_K = {"f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8), "s8": (16, 32), "u8": (16, 32), "e4m3": (16, 32),
      "e5m2": (16, 32), "s4": (32, 64), "u4": (32, 64)}  # fmt: skip
_ACCUMULATORS = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "e4m3": ("f32", "f16"),
                 "e5m2": ("f32", "f16"), "s8": ("s32",), "u8": ("s32",), "s4": ("s32",), "u4": ("s32",)}  # fmt: skip
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)\Z")

_HALF = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float64)
_BYTE_TABLES = {
    "e4m3": np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64),
    "e5m2": np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float64),
    "s8": np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float64),
    "u8": np.arange(256, dtype=np.float64),
}


@dataclass(frozen=True, slots=True)
class Form:
    """Shape and types of one mma; `vector` is the number of accumulator registers, `sparse` for mma.sp."""

    m: int
    k: int
    a: str
    b: str
    accumulator: str
    result: str
    saturate: bool
    sparse: bool
    vector: int

    @property
    def registers(self) -> tuple[int, int, int]:
        """Registers of A, B and C in each lane."""
        a_columns = self.k // 2 if self.sparse else self.k
        width = 64 if self.a == "f64" else 32
        a = self.m * a_columns * BITS[self.a] // (32 * width)
        return a, 8 * self.k * BITS[self.b] // (32 * width), self.vector


def decode(instruction: Instruction) -> Operation:
    """mma.sync and mma.sp.sync with row-major A and column-major B."""
    form = _form(instruction)
    sparse = form.sparse
    if len(instruction.operands) != (6 if sparse else 4):
        raise malformed(instruction)
    bits = 64 if form.a == "f64" else 32
    counts = form.registers
    writes = tuple(
        destination(instruction, member, bits)
        for member in items(instruction, instruction.operands[0], _accumulator_count(form, form.result))
    )
    reads: list[Source] = []
    for operand, count in zip(instruction.operands[1:4], counts, strict=True):
        reads.extend(source(instruction, member, bits) for member in items(instruction, operand, count))
    a, b = tuple(range(counts[0])), tuple(range(counts[0], counts[0] + counts[1]))
    detail: Any = form
    if sparse:
        selector = getattr(instruction.operands[5], "value", None)
        if not isinstance(selector, int):
            raise malformed(instruction, "the sparsity selector must be a literal")
        metadata = source(instruction, instruction.operands[4], 32)
        reads.insert(counts[0], metadata)
        a, b = (*a, counts[0]), tuple(position + 1 for position in b)
        detail = (form, selector)
    build = _build_sparse if sparse else _build
    return Operation(instruction, writes, tuple(reads), build, detail, cross=(a, b))


def _form(instruction: Instruction) -> Form:
    words = list(instruction.modifiers)
    flags = {"sync", "aligned", "row", "col", "satfinite", "sp", "sp::ordered_metadata", "kind::f8f6f4"}
    named = [word for word in words if word not in flags]
    shape = _SHAPE.match(named[0]) if named else None
    if not shape or len(named) != 5 or "sync" not in words or words.count("row") != 1 or words.count("col") != 1:
        raise unknown(instruction)
    m, n, k = (int(part) for part in shape.groups())
    result, a, b, accumulator = named[1:]
    sparse = "sp" in words or "sp::ordered_metadata" in words
    eight_bit = {"s8", "u8"}, {"e4m3", "e5m2"}, {"s4", "u4"}
    mixed = a == b or any({a, b} <= family for family in eight_bit)
    dense_k = k // 2 if sparse else k
    known = n == 8 and mixed and (
        (m == 16 and dense_k in _K.get(a, ()) and accumulator in _ACCUMULATORS[a] and result in _ACCUMULATORS[a])
        or (a == "f64" and (m, k) == (8, 4) and result == accumulator == "f64" and not sparse)
    )  # fmt: skip
    if not known or (sparse and a not in ("f16", "bf16", "s8", "u8", "e4m3", "e5m2")):
        raise unknown(instruction)
    vector = {"f16": 2, "f64": 2}.get(accumulator, 4)
    return Form(m, k, a, b, accumulator, result, "satfinite" in words, sparse, vector)


def _accumulator_count(form: Form, name: str) -> int:
    return {"f16": 2, "f64": 2}.get(name, 4)


def elements(bits: Array, name: str) -> Array:
    """The float64 values in registers (uint32 or uint64): one more axis with the elements of a register."""
    if name == "f64":
        return np.ascontiguousarray(bits).view(np.float64)[..., None]
    if name == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)[..., None]
    if name in ("s4", "u4"):
        nibbles = (bits[..., None] >> np.arange(0, 32, 4, dtype=np.uint32)) & np.uint32(15)
        return nibbles.astype(np.float64) - (16.0 * (nibbles >= 8) if name == "s4" else 0.0)
    bits = np.ascontiguousarray(bits)[..., None]
    if name == "f16":
        return _HALF.take(bits.view(np.uint16))
    if name == "bf16":
        return (bits.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return _BYTE_TABLES[name].take(bits.view(np.uint8))


def left_matrix(registers: Array, name: str, m: int, warps: int) -> Array:
    """Registers [p, r, lanes] of A as [p, warps, m, k]. Register r holds row group + 8 (r mod 2)."""
    p, count = registers.shape[:2]
    blocks = m // 8
    values = elements(registers, name).reshape(p, count // blocks, blocks, warps, 8, 4, -1)
    return values.transpose(0, 3, 2, 4, 1, 5, 6).reshape(p, warps, m, -1)


def right_matrix(registers: Array, name: str, warps: int) -> Array:
    """Registers [q, r, lanes] of B as [q, warps, k, 8]."""
    q, count = registers.shape[:2]
    values = elements(registers, name).reshape(q, count, warps, 8, 4, -1)
    return values.transpose(0, 2, 1, 4, 5, 3).reshape(q, warps, -1, 8)


class _Accumulators:
    """Reads C, adds a product and stores D, in the accumulators' own layout [.., register, lanes]."""

    def __init__(self, group: Group, form: Form, first: int) -> None:
        self.form = form
        wide = U64 if form.result == "f64" else U32
        self.fetch = group.vector(range(first, first + form.vector), wide).fetch
        count = _accumulator_count(form, form.result)
        self.store = group.vector_target(range(count), np.dtype(np.float32) if form.result == "f32" else wide).store
        self.shape, self.lanes, self.warps = group.shape, group.lanes.count, group.lanes.warps

    def finish(self, product: Array) -> None:
        """`product`: float64 [*group shape, rows / 8, 2 columns, warps, 8, 4] (a view)."""
        form, lanes = self.form, self.lanes
        old = self.fetch()
        old = np.broadcast_to(old, (*old.shape[:-1], lanes)) if old.shape[-1] != lanes else old
        blocks = form.m // 8
        flat = (*self.shape, 2 * blocks, lanes)
        if form.accumulator in ("s32",):
            total = product.reshape(flat).astype(np.int64) + old.view(np.int32)
            if form.saturate:
                total = np.clip(total, -(2**31), 2**31 - 1)
            self.store((total & 0xFFFFFFFF).astype(np.uint32))
            return
        if form.accumulator == "f16":
            halves = np.ascontiguousarray(old)[..., None].view(np.float16)  # [.., block, lanes, 2]
            addend = np.moveaxis(halves, -1, -2).reshape(flat).astype(np.float64)
        else:
            addend = old.view(np.float32 if form.accumulator == "f32" else np.float64)
        total = product.reshape(flat) + addend
        if form.result == "f32":
            self.store(total.astype(np.float32))
        elif form.result == "f64":
            self.store(total.view(np.uint64))
        else:
            halves = total.astype(np.float16).reshape(*self.shape, blocks, 2, lanes)
            packed = np.ascontiguousarray(np.moveaxis(halves, -2, -1)).view(np.uint32)[..., 0]
            self.store(packed)


def _registers(values: Any, lanes: int) -> Callable[[], Array]:
    fetch = values.fetch

    def get() -> Array:
        found = fetch()
        return found if found.shape[-1] == lanes else np.broadcast_to(found, (*found.shape[:-1], lanes))

    return get


def _build(group: Group) -> Thunk:
    form: Form = group.detail
    a, b, _ = form.registers
    wide = U64 if form.a == "f64" else U32
    positions = (range(a), range(a, a + b))
    lanes, warps = group.lanes.count, group.lanes.warps
    accumulators = _Accumulators(group, form, a + b)
    crossed = len(group.shape) == 2
    if crossed:
        left, right = (_registers(group.side(axis, positions[axis], wide), lanes) for axis in (0, 1))
    else:
        left, right = (_registers(group.vector(positions[axis], wide), lanes) for axis in (0, 1))

    def run() -> None:
        rows = left_matrix(left(), form.a, form.m, warps)
        columns = right_matrix(right(), form.b, warps)
        accumulators.finish(multiply(rows, columns, crossed))

    return _whole_warps(group, run)


def _build_sparse(group: Group) -> Thunk:
    form, selector = group.detail
    a, b, _ = form.registers
    positions = (range(a), range(a + 1, a + 1 + b))
    lanes, warps = group.lanes.count, group.lanes.warps
    accumulators = _Accumulators(group, form, a + 1 + b)
    crossed = len(group.shape) == 2
    if crossed:
        left, right = (_registers(group.side(axis, positions[axis], U32), lanes) for axis in (0, 1))
        metadata = _registers(group.side(0, (a,), U32), lanes)
    else:
        left, right = (_registers(group.vector(positions[axis], U32), lanes) for axis in (0, 1))
        metadata = _registers(group.vector((a,), U32), lanes)

    def run() -> None:
        stored = left_matrix(left(), form.a, form.m, warps)
        rows = expand(stored, metadata()[:, 0], form.a, selector)
        columns = right_matrix(right(), form.b, warps)
        accumulators.finish(multiply(rows, columns, crossed))

    return _whole_warps(group, run)


def multiply(rows: Array, columns: Array, crossed: bool) -> Array:
    """Products of A [p, warps, m, k] and B [q, warps, k, 8], as [p, (q,) m / 8, 2, warps, 8, 4] in lane order."""
    p, warps, m, k = rows.shape
    q = len(columns)
    blocks = m // 8
    if not crossed:
        product = np.matmul(rows, columns).reshape(p, warps, blocks, 8, 4, 2)
        return product.transpose(0, 2, 5, 1, 3, 4)
    tall = np.ascontiguousarray(rows.swapaxes(0, 1)).reshape(warps, p * m, k)
    broad = np.ascontiguousarray(columns.transpose(1, 2, 0, 3)).reshape(warps, k, q * 8)
    product = np.matmul(tall, broad).reshape(warps, p, blocks, 8, q, 4, 2)
    return product.transpose(1, 4, 2, 6, 0, 3, 5)


def _whole_warps(group: Group, run: Thunk) -> Thunk:
    mask = group.mask
    if mask is None:
        return run

    def checked() -> None:
        group.engine.require_whole_warps(mask, group)
        run()

    return group.finish(checked)
