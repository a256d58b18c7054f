"""References are exact where they must be, and blocks are parts of the whole."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from dgw.errors import UsageError
from dgw.model import Epilogue, Operand, Problem, gemm
from dgw.operands import data, dtypes, references

FUSED = Problem(
    m=40, n=50, k=60, a=Operand(dtype="f16"), b=Operand(dtype="f16"), c=Operand(dtype="f16"), d=Operand(dtype="f16"),
    bias=Operand(dtype="f32"), residual=Operand(dtype="f16"), alpha=0.5, beta=2.0, epilogue=Epilogue(activation="gelu"),
)  # fmt: skip


@pytest.mark.parametrize("x", [-30.0, -3.0, -0.5, 0.0, 0.7, 4.0, 30.0])
def test_activations_are_their_definitions(x: float) -> None:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    expected = {
        "none": x,
        "relu": max(x, 0.0),
        "gelu": 0.5 * x * math.erfc(-x / math.sqrt(2)),
        "gelu-tanh": 0.5 * x * (1 + math.tanh(inner)),
        "silu": x / (1 + math.exp(-x)),
    }
    for name, value in expected.items():
        assert references.activation(name, np.array([x]))[0] == pytest.approx(value, rel=1e-12, abs=1e-14)
    with pytest.raises(UsageError):
        references.activation("swish", np.array([x]))


def test_integers_are_exact_beyond_f32() -> None:
    problem = gemm(3, 4, 3000, "s8", out="s32")
    inputs = references.block_inputs(problem)
    found = references.reference(problem, inputs)
    whole = inputs["a"].astype(object) @ inputs["b"].astype(object)
    assert (found.value.astype(object) == whole).all()


def test_zero_points_are_subtracted_first() -> None:
    problem = Problem(
        m=2, n=2, k=8, a=Operand(dtype="s8", zero_point=5), b=Operand(dtype="s8", zero_point=-7), d=Operand(dtype="s32")
    )
    inputs = references.block_inputs(problem)
    a, b = inputs["a"].astype(int) - 5, inputs["b"].astype(int) + 7
    np.testing.assert_array_equal(references.reference(problem, inputs).value, a @ b)


def test_the_fused_epilogue_is_applied_in_order() -> None:
    i = {name: dtypes.widen(values) for name, values in references.block_inputs(FUSED).items()}
    found = references.block_reference(FUSED)
    linear = 0.5 * (i["a"] @ i["b"]) + 2.0 * i["c"] + i["bias"]
    np.testing.assert_allclose(found.linear, linear, rtol=1e-13)
    np.testing.assert_allclose(found.value, references.activation("gelu", linear) + i["residual"], rtol=1e-12)
    sizes = {name: np.abs(values) for name, values in i.items()}
    magnitude = 0.5 * sizes["a"] @ sizes["b"] + 2 * sizes["c"] + sizes["bias"] + sizes["residual"]
    np.testing.assert_allclose(found.magnitude, magnitude, rtol=1e-13)


@pytest.mark.parametrize("quantise", ["none", "tensor", "row"])
def test_a_block_of_the_reference_is_that_part_of_the_whole(quantise: str) -> None:
    problem = msgspec.structs.replace(
        FUSED, d=Operand(dtype="f16" if quantise == "none" else "s8"), epilogue=Epilogue(quantise=quantise)  # type: ignore[arg-type]
    )  # fmt: skip
    whole = references.block_reference(problem)
    rows, cols = slice(9, 30), slice(17, 44)
    part = references.block_reference(problem, rows, cols)
    np.testing.assert_allclose(part.value, whole.value[rows, cols], rtol=1e-12, atol=1e-12)
    if whole.scale is not None and part.scale is not None:
        np.testing.assert_array_equal(
            np.broadcast_to(part.scale, part.value.shape), np.broadcast_to(whole.scale, whole.value.shape)[rows, cols]
        )


def test_beta_zero_never_looks_at_c() -> None:
    problem = msgspec.structs.replace(FUSED, beta=0.0)
    assert "c" not in references.block_inputs(problem)


def test_one_hot_rows_give_rows_of_b() -> None:
    problem = gemm(7, 9, 5, data="one-hot")
    b = dtypes.widen(data.generate(problem, "b"))
    np.testing.assert_array_equal(references.block_reference(problem).value, b[(np.arange(7) + 1) % 5])
