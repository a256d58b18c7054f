"""The numbers that symbolic launch arguments stand for: one rule for the GPU child and for the emulator."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from dgw.errors import UsageError
from dgw.model import Argument, Pointer, Problem, Scalar, TensorMap, Workspace
from dgw.operands import dtypes, layouts
from dgw.operands.layouts import batch_stride
from dgw.operands.quantisation import scale_block

_LEADING = {"lda": "a", "ldb": "b", "ldc": "c", "ldd": "d", "ldr": "residual", "ldbias": "bias"}
_FORMATS = {"i32": "<i", "u32": "<I", "i64": "<q", "f32": "<f"}
_RANGES = {"i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1), "i64": (-(2**63), 2**63 - 1)}


def scalar_value(problem: Problem, scalar: Scalar) -> int | float:
    """The value of `scalar`: its own when it has one, otherwise what its name means for `problem`.

    Names: m n k batch; lda ldb ldc ldd ldr ldbias in elements (0 for an operand that the problem lacks); batch_stride_a
    ... in elements; alpha, beta. Raises UsageError for any other name and for a value its dtype cannot hold.
    """
    value: int | float
    name = scalar.name
    if scalar.value is not None:
        value = scalar.value
    elif name in ("m", "n", "k", "batch"):
        value = int(getattr(problem, name))
    elif name in ("alpha", "beta"):
        value = float(getattr(problem, name))
    elif name in _LEADING:
        operand = _LEADING[name]
        value = problem.leading_dimension(operand) if operand in problem.operands() else 0
    elif name.startswith("batch_stride_"):
        operand = name.removeprefix("batch_stride_")
        value = batch_stride(problem, operand) if operand in problem.operands() else 0
    else:
        known = ", ".join(["m", "n", "k", "batch", *_LEADING, "batch_stride_OPERAND", "alpha", "beta"])
        raise UsageError(
            f"a launch argument is named '{name}', which has no value", f"use one of {known}, or give value="
        )
    if scalar.dtype == "f32":
        return float(value)
    low, high = _RANGES[scalar.dtype]
    if value != int(value) or not low <= value <= high:
        raise UsageError(f"the launch argument {name} = {value} does not fit {scalar.dtype}", "declare it as i64")
    return int(value)


def scalar_bytes(problem: Problem, scalar: Scalar) -> bytes:
    """The little-endian bytes of `scalar` as the kernel receives them."""
    return struct.pack(_FORMATS[scalar.dtype], scalar_value(problem, scalar))


@dataclass(frozen=True)
class MapGeometry:
    """What a tensor map says: its first address, elements and lines (and matrices), the bytes from line to line (and
    from matrix to matrix), the box, all columns first; and the bytes of an element."""

    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    width: int


def map_geometry(problem: Problem, wanted: TensorMap, base: int) -> MapGeometry:
    """The map of an operand that is stored at `base`, or whose copy is.

    It describes the operand as stored, lines of contiguous columns. A box of three extents has the batch first.
    """
    operand = problem.operands()[wanted.operand]
    rows, cols = problem.logical_shape(wanted.operand)
    stored = [cols, rows] if operand.order == "row" else [rows, cols]
    width = dtypes.numpy_dtype(operand.dtype).itemsize
    ld = wanted.ld or problem.leading_dimension(wanted.operand)
    strides = [ld * width]
    if stored[1] == 1:  # one line: any distance will do
        strides = [-(-strides[0] // 16) * 16]
    if len(wanted.box) == 3:
        stored.append(layouts.batch_items(problem, wanted.operand))
        strides.append(max(layouts.batch_stride(problem, wanted.operand), stored[1] * strides[0] // width) * width)
    return MapGeometry(base, tuple(stored), tuple(strides), tuple(reversed(wanted.box)), width)


def argument_bytes(
    problem: Problem,
    argument: Argument,
    operand_address: Callable[[str], int],
    workspace_address: Callable[[str], int],
    tensor_map: Callable[[TensorMap], bytes],
) -> bytes:
    """The bytes of one kernel parameter: an address, a number, or the 128 bytes of a tensor map.

    A Pointer to an operand that the problem lacks (C with beta 0, no bias) is a null pointer. `a_scale`, `b_scale` and
    `d_scale` are the scale factors of an operand (operands/quantisation.py), null where it has none.
    """
    if isinstance(argument, Scalar):
        return scalar_bytes(problem, argument)
    if isinstance(argument, Workspace):
        return struct.pack("<Q", workspace_address(argument.name))
    if isinstance(argument, Pointer):
        operand, scale, rest = argument.operand.partition("_scale")
        present = operand in problem.operands() and not rest
        if scale:
            present = present and scale_block(problem, operand) is not None
        return struct.pack("<Q", operand_address(argument.operand) if present else 0)
    return tensor_map(argument)
