"""Input data that NumPy and a GPU make bit for bit alike, any block of any operand without the rest.

Data are counter-based. Element i = (batch * rows + row) * cols + col of operand number o (`OPERAND_NUMBER`; rows and
cols are the logical ones, storage order plays no part) is `table[hash16(seed, o, i)]`, where the table holds 65,536
values already rounded to the operand's type. A `Line` takes some rows or columns from a second table, then `Point`s
replace single elements. So a kernel that fills an operand copies bits and does no arithmetic in the element type:

    __device__ unsigned hash16(unsigned long long seed, unsigned o, unsigned long long i) {
        unsigned long long z = seed + 0x9E3779B97F4A7C15ull * (o + 1) + 0xD1B54A32D192ED03ull * (i >> 32);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        unsigned x = (unsigned)i ^ (unsigned)z;
        x = (x ^ (x >> 16)) * 0x7FEB352Du;
        x = (x ^ (x >> 15)) + (unsigned)(z >> 32);
        return (x * 0x846CA68Bu) >> 16;
    }

The 64-bit part is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); the 32-bit multipliers and shifts
are those of lowbias32, found by Chris Wellons' search for low bias. All arithmetic wraps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dgw.errors import UsageError
from dgw.model import Problem
from dgw.operands import dtypes
from dgw.operands.dtypes import F64, Array

DATA_SETS: tuple[str, ...] = ("normal", "uniform", "integer", "one-hot", "outliers", "naninf", "overflow")

OPERAND_NUMBER: Mapping[str, int] = {
    "a": 0, "b": 1, "c": 2, "bias": 3, "residual": 4, "d": 5, "a_scale": 6, "b_scale": 7, "d_scale": 8,
}  # fmt: skip

TABLE_SIZE = 65536

_CHUNK = 32768  # elements whose intermediate results stay in the L2 cache
_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF

# Integer types hold N(0,1) times this, and U(0,1) times the second number rounded up.
_INTEGER_SPREAD = {"s4": (2.5, 7), "s8": (32.0, 127), "s32": (1000.0, 1000)}

_OUTLIER_EVERY, _OUTLIER_AT = 64, 13
_OVERFLOW_EVERY, _OVERFLOW_ROW, _OVERFLOW_COL = 4, 1, 2
_NONFINITE_EVERY = 61


@dataclass(frozen=True)
class Line:
    """Rows (axis 0) or columns (axis 1) whose index mod `modulus` is `residue`: their elements come from `table`.

    `table` is the base table times `factor`, exactly: a power of two that leaves every value in range.
    """

    axis: Literal[0, 1]
    modulus: int
    residue: int
    factor: float
    table: Array


@dataclass(frozen=True)
class Point:
    """In each row r with r mod `modulus` = `residue`: `value` at column (`stride` * r + `shift`) mod cols."""

    modulus: int
    residue: int
    stride: int
    shift: int
    value: float


@dataclass(frozen=True)
class Pattern:
    """All that fills one operand: the base table, at most one line, then points in order (the last one stands)."""

    table: Array
    line: Line | None = None
    points: tuple[Point, ...] = ()


def hash_keys(seed: int, operand_number: int, high: int) -> tuple[int, int]:
    """The two 32-bit keys that hash16 mixes into the low half of an index whose high half is `high`."""
    z = (seed + 0x9E3779B97F4A7C15 * (operand_number + 1) + 0xD1B54A32D192ED03 * high) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    z ^= z >> 31
    return z & _MASK32, z >> 32


def _mix(low: NDArray[np.uint32], keys: tuple[int, int]) -> NDArray[np.uint32]:
    """The 32-bit part of hash16, in place."""
    low ^= np.uint32(keys[0])
    low ^= low >> 16
    low *= np.uint32(0x7FEB352D)
    low ^= low >> 15
    low += np.uint32(keys[1])
    low *= np.uint32(0x846CA68B)
    low >>= 16
    return low


def hash16(seed: int, operand_number: int, index: NDArray[np.integer] | int) -> NDArray[np.uint16]:
    """16 well-mixed bits for each 64-bit element index (module docstring); the same on a GPU."""
    wide = np.asarray(index, dtype=np.uint64)
    high = wide >> np.uint64(32)
    low = (wide & np.uint64(_MASK32)).astype(np.uint32)
    mixed = np.empty_like(low)
    for value in np.unique(high):
        chosen = high == value
        mixed[chosen] = _mix(low[chosen], hash_keys(seed, operand_number, int(value)))
    return mixed.astype(np.uint16)


@lru_cache(maxsize=1)
def _normal_quantiles() -> F64:
    """N(0,1) at (j + 0.5) / 65536, exactly antisymmetric, so that the mean over the table is 0."""
    inverse = NormalDist().inv_cdf
    lower = np.array([inverse((j + 0.5) / TABLE_SIZE) for j in range(TABLE_SIZE // 2)])
    return np.concatenate([lower, -lower[::-1]])


def _uniform_quantiles() -> F64:
    return (np.arange(TABLE_SIZE) + 0.5) / TABLE_SIZE


def check_data_set(name: str) -> str:
    """`name` itself, or UsageError."""
    if name not in DATA_SETS:
        raise UsageError(f"no data set is named {name!r}", f"use one of {', '.join(DATA_SETS)}")
    return name


def refuses(data_set: str, dtype: str) -> str | None:
    """Why this data set does not exist for inputs of this type, or None."""
    check_data_set(data_set)
    if data_set == "naninf" and dtypes.is_integer(dtype):
        return f"{dtype} has neither NaN nor Inf"
    if data_set == "overflow" and dtypes.is_integer(dtype):
        return f"{dtype} inputs have no room for the large rows and columns of this data set"
    if data_set == "outliers" and dtype == "s4":
        return "s4 has no room for outliers"
    return None


@lru_cache(maxsize=64)
def table(data_set: str, dtype: str) -> Array:
    """The 65,536 values that elements are drawn from, in the storage type, read-only.

    `uniform`: (j + 0.5) / 65536. `integer`: -4 .. 4. All others: quantiles of N(0,1); for integer types times 2.5 (s4),
    32 (s8) or 1000 (s32), and for `outliers` in s8 times 3.5 and at most 15.
    """
    check_data_set(data_set)
    if data_set == "integer":
        values = np.floor(np.arange(TABLE_SIZE) * 9 / TABLE_SIZE) - 4
    elif data_set == "uniform":
        values = _uniform_quantiles()
        if dtypes.is_integer(dtype):
            values = np.ceil(values * _INTEGER_SPREAD[dtype][1])
    else:
        values = _normal_quantiles()
        if (data_set, dtype) == ("outliers", "s8"):
            values = np.clip(values * 3.5, -15, 15)
        elif dtypes.is_integer(dtype):
            values = values * _INTEGER_SPREAD[dtype][0]
    return _frozen(dtypes.store(values, dtype))


@lru_cache(maxsize=64)
def _line(data_set: str, dtype: str, axis: Literal[0, 1], modulus: int, residue: int, factor: float) -> Line:
    larger = dtypes.store(dtypes.widen(table(data_set, dtype)) * factor, dtype)
    return Line(axis, modulus, residue, factor, _frozen(larger))


@lru_cache(maxsize=16)
def _zeros(dtype: str) -> Array:
    return _frozen(np.zeros(TABLE_SIZE, dtypes.numpy_dtype(dtype)))


def _frozen(values: Array) -> Array:
    values.setflags(write=False)
    return values


def pattern(problem: Problem, name: str) -> Pattern:
    """How operand `name` is filled; UsageError where its type has no such data (`refuses`).

    `one-hot`: A has a single 1 in each row, at column row + 1 mod K, so D's rows are rows of B. `outliers`: columns 13,
    77, ... of A are 32 times larger (s8: 8). `naninf`: rows 0, 61, ... of A have one NaN, rows 5, 66, ... +Inf and rows
    11, 72, ... -Inf in the last column (e4m3 has no Inf). `overflow`: rows 1, 5, ... of A and columns 2, 6, ... of B
    are 256 times larger (e4m3: 64), so that D exceeds f16 where they meet, once K is a few dozen.
    """
    dtype = problem.operands()[name].dtype
    reason = refuses(problem.data, dtype) if name in "ab" else None
    if reason is not None:
        raise UsageError(f"data set {problem.data!r} for operand {name}: {reason}", "choose another data set or dtype")
    plain = table(problem.data, dtype)
    match (problem.data, name):
        case ("one-hot", "a"):
            return Pattern(_zeros(dtype), points=(Point(1, 0, 1, 1, 1.0),))
        case ("outliers", "a"):
            factor = 8.0 if dtypes.is_integer(dtype) else 32.0
            return Pattern(plain, _line("outliers", dtype, 1, _OUTLIER_EVERY, _OUTLIER_AT, factor))
        case ("overflow", "a" | "b"):
            factor = 64.0 if dtype == "e4m3" else 256.0
            if name == "a":
                return Pattern(plain, _line("overflow", dtype, 0, _OVERFLOW_EVERY, _OVERFLOW_ROW, factor))
            return Pattern(plain, _line("overflow", dtype, 1, _OVERFLOW_EVERY, _OVERFLOW_COL, factor))
        case ("naninf", "a"):
            nan = (Point(_NONFINITE_EVERY, 0, 29, 3, float("nan")),)
            inf = tuple(Point(_NONFINITE_EVERY, at, 0, -1, float(v)) for at, v in ((5, "inf"), (11, "-inf")))
            return Pattern(plain, points=nan if dtype == "e4m3" else nan + inf)
    return Pattern(plain)


def generate(
    problem: Problem, name: str, rows: slice = slice(None), cols: slice = slice(None), batch: int = 0
) -> Array:
    """Block `rows` x `cols` of the logical matrix `name` of one batch item, C-contiguous, in the storage type.

    Slices have step 1. The bias is the same for every batch item. Cost: about 5 ns an element.
    """
    height, width = problem.logical_shape(name)
    first_row, end_row, _ = rows.indices(height)
    first_col, end_col, _ = cols.indices(width)
    fill = pattern(problem, name)
    bits = fill.table.view(f"u{fill.table.itemsize}")
    block = np.empty((max(end_row - first_row, 0), max(end_col - first_col, 0)), bits.dtype)
    origin = 0 if name == "bias" else batch * height * width
    number = OPERAND_NUMBER[name]
    across = max(min(block.shape[1], _CHUNK), 1)
    down = max(_CHUNK // across, 1)
    for top in range(0, block.shape[0], down):
        for left in range(0, block.shape[1], across):
            tile = block[top : top + down, left : left + across]
            first = origin + (first_row + top) * width + first_col + left
            np.take(bits, _tile_hash(problem.seed, number, first, width, tile.shape), out=tile, mode="clip")
    values: Array = block.view(fill.table.dtype)
    _overlay(values, fill, first_row, first_col, width)
    return values


def _tile_hash(seed: int, number: int, first: int, width: int, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """hash16 of a tile whose first element has index `first`, in a matrix of `width` columns."""
    down, across = shape
    last = first + (down - 1) * width + across - 1
    if first >> 32 != last >> 32:
        index = np.arange(down)[:, None] * width + np.arange(across) + first
        return hash16(seed, number, index).astype(np.intp)
    # Below 2^32 throughout, because the last index has the same high half.
    starts = ((first & _MASK32) + np.arange(down)[:, None] * width).astype(np.uint32)
    low: NDArray[np.uint32] = np.add(starts, np.arange(across, dtype=np.uint32), dtype=np.uint32)
    return _mix(low, hash_keys(seed, number, first >> 32)).astype(np.intp)


def _overlay(block: Array, fill: Pattern, first_row: int, first_col: int, width: int) -> None:
    """Apply the line and the points of `fill` to a block that starts at (first_row, first_col)."""
    if fill.line is not None:
        line = fill.line
        begin = (line.residue - (first_col if line.axis else first_row)) % line.modulus
        chosen = (slice(None), slice(begin, None, line.modulus)) if line.axis else (slice(begin, None, line.modulus),)
        block[chosen] = (dtypes.widen(block[chosen]) * line.factor).astype(block.dtype)
    for point in fill.points:
        at = np.arange((point.residue - first_row) % point.modulus, block.shape[0], point.modulus)
        column = (point.stride * (at + first_row) + point.shift) % width - first_col
        inside = (column >= 0) & (column < block.shape[1])
        block[at[inside], column[inside]] = np.asarray(point.value).astype(block.dtype)
