"""Logic, shifts and bit fields: and or xor not cnot lop3 shl shr shf prmt bfe bfi brev popc clz bfind bmsk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dgw.workbench.emulator.elementwise import NUMPY, elementwise, immediate
from dgw.workbench.emulator.operation import Operation, check_modifiers, expect, type_of, unknown
from dgw.workbench.emulator.ptx.module import Instruction

Array = Any  # a NumPy array
U32, I32, U64 = NUMPY["u32"], NUMPY["s32"], NUMPY["u64"]

_LOGIC: dict[str, Callable[..., Any]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_PREDICATE_LOGIC: dict[str, Callable[..., Any]] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip


def decode_logic(instruction: Instruction) -> Operation:
    """and or xor not cnot."""
    name, opcode = type_of(instruction), instruction.opcode
    check_modifiers(instruction, {name})
    if name not in ("pred", "b16", "b32", "b64") or (opcode == "cnot" and name == "pred"):
        raise unknown(instruction)
    dtype = NUMPY[name]
    if opcode == "not":
        return elementwise(instruction, np.logical_not if name == "pred" else np.invert, [dtype], dtype)
    if opcode == "cnot":
        return elementwise(instruction, lambda a: (a == 0).astype(a.dtype), [dtype], dtype)
    table = _PREDICATE_LOGIC if name == "pred" else _LOGIC
    return elementwise(instruction, table[opcode], [dtype, dtype], dtype)


def _shift(left: bool, a: Array, count: Array) -> Array:
    """Counts above the width give zero, or the sign for arithmetic right shifts."""
    width = a.dtype.itemsize * 8
    amount = np.minimum(count, width - 1).astype(a.dtype)
    if not left and a.dtype.kind == "i":
        return a >> amount
    shifted = a << amount if left else a >> amount
    return np.where(count >= width, np.zeros((), a.dtype), shifted)


def decode_shift(instruction: Instruction) -> Operation:
    """shl shr: the count is 32 bits wide whatever the type."""
    name = type_of(instruction)
    check_modifiers(instruction, {name})
    left = instruction.opcode == "shl"
    allowed = ("b16", "b32", "b64") if left else ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")
    if name not in allowed:
        raise unknown(instruction)
    operands = expect(instruction, 3)
    dtype = NUMPY[name]
    count = getattr(operands[2], "value", None)
    if isinstance(count, int) and 0 <= count < dtype.itemsize * 8:
        return elementwise(instruction, np.left_shift if left else np.right_shift, [dtype, dtype], dtype)
    return elementwise(instruction, partial(_shift, left), [dtype, U32], dtype)


def _funnel(left: bool, wrap: bool, low: Array, high: Array, count: Array) -> Array:
    amount = (count & np.uint32(31) if wrap else np.minimum(count, 32)).astype(np.uint64)
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    if left:
        return ((both << amount) >> np.uint64(32)).astype(np.uint32)
    return (both >> amount).astype(np.uint32)


def decode_funnel(instruction: Instruction) -> Operation:
    """shf.l and shf.r, wrapping or clamping the count."""
    present = check_modifiers(instruction, {"l", "r", "wrap", "clamp", "b32"})
    if len(present & {"l", "r"}) != 1 or len(present & {"wrap", "clamp"}) != 1 or "b32" not in present:
        raise unknown(instruction)
    return elementwise(instruction, partial(_funnel, "l" in present, "wrap" in present), [U32] * 3, U32)


def _lop3(table: int, a: Array, b: Array, c: Array) -> Array:
    total: Any = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), dtype=np.uint32)
    for term in range(8):
        if table >> term & 1:
            total |= (a if term & 4 else ~a) & (b if term & 2 else ~b) & (c if term & 1 else ~c)
    return np.asarray(total)


def decode_lop3(instruction: Instruction) -> Operation:
    """lop3.b32 with its truth table (the forms with a predicate result are not implemented)."""
    check_modifiers(instruction, {"b32"})
    expect(instruction, 5)
    table = immediate(instruction, 4) & 0xFF
    return elementwise(instruction, lambda a, b, c, _: _lop3(table, a, b, c), [U32] * 4, U32, detail=table)


def _bytes_of(a: Array, b: Array) -> Array:
    both = (b.astype(np.uint64) << np.uint64(32)) | a
    return np.ascontiguousarray(both)[..., None].view(np.uint8)


def _permute(a: Array, b: Array, selector: Array) -> Array:
    pool = _bytes_of(a, b)
    selector = np.broadcast_to(selector, np.broadcast_shapes(pool.shape[:-1], selector.shape))
    pool = np.broadcast_to(pool, (*selector.shape, 8))
    nibbles = (selector[..., None] >> np.array([0, 4, 8, 12], dtype=np.uint32)) & np.uint32(15)
    chosen = np.take_along_axis(pool, (nibbles & 7).astype(np.intp), axis=-1)
    sign = np.where(chosen & 0x80, np.uint8(0xFF), np.uint8(0))
    return np.ascontiguousarray(np.where(nibbles & 8, sign, chosen)).view(np.uint32)[..., 0]


# Selectors of the modes of prmt, by the two low bits of the control operand.
_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333), "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}  # fmt: skip


def decode_permute(instruction: Instruction) -> Operation:
    """prmt.b32 and its modes."""
    present = check_modifiers(instruction, {"b32", *_MODES})
    mode = next(iter(present - {"b32"}), None)
    if len(present) > 2 or "b32" not in present:
        raise unknown(instruction)
    if mode is None:
        return elementwise(instruction, _permute, [U32] * 3, U32)
    selectors = np.array(_MODES[mode], dtype=np.uint32)
    return elementwise(instruction, lambda a, b, c: _permute(a, b, selectors[c & 3]), [U32] * 3, U32)


def _extract(a: Array, position: Array, length: Array) -> Array:
    width = a.dtype.itemsize * 8
    start = (position & np.uint32(255)).astype(np.int64)
    size = (length & np.uint32(255)).astype(np.int64)
    shape = np.broadcast_shapes(a.shape, start.shape, size.shape)
    bits = np.broadcast_to(a, shape).astype(f"u{width // 8}")
    kept = np.minimum(size, np.maximum(width - start, 0))
    field = _shift(False, bits, start)
    mask = _ones(kept, width)
    if a.dtype.kind == "u":
        return (field & mask).astype(a.dtype)
    sign_at = np.minimum(start + size - 1, width - 1)
    sign = (_shift(False, bits, np.maximum(sign_at, 0)) & bits.dtype.type(1)) != 0
    return np.where(size == 0, 0, np.where(sign, (field & mask) | ~mask, field & mask)).astype(bits.dtype).view(a.dtype)


def _ones(count: Array, width: int) -> Array:
    dtype = np.dtype(f"u{width // 8}")
    full = ~np.zeros((), dtype)
    return np.where(count <= 0, np.zeros((), dtype), full >> np.clip(width - count, 0, width - 1).astype(dtype))


def decode_extract(instruction: Instruction) -> Operation:
    """bfe: a bit field, sign-extended for signed types."""
    name = type_of(instruction)
    check_modifiers(instruction, {name})
    if name not in ("u32", "s32", "u64", "s64"):
        raise unknown(instruction)
    return elementwise(instruction, _extract, [NUMPY[name], U32, U32], NUMPY[name])


def _insert(a: Array, b: Array, position: Array, length: Array) -> Array:
    width = a.dtype.itemsize * 8
    start = (position & np.uint32(255)).astype(np.int64)
    size = np.minimum((length & np.uint32(255)).astype(np.int64), np.maximum(width - start, 0))
    mask = _shift(True, np.broadcast_to(_ones(size, width), np.broadcast_shapes(size.shape, start.shape)), start)
    return (b & ~mask) | (_shift(True, np.broadcast_to(a, np.broadcast_shapes(a.shape, start.shape)), start) & mask)


def decode_insert(instruction: Instruction) -> Operation:
    """bfi: a bit field put into another value."""
    name = type_of(instruction)
    check_modifiers(instruction, {name})
    if name not in ("b32", "b64"):
        raise unknown(instruction)
    dtype = NUMPY[name]
    return elementwise(instruction, _insert, [dtype, dtype, U32, U32], dtype)


def _reverse(a: Array) -> Array:
    size = a.dtype.itemsize
    table = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], dtype=np.uint8)
    return np.ascontiguousarray(table[np.ascontiguousarray(a)[..., None].view(np.uint8)][..., ::-1]).view(f"u{size}")[
        ..., 0
    ]


def _leading_zeros(a: Array) -> Array:
    width = a.dtype.itemsize * 8
    if width == 32:
        return (np.uint32(32) - np.frexp(a.astype(np.float64))[1].astype(np.uint32)).astype(np.uint32)
    high = (a >> np.uint64(32)).astype(np.uint32)
    low = a.astype(np.uint32)
    return np.where(high == 0, np.uint32(32) + _leading_zeros(low), _leading_zeros(high))


def _find_most_significant(shift_amount: bool, a: Array) -> Array:
    width = a.dtype.itemsize * 8
    unsigned = np.dtype(f"u{width // 8}")
    bits = np.where(a < 0, ~a, a).astype(unsigned) if a.dtype.kind == "i" else a
    zeros = _leading_zeros(bits)
    found = zeros if shift_amount else np.uint32(width - 1) - zeros
    return np.where(bits == 0, np.uint32(0xFFFFFFFF), found)


def decode_count(instruction: Instruction) -> Operation:
    """popc clz brev bfind."""
    name, opcode = type_of(instruction), instruction.opcode
    if opcode == "bfind":
        present = check_modifiers(instruction, {name, "shiftamt"})
        if name not in ("u32", "s32", "u64", "s64"):
            raise unknown(instruction)
        return elementwise(instruction, partial(_find_most_significant, "shiftamt" in present), [NUMPY[name]], U32)
    check_modifiers(instruction, {name})
    if name not in ("b32", "b64"):
        raise unknown(instruction)
    if opcode == "brev":
        return elementwise(instruction, _reverse, [NUMPY[name]], NUMPY[name])
    count: Callable[..., Any] = _leading_zeros
    if opcode == "popc":
        count = partial(_population)
    return elementwise(instruction, count, [NUMPY[name]], U32)


def _population(a: Array) -> Array:
    return np.bitwise_count(a).astype(np.uint32)


def _bit_mask(wrap: bool, position: Array, width: Array) -> Array:
    start, size = position.astype(np.int64), width.astype(np.int64)
    if wrap:
        start, size = start & 31, size & 31
    ones = _ones(np.minimum(size, 32), 32)
    return _shift(True, np.broadcast_to(ones, np.broadcast_shapes(start.shape, ones.shape)), start)


def decode_mask(instruction: Instruction) -> Operation:
    """bmsk: `width` ones starting at `position`."""
    present = check_modifiers(instruction, {"clamp", "wrap", "b32"})
    return elementwise(instruction, partial(_bit_mask, "wrap" in present), [U32, U32], U32)
