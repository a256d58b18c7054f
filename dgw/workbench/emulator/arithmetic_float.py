"""Floating-point arithmetic in f16, bf16, f32 and f64, scalar and packed: IEEE rounding, .ftz, .sat and .relu.

Every add, sub, mul, fma, div and sqrt with a rounding mode is rounded once. The approximate instructions (rcp.approx,
sqrt.approx, rsqrt, ex2, lg2, sin, cos, tanh, div.approx, div.full) are computed in float64 and rounded once to f32 (or
f16): they are more exact than the hardware, whose results lie within the errors that the PTX manual states.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dgw.workbench.emulator import rounding
from dgw.workbench.emulator.elementwise import NUMPY, elementwise
from dgw.workbench.emulator.operation import Operation, check_modifiers, unknown
from dgw.workbench.emulator.ptx.module import Instruction

Array = Any  # a NumPy array
Function = Callable[..., Any]

FLOAT_TYPES = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64")
_FLAGS = {"rn", "rz", "rm", "rp", "ftz", "sat", "relu", "approx", "full", "NaN", "xorsign", "abs", "oob"}


def flush(value: Array) -> Array:
    """Subnormal numbers become zeros of the same sign."""
    tiny = np.finfo(value.dtype).tiny
    return np.where(np.abs(value) < tiny, np.copysign(np.zeros((), value.dtype), value), value)


def _minimum(propagate: bool, a: Array, b: Array) -> Array:
    result = np.minimum(a, b) if propagate else np.fmin(a, b)
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), result)


def _maximum(propagate: bool, a: Array, b: Array) -> Array:
    result = np.maximum(a, b) if propagate else np.fmax(a, b)
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), result)


def _copysign(a: Array, b: Array) -> Array:
    return np.copysign(b, a)


_UNARY: dict[str, Function] = {
    "neg": np.negative, "abs": np.abs, "rcp": lambda a: 1.0 / a, "sqrt": np.sqrt, "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
}  # fmt: skip
_BINARY: dict[str, Function] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
_EXACT = ("neg", "abs", "min", "max", "copysign")


def _directed32(opcode: str, mode: str) -> Function:
    """A float32 operation rounded in a directed mode, through a float64 rounded to odd."""

    def compute(*values: Array) -> Array:
        a, *rest = (np.asarray(value, dtype=np.float64) for value in values)
        if opcode in ("add", "sub"):
            other = rest[0] if opcode == "add" else -rest[0]
            return rounding.zero_sum(mode, a, other, rounding.narrow(rounding.odd_sum(a, other), mode))
        if opcode == "mul":
            return rounding.narrow(a * rest[0], mode)
        result, error = _quotient_error(a, rest[0]) if opcode == "div" else _inverse_error(opcode, a)
        return rounding.narrow(rounding.to_odd(result, error), mode)

    return compute


def _quotient_error(a: Array, b: Array) -> tuple[Array, Array]:
    quotient = a / b
    remainder = rounding.fma64(-quotient, b, a)
    error = np.sign(remainder) * np.sign(b) * np.abs(quotient) * 2.0**-54
    return quotient, np.where(np.isfinite(remainder) & np.isfinite(quotient), error, 0.0)


def _inverse_error(opcode: str, a: Array) -> tuple[Array, Array]:
    if opcode == "rcp":
        return _quotient_error(np.ones_like(a), a)
    root = np.sqrt(a)
    remainder = rounding.fma64(-root, root, a)
    return root, np.where(np.isfinite(remainder) & np.isfinite(root), np.sign(remainder) * root * 2.0**-54, 0.0)


def _directed64(opcode: str, mode: str) -> Function:
    """A float64 operation rounded in a directed mode: the nearest result moved by the sign of what it lost."""

    def compute(*values: Array) -> Array:
        a, *rest = values
        if opcode in ("add", "sub"):
            other = rest[0] if opcode == "add" else -rest[0]
            result = a + other
            finite = np.isfinite(a) & np.isfinite(other)
            moved = rounding.directed64(result, rounding.sum_error(a, other, result), finite, mode)
            return rounding.zero_sum(mode, a, other, moved)
        if opcode == "mul":
            return rounding.fma64(a, rest[0], np.copysign(0.0, a * rest[0]), mode)
        if opcode == "sqrt":
            return rounding.root64(a, mode)
        return rounding.quotient64(*((a, rest[0]) if opcode == "div" else (np.ones_like(a), a)), mode)

    return compute


def _through_double(function: Function) -> Function:
    """An approximate f32 function, computed in float64."""
    return lambda *values: function(*[np.asarray(v, dtype=np.float64) for v in values]).astype(np.float32)


def _scalar32(opcode: str, present: frozenset[str]) -> Function:
    """The float32 function of an opcode."""
    mode = next((word for word in ("rz", "rm", "rp") if word in present), "rn")
    if opcode == "fma":
        return partial(rounding.fma32, mode=mode)
    if opcode in ("min", "max"):
        return partial(_minimum if opcode == "min" else _maximum, "NaN" in present)
    if opcode == "copysign":
        return _copysign
    if mode != "rn":
        return _directed32(opcode, mode)
    if opcode in _BINARY:
        return _BINARY[opcode]
    if opcode in ("neg", "abs"):
        return _UNARY[opcode]
    if opcode == "sqrt" and "approx" not in present:
        return np.sqrt
    return _through_double(_UNARY[opcode])


def _scalar64(opcode: str, present: frozenset[str]) -> Function:
    mode = next((word for word in ("rz", "rm", "rp") if word in present), "rn")
    if opcode == "fma":
        return partial(rounding.fma64, mode=mode)
    if opcode in ("min", "max", "copysign", "neg", "abs"):
        return _scalar32(opcode, present)
    if mode != "rn":
        return _directed64(opcode, mode)
    return _BINARY[opcode] if opcode in _BINARY else _UNARY[opcode]


def _half(opcode: str, present: frozenset[str]) -> Function:
    """The float16 function: add, sub, mul through float32, which is wide enough not to round twice."""
    if opcode == "fma":
        return lambda a, b, c: rounding.narrow_half(
            rounding.odd_fma(a.astype(np.float64), b.astype(np.float64), c.astype(np.float64))
        )
    if opcode in _EXACT:
        return _scalar32(opcode, present)
    if opcode in _BINARY:
        function = _BINARY[opcode]
        return lambda a, b: function(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    unary = _UNARY[opcode]
    return lambda a: unary(a.astype(np.float64)).astype(np.float16)


def _bfloat(opcode: str, present: frozenset[str]) -> Function:
    """The bfloat16 function on bits (uint16)."""
    if opcode in ("neg", "abs"):
        return lambda a: a ^ np.uint16(0x8000) if opcode == "neg" else a & np.uint16(0x7FFF)
    if opcode == "fma":
        return lambda a, b, c: rounding.bfloat16_bits(
            rounding.float32_odd(rounding.odd_fma(*[rounding.bfloat16_values(x).astype(np.float64) for x in (a, b, c)]))
        )
    inner = _scalar32(opcode, present - {"rn"})
    return lambda *values: rounding.bfloat16_bits(inner(*[rounding.bfloat16_values(v) for v in values]))


def _decorated(function: Function, present: frozenset[str], bfloat: bool) -> Function:
    """`function` with .ftz, .sat, .relu and .xorsign.abs around it."""
    plain = function
    if "xorsign" in present:
        outer = plain

        def signed(a: Array, b: Array) -> Array:
            if bfloat:
                return (outer(a & np.uint16(0x7FFF), b & np.uint16(0x7FFF)) & np.uint16(0x7FFF)) | (
                    (a ^ b) & np.uint16(0x8000)
                )
            sign = np.signbit(a) != np.signbit(b)
            return np.copysign(outer(np.abs(a), np.abs(b)), np.where(sign, -1, 1).astype(a.dtype))

        plain = signed
    if "ftz" in present and not bfloat:
        core = plain
        plain = lambda *values: flush(np.asarray(core(*[flush(v) for v in values])))  # noqa: E731
    if not present & {"sat", "relu"}:
        return plain
    raw = plain

    def bounded(*values: Array) -> Array:
        result = raw(*values)
        if bfloat:
            as_float = rounding.bfloat16_values(result)
            limited = _limit(as_float, present)
            return np.where(np.isnan(as_float) & np.isnan(limited), result, rounding.bfloat16_bits(limited))
        return _limit(result, present)

    return bounded


def _limit(value: Array, present: frozenset[str]) -> Array:
    zero, one = value.dtype.type(0), value.dtype.type(1)
    if "sat" in present:
        return np.where(value > 0, np.minimum(value, one), zero)
    return np.where(value > 0, value, np.where(np.isnan(value), value, zero))


def _packed(function: Function, half: Any) -> Function:
    def compute(*values: Array) -> Array:
        spread = np.broadcast_arrays(*values)
        parts = [np.ascontiguousarray(value).view(half) for value in spread]
        return np.ascontiguousarray(function(*parts)).view(np.uint32)

    return compute


ARITY = {"fma": 3, "mad": 3, "add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "copysign": 2}
_APPROXIMATE = ("rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
_HALF_OPCODES = ("add", "sub", "mul", "fma", "neg", "abs", "min", "max", "ex2", "tanh")


def decode(instruction: Instruction) -> Operation:
    """A floating-point operation by its opcode and last modifier."""
    name, opcode = instruction.modifiers[-1], instruction.opcode
    opcode = "fma" if opcode == "mad" else opcode
    present = check_modifiers(instruction, {name, *_FLAGS})
    _check(instruction, opcode, name, present)
    inputs = [NUMPY[name]] * (
        3 if opcode in ("min", "max") and len(instruction.operands) == 4 else ARITY.get(opcode, 1)
    )
    bfloat = name.startswith("bf16")
    if name == "f32":
        function = _scalar32(opcode, present)
    elif name == "f64":
        function = _scalar64(opcode, present)
    else:
        function = _bfloat(opcode, present) if bfloat else _half(opcode, present)
    if len(inputs) == 3 and opcode in ("min", "max"):
        two = function
        function = lambda a, b, c: two(two(a, b), c)  # noqa: E731
    function = _decorated(function, present, bfloat)
    if name.endswith("x2"):
        function = _packed(function, np.uint16 if bfloat else np.float16)
    operation = elementwise(instruction, function, inputs, NUMPY[name])
    if instruction.name in ("fma.rn.f32", "mad.rn.f32"):
        from dgw.workbench.emulator.multiply_add import build

        operation.build, operation.cross = build, ((0,), (1,))
    return operation


def _check(instruction: Instruction, opcode: str, name: str, present: frozenset[str]) -> None:
    rounded = present & {"rn", "rz", "rm", "rp"}
    narrow = name not in ("f32", "f64")
    bad = name not in FLOAT_TYPES or len(rounded) > 1
    bad |= narrow and (opcode not in _HALF_OPCODES or bool(rounded - {"rn"}))
    bad |= name == "f64" and opcode in ("ex2", "lg2", "sin", "cos", "tanh")
    bad |= opcode in ("fma", "mad") and not rounded
    bad |= opcode in ("div", "rcp", "sqrt") and not (rounded or present & {"approx", "full"})
    bad |= opcode in _APPROXIMATE and "approx" not in present
    bad |= bool(present & {"oob"})
    if bad:
        raise unknown(instruction)
