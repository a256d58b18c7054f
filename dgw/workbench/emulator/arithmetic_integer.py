"""Integer arithmetic: add sub mul mad div rem abs neg min max sad dp4a dp2a, as the PTX manual defines it.

Results wrap modulo the width. Division by zero gives all ones and the remainder by zero the dividend, which the manual
leaves open and NVIDIA GPUs return. The smallest integer divided by -1 wraps to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dgw.workbench.emulator.elementwise import INTEGERS, NUMPY, elementwise
from dgw.workbench.emulator.operation import Operation, check_modifiers, type_of, unknown
from dgw.workbench.emulator.ptx.module import Instruction

Array = Any  # a NumPy array
_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def _multiply_high(a: Array, b: Array) -> Array:
    dtype = np.result_type(a, b)
    size = dtype.itemsize
    if size < 8:
        wide = np.dtype(f"{dtype.kind}{2 * size}")
        return ((a.astype(wide) * b.astype(wide)) >> (8 * size)).astype(dtype)
    low = np.uint64(0xFFFFFFFF)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> np.uint64(32), y & low, y >> np.uint64(32)
    middle = x1 * y0 + (x0 * y0 >> np.uint64(32))
    other = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> np.uint64(32)) + (other >> np.uint64(32))
    if dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(dtype)


def _multiply_wide(wide: np.dtype[Any], a: Array, b: Array) -> Array:
    return np.multiply(a, b, dtype=wide)


def _low24(a: Array, b: Array) -> tuple[Array, Array]:
    if np.result_type(a, b).kind == "i":
        return (a << 8) >> 8, (b << 8) >> 8
    mask = np.uint32(0xFFFFFF)
    return a & mask, b & mask


def _multiply24(high: bool, a: Array, b: Array) -> Array:
    x, y = _low24(a, b)
    wide = x.astype(f"{x.dtype.kind}8") * y.astype(f"{x.dtype.kind}8")
    return ((wide >> 16) if high else wide).astype(x.dtype)


def divide(a: Array, b: Array) -> Array:
    """Quotient rounded towards zero; all ones for a division by zero."""
    zero = b == 0
    if a.dtype.kind == "u":
        return np.where(zero, ~np.zeros_like(b), a // np.where(zero, 1, b).astype(b.dtype))
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    x, y = np.abs(a).view(unsigned), np.abs(np.where(zero, 1, b).astype(b.dtype)).view(unsigned)
    quotient = (x // y).view(a.dtype)
    return np.where(zero, np.array(-1, a.dtype), np.where((a < 0) != (b < 0), -quotient, quotient))


def remainder(a: Array, b: Array) -> Array:
    """Remainder with the sign of the dividend; the dividend for a division by zero."""
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    return np.where(b == 0, a, a - divide(a, safe) * safe)


def _sad(a: Array, b: Array, c: Array) -> Array:
    return c + np.where(a > b, a - b, b - a)


def _saturated(function: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    wide = function(a.astype(np.int64), b.astype(np.int64))
    return np.clip(wide, -(2**31), 2**31 - 1).astype(np.int32)


def _mad(function: Callable[[Array, Array], Array], a: Array, b: Array, c: Array) -> Array:
    return function(a, b) + c


def _saturated_mad(a: Array, b: Array, c: Array) -> Array:
    wide = (a.astype(np.int64) * b.astype(np.int64) >> 32) + c.astype(np.int64)
    return np.clip(wide, -(2**31), 2**31 - 1).astype(np.int32)


def _bytes(value: Array, signed: bool) -> Array:
    spread = np.ascontiguousarray(value)[..., None].view(np.int8 if signed else np.uint8)
    return spread.astype(np.int32)


def _dp4a(signed_a: bool, signed_b: bool, a: Array, b: Array, c: Array) -> Array:
    total = (_bytes(a, signed_a) * _bytes(b, signed_b)).sum(axis=-1, dtype=np.int32)
    return total.view(np.uint32) + c


def _dp2a(signed_a: bool, signed_b: bool, high: bool, a: Array, b: Array, c: Array) -> Array:
    words = np.ascontiguousarray(a)[..., None].view(np.int16 if signed_a else np.uint16).astype(np.int64)
    half = _bytes(b, signed_b)[..., 2:] if high else _bytes(b, signed_b)[..., :2]
    return (words * half).sum(axis=-1).astype(np.int32).view(np.uint32) + c


_TWO: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "div": divide, "rem": remainder, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def decode(instruction: Instruction) -> Operation:
    """An integer operation by its opcode and last modifier."""
    name = type_of(instruction)
    packed = name in ("u16x2", "s16x2") and instruction.opcode in ("add", "min", "max")
    if name not in INTEGERS and not packed:
        raise unknown(instruction)
    dtype, opcode = NUMPY[name], instruction.opcode
    if packed:
        half = np.dtype(f"{name[0].replace('s', 'i')}2")
        check_modifiers(instruction, {name})
        return elementwise(instruction, partial(_packed, _TWO[opcode], half), [dtype, dtype], dtype)
    if opcode in _TWO:
        present = check_modifiers(instruction, {name, "sat"})
        if "sat" in present:
            if opcode not in ("add", "sub") or name != "s32":
                raise unknown(instruction)
            return elementwise(instruction, partial(_saturated, _TWO[opcode]), [dtype, dtype], dtype)
        return elementwise(instruction, _TWO[opcode], [dtype, dtype], dtype)
    if opcode in ("abs", "neg"):
        check_modifiers(instruction, {name})
        return elementwise(instruction, np.abs if opcode == "abs" else np.negative, [dtype], dtype)
    if opcode == "sad":
        check_modifiers(instruction, {name})
        return elementwise(instruction, _sad, [dtype] * 3, dtype)
    return _multiplication(instruction, name, opcode)


def _packed(function: Callable[..., Any], half: np.dtype[Any], a: Array, b: Array) -> Array:
    x, y = np.broadcast_arrays(a, b)
    return np.asarray(function(np.ascontiguousarray(x).view(half), np.ascontiguousarray(y).view(half))).view(np.uint32)


def _multiplication(instruction: Instruction, name: str, opcode: str) -> Operation:
    present = check_modifiers(instruction, {name, "lo", "hi", "wide", "sat"})
    dtype = out = NUMPY[name]
    if opcode in ("mul24", "mad24"):
        if name not in ("u32", "s32") or not present & {"lo", "hi"}:
            raise unknown(instruction)
        function: Callable[..., Any] = partial(_multiply24, "hi" in present)
    elif "wide" in present and name in _WIDE:
        out = NUMPY[_WIDE[name]]
        function = partial(_multiply_wide, out)
    elif "hi" in present:
        if "sat" in present:
            if opcode != "mad" or name != "s32":
                raise unknown(instruction)
            return elementwise(instruction, _saturated_mad, [dtype] * 3, dtype)
        function = _multiply_high
    elif "lo" in present and "sat" not in present:
        function = np.multiply
    else:
        raise unknown(instruction)
    if opcode.startswith("mul"):
        return elementwise(instruction, function, [dtype, dtype], out)
    return elementwise(instruction, partial(_mad, function), [dtype, dtype, out], out)


def decode_dot(instruction: Instruction) -> Operation:
    """dp4a and dp2a."""
    names = instruction.modifiers[-2:]
    if len(names) != 2 or any(name not in ("u32", "s32") for name in names):
        raise unknown(instruction)
    signs = (names[0] == "s32", names[1] == "s32")
    u32 = NUMPY["u32"]
    if instruction.opcode == "dp4a":
        check_modifiers(instruction, {"u32", "s32"})
        return elementwise(instruction, partial(_dp4a, *signs), [u32] * 3, u32)
    present = check_modifiers(instruction, {"u32", "s32", "lo", "hi"})
    if len(present & {"lo", "hi"}) != 1:
        raise unknown(instruction)
    return elementwise(instruction, partial(_dp2a, signs[0], signs[1], "hi" in present), [u32] * 3, u32)
