"""Scales, zero points, saturation."""

from __future__ import annotations

import numpy as np
import pytest

from dgw.errors import UsageError
from dgw.model import Epilogue, Operand, Problem
from dgw.operands import data, quantisation, references

VALUES = np.random.default_rng(1).standard_normal((16, 24))


def scaled(a: str = "none", b: str = "none", d: str = "none", dtype: str = "s8", out: str = "s8") -> Problem:
    return Problem(
        m=12, n=20, k=64, a=Operand(dtype=dtype, scale=a), b=Operand(dtype=dtype, scale=b),
        d=Operand(dtype=out, zero_point=3 if out == "s8" else 0), epilogue=Epilogue(quantise=d),  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("per", ["tensor", "row", "column"])
@pytest.mark.parametrize(("dtype", "relative"), [("s8", 0.0), ("e4m3", 2.0**-4)])
def test_quantising_and_back_is_off_by_half_a_step_at_most(per: str, dtype: str, relative: float) -> None:
    scale = quantisation.symmetric_scale(VALUES, dtype, per).astype(np.float64)  # type: ignore[arg-type]
    back = quantisation.dequantise_values(quantisation.quantise(VALUES, dtype, scale), scale)
    assert (np.abs(back - VALUES) <= 0.5001 * scale + relative * np.abs(VALUES)).all()


def test_a_zero_point_uses_the_whole_integer_range() -> None:
    positive = np.abs(VALUES)
    scale, zero = quantisation.affine_scale(positive)
    stored = quantisation.quantise(positive, "s8", scale, zero)
    assert zero == -128
    assert stored.max() == 127
    assert np.abs(quantisation.dequantise_values(stored, scale, zero) - positive).max() <= 0.5001 * scale


def test_a_tensor_of_zeros_has_scale_one() -> None:
    assert quantisation.symmetric_scale(np.zeros((2, 2)), "s8").tolist() == [[1.0]]
    assert quantisation.affine_scale(np.zeros((2, 2))) == (1.0, -128)


def test_out_of_range_values_saturate() -> None:
    assert quantisation.quantise(np.array([1e3, -1e3]), "s8", 1.0, 3).tolist() == [127, -128]
    assert quantisation.quantise(np.array([1e3]), "e4m3", 1.0).astype(float).tolist() == [448]


@pytest.mark.parametrize(
    ("a", "b", "shapes"),
    [
        ("tensor", "tensor", ((1, 1), (1, 1))),
        ("row", "column", ((12, 1), (1, 20))),
        ("block(1,16)", "block(16,16)", ((12, 4), (4, 2))),
        ("group(32)", "group(32)", ((12, 2), (2, 20))),
    ],
)
def test_scales_of_a_block_are_those_of_the_whole(a: str, b: str, shapes: tuple[tuple[int, int], ...]) -> None:
    problem = scaled(a, b)
    for name, shape in zip("ab", shapes, strict=True):
        factors = quantisation.scale_values(problem, name)
        assert factors is not None
        assert factors.shape == shape
        whole = quantisation.dequantise(problem, name, data.generate(problem, name))
        rows, cols = slice(5, 11), slice(7, 20)
        part = quantisation.dequantise(problem, name, data.generate(problem, name, rows, cols), rows, cols)
        np.testing.assert_array_equal(part, whole[rows, cols])


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(UsageError, match="diagonal"):
        quantisation.scale_block(scaled("diagonal"), "a")
    with pytest.raises(UsageError, match="covers nothing"):
        quantisation.scale_block(scaled("group(0)"), "a")


@pytest.mark.parametrize("kind", ["normal", "uniform", "one-hot", "outliers"])
@pytest.mark.parametrize(("dtype", "out"), [("f16", "s8"), ("f16", "e4m3"), ("s8", "s8")])
@pytest.mark.parametrize("per", ["tensor", "row"])
def test_the_output_scale_uses_the_range_and_seldom_saturates(kind: str, dtype: str, out: str, per: str) -> None:
    import msgspec

    problem = msgspec.structs.replace(scaled(d=per, dtype=dtype, out=out), data=kind)
    found = references.block_reference(problem)
    assert found.scale is not None
    assert found.scale.shape == ((12, 1) if per == "row" else (1, 1))
    stored = references.stored_output(problem, found.value, found.scale).astype(float)
    assert np.mean(np.abs(stored) >= 127) < (0.2 if kind == "outliers" else 0.05)
    assert np.abs(stored).max() > 20
