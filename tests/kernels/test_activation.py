"""gelu of the fused epilogues: the polynomials in the header against Phi, as f32 arithmetic evaluates them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.special import log_ndtr

from dgw.kernels.declaring import INCLUDE
from dgw.operands.bounds import EVALUATION

HEADER = (INCLUDE / "dgw" / "epilogue.cuh").read_text(encoding="utf-8")


def coefficients() -> tuple[list[float], list[float]]:
    """Of both polynomials, the highest power first."""
    function = HEADER[HEADER.index("float gelu(float x)") : HEADER.index("float gelu_tanh(float x)")]
    narrow, wide = function.split("} else {")
    number = r"(-?[\d.]+(?:e-?\d+)?)f"
    first = [re.findall(rf"p = fmaf\({number}, t, {number}\)", part)[0] for part in (narrow, wide)]
    rest = [re.findall(rf"p = fmaf\(p, t, {number}\)", part) for part in (narrow, wide)]
    one, other = ([float(text) for text in (*first[i], *rest[i])] for i in range(2))
    return one, other


def tail(
    powers: list[float], t: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """2^p(t), each step of p rounded to f32."""
    found = np.full_like(t, powers[0])
    with np.errstate(over="ignore"):
        for power in powers[1:]:
            found = (found.astype(np.float64) * t + np.float32(power)).astype(np.float32)
    return np.exp2(found.astype(np.float64))


@pytest.mark.parametrize(("which", "limit"), [(0, 3.2e-7), (1, 4e-8)], ids=["D of 16 bits", "D of 32 bits"])
def test_the_tail_of_phi_is_as_good_as_the_header_says(which: int, limit: float) -> None:
    t = np.linspace(0, 60, 600_001).astype(np.float32)
    error = np.abs(tail(coefficients()[which], t) - np.exp(log_ndtr(-t.astype(np.float64))))
    assert error.max() <= limit
    assert limit + 0.5 * 2.0**-22 <= EVALUATION["gelu"]


@pytest.mark.parametrize("which", [0, 1])
def test_nothing_is_left_of_the_tail_for_large_values(which: int) -> None:
    t = np.array([15.0, 1e3, 65504.0, 3e38], np.float32)
    assert (tail(coefficients()[which], t) * t < 1e-30).all()
