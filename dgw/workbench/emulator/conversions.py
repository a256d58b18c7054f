"""cvt between integers and floats, with saturation and rounding, and the packed conversions of narrow formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from dgw.workbench.emulator import rounding
from dgw.workbench.emulator.arithmetic_float import flush
from dgw.workbench.emulator.elementwise import I8, NUMPY, U8, binder
from dgw.workbench.emulator.group import F32, U16, U32
from dgw.workbench.emulator.operation import Operation, destination, expect, malformed, source, unknown
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import Register

Array = Any  # a NumPy array
Function = Callable[..., Any]

_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_FLAGS = frozenset({"rn", "rz", "rm", "rp", "rna", "ftz", "sat", "satfinite", "relu", *_TO_INTEGER})
_SCALARS = frozenset({"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"})
_FP8 = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}
_FP8_MAX = {"e4m3x2": 448.0, "e5m2x2": 57344.0}


def _integer_dtype(name: str) -> Any:
    return {"u8": U8, "s8": I8}.get(name, NUMPY[name])


def _value64(name: str, value: Array) -> Array:
    """A float source as exact float64."""
    if name == "bf16":
        return rounding.bfloat16_values(value).astype(np.float64)
    return value.astype(np.float64)


def _from_integer64(value: Array) -> Array:
    """An integer as float64 rounded to odd, so that narrowing it rounds once."""
    if value.dtype.itemsize < 8:
        return value.astype(np.float64)
    high = (value >> value.dtype.type(32)).astype(np.float64) * 2.0**32
    return rounding.odd_sum(high, (value & value.dtype.type(0xFFFFFFFF)).astype(np.float64))


def _nearest64(value: Array, mode: str) -> Array:
    """An integer as float64 in a rounding mode."""
    nearest = value.astype(np.float64)
    if mode == "rn" or value.dtype.itemsize < 8:
        return nearest
    high = (value >> value.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (value & value.dtype.type(0xFFFFFFFF)).astype(np.float64)
    error = rounding.sum_error(high, low, high + low)
    up, down = np.nextafter(nearest, np.inf), np.nextafter(nearest, -np.inf)
    wants_down = (error < 0) & ((mode == "rm") | ((mode == "rz") & (nearest > 0)))
    wants_up = (error > 0) & ((mode == "rp") | ((mode == "rz") & (nearest < 0)))
    return np.where(wants_down, down, np.where(wants_up, up, nearest))


def _to_float(name: str, value: Array, mode: str) -> Array:
    """A float64 (exact or rounded to odd) as a value of a float type (bf16 as bits)."""
    if name == "f64":
        return value
    if name == "f32":
        return rounding.narrow(value, mode)
    if name == "f16":
        return rounding.narrow_half(value, mode)
    return rounding.bfloat16_bits(rounding.float32_odd(value), mode)


def _to_integer(target: Any, value: Array, rounding_name: str) -> Array:
    """Float to integer: NaN gives 0 and values out of range the nearest limit, as the manual says."""
    whole = _TO_INTEGER[rounding_name](value)
    limits = np.iinfo(target)
    above = whole >= 2.0 ** (limits.bits - (1 if limits.min < 0 else 0))
    below = whole < float(limits.min)
    result = np.where(above | below | np.isnan(whole), 0.0, whole).astype(target)
    return np.where(above, target.type(limits.max), np.where(below, target.type(limits.min), result))


def _saturate_integer(target: Any, value: Array) -> Array:
    limits, own = np.iinfo(target), np.iinfo(value.dtype)
    low, high = max(limits.min, own.min), min(limits.max, own.max)
    return np.clip(value, low, high).astype(target)


def _scalar(to: str, origin: str, flags: frozenset[str]) -> Function:
    mode = next((m for m in ("rz", "rm", "rp", "rna") if m in flags), "rn")
    integer_mode = next((m for m in _TO_INTEGER if m in flags), "")
    to_float, from_float = to in ("f16", "bf16", "f32", "f64"), origin in ("f16", "bf16", "f32", "f64")
    if not from_float and not to_float:
        target = _integer_dtype(to)
        return (lambda a: _saturate_integer(target, a)) if "sat" in flags else (lambda a: a.astype(target))
    if not to_float:
        target = _integer_dtype(to)
        return lambda a: _to_integer(target, _value64(origin, a), integer_mode)
    if not from_float:
        if to == "f64":
            core: Function = lambda a: _nearest64(a, mode)  # noqa: E731
        else:
            core = lambda a: _to_float(to, _from_integer64(a), mode)  # noqa: E731
    elif integer_mode:
        core = lambda a: _to_float(to, _TO_INTEGER[integer_mode](_value64(origin, a)), "rn")  # noqa: E731
    elif (origin, to, mode) == ("f16", "f32", "rn"):
        core = lambda a: HALF_TO_SINGLE[a.view(np.uint16)]  # noqa: E731
    elif (origin, to, mode) == ("f32", "f16", "rn"):
        core = lambda a: a.astype(np.float16)  # noqa: E731
    elif (origin, to) == ("bf16", "f32"):
        core = rounding.bfloat16_values
    elif (origin, to) == ("f32", "bf16"):
        core = lambda a: rounding.bfloat16_bits(a, mode)  # noqa: E731
    else:
        core = lambda a: _to_float(to, _value64(origin, a), mode)  # noqa: E731
    return _bounded(core, to, flags)


HALF_TO_SINGLE = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)


def _bounded(core: Function, to: str, flags: frozenset[str]) -> Function:
    if "ftz" in flags and to in ("f32", "f16"):
        inner = core
        core = lambda a: flush(inner(flush(a) if a.dtype == np.float32 else a))  # noqa: E731
    if not flags & {"sat", "relu"}:
        return core
    low_high = (0.0, 1.0) if "sat" in flags else (0.0, np.inf)
    raw = core

    def limited(a: Array) -> Array:
        result = raw(a)
        values = rounding.bfloat16_values(result) if to == "bf16" else result
        bounded = np.where(values > 0, np.minimum(values, values.dtype.type(low_high[1])), values.dtype.type(0))
        if "relu" in flags:
            bounded = np.where(np.isnan(values), values, bounded)
        return rounding.bfloat16_bits(bounded) if to == "bf16" else bounded

    return limited


def _check(instruction: Instruction, to: str, origin: str, flags: frozenset[str]) -> None:
    floats = ("f16", "bf16", "f32", "f64")
    integer_mode, mode = flags & set(_TO_INTEGER), flags & {"rn", "rz", "rm", "rp", "rna"}
    bad = to not in _SCALARS or origin not in _SCALARS or len(integer_mode) > 1 or len(mode) > 1
    if origin in floats and to not in floats:
        bad |= not integer_mode or bool(mode)
    elif origin in floats and to in floats:
        narrowing = floats.index(to) < floats.index(origin) and (origin, to) != ("bf16", "f16")
        bad |= narrowing and not mode
    elif to in floats:
        bad |= not mode
    else:
        bad |= bool(integer_mode or mode)
    if bad:
        raise unknown(instruction)


def decode(instruction: Instruction) -> Operation:
    """cvt in its scalar and packed forms."""
    if "pack" in instruction.modifiers:
        return _decode_pack(instruction)
    if len(instruction.modifiers) < 2:
        raise unknown(instruction)
    *words, to, origin = instruction.modifiers
    flags = frozenset(words)
    if not flags <= _FLAGS:
        raise unknown(instruction)
    if to.endswith("x2") or origin.endswith("x2"):
        return _decode_pair(instruction, to, origin, flags)
    if to == "tf32":
        return _decode_tf32(instruction, origin, flags)
    _check(instruction, to, origin, flags)
    operands = expect(instruction, 2)
    target, origin_dtype = _integer_dtype(to), _integer_dtype(origin)
    write = destination(instruction, operands[0])
    read = source(instruction, operands[1])
    if write is None or write.bits == 1 or (isinstance(read, Register) and read.bits == 1):
        raise malformed(instruction)
    if write.bits < target.itemsize * 8 or (isinstance(read, Register) and read.bits < origin_dtype.itemsize * 8):
        raise malformed(instruction, "a register is narrower than its type")
    return Operation(instruction, (write,), (read,), binder(_scalar(to, origin, flags), [origin_dtype], target))


def _decode_tf32(instruction: Instruction, origin: str, flags: frozenset[str]) -> Operation:
    if origin != "f32" or not flags <= {"rna", "rn", "rz", "satfinite", "relu"}:
        raise unknown(instruction)
    mode = next((m for m in ("rn", "rz") if m in flags), "rna")

    def convert(a: Array) -> Array:
        bits = np.ascontiguousarray(a).view(np.uint32)
        low = bits & np.uint32(0x1FFF)
        up = {"rna": low >= 0x1000, "rz": low < 0,
              "rn": (low > 0x1000) | ((low == 0x1000) & ((bits >> np.uint32(13)) & 1).astype(bool))}[mode]  # fmt: skip
        rounded = (bits & ~np.uint32(0x1FFF)) + np.where(up, np.uint32(0x2000), np.uint32(0))
        rounded = np.where(np.isfinite(a), rounded, bits)
        if "relu" in flags:
            rounded = np.where(a > 0, rounded, np.where(np.isnan(a), rounded, np.uint32(0)))
        return rounded

    operands = expect(instruction, 2)
    write, read = destination(instruction, operands[0], 32), source(instruction, operands[1], 32)
    return Operation(instruction, (write,), (read,), binder(convert, [F32], U32))


def _decode_pair(instruction: Instruction, to: str, origin: str, flags: frozenset[str]) -> Operation:
    """Two floats into a packed pair (first source in the high half), or fp8 pairs to f16 pairs."""
    relu = "relu" in flags
    if to in ("f16x2", "bf16x2") and origin == "f32" and flags <= {"rn", "rz", "relu", "satfinite"}:
        operands = expect(instruction, 3)
        mode = "rz" if "rz" in flags else "rn"
        half = _scalar(to[:-2], "f32", frozenset({mode, "relu"} if relu else {mode}))

        def pack(high: Array, low: Array) -> Array:
            upper, lower = (np.asarray(half(v)).view(np.uint16).astype(np.uint32) for v in (high, low))
            return (upper << np.uint32(16)) | lower

        write = destination(instruction, operands[0], 32)
        reads = (source(instruction, operands[1], 32), source(instruction, operands[2], 32))
        return Operation(instruction, (write,), reads, binder(pack, [F32, F32], U32))
    if to in _FP8 and flags >= {"rn", "satfinite"} and flags <= {"rn", "satfinite", "relu"}:
        return _decode_to_fp8(instruction, to, origin, relu)
    if origin in _FP8 and to == "f16x2" and flags <= {"rn", "relu"}:
        operands = expect(instruction, 2)
        kind = _FP8[origin]

        def expand(a: Array) -> Array:
            table = np.arange(256, dtype=np.uint8).view(kind).astype(np.float16).view(np.uint16).astype(np.uint32)
            if relu:
                table = np.where((table & 0x8000) != 0, np.uint32(0), table)
            return (table[a >> np.uint16(8)] << np.uint32(16)) | table[a & np.uint16(0xFF)]

        write, read = destination(instruction, operands[0], 32), source(instruction, operands[1], 16)
        return Operation(instruction, (write,), (read,), binder(expand, [U16], U32))
    raise unknown(instruction)


def fp8_bits(kind_name: str, value: Array, relu: bool = False) -> Array:
    """Float values to fp8 bits (uint8), to nearest even, saturating to the largest finite number; NaN stays NaN."""
    limit = _FP8_MAX[kind_name]
    bounded = np.clip(value.astype(np.float32), 0.0 if relu else -limit, limit)
    bits = bounded.astype(_FP8[kind_name]).view(np.uint8)
    return np.where(np.isnan(value), np.uint8(0x7F), bits)


def _decode_to_fp8(instruction: Instruction, to: str, origin: str, relu: bool) -> Operation:
    if origin == "f32":
        operands = expect(instruction, 3)

        def pack(high: Array, low: Array) -> Array:
            upper, lower = fp8_bits(to, high, relu), fp8_bits(to, low, relu)
            return (upper.astype(np.uint16) << np.uint16(8)) | lower

        reads = (source(instruction, operands[1], 32), source(instruction, operands[2], 32))
        return Operation(
            instruction, (destination(instruction, operands[0], 16),), reads, binder(pack, [F32, F32], U16)
        )
    if origin == "f16x2":
        operands = expect(instruction, 2)

        def narrow(a: Array) -> Array:
            halves = np.ascontiguousarray(a)[..., None].view(np.float16)
            bits = fp8_bits(to, halves, relu).astype(np.uint16)
            return (bits[..., 1] << np.uint16(8)) | bits[..., 0]

        read = source(instruction, operands[1], 32)
        return Operation(instruction, (destination(instruction, operands[0], 16),), (read,), binder(narrow, [U32], U16))
    raise unknown(instruction)


def _decode_pack(instruction: Instruction) -> Operation:
    """cvt.pack.sat: two s32 saturated and packed, optionally above the low half of c."""
    modifiers = instruction.modifiers
    if modifiers[:2] != ("pack", "sat") or len(modifiers) not in (4, 5) or modifiers[3] != "s32":
        raise unknown(instruction)
    to = modifiers[2]
    if to not in ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2") or (len(modifiers) == 5) != (to[1:] not in ("16",)):
        raise unknown(instruction)
    bits = int(to[1:])
    low, high = (0, 2**bits - 1) if to[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def pack(a: Array, b: Array, *c: Array) -> Array:
        upper, lower = (np.clip(v, low, high).astype(np.int64) & (2**bits - 1) for v in (a, b))
        packed = (upper << bits) | lower
        if c:
            packed |= c[0].astype(np.int64) << (2 * bits)
        return (packed & 0xFFFFFFFF).astype(np.uint32)

    operands = expect(instruction, 3 if len(modifiers) == 4 else 4)
    reads = tuple(source(instruction, operand, 32) for operand in operands[1:])
    types = [NUMPY["s32"], NUMPY["s32"], U32][: len(reads)]
    return Operation(instruction, (destination(instruction, operands[0], 32),), reads, binder(pack, types, U32))
