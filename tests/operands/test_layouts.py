"""Strides, extents and views of operands."""

from __future__ import annotations

import numpy as np
import pytest

from dgw.errors import UsageError
from dgw.model import Operand, Problem, gemm
from dgw.operands import layouts


def padded(batch: int = 1) -> Problem:
    return Problem(
        m=3, n=5, k=4, batch=batch,
        a=Operand(dtype="f16", ld=7), b=Operand(dtype="f16", order="col", ld=6), d=Operand(dtype="f32"),
        bias=Operand(dtype="f32"),
    )  # fmt: skip


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_a_tight_view_in_any_layout_holds_the_logical_matrix(layout: str) -> None:
    problem = gemm(3, 5, 4, layout=layout)
    for name, letter, (rows, cols) in (("a", layout[0], (3, 4)), ("b", layout[1], (4, 5))):
        flat = np.arange(layouts.extent(problem, name))
        stored = flat.reshape(rows, cols) if letter == "n" else flat.reshape(cols, rows).T
        np.testing.assert_array_equal(layouts.view(flat, problem, name), stored)


def test_leading_dimensions_leave_padding_untouched() -> None:
    problem = padded()
    assert layouts.strides(problem, "a") == (7, 1)
    assert layouts.strides(problem, "b") == (1, 6)
    assert layouts.extent(problem, "a") == 2 * 7 + 4
    flat = np.zeros(layouts.extent(problem, "a"))
    layouts.view(flat, problem, "a")[...] = 1
    assert flat.sum() == 12
    assert flat[4:7].tolist() == [0, 0, 0]


def test_batch_items_follow_each_other_and_the_bias_is_shared() -> None:
    problem = padded(batch=2)
    assert layouts.batch_stride(problem, "a") == 21
    assert layouts.batch_stride(problem, "b") == 30
    assert layouts.batch_stride(problem, "bias") == 0
    assert layouts.extent(problem, "bias") == 5
    flat = np.arange(layouts.extent(problem, "b"))
    assert layouts.view(flat, problem, "b").shape == (2, 4, 5)
    assert layouts.view(flat, problem, "b")[1, 2, 3] == 30 + 2 + 3 * 6


def test_a_leading_dimension_below_the_width_is_refused() -> None:
    with pytest.raises(UsageError, match="leading dimension 2"):
        layouts.strides(gemm(3, 5, 4).__class__(
            m=3, n=5, k=4, a=Operand(dtype="f16", ld=2), b=Operand(dtype="f16"), d=Operand(dtype="f16")
        ), "a")  # fmt: skip


def test_an_array_shorter_than_the_extent_is_refused() -> None:
    with pytest.raises(UsageError, match="spans 18 elements"):
        layouts.view(np.zeros(17), padded(), "a")


def test_extents_beyond_two_to_the_thirty_one_are_exact() -> None:
    assert layouts.extent(gemm(65536, 1, 65537), "a") == 65536 * 65537
