"""What D should be: float64 references of the dequantised inputs, for logical blocks of any problem.

A block of D needs whole rows of A and whole columns of B only, so a few tiles of a big problem cost little. Products
and sums of integers below 2^53 are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dgw.errors import UsageError
from dgw.model import Problem
from dgw.operands import data, dtypes, quantisation
from dgw.operands.dtypes import F64, Array


@dataclass(frozen=True)
class Reference:
    """A block of D in real numbers, before it is rounded to D's type; all arrays float64, rows x cols.

    `value`: epilogue and residual applied, not yet divided by the output's scale. `magnitude`: |alpha| |A||B| +
    |beta C| + |bias| + |residual|, what rounding errors grow with. `linear`: the activation's argument. `scale`: the
    output's scale, broadcastable, None when D is not quantised. `largest`: the largest absolute value among the results
    of the steps, from the product to the residual; None where it is not known.
    """

    value: F64
    magnitude: F64
    linear: F64
    scale: F64 | None = None
    largest: F64 | None = None


def activation(name: str, x: F64) -> F64:
    """relu max(x, 0); gelu x Phi(x); gelu-tanh x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); silu x / (1 + e^-x).

    gelu and gelu-tanh after Hendrycks and Gimpel (arXiv 1606.08415), silu from the same paper. NaN stays NaN; -Inf is
    NaN or -0 in all but relu.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        match name:
            case "none":
                return x
            case "relu":
                clipped: F64 = np.maximum(x, 0.0)
                return clipped
            case "gelu":
                from scipy.special import ndtr

                smooth: F64 = x * ndtr(x)
                return smooth
            case "gelu-tanh":
                inner = np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)
                # (1 + tanh z) / 2 = 1 / (1 + e^-2z), which keeps its relative accuracy for negative z
                approximated: F64 = x / (1.0 + np.exp(-2.0 * inner))
                return approximated
            case "silu":
                swished: F64 = x / (1.0 + np.exp(-x))
                return swished
    raise UsageError(f"no activation is named {name!r}", "use none, relu, gelu, gelu-tanh or silu")


def reference(
    problem: Problem, inputs: Mapping[str, Array], rows: slice = slice(None), cols: slice = slice(None)
) -> Reference:
    """The block `rows` x `cols` of D from its stored inputs.

    `inputs`: a (rows x K), b (K x cols), and c, residual (rows x cols), bias (1 x cols) where the problem has them. The
    slices say where in D the block lies, which matters only for scales that differ by row, column or block.
    """
    where = {"a": (rows, slice(None)), "b": (slice(None), cols), "bias": (slice(None), cols)}
    real = {
        name: quantisation.dequantise(problem, name, inputs[name], *where.get(name, (rows, cols)))
        for name in problem.operands()
        if name != "d"
    }
    alpha, beta = float(np.float32(problem.alpha)), float(np.float32(problem.beta))
    with np.errstate(over="ignore", invalid="ignore"):
        linear = alpha * (real["a"] @ real["b"])
        largest = np.abs(linear)
        magnitude = abs(alpha) * (np.abs(real["a"]) @ np.abs(real["b"]))
        if "c" in real:
            linear = linear + beta * real["c"]
            largest = np.maximum(largest, np.abs(linear))
            magnitude += np.abs(beta * real["c"])
        if "bias" in real:
            linear = linear + real["bias"]
            largest = np.maximum(largest, np.abs(linear))
            magnitude += np.abs(real["bias"])
        value = activation(problem.epilogue.activation, linear)
        if "residual" in real:
            value = value + real["residual"]
            magnitude += np.abs(real["residual"])
            largest = np.maximum(largest, np.abs(value))
    return Reference(value, magnitude, linear, quantisation.scales(problem, "d", rows, cols), largest)


def block_inputs(
    problem: Problem, rows: slice = slice(None), cols: slice = slice(None), batch: int = 0
) -> dict[str, Array]:
    """The stored inputs that the block `rows` x `cols` of D depends on, generated."""
    where = {"a": (rows, slice(None)), "b": (slice(None), cols), "bias": (slice(None), cols)}
    names = [name for name in problem.operands() if name != "d"]
    return {name: data.generate(problem, name, *where.get(name, (rows, cols)), batch) for name in names}


def block_reference(
    problem: Problem, rows: slice = slice(None), cols: slice = slice(None), batch: int = 0
) -> Reference:
    """The block `rows` x `cols` of D of a problem with generated inputs."""
    return reference(problem, block_inputs(problem, rows, cols, batch), rows, cols)


def stored_output(problem: Problem, value: F64, scale: F64 | None = None) -> Array:
    """`value` as a kernel without any error would store it in D: quantised, rounded to nearest, saturated."""
    if scale is not None:
        return quantisation.quantise(value, problem.d.dtype, scale, problem.d.zero_point)
    return dtypes.store(value, problem.d.dtype)
