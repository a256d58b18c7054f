"""Where the elements of an operand lie: strides in elements, extents, and logical views of flat arrays.

Batch items of a matrix follow each other at the smallest distance that its leading dimension allows; a bias is shared
by the whole batch. Everything is relative to the operand's first element: `Operand.offset` lies before it.
"""

from __future__ import annotations

import numpy as np

from dgw.errors import UsageError
from dgw.model import Problem
from dgw.operands.dtypes import Array


def strides(problem: Problem, name: str) -> tuple[int, int]:
    """(row stride, column stride) in elements; UsageError when the leading dimension is below the stored width."""
    operand = problem.operands()[name]
    rows, cols = problem.logical_shape(name)
    leading = problem.leading_dimension(name)
    width = cols if operand.order == "row" else rows
    if leading < width:
        raise UsageError(
            f"leading dimension {leading} of operand {name} is below its stored width {width}",
            f"give {name} a leading dimension of at least {width}, or none for a tight one",
        )
    return (leading, 1) if operand.order == "row" else (1, leading)


def batch_items(problem: Problem, name: str) -> int:
    """How many matrices of this operand are stored: the batch, or 1 for the shared bias."""
    return 1 if name == "bias" else problem.batch


def batch_stride(problem: Problem, name: str) -> int:
    """Elements from one batch item to the next; 0 when there is one item only."""
    if batch_items(problem, name) == 1:
        return 0
    rows, cols = problem.logical_shape(name)
    lines = rows if problem.operands()[name].order == "row" else cols
    return lines * problem.leading_dimension(name)


def extent(problem: Problem, name: str) -> int:
    """Elements from the operand's first to its last, both counted, over the whole batch; padding at the end is not."""
    rows, cols = problem.logical_shape(name)
    row, col = strides(problem, name)
    between = (batch_items(problem, name) - 1) * batch_stride(problem, name)
    return between + (rows - 1) * row + (cols - 1) * col + 1


def view(flat: Array, problem: Problem, name: str) -> Array:
    """The logical matrix, rows x cols (batch x rows x cols when batched), as a view of `flat`, writable if that is."""
    needed = extent(problem, name)
    if flat.ndim != 1 or flat.size < needed:
        raise UsageError(
            f"operand {name} spans {needed} elements and the array has {flat.size}", "allocate extent() elements"
        )
    rows, cols = problem.logical_shape(name)
    row, col = strides(problem, name)
    step = flat.strides[0]
    shape: tuple[int, ...] = (rows, cols)
    steps: tuple[int, ...] = (row * step, col * step)
    if batch_items(problem, name) > 1:
        shape, steps = (problem.batch, *shape), (batch_stride(problem, name) * step, *steps)
    return np.lib.stride_tricks.as_strided(flat, shape, steps)
