"""How far a correct kernel may be from the reference, element by element, and the verdict on one output.

Element-wise: |d - ref| <= share of the accumulation + share of the activation + rounding to D's type. Over all elements
of zero-mean data also a limit on the relative Frobenius error, which sees one lost product in thousands that no
element-wise bound can. Where every intermediate value is exact (small integers, one-hot rows) D must be equal.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dgw.model import Check, Problem
from dgw.operands import dtypes, references
from dgw.operands.dtypes import F64, Array
from dgw.operands.references import Reference

_U32 = 2.0**-24
_CUT = 2.0**-25  # of D: more than what cutting the running sum off once costs, see relative_limit

# Largest slope of each activation: |f'| has its maximum 1.129 (gelu), 1.130 (gelu-tanh), 1.100 (silu).
LIPSCHITZ = {"none": 1.0, "relu": 1.0, "gelu": 1.13, "gelu-tanh": 1.131, "silu": 1.1}

# Error of evaluating f in f32, relative to |x|. gelu: Phi to 2^-22 (erff is good to 2 ulp; 2^p by ex2.approx adds 2^-23
# of a tail of at most a half to the fit's 2^-21.6), plus a product. silu: ex2.approx is good to 2 ulp + 2^-22 and the
# rounding of its argument costs |x| 2^-23 of e^-x, of which x s(x) s(-x) stays below 0.23; rcp.approx and the product
# add 2^-22. gelu-tanh may use tanh.approx.f32, whose relative error the PTX ISA gives as about 2^-11, halved by the
# factor x/2; so a kernel that computes gelu instead passes for gelu-tanh.
EVALUATION = {"none": 0.0, "relu": 0.0, "gelu": 2.0**-21, "gelu-tanh": 2.0**-12 + 2.0**-21, "silu": 2.0**-21}

# Relative Frobenius error of rounding to D's type at its worst (u / sqrt 3, all significands near 1), plus a little.
_ROUNDING_LIMIT = {"f16": 3.0e-4, "bf16": 2.4e-3, "tf32": 3.0e-4, "e4m3": 3.8e-2, "f32": 1e-7}

_ZERO_MEAN = ("normal", "integer", "outliers")
_FEWEST_FOR_LIMIT = 256

# Flush-to-zero is allowed: nothing that f32 arithmetic makes is better than its smallest normal number.
_SMALLEST_NORMAL = 2.0**-126


def coefficient(problem: Problem, splits: int = 1, partials: str = "f32") -> float:
    """What multiplies `Reference.magnitude`: the error of accumulating K products and of a linear epilogue in f32.

    f16, bf16 and tf32 inputs, f32 accumulation: (K/4 + 8) 2^-23. Tensor cores add 4 to 16 products at a time after
    aligning and truncating them, so each step may lose a unit for each addend; simulated maxima stay 3 to 4 times
    below, and so do plain FMAs on such inputs, though (K/4) 2^-23 is half of what is proven for these. tf32 inputs are
    made as tf32 numbers (10 explicit bits), so it does not matter whether a kernel rounds or truncates them.

    f32 inputs (FMAs, each rounded to nearest): (min(K, 10 sqrt K) + 8) 2^-24. K u is proven for any order of summation
    (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1; splitting K only lowers it). 10 sqrt(K) u is
    the probabilistic bound of Higham and Mary (SIAM J. Sci. Comput. 41, 2019, A2815) with lambda = 10: if rounding
    errors are independent with mean zero, K M N of them break it with probability 2 K M N exp(-50), below 1e-8 for
    16384^3.
    The data sets here are random, so it applies; for data made to defeat it, K u would be the bound.

    e4m3 inputs: 2.5e-3 when partial sums move to f32 every 128 products (accumulator `f32`), else (accumulator
    `f32-fast`) max(2.5e-3, 2e-5 K): the hardware keeps about 13 fraction bits of a running sum. s8 and s4: accumulation
    is exact, eight f32 roundings remain. Accumulator `f16`: like f32 inputs with u = 2^-11.

    Split K: `splits` 2^-24 more for f32 partial sums, `splits` times the unit roundoff of other `partials`.
    """
    depth = float(problem.k)
    walk = min(depth, 10.0 * math.sqrt(depth))
    if problem.accumulator == "f16":
        base = (walk + 8) * 2.0**-11
    elif dtypes.is_integer(problem.a.dtype) and dtypes.is_integer(problem.b.dtype):
        base = 8 * _U32
    elif "e4m3" in (problem.a.dtype, problem.b.dtype):
        base = max(2.5e-3, 2e-5 * depth) if problem.accumulator == "f32-fast" else 2.5e-3
    elif "f32" in (problem.a.dtype, problem.b.dtype):
        base = (walk + 8) * _U32
    else:
        base = (depth / 4 + 8) * 2.0**-23
    return base + (splits * dtypes.unit_roundoff(partials) if splits > 1 else 0.0)


def exact_limit(problem: Problem) -> float:
    """Largest `Reference.magnitude` at which D must equal the rounded reference; 0 when nothing need be exact.

    Integers stay exact in f32 to 2^24, in a narrower D to 2^11 (f16), 2^8 (bf16) and 2^4 (e4m3), in e4m3 tensor cores
    to 2^13, in s32 to 2^31. One-hot rows select one product, which is exact whatever its size.
    """
    operands = problem.operands().values()
    plain = all(operand.scale == "none" for operand in operands) and problem.epilogue.quantise == "none"
    if not plain or problem.epilogue.activation not in ("none", "relu"):
        return 0.0
    selects = problem.data == "one-hot" and problem.alpha == 1.0 and not any(operand.zero_point for operand in operands)
    if selects and not {"c", "bias", "residual"} & problem.operands().keys():
        return math.inf if problem.accumulator != "f16" else 0.0
    inputs = [operand.dtype for name, operand in problem.operands().items() if name != "d"]
    whole = problem.data == "integer" or all(dtypes.is_integer(dtype) for dtype in inputs)
    if not whole or not float(problem.alpha).is_integer() or not float(problem.beta).is_integer():
        return 0.0
    limits = [2.0**31 if dtypes.is_integer(problem.d.dtype) else 1 / dtypes.unit_roundoff(problem.d.dtype)]
    integer_inputs = all(dtypes.is_integer(dtype) for dtype in inputs)
    unscaled = problem.alpha == 1.0 and problem.beta in (0.0, 1.0)
    limits.append(2.0**31 if integer_inputs and unscaled else 2.0**24)
    if "e4m3" in inputs[:2]:
        limits.append(2.0**13)
    if problem.accumulator == "f16":
        limits.append(2.0**11)
    return min(limits)


def computed_error(
    problem: Problem, reference: Reference, splits: int = 1, partials: str = "f32", roundings: int = 0
) -> F64:
    """Bound on the error before D is rounded: accumulation through the activation's slope, and its evaluation.

    `roundings`: how often an implementation in several steps rounds an intermediate result to A's type.
    """
    kind = problem.epilogue.activation
    linear = coefficient(problem, splits, partials) * reference.magnitude
    if roundings:
        largest = reference.magnitude if reference.largest is None else reference.largest
        linear = linear + roundings * _between(problem) * largest
    return LIPSCHITZ[kind] * linear + EVALUATION[kind] * np.abs(reference.linear)


def _between(problem: Problem) -> float:
    """Unit roundoff of A's type as it is stored: what an intermediate result loses."""
    return dtypes.unit_roundoff("f32" if problem.a.dtype == "tf32" else problem.a.dtype)


