"""A correct result passes and a fault does not, for every path and data set."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from dgw.model import Check, Epilogue, Operand, Problem, gemm
from dgw.operands import bounds, data, dtypes, references
from dgw.operands.dtypes import F64, Array


def ideal(problem: Problem) -> tuple[Array, references.Reference]:
    found = references.block_reference(problem)
    return references.stored_output(problem, found.value, found.scale), found


def running_sum(problem: Problem) -> F64:
    """alpha A B by one f32 accumulator and K fused multiply-adds, as a plain kernel does."""
    inputs = {name: dtypes.widen(values) for name, values in references.block_inputs(problem).items()}
    total = np.zeros((problem.m, problem.n), np.float32)
    for k in range(problem.k):
        total = (total + inputs["a"][:, k : k + 1] * inputs["b"][k : k + 1]).astype(np.float32)
    return total.astype(np.float64)


def without(problem: Problem, lost: slice) -> Array:
    """D of a kernel that loses some of K, stored."""
    inputs = references.block_inputs(problem)
    inputs["a"] = inputs["a"].copy()
    inputs["a"][:, lost] = 0
    found = references.reference(problem, inputs)
    return references.stored_output(problem, found.value, found.scale)


def cut_sum(problem: Problem, step: int) -> F64:
    """A B by a tensor core: `step` products are added exactly, then the running f32 sum is cut off towards zero."""
    inputs = {name: dtypes.widen(values) for name, values in references.block_inputs(problem).items()}
    total = np.zeros((problem.m, problem.n))
    for k in range(0, problem.k, step):
        exact = total + inputs["a"][:, k : k + step] @ inputs["b"][k : k + step]
        near = exact.astype(np.float32)
        total = np.where(np.abs(near) > np.abs(exact), np.nextafter(near, np.float32(0)), near).astype(np.float64)
    return total


def check(problem: Problem, got: Array, found: references.Reference, **options: Any) -> Check:
    return bounds.compare(problem, got, found, **options)


@pytest.mark.parametrize("kind", data.DATA_SETS)
@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        ("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("bf16", "f32"), ("f32", "f32"), ("tf32", "f32"),
        ("e4m3", "bf16"), ("e4m3", "f16"), ("s8", "s32"), ("s8", "f16"), ("s8", "s8"), ("f16", "e4m3"),
    ],
)  # fmt: skip
def test_an_ideal_result_passes_for_every_type_and_data_set(kind: str, dtype: str, out: str) -> None:
    problem = gemm(70, 33, 200, dtype, out=out, data=kind)
    if data.refuses(kind, dtype):
        return
    verdict = check(problem, *ideal(problem))
    assert verdict.passed, verdict.detail
    assert verdict.compared == 70 * 33
    assert verdict.error <= verdict.bound or verdict.bound == 0


@pytest.mark.parametrize("kind", ["normal", "uniform", "integer", "outliers", "overflow"])
@pytest.mark.parametrize(("dtype", "out"), [("f32", "f32"), ("tf32", "f32"), ("f16", "f16"), ("bf16", "f32")])
@pytest.mark.parametrize("depth", [1, 17, 100, 2048])
def test_a_running_f32_sum_passes(kind: str, dtype: str, out: str, depth: int) -> None:
    problem = gemm(40, 40, depth, dtype, out=out, data=kind)
    found = references.block_reference(problem)
    verdict = check(problem, dtypes.store(running_sum(problem), out), found)
    assert verdict.passed, verdict.detail


@pytest.mark.parametrize(("dtype", "out"), [("f16", "f16"), ("bf16", "bf16"), ("f32", "f32"), ("e4m3", "bf16")])
@pytest.mark.parametrize("depth", [512, 16384])
def test_a_lost_last_k_slice_and_one_lost_k_are_seen_at_any_depth(dtype: str, out: str, depth: int) -> None:
    problem = gemm(32, 32, depth, dtype, out=out)
    found = references.block_reference(problem)
    for lost in (slice(depth - 16, depth), slice(depth - 1, depth)):
        assert not check(problem, without(problem, lost), found).passed


def test_a_lost_k_of_positive_data_is_seen_in_f32() -> None:
    problem = gemm(32, 32, 1024, "f32", data="uniform")
    assert not check(problem, without(problem, slice(1023, 1024)), references.block_reference(problem)).passed


def test_a_biased_e4m3_accumulator_shows_with_positive_data_only_if_promotion_was_promised() -> None:
    promoted = gemm(32, 32, 4096, "e4m3", out="f32", data="uniform")
    fast = msgspec.structs.replace(promoted, accumulator="f32-fast")
    found = references.block_reference(promoted)
    low = (found.value * 0.97).astype(np.float32)
    assert not check(promoted, low, found).passed
    assert check(fast, low, found).passed


def test_the_worst_element_is_named_by_its_global_position() -> None:
    problem = gemm(512, 512, 64)
    rows, cols = slice(256, 320), slice(384, 448)
    found = references.block_reference(problem, rows, cols)
    got = references.stored_output(problem, found.value)
    got[3, 5] += np.float16(1)
    verdict = check(problem, got, found, origin=(256, 384), where="tile (4, 6)")
    assert not verdict.passed
    assert verdict.worst == (259, 389)
    assert verdict.error == pytest.approx(1, rel=0.01)
    assert verdict.where == "tile (4, 6)"
    assert "1 of 4096 elements" in verdict.detail
    assert check(problem, got, found, origin=(7, 256, 384)).worst == (7, 259, 389)


def test_swapped_blocks_and_a_zeroed_element_are_seen() -> None:
    problem = gemm(64, 64, 4096, "bf16")
    got, found = ideal(problem)
    swapped = got.copy()
    swapped[:8, :8], swapped[:8, 8:16] = got[:8, 8:16], got[:8, :8]
    assert not check(problem, swapped, found).passed
    zeroed = got.copy()
    zeroed[11, 12] = 0
    assert check(problem, zeroed, found).worst == (11, 12)


def test_integer_data_with_f32_output_must_be_equal_to_the_last_bit() -> None:
    problem = gemm(64, 64, 4096, out="f32", data="integer")
    got, found = ideal(problem)
    assert (bounds.tolerance(problem, found) == 0).all()
    assert check(problem, got, found).passed
    got[5, 6] = np.nextafter(got[5, 6], np.float32(np.inf))
    verdict = check(problem, got, found)
    assert not verdict.passed
    assert verdict.worst == (5, 6)
    assert verdict.bound == 0


def test_integer_data_with_narrow_output_must_be_equal_while_sums_are_small() -> None:
    problem = gemm(64, 64, 40, "bf16", data="integer")
    found = references.block_reference(problem)
    exact = bounds.tolerance(problem, found) == 0
    assert (exact == (found.magnitude <= 256)).all()
    assert exact.any()


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({}, 2.0**24),
        ({"alpha": 0.5}, 0),
        ({"alpha": 2.0}, 2.0**24),
        ({"epilogue": Epilogue(activation="relu")}, 2.0**24),
        ({"epilogue": Epilogue(activation="silu")}, 0),
        ({"a": Operand(dtype="f16", scale="tensor")}, 0),
        ({"a": Operand(dtype="e4m3")}, 2.0**13),
        ({"accumulator": "f16"}, 2.0**11),
        ({"data": "normal"}, 0),
        ({"data": "one-hot"}, float("inf")),
        ({"data": "one-hot", "bias": Operand(dtype="f32")}, 0),
    ],
)
def test_results_must_be_exact_only_where_every_step_is(change: dict[str, Any], limit: float) -> None:
    problem = msgspec.structs.replace(gemm(8, 8, 8, out="f32", data="integer"), **change)
    assert bounds.exact_limit(problem) == limit


def test_s8_products_are_exact_for_any_data() -> None:
    assert bounds.exact_limit(gemm(8, 8, 8, "s8", out="s32")) == 2.0**31
    assert bounds.exact_limit(gemm(8, 8, 8, "s8", out="f32")) == 2.0**24


@pytest.mark.parametrize("kind", ["normal", "integer", "one-hot"])
def test_an_element_that_was_never_written_is_seen(kind: str) -> None:
    problem = gemm(32, 32, 32, data=kind)
    got, found = ideal(problem)
    got[31, 0] = np.nan
    verdict = check(problem, got, found)
    assert not verdict.passed
    assert verdict.worst == (31, 0)
    assert "never written" in verdict.detail
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Check) == verdict


def test_nan_and_inf_must_stay_in_their_rows_and_keep_their_sign() -> None:
    problem = gemm(64, 32, 32, data="naninf")
    got, found = ideal(problem)
    assert np.isnan(found.value[0]).all()
    assert np.isinf(found.value[5]).all()
    assert check(problem, got, found).passed
    for row, col, value in ((1, 3, np.nan), (0, 3, 1.0), (5, 4, -got[5, 4]), (5, 4, 65504.0), (2, 2, np.inf)):
        broken = got.copy()
        broken[row, col] = value
        verdict = check(problem, broken, found)
        assert not verdict.passed
        assert verdict.worst == (row, col)


@pytest.mark.parametrize("kind", ["relu", "gelu", "gelu-tanh", "silu"])
def test_activations_of_nan_are_free_but_nan_elsewhere_is_not(kind: str) -> None:
    problem = gemm(64, 32, 32, data="naninf", epilogue=Epilogue(activation=kind))  # type: ignore[arg-type]
    got, found = ideal(problem)
    got[0] = 0
    assert check(problem, got, found).passed
    got[1, 1] = np.nan
    assert not check(problem, got, found).passed


def test_f16_overflow_gives_inf_and_nothing_else() -> None:
    problem = gemm(32, 32, 64, data="overflow")
    got, found = ideal(problem)
    assert np.isinf(got).any()
    assert np.isfinite(got).any()
    assert check(problem, got, found).passed
    at = tuple(np.argwhere(np.isinf(got))[0])
    for value in (65504.0, -got[at], np.nan):
        broken = got.copy()
        broken[at] = value
        assert check(problem, broken, found).worst == at
        assert not check(problem, broken, found).passed


def test_a_value_at_the_overflow_threshold_may_be_inf_or_not() -> None:
    problem = gemm(1, 1, 1)
    found = references.Reference(np.array([[65519.9]]), np.array([[65519.9]]), np.array([[65519.9]]))
    for value in (65504.0, np.inf):
        assert check(problem, np.array([[value]], np.float16), found).passed
    assert not check(problem, np.array([[-np.inf]], np.float16), found).passed


def test_bf16_and_f32_outputs_hold_what_f16_cannot() -> None:
    problem = gemm(32, 32, 64, "bf16", data="overflow")
    got, found = ideal(problem)
    assert np.isfinite(dtypes.widen(got)).all()
    assert check(problem, got, found).passed


@pytest.mark.parametrize("out", ["s8", "e4m3"])
@pytest.mark.parametrize("per", ["tensor", "row"])
@pytest.mark.parametrize("kind", ["none", "gelu", "silu"])
def test_a_quantised_output_may_be_off_by_a_step_only_at_a_tie(out: str, per: str, kind: str) -> None:
    zero = -9 if out == "s8" else 0
    problem = Problem(
        m=64, n=48, k=256, a=Operand(dtype="f16"), b=Operand(dtype="f16"), d=Operand(dtype=out, zero_point=zero),
        bias=Operand(dtype="f32"), epilogue=Epilogue(activation=kind, quantise=per),  # type: ignore[arg-type]
    )  # fmt: skip
    got, found = ideal(problem)
    assert check(problem, got, found).passed
    other = dtypes.store(dtypes.widen(got) + np.where(dtypes.widen(got) < 0, 1, -1), out)
    assert not check(problem, other, found).passed
    wrong_row = references.stored_output(problem, found.value, np.roll(np.asarray(found.scale) * 1.02, 1))
    assert not check(problem, wrong_row, found).passed


@pytest.mark.parametrize("kind", ["relu", "gelu", "gelu-tanh", "silu"])
def test_an_f32_evaluation_of_an_activation_passes_and_another_activation_does_not(kind: str) -> None:
    problem = gemm(64, 64, 64, out="f32", alpha=0.125, epilogue=Epilogue(activation=kind))  # type: ignore[arg-type]
    found = references.block_reference(problem)
    linear = (running_sum(problem) * 0.125).astype(np.float32)
    single = references.activation(kind, linear.astype(np.float64)).astype(np.float32)
    assert check(problem, single, found).passed
    # tanh.approx may be as far from gelu-tanh as gelu itself is, so these two cannot be told apart that way round.
    for other in {"relu", "gelu", "silu", "none"} - {kind} - ({"gelu"} if kind == "gelu-tanh" else set()):
        assert not check(problem, references.activation(other, found.linear).astype(np.float32), found).passed


@pytest.mark.parametrize("name", bounds.LIPSCHITZ)
def test_no_activation_is_steeper_than_its_constant(name: str) -> None:
    x = np.linspace(-10, 10, 200001)
    assert np.abs(np.diff(references.activation(name, x)) / np.diff(x)).max() <= bounds.LIPSCHITZ[name] + 1e-9


def test_coefficients_are_those_of_the_paths() -> None:
    assert bounds.coefficient(gemm(1, 1, 4096)) == (1024 + 8) * 2.0**-23
    assert bounds.coefficient(gemm(1, 1, 4096, "f32")) == (640 + 8) * 2.0**-24
    assert bounds.coefficient(gemm(1, 1, 9, "f32")) == 17 * 2.0**-24
    assert bounds.coefficient(gemm(1, 1, 4096, "e4m3")) == 2.5e-3
    assert bounds.coefficient(gemm(1, 1, 4096, "e4m3", accumulator="f32-fast")) == 2e-5 * 4096
    assert bounds.coefficient(gemm(1, 1, 4096), splits=4) == pytest.approx((1024 + 8) * 2.0**-23 + 4 * 2.0**-24)
    assert bounds.coefficient(gemm(1, 1, 64), 2, "bf16") > 2 * 2.0**-9
    assert bounds.coefficient(gemm(1, 1, 64, accumulator="f16")) == 72 * 2.0**-11


def test_few_elements_are_not_judged_by_the_relative_error() -> None:
    problem = gemm(1, 1, 1, "bf16")
    found = references.Reference(np.array([[1.0]]), np.array([[1.0]]), np.array([[1.0]]))
    assert check(problem, dtypes.store(np.array([[1 + 2.0**-8]]), "bf16"), found).passed


@pytest.mark.parametrize("depth", [1024, 4096, 16384])
@pytest.mark.parametrize(("dtype", "step"), [("f16", 16), ("bf16", 16), ("tf32", 8)])
def test_sums_that_tensor_cores_cut_off_are_within_the_limit_and_near_what_it_is_made_for(
    dtype: str, step: int, depth: int
) -> None:
    problem = gemm(16, 32, depth, dtype, out="f32")
    found = references.block_reference(problem)
    verdict = check(problem, cut_sum(problem, step).astype(np.float32), found)
    assert verdict.passed, verdict.detail
    assert verdict.relative_error is not None
    assert 0.5 < verdict.relative_error / bounds.relative_limit(problem) < 0.9


@pytest.mark.parametrize("dtype", ["f16", "bf16", "tf32"])
def test_what_is_lost_of_k_is_hundreds_of_times_above_what_cutting_off_may_lose(dtype: str) -> None:
    problem = gemm(16, 32, 16384, dtype, out="f32")
    found = references.block_reference(problem)
    for lost in (16, 1):
        verdict = check(problem, without(problem, slice(problem.k - lost, problem.k)), found)
        assert not verdict.passed
        assert verdict.relative_error == pytest.approx((lost / problem.k) ** 0.5, rel=0.5)
        assert verdict.relative_error > 100 * bounds.relative_limit(problem)


def test_only_tensor_cores_that_cut_off_f32_sums_get_a_limit_that_grows_with_k() -> None:
    def limit(depth: int, dtype: str = "f16", out: str = "f32", **fields: Any) -> float:
        return bounds.relative_limit(gemm(1, 1, depth, dtype, out=out, **fields))

    walk = 1e-7 + 2e-6 * 4**0.5
    assert limit(16384, "f32") == walk
    assert limit(16384, "s8") == walk
    assert limit(16384) == limit(16384, "bf16") == 1e-7 + 1024 * 2.0**-25
    assert limit(16384, "tf32") == 1e-7 + 2048 * 2.0**-25
    assert limit(256) == 1e-7 + 2e-6 * 0.25
    assert limit(16384, out="f16") == 3e-4
    assert limit(16384, "e4m3") == pytest.approx((walk**2 + 6e-4**2) ** 0.5)
    half = limit(16384, accumulator="f16")
    assert half == pytest.approx((walk**2 + (4e-6 * 2**13 + 2.0**-11) ** 2) ** 0.5)


def test_the_relative_error_is_that_of_the_whole_block_and_absent_where_nothing_limits_it() -> None:
    problem = gemm(32, 32, 64, out="f32")
    found = references.block_reference(problem)
    off = (found.value * (1 + 1e-7)).astype(np.float32)
    plain, rounded = check(problem, off, found), np.linalg.norm(off - found.value) / np.linalg.norm(found.value)
    assert plain.relative_error == pytest.approx(rounded, rel=1e-12)
    twice = found.value.astype(np.float32)
    twice[3, 4] *= 2
    wrong = check(problem, twice, found)
    assert not wrong.passed
    assert wrong.relative_error == pytest.approx(abs(found.value[3, 4]) / np.linalg.norm(found.value))
    assert bounds.worst_of([plain, wrong, plain]) == wrong
    assert bounds.worst_of([plain, msgspec.structs.replace(wrong, passed=True, bound=1e9)]).relative_error == (
        wrong.relative_error
    )
    for other in (gemm(32, 32, 64, data="uniform"), gemm(32, 32, 64, "s8", out="s32"), gemm(8, 8, 64)):
        assert check(other, *ideal(other)).relative_error is None
    text = msgspec.json.encode(plain)
    assert msgspec.json.decode(text, type=Check) == plain
    assert b"relative_error" in text
    absent = msgspec.structs.replace(plain, relative_error=None)
    assert b"relative_error" not in msgspec.json.encode(absent)
