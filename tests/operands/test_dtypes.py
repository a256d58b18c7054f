"""Element types round and store as their hardware does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from dgw.errors import UsageError
from dgw.model import DTYPE_BITS
from dgw.operands import dtypes


@pytest.mark.parametrize("name", DTYPE_BITS)
def test_every_type_of_the_model_has_a_storage_type(name: str) -> None:
    bits = 8 * dtypes.numpy_dtype(name).itemsize
    assert bits == {"s4": 8}.get(name, DTYPE_BITS[name])


def test_an_unknown_type_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(UsageError) as caught:
        dtypes.check_dtype("fp16")
    assert "f16" in caught.value.hint


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "tf32", "e4m3"])
def test_unit_roundoff_is_reached_half_way_between_two_numbers(name: str) -> None:
    u = dtypes.unit_roundoff(name)
    up, even = dtypes.widen(dtypes.store(np.array([1 + 1.001 * u, 1 + u]), name))
    assert up == 1 + 2 * u
    assert even == 1


def test_tf32_keeps_ten_explicit_bits_and_passes_nan_and_inf() -> None:
    values = np.array([1 / 3, -1e-3, np.nan, np.inf, -np.inf, 0.0], np.float32)
    rounded = dtypes.round_to_tf32(values)
    assert (rounded[:2].view(np.uint32) & 0x1FFF == 0).all()
    assert np.allclose(rounded[:2], values[:2], rtol=2.0**-11, atol=0)
    np.testing.assert_array_equal(rounded[2:], values[2:])


def test_integers_and_e4m3_saturate_and_f16_overflows_to_inf() -> None:
    beyond = np.array([1e6, -1e6])
    assert dtypes.store(beyond, "s8").tolist() == [127, -128]
    assert dtypes.widen(dtypes.store(beyond, "s4")).tolist() == [7, -8]
    assert dtypes.widen(dtypes.store(beyond, "e4m3")).tolist() == [448, -448]
    assert dtypes.store(beyond, "f16").tolist() == [np.inf, -np.inf]
    assert dtypes.store(np.array([3e9]), "s32").tolist() == [2**31 - 1]


def test_integers_round_ties_to_even_and_nan_to_zero() -> None:
    assert dtypes.store(np.array([0.5, 1.5, -2.5, np.nan]), "s8").tolist() == [0, 2, -2, 0]


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "f32"])
def test_largest_and_smallest_step_agree_with_the_library(name: str) -> None:
    info = ml_dtypes.finfo(dtypes.numpy_dtype(name))
    assert dtypes.largest(name) == float(info.max) == -dtypes.smallest(name)
    assert dtypes.smallest_step(name) == float(info.smallest_subnormal)
