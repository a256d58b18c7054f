"""Scales and zero points: real = (stored - zero point) * scale.

The scale factors of a Problem's operands are data like any other (counter-based, float32, the same for every batch
item), so that a GPU, the emulator and the reference agree without passing them around. The output's scale is given, not
found from the output: one factor, or one for each row, as after calibration.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dgw.errors import UsageError
from dgw.model import Problem
from dgw.operands import data, dtypes
from dgw.operands.dtypes import F64, Array

_INPUT_SCALE = {"s8": 1 / 32, "s4": 1 / 2}


def quantise(values: F64, dtype: str, scale: F64 | float, zero_point: int = 0) -> Array:
    """`values` / `scale` + `zero_point` as elements of `dtype`: to nearest, ties to even, saturating."""
    return dtypes.store(np.asarray(values, np.float64) / scale + zero_point, dtype)


def dequantise_values(stored: Array, scale: F64 | float, zero_point: int = 0) -> F64:
    """(stored - zero point) * scale in float64."""
    shifted: F64 = (dtypes.widen(stored) - zero_point) * scale
    return shifted


def symmetric_scale(values: F64, dtype: str, per: Literal["tensor", "row", "column"] = "tensor") -> NDArray[np.float32]:
    """The scale that maps the largest |value| of the tensor, a row or a column to the type's largest; 1 for zeros.

    Shape (1, 1), (rows, 1) or (1, cols). s8 uses -127 .. 127.
    """
    axis = {"tensor": (0, 1), "row": (1,), "column": (0,)}[per]
    peak = np.max(np.abs(values), axis=axis, keepdims=True)
    return np.where(peak > 0, peak / dtypes.largest(dtype), 1.0).astype(np.float32)


def affine_scale(values: F64, dtype: str = "s8") -> tuple[float, int]:
    """(scale, zero point) that map the range of `values`, widened to hold 0, onto the whole integer type."""
    low, high = min(float(np.min(values)), 0.0), max(float(np.max(values)), 0.0)
    least, most = dtypes.smallest(dtype), dtypes.largest(dtype)
    scale = float(np.float32((high - low) / (most - least))) or 1.0
    return scale, int(np.clip(round(least - low / scale), least, most))


def scale_block(problem: Problem, name: str) -> tuple[int, int] | None:
    """Rows and columns of operand `name` that share one scale factor; None when it has no scale.

    `row` is one factor a row, `column` one a column, `block(r,c)` one for r x c, `group(g)` one for g along K (in a row
    of A, in a column of B). For d this is what Epilogue.quantise says.
    """
    rows, cols = problem.logical_shape(name)
    text = problem.epilogue.quantise if name == "d" else problem.operands()[name].scale
    if text == "none":
        return None
    simple = {"tensor": (rows, cols), "row": (1, cols), "column": (rows, 1)}
    if text in simple:
        return simple[text]
    if found := re.fullmatch(r"block\((\d+),(\d+)\)", text):
        block = (min(int(found[1]), rows), min(int(found[2]), cols))
    elif found := re.fullmatch(r"group\((\d+)\)", text):
        block = (min(int(found[1]), rows), 1) if name == "b" else (1, min(int(found[1]), cols))
    else:
        raise UsageError(f"scale {text!r} of operand {name}", "use none, tensor, row, column, block(r,c) or group(g)")
    if min(block) < 1:
        raise UsageError(f"scale {text!r} of operand {name} covers nothing", "use sizes of at least 1")
    return block


def scale_values(problem: Problem, name: str) -> NDArray[np.float32] | None:
    """The scale factors as they are uploaded: row-major, one for each `scale_block`; None when there is no scale.

    Factor j is base * (0.5 + hash16(seed, OPERAND_NUMBER[name + "_scale"], j) / 65536) with base a power of two: 1/32
    for s8 and 1/2 for s4 inputs, else 1; for d such that four standard deviations of the result come to about 128.
    """
    block = scale_block(problem, name)
    if block is None:
        return None
    rows, cols = problem.logical_shape(name)
    count = (-(-rows // block[0]), -(-cols // block[1]))
    number = data.OPERAND_NUMBER[f"{name}_scale"]
    share = data.hash16(problem.seed, number, np.arange(count[0] * count[1])).astype(np.float32) / np.float32(65536)
    base = output_scale_base(problem) if name == "d" else _INPUT_SCALE.get(problem.operands()[name].dtype, 1.0)
    factors: NDArray[np.float32] = (np.float32(base) * (np.float32(0.5) + share)).reshape(count)
    return factors


def scale_arrays(problem: Problem) -> dict[str, NDArray[np.float32]]:
    """What is uploaded beside the operands: `a_scale`, `b_scale`, `d_scale`, of those that the problem has, flat."""
    names = [name for name in problem.operands() if f"{name}_scale" in data.OPERAND_NUMBER]
    found = {f"{name}_scale": scale_values(problem, name) for name in names}
    return {name: values.reshape(-1) for name, values in found.items() if values is not None}


def scales(problem: Problem, name: str, rows: slice = slice(None), cols: slice = slice(None)) -> F64 | None:
    """The scale factors of a logical block, float64, in a shape that broadcasts against it; None without a scale."""
    block = scale_block(problem, name)
    factors = scale_values(problem, name)
    if block is None or factors is None:
        return None
    height, width = problem.logical_shape(name)
    down = np.arange(height)[rows] // block[0] if factors.shape[0] > 1 else np.zeros(1, int)
    across = np.arange(width)[cols] // block[1] if factors.shape[1] > 1 else np.zeros(1, int)
    chosen: F64 = factors[np.ix_(down, across)].astype(np.float64)
    return chosen


def dequantise(problem: Problem, name: str, stored: Array, rows: slice = slice(None), cols: slice = slice(None)) -> F64:
    """What the stored block `rows` x `cols` of an operand stands for, exactly, in float64."""
    values = dtypes.widen(stored)
    operand = problem.operands()[name]
    if operand.zero_point:
        values = values - operand.zero_point
    factors = scales(problem, name, rows, cols)
    return values if factors is None else values * factors


def output_scale_base(problem: Problem) -> float:
    """The power of two nearest above 4/128 of the root mean square of alpha A B + beta C + bias + residual."""
    moments = {name: _moments(problem, name) for name in problem.operands() if name != "d"}
    (mean_a, square_a), (mean_b, square_b) = moments["a"], moments["b"]
    depth = 1 if problem.data == "one-hot" else problem.k
    if problem.data == "one-hot":
        mean_a, square_a = 1.0, 1.0
    square = problem.alpha**2 * ((depth * mean_a * mean_b) ** 2 + depth * square_a * square_b)
    square += problem.beta**2 * moments["c"][1] if "c" in moments else 0.0
    square += sum(moments[name][1] for name in ("bias", "residual") if name in moments)
    return 2.0 ** math.ceil(math.log2(max(math.sqrt(square) * 4 / 128, 2.0**-100)))


def _moments(problem: Problem, name: str) -> tuple[float, float]:
    """Mean and mean square of an operand's dequantised elements, a scale counted as its base."""
    operand = problem.operands()[name]
    fill = data.pattern(problem, name)
    parts = [(1.0, fill.table)]
    if fill.line is not None:
        parts = [(1 - 1 / fill.line.modulus, fill.table), (1 / fill.line.modulus, fill.line.table)]
    base = 1.0 if operand.scale == "none" else _INPUT_SCALE.get(operand.dtype, 1.0)
    values = [(share, (dtypes.widen(table) - operand.zero_point) * base) for share, table in parts]
    mean = sum(share * float(np.mean(part)) for share, part in values)
    return mean, sum(share * float(np.mean(part**2)) for share, part in values)
