"""Element types: their NumPy storage, their rounding, and how a real number becomes one of them."""

from __future__ import annotations

import difflib
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dgw.errors import UsageError

Array = NDArray[Any]
F64 = NDArray[np.float64]

_NUMPY: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "s8": np.dtype(np.int8),
    "s4": np.dtype(ml_dtypes.int4),
    "s32": np.dtype(np.int32),
}

# Bits of the significand, the hidden one counted.
_PRECISION = {"f16": 11, "bf16": 8, "f32": 24, "tf32": 11, "f64": 53, "e4m3": 4}

_INTEGER_RANGE = {"s4": (-8, 7), "s8": (-128, 127), "s32": (-(2**31), 2**31 - 1)}

_LARGEST = {
    "f16": 65504.0,
    "bf16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).max),
    "f32": float(np.finfo(np.float32).max),
    "tf32": float.fromhex("0x1.ffcp+127"),
    "f64": float(np.finfo(np.float64).max),
    "e4m3": 448.0,
}

_SMALLEST_STEP = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "tf32": 2.0**-136, "f64": 0.0, "e4m3": 2.0**-9}


def check_dtype(name: str) -> str:
    """`name` itself; UsageError with the nearest names when it is no element type."""
    if name in _NUMPY:
        return name
    near = difflib.get_close_matches(name, _NUMPY, n=3, cutoff=0.4)
    raise UsageError(f"no dtype is named {name!r}", f"use {' or '.join(near) if near else ', '.join(_NUMPY)}")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The storage type: tf32 is kept in float32 (its 13 low bits are zero), s4 in one byte an element."""
    return _NUMPY[check_dtype(name)]


def is_integer(name: str) -> bool:
    """Whether the element type is an integer."""
    return check_dtype(name) in _INTEGER_RANGE


def unit_roundoff(name: str) -> float:
    """Largest relative error of rounding to nearest: 2^-11 f16, tf32; 2^-8 bf16; 2^-24 f32; 2^-4 e4m3; integers 0."""
    return 0.0 if is_integer(name) else 2.0 ** -_PRECISION[name]


def largest(name: str) -> float:
    """The largest finite value."""
    return float(_INTEGER_RANGE[name][1]) if is_integer(name) else _LARGEST[name]


def smallest(name: str) -> float:
    """The most negative finite value."""
    return float(_INTEGER_RANGE[name][0]) if is_integer(name) else -_LARGEST[name]


def smallest_step(name: str) -> float:
    """Distance between the two smallest non-negative values: 1 for integers, the smallest subnormal for floats."""
    return 1.0 if is_integer(name) else _SMALLEST_STEP[name]


def saturates(name: str) -> bool:
    """Whether storing a number out of range gives the largest value: integers and e4m3 (cvt.satfinite); others: Inf."""
    return is_integer(name) or name == "e4m3"


def round_to_tf32(values: Array) -> NDArray[np.float32]:
    """`values` as float32 whose significand is rounded to 11 bits, ties to even; NaN and Inf stay."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.uint32)
    rounded = ((bits + (((bits >> 13) & 1) + 0xFFF)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(single), rounded, single)


def store(values: Array, name: str) -> Array:
    """`values` as elements of type `name`: to nearest, ties to even; integers and e4m3 saturate, NaN is integer 0."""
    dtype = numpy_dtype(name)
    if name == "tf32":
        return round_to_tf32(values)
    with np.errstate(over="ignore", invalid="ignore"):
        if is_integer(name):
            whole = np.clip(np.rint(np.nan_to_num(np.asarray(values, np.float64))), smallest(name), largest(name))
            return whole.astype(np.int64).astype(dtype)
        if name == "e4m3":
            return np.clip(np.asarray(values, np.float64), -448.0, 448.0).astype(dtype)
        return np.asarray(values).astype(dtype)


def widen(values: Array) -> F64:
    """Stored elements as float64, exactly."""
    return np.asarray(values).astype(np.float64)
