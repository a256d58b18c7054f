"""Exact rounding without double rounding: directed modes, fused multiply-add and narrow formats, from float64.

A float64 result that is rounded again to a narrower format may be off by one unit. Rounding the float64 step to odd
(truncate, and set the last bit when anything was lost) makes the second rounding correct, because float64 holds more
than two bits beyond every format rounded to here (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
IEEE Transactions on Computers 57, 2008). What was lost is known exactly: TwoSum and TwoProduct of Knuth and Dekker.
"""

from __future__ import annotations

from fractions import Fraction
from math import copysign, inf, nextafter
from typing import Any

import numpy as np

Array = Any  # a NumPy array

_HALF_LOW = np.uint64(0x1FFFFFFF)  # the 29 bits of a float64 that a float32 has not
_HALF_TIE = np.uint64(0x10000000)


def sum_error(a: Array, b: Array, total: Array) -> Array:
    """The part of a + b that `total = a + b` (float64) lost; 0 where it is not finite."""
    rest = total - a
    error = (a - (total - rest)) + (b - rest)
    return np.where(np.isfinite(error), error, 0.0)


def to_odd(value: Array, error: Array) -> Array:
    """`value` + `error` rounded to odd, where `value` is the nearest float64 and `error` the exact remainder."""
    bits = np.ascontiguousarray(value).view(np.int64)
    even = (bits & 1) == 0
    outward = (error > 0) == (value > 0)
    step = np.where((error != 0) & even, np.where(outward, 1, -1), 0)
    moved = (bits + step).view(np.float64)
    return np.where(error == 0, value, np.where(value == 0, error, moved))


def odd_sum(a: Array, b: Array) -> Array:
    """a + b of float64 arrays, rounded to odd."""
    total = a + b
    return to_odd(total, sum_error(a, b, total))


def zero_sum(mode: str, a: Array, b: Array, total: Array) -> Array:
    """`total`, the rounded a + b, with the sign of an exact zero: rounding down gives -0 unless both are +0."""
    if mode != "rm":
        return total
    return np.where((a + b == 0) & (np.signbit(a) | np.signbit(b)), np.negative(np.abs(total)), total)


def directed64(nearest: Array, error: Array, finite: Array, mode: str) -> Array:
    """Move the nearest float64 by the sign of what it lost; an overflow of `finite` operands goes where `mode` says."""
    up, down = np.nextafter(nearest, np.inf), np.nextafter(nearest, -np.inf)
    overflow = np.isinf(nearest) & finite
    lower = (error < 0) | (overflow & (nearest > 0))
    upper = (error > 0) | (overflow & (nearest < 0))
    if mode == "rz":
        return np.where(lower & (nearest > 0), down, np.where(upper & (nearest < 0), up, nearest))
    return np.where(upper, up, nearest) if mode == "rp" else np.where(lower, down, nearest)


def odd_fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in float64 rounded to odd, when the product is exact in float64 (factors of at most 26 bits)."""
    return odd_sum(a * b, c)


def narrow(value: Array, mode: str = "rn") -> Array:
    """A float64 rounded to odd to float32 in a rounding mode."""
    nearest = value.astype(np.float32)
    if mode == "rn":
        return nearest
    return _directed(nearest, value, mode)


def _directed(nearest: Array, value: Array, mode: str) -> Array:
    """Move the nearest narrower value (float32 or float16) to the side that `mode` asks for."""
    kind = nearest.dtype.type
    wide = nearest.astype(np.float64)
    up, down = np.nextafter(nearest, kind(np.inf)), np.nextafter(nearest, kind(-np.inf))
    above, below = wide > value, wide < value
    if mode == "rm":
        return np.where(above, down, nearest)
    if mode == "rp":
        return np.where(below, up, nearest)
    if mode == "rna":
        # nearest, ties away from zero: a tie that went towards zero moves outwards
        outward = np.where(value > 0, up, down)
        tie = np.abs(value - wide) == np.abs(outward.astype(np.float64) - value)
        return np.where(tie & (np.abs(value) > np.abs(wide)), outward, nearest)
    return np.where(value > 0, np.where(above, down, nearest), np.where(below, up, nearest))


def narrow_half(value: Array, mode: str = "rn") -> Array:
    """A float64 rounded to odd to float16."""
    nearest = value.astype(np.float16)
    return nearest if mode == "rn" else _directed(nearest, value, mode)


def float32_odd(value: Array) -> Array:
    """A float64 rounded to odd to float32, rounded to odd again."""
    cut = narrow(value, "rz")
    lost = cut.astype(np.float64) != value
    bits = np.ascontiguousarray(cut).view(np.uint32)
    return np.where(lost & np.isfinite(cut), bits | np.uint32(1), bits).view(np.float32)


def bfloat16_bits(value: Array, mode: str = "rn") -> Array:
    """A float32 (exact, or rounded to odd) to the bits of a bfloat16, uint16; NaN becomes 0x7FFF."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    low, high = bits & np.uint32(0xFFFF), bits & np.uint32(0xFFFF0000)
    negative = (bits >> np.uint32(31)) != 0
    if mode == "rn":
        up = (low > 0x8000) | ((low == 0x8000) & ((bits >> np.uint32(16)) & 1).astype(bool))
    elif mode == "rna":
        up = low >= 0x8000
    elif mode == "rz":
        up = np.zeros(low.shape, dtype=bool)
    else:
        up = (low != 0) & (negative == (mode == "rm"))
    rounded = np.where(np.isinf(value), high, high + np.where(up, np.uint32(0x10000), np.uint32(0)))
    return np.where(np.isnan(value), np.uint32(0x7FFF), rounded >> np.uint32(16)).astype(np.uint16)