def tolerance(
    problem: Problem, reference: Reference, splits: int = 1, partials: str = "f32", roundings: int = 0
) -> F64:
    """Bound on |d - ref| for each element, in the units of the dequantised D; 0 where D must be equal.

    NaN or Inf where the reference is not finite. A quantised D may be off by half a step and what the computed value's
    own error can tip over, so by one step at most while that error is below half a step.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        before = computed_error(problem, reference, splits, partials, roundings)
        size = np.abs(reference.value)
        step = 1.0 if reference.scale is None else reference.scale
        floor = 0.5 * dtypes.smallest_step(problem.d.dtype) * step
        if not dtypes.is_integer(problem.d.dtype):
            floor = np.maximum(floor, _SMALLEST_NORMAL)
        if reference.scale is not None:
            before = before + 2 * _U32 * size  # times the scale's reciprocal
        bound = before + dtypes.unit_roundoff(problem.d.dtype) * (size + before) + floor
        exact: F64 = np.where(reference.magnitude <= exact_limit(problem), 0.0, bound)
    return exact


def relative_limit(problem: Problem, splits: int = 1, partials: str = "f32", roundings: int = 0) -> float:
    """Limit on ||d - ref|| / ||ref|| over many elements of zero-mean data; Inf where there is none.

    3.0e-4 f16, 2.4e-3 bf16, 3.8e-2 e4m3 and, for f32, 1e-7 + 2e-6 sqrt(K/4096): one running sum of K rounded FMAs is at
    1.1e-6. Where A and B are f16 or bf16 and the accumulator is f32, or both are tf32 (twice that growth), the growth
    is at least K/P 2^-25, because tensor cores cut the running sum off towards zero after every P products: on Hopper
    16 of f16 and bf16, 8 of tf32. A cut loses half a unit in the last place on average, which is 2^-24 over the
    significand (0.72 times that, for all significands from 1 to 2), and always of the sum's own sign; all K/P cuts lose
    that much of the sum as it is then, which is a random walk, so in the mean of squares 1/sqrt(3) of what it becomes.
    That makes 0.83 2^-25 of D a step, linear in K; a test simulates it, and an H200 shows 0.48 to 0.72 2^-25 for K from
    256 to 16384, as cuBLAS does on it (docs/h200/hopper-2.json). No other type of A and B has it: f32 is added by FMAs,
    s8 exactly, e4m3 has its own term.

    In quadrature: e4m3 accumulation 6e-4, or 4e-5 sqrt(K) when not promoted; f16 accumulation and 16-bit partial sums
    their own rounding; the activation's evaluation.
    """
    kind = problem.d.dtype
    if problem.data not in _ZERO_MEAN or kind not in _ROUNDING_LIMIT or problem.epilogue.quantise != "none":
        return math.inf
    parts = [_ROUNDING_LIMIT[kind], 2 * EVALUATION[problem.epilogue.activation]]
    growth = 2e-6 * math.sqrt(problem.k / 4096)
    if problem.a.dtype == "tf32":
        growth = max(2 * growth, problem.k / 8 * _CUT)
    elif {problem.a.dtype, problem.b.dtype} <= {"f16", "bf16"} and problem.accumulator != "f16":
        growth = max(growth, problem.k / 16 * _CUT)
    parts[0] += growth if kind == "f32" else 0.0
    if "e4m3" in (problem.a.dtype, problem.b.dtype):
        parts.append(4e-5 * math.sqrt(problem.k) if problem.accumulator == "f32-fast" else 6e-4)
    if problem.accumulator == "f16":
        parts.append(growth * 2**13 + 2.0**-11)
    if splits > 1:
        parts.append(math.sqrt(splits) * dtypes.unit_roundoff(partials))
    parts.append(math.sqrt(roundings) * 2 * _between(problem))
    return math.hypot(*parts)


@dataclass(frozen=True)
class _Verdict:
    """Per element: error and bound (float64), and `bad`, which holds what no number says (NaN, wrong Inf)."""

    error: F64
    bound: F64
    bad: NDArray[np.bool_]


def compare(
    problem: Problem,
    got: Array,
    reference: Reference,
    where: str = "all elements",
    origin: Sequence[int] = (0, 0),
    collector: str = "gpu",
    splits: int = 1,
    partials: str = "f32",
    roundings: int = 0,
) -> Check:
    """The verdict on a block of D as stored (rows x cols, in D's storage type) against its reference.

    `origin` is the global position of the block's first element, (row, col) or (batch, row, col); `worst` in the Check
    is global, too. +0 equals -0. NaN and Inf must be where the reference has them, of the same sign; where an
    activation receives NaN (any) or Inf (all but relu) D may be anything, because max and 0 * Inf differ by
    implementation. An f16 or f32 result within its error of the overflow threshold may be Inf or not.
    """
    verdict = _judge(problem, got, reference, tolerance(problem, reference, splits, partials, roundings))
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(verdict.error > 0, verdict.error / verdict.bound, 0.0)
    excess[verdict.bad] = np.inf
    at = np.unravel_index(int(np.argmax(excess)), excess.shape)
    position = (*origin[:-2], origin[-2] + int(at[0]), origin[-1] + int(at[1]))
    count = int(np.count_nonzero(excess > 1))
    limit = relative_limit(problem, splits, partials, roundings)
    finite = np.isfinite(reference.value) & ~verdict.bad
    error, size = (float(np.linalg.norm(values[finite])) for values in (verdict.error, reference.value))
    relative, detail = frobenius(problem, limit, int(np.count_nonzero(finite)), error, size)
    if count:
        detail = _describe(problem, got, reference, at, position, count, excess.size)
    error = sys.float_info.max if verdict.bad[at] else float(verdict.error[at])
    bound = float(verdict.bound[at]) if np.isfinite(verdict.bound[at]) else 0.0
    return Check(
        passed=not detail, compared=excess.size, worst=tuple(int(index) for index in position),
        error=error, bound=bound, relative_error=relative, where=where, detail=detail, collector=collector,
    )  # fmt: skip


def _judge(problem: Problem, got: Array, reference: Reference, bound: F64) -> _Verdict:
    """Errors against the reference as D's type can hold it."""
    kind = problem.d.dtype
    real = dtypes.widen(got)
    expected = reference.value
    if reference.scale is not None:
        real = (real - problem.d.zero_point) * reference.scale
    if dtypes.saturates(kind):
        step = 1.0 if reference.scale is None else reference.scale
        shift = problem.d.zero_point if reference.scale is not None else 0
        expected = np.clip(expected, (dtypes.smallest(kind) - shift) * step, (dtypes.largest(kind) - shift) * step)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = bound == 0
        if exact.any():
            expected = np.where(exact, dtypes.widen(dtypes.store(expected, kind)), expected)
        error = np.abs(real - expected)
        same = (real == expected) | (np.isnan(real) & np.isnan(expected))
        ordinary = np.isfinite(real) & np.isfinite(expected)
        near = _may_overflow(kind, expected, bound) & np.isinf(real) & (np.sign(real) == np.sign(expected))
        forced = np.isfinite(real) & _must_overflow(kind, expected, bound)
    free = _unspecified(problem, reference)
    error = np.where(same | near | free | ~ordinary, 0.0, error)
    bad = (~(same | ordinary | near) | forced) & ~free
    return _Verdict(error, bound, bad)


def _threshold(kind: str) -> float:
    """From here on rounding to nearest gives Inf: half a step above the largest value, 2^(e + 1) (1 - u)."""
    roundoff = dtypes.unit_roundoff(kind)
    return math.inf if dtypes.saturates(kind) else dtypes.largest(kind) / (1 - roundoff) * (1 - roundoff / 2)


def _may_overflow(kind: str, expected: F64, bound: F64) -> NDArray[np.bool_]:
    reached: NDArray[np.bool_] = np.abs(expected) + bound >= _threshold(kind)
    return reached


def _must_overflow(kind: str, expected: F64, bound: F64) -> NDArray[np.bool_]:
    passed: NDArray[np.bool_] = np.isfinite(expected) & (np.abs(expected) - bound >= _threshold(kind))
    return passed


def _unspecified(problem: Problem, reference: Reference) -> NDArray[np.bool_]:
    """Where the activation's argument is such that implementations differ, or an integer D has no NaN to show."""
    kind = problem.epilogue.activation
    free = np.zeros(reference.value.shape, bool)
    if kind == "relu":
        free |= np.isnan(reference.linear)
    elif kind != "none":
        free |= ~np.isfinite(reference.linear)
    if dtypes.is_integer(problem.d.dtype):
        free |= np.isnan(reference.value)
    return free


def _describe(
    problem: Problem, got: Array, reference: Reference, at: tuple[Any, ...], position: tuple[int, ...],
    count: int, total: int,
) -> str:  # fmt: skip
    """The first thing wrong in words."""
    found = float(dtypes.widen(got)[at])
    expected = float(dtypes.widen(references.stored_output(problem, reference.value[at], _pick(reference.scale, at))))
    rows = np.isnan(dtypes.widen(got)).any(axis=1)
    text = f"{count} of {total} elements are wrong; d{list(position)} is {found:.9g} instead of {expected:.9g}"
    if math.isnan(found) and np.isfinite(reference.value[at]):
        text += f" ({int(rows.sum())} rows hold NaN; D starts as NaN, so an element never written is NaN)"
    return text


def _pick(scale: F64 | None, at: tuple[Any, ...]) -> F64 | None:
    if scale is None:
        return None
    return np.asarray(scale[min(at[0], scale.shape[0] - 1), min(at[1], scale.shape[1] - 1)])


def frobenius(problem: Problem, limit: float, finite: int, error: float, size: float) -> tuple[float | None, str]:
    """`error` / `size`, and in words when it is above `limit`; (None, "") where there is no limit or too few elements.

    `error` is ||d - ref||, `size` ||ref||, both over the `finite` elements. What D's smallest step or the smallest
    normal number of f32 costs is allowed besides.
    """
    if math.isinf(limit) or finite < _FEWEST_FOR_LIMIT or not math.isfinite(error) or not math.isfinite(size):
        return None, ""
    floor = math.sqrt(finite) * max(0.5 * dtypes.smallest_step(problem.d.dtype), _SMALLEST_NORMAL)
    relative = error / size if size else None
    if error <= limit * size + floor:
        return relative, ""
    said = "of a reference of zeros" if relative is None else f"{relative:.3g}"
    return relative, f"every element is within its bound, but the relative Frobenius error {said} is above {limit:.3g}"


def worst_of(checks: Sequence[Check]) -> Check:
    """The verdict that tells most: of a wrong part before a right one, then the largest error against its bound.

    Its relative error is the largest of all parts.
    """
    worst = max(checks, key=lambda check: (not check.passed, _excess(check)))
    known = [check.relative_error for check in checks if check.relative_error is not None]
    return msgspec.structs.replace(worst, relative_error=max(known, default=None))


def _excess(check: Check) -> float:
    return check.error / check.bound if check.error is not None and check.bound else 0.0