def bfloat16_values(bits: Array) -> Array:
    """The float32 values of bfloat16 bits (uint16)."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def fma32(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c of float32 arrays, rounded once."""
    left, right, addend = a.astype(np.float64), b.astype(np.float64), c.astype(np.float64)
    product = left * right
    if mode != "rn":
        return zero_sum(mode, product, addend, narrow(odd_sum(product, addend), mode))
    total = product + addend
    result = total.astype(np.float32)
    suspect = (total.view(np.uint64) & _HALF_LOW) == _HALF_TIE
    suspect |= (np.abs(total) < 2.0**-126) & (total != 0)
    if suspect.any():
        repair(suspect, product, addend, total, result)
    return result


def repair(suspect: Array, product: Array, addend: Array, total: Array, result: Array) -> None:
    """Round again, through odd, the elements of `result` that a second rounding may have spoiled."""
    places = np.nonzero(suspect)
    a, b, s = np.broadcast_to(product, total.shape)[places], np.broadcast_to(addend, total.shape)[places], total[places]
    result[places] = to_odd(s, sum_error(a.astype(np.float64), b.astype(np.float64), s)).astype(np.float32)


def ties(total: Array, bits: Array, flags: Array) -> bool:
    """Whether any float64 of `total` lies halfway between two float32; `bits` and `flags` are scratch arrays."""
    np.bitwise_and(total.view(np.uint64), _HALF_LOW, out=bits)
    np.equal(bits, _HALF_TIE, out=flags)
    return bool(flags.any())


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    product = a * b
    splitter = 134217729.0  # 2**27 + 1
    ta, tb = splitter * a, splitter * b
    ah, bh = ta - (ta - a), tb - (tb - b)
    al, bl = a - ah, b - bh
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def fma64(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c of float64 arrays, rounded once; extreme exponents are computed one by one, as fractions."""
    a, b, c = np.broadcast_arrays(a, b, c)
    plain = np.where(np.isfinite(a) & np.isfinite(b) & ~np.isfinite(c), c, a * b + c)
    magnitudes = [np.where(x == 0, 1.0, np.abs(x)) for x in (a, b, a * b, c)]
    safe = np.isfinite(plain)
    for magnitude in magnitudes:
        safe &= (magnitude > 2.0**-400) & (magnitude < 2.0**400)
    if mode == "rn":
        high, low = _two_product(a, b)
        upper = c + low
        upper_error = sum_error(c, low, upper)
        total = high + upper
        rest = odd_sum(sum_error(high, upper, total), upper_error)
        result = np.where(safe & (plain != 0), total + rest, plain)
    else:
        result, safe = plain.copy(), np.zeros(plain.shape, dtype=bool)
    safe |= ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(c)
    for place in zip(*np.nonzero(~safe), strict=True):
        result[place] = _exact_fma(float(a[place]), float(b[place]), float(c[place]), mode)
    return result


def quotient64(a: Array, b: Array, mode: str) -> Array:
    """a / b of float64 arrays in a rounding mode, one by one, as fractions."""
    a, b = np.broadcast_arrays(a, b)
    result = a / b
    for place in zip(*np.nonzero(np.isfinite(a) & np.isfinite(b) & (b != 0) & (a != 0)), strict=True):
        result[place] = _round_fraction(Fraction(float(a[place])) / Fraction(float(b[place])), mode)
    return result


def root64(a: Array, mode: str) -> Array:
    """The square root of float64 arrays in a rounding mode, judged by the exact square of the nearest one."""
    result = np.sqrt(a)
    for place in zip(*np.nonzero(np.isfinite(a) & (a > 0)), strict=True):
        nearest = float(result[place])
        square, exact = Fraction(nearest) ** 2, Fraction(float(a[place]))
        if mode == "rp" and square < exact:
            result[place] = nextafter(nearest, inf)
        elif mode in ("rz", "rm") and square > exact:
            result[place] = nextafter(nearest, -inf)
    return result


def _round_fraction(exact: Fraction, mode: str) -> float:
    """A fraction that is not zero as float64."""
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = inf if exact > 0 else -inf
    if nearest in (inf, -inf):
        outward = (mode == "rp" and exact > 0) or (mode == "rm" and exact < 0) or mode == "rn"
        return nearest if outward else copysign(1.7976931348623157e308, nearest)
    if nearest == 0:
        nearest = copysign(0.0, exact)
    below, above = Fraction(nearest) < exact, Fraction(nearest) > exact
    if below and (mode == "rp" or (mode == "rz" and exact < 0)):
        return copysign(nextafter(nearest, inf), exact) if nearest == 0 and exact < 0 else nextafter(nearest, inf)
    if above and (mode == "rm" or (mode == "rz" and exact > 0)):
        return nextafter(nearest, -inf)
    return nearest


def _exact_fma(a: float, b: float, c: float, mode: str) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        signs = (copysign(1.0, a) * copysign(1.0, b) < 0, copysign(1.0, c) < 0)
        return copysign(0.0, -1.0 if all(signs) or (mode == "rm" and any(signs)) else 1.0)
    return _round_fraction(exact, mode)
