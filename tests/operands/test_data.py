"""Data are the same bits for whoever makes them, in blocks of any size."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from dgw.errors import UsageError
from dgw.model import Operand, Problem, gemm
from dgw.operands import data, dtypes

MASK = 2**64 - 1


def scalar_hash(seed: int, operand: int, index: int) -> int:
    """hash16 as the module docstring writes it for a GPU, one element at a time."""
    z = (seed + 0x9E3779B97F4A7C15 * (operand + 1) + 0xD1B54A32D192ED03 * (index >> 32)) & MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    z ^= z >> 31
    x = (index ^ z) & 0xFFFFFFFF
    x = (x ^ (x >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) + (z >> 32)) & 0xFFFFFFFF
    return (x * 0x846CA68B & 0xFFFFFFFF) >> 16


def supported() -> list[tuple[str, str]]:
    types = ("f16", "bf16", "f32", "tf32", "e4m3", "s8", "s4")
    return [(name, dtype) for name in data.DATA_SETS for dtype in types if data.refuses(name, dtype) is None]


def make(dtype: str = "f16", kind: str = "normal", m: int = 70, n: int = 50, k: int = 90, seed: int = 3) -> Problem:
    return gemm(m, n, k, dtype, out="f32", data=kind, seed=seed)


def test_the_hash_is_the_documented_integer_arithmetic() -> None:
    indices = [0, 1, 65535, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40 + 12345]
    for seed in (0, 1, 2**63 + 5):
        for operand in (0, 1, 4):
            expected = [scalar_hash(seed, operand, index) for index in indices]
            assert data.hash16(seed, operand, np.array(indices)).tolist() == expected


def test_the_hash_is_even_and_streams_are_unrelated() -> None:
    count = 1 << 20
    first = data.hash16(0, 0, np.arange(count)).astype(np.int64)
    buckets = np.bincount(first >> 8, minlength=256)
    assert abs(((buckets - count / 256) ** 2 / (count / 256)).sum() - 255) < 5 * np.sqrt(2 * 255)
    for other in (data.hash16(0, 1, np.arange(count)), data.hash16(1, 0, np.arange(count)), np.roll(first, 1)):
        assert abs(np.corrcoef(first, other.astype(np.int64))[0, 1]) < 5 / np.sqrt(count)


def test_elements_come_from_the_table_by_their_logical_index() -> None:
    problem = make()
    block = data.generate(problem, "b")
    values = data.table("normal", "f16")
    for row, col in ((0, 0), (3, 49), (89, 17)):
        assert block[row, col] == values[scalar_hash(3, 1, row * 50 + col)]


@pytest.mark.parametrize(("kind", "dtype"), supported())
@pytest.mark.parametrize("name", ["a", "b"])
def test_any_block_equals_that_part_of_the_whole(kind: str, dtype: str, name: str) -> None:
    problem = make(dtype, kind)
    whole = data.generate(problem, name)
    assert whole.dtype == dtypes.numpy_dtype(dtype)
    assert whole.shape == problem.logical_shape(name)
    for rows, cols in ((slice(5, 66), slice(13, 40)), (slice(61, 62), slice(None)), (slice(None), slice(47, 48))):
        block = data.generate(problem, name, rows, cols)
        assert block.tobytes() == whole[rows, cols].tobytes()
    assert data.generate(problem, name, slice(4, 4)).shape[0] == 0


@pytest.mark.parametrize(("kind", "dtype"), supported())
def test_a_fill_that_only_copies_bits_gives_the_same(kind: str, dtype: str) -> None:
    problem = make(dtype, kind)
    for name in "ab":
        rows, cols = problem.logical_shape(name)
        fill = data.pattern(problem, name)
        hashes = data.hash16(3, data.OPERAND_NUMBER[name], np.arange(rows * cols)).reshape(rows, cols)
        copied = fill.table[hashes]
        if fill.line is not None:
            on_line = np.indices((rows, cols))[fill.line.axis] % fill.line.modulus == fill.line.residue
            copied[on_line] = fill.line.table[hashes][on_line]
        for point in fill.points:
            for row in range(point.residue, rows, point.modulus):
                copied[row, (point.stride * row + point.shift) % cols] = point.value
        assert copied.tobytes() == data.generate(problem, name).tobytes()


def test_blocks_around_index_two_to_the_thirty_two_are_right() -> None:
    problem = make(m=65537, k=65537)
    block = data.generate(problem, "a", slice(65534, 65536), slice(0, 65537))
    values = data.table("normal", "f16")
    for row in (65534, 65535):
        for col in (0, 1, 2, 3, 65535, 65536):
            assert block[row - 65534, col] == values[scalar_hash(3, 0, row * 65537 + col)]


def test_batch_items_differ_and_share_the_bias() -> None:
    problem = Problem(
        m=8, n=8, k=8, batch=2,
        a=Operand(dtype="f16"), b=Operand(dtype="f16"), d=Operand(dtype="f16"), bias=Operand(dtype="f32"),
    )  # fmt: skip
    assert (data.generate(problem, "a", batch=1)[0, 0]) == data.table("normal", "f16")[scalar_hash(0, 0, 64)]
    np.testing.assert_array_equal(data.generate(problem, "bias", batch=1), data.generate(problem, "bias"))


def test_normal_data_have_mean_zero_and_variance_one() -> None:
    values = dtypes.widen(data.table("normal", "f32"))
    assert values.mean() == 0
    assert abs(values.var() - 1) < 1e-4
    sample = dtypes.widen(data.generate(make(m=1024, k=1024), "a"))
    assert abs(sample.mean()) < 5 / 1024
    assert abs(sample.var() - 1) < 0.01


def test_uniform_data_are_positive_and_integers_are_small() -> None:
    for dtype in ("f16", "bf16", "f32", "s8", "s4"):
        assert (dtypes.widen(data.table("uniform", dtype)) > 0).all()
        assert set(dtypes.widen(data.table("integer", dtype))) == set(range(-4, 5))


def test_tf32_tables_hold_tf32_numbers() -> None:
    assert (data.table("normal", "tf32").view(np.uint32) & 0x1FFF == 0).all()


def test_one_hot_rows_have_a_single_one() -> None:
    block = dtypes.widen(data.generate(make(kind="one-hot"), "a"))
    assert (block.sum(axis=1) == 1).all()
    assert (block.argmax(axis=1) == (np.arange(70) + 1) % 90).all()


def test_nan_and_inf_stay_in_their_rows() -> None:
    block = dtypes.widen(data.generate(make(kind="naninf"), "a"))
    assert np.flatnonzero(np.isnan(block).any(axis=1)).tolist() == [0, 61]
    assert np.flatnonzero(np.isinf(block).any(axis=1)).tolist() == [5, 11, 66]
    assert block[5, 89] == np.inf
    assert block[11, 89] == -np.inf
    assert np.isfinite(dtypes.widen(data.generate(make(kind="naninf"), "b"))).all()


@pytest.mark.parametrize(("kind", "dtype"), [("naninf", "s8"), ("overflow", "s8"), ("outliers", "s4")])
def test_data_that_a_type_cannot_hold_are_refused(kind: str, dtype: str) -> None:
    with pytest.raises(UsageError, match=dtype):
        data.generate(make(dtype, kind), "a")
    with pytest.raises(UsageError, match="no data set"):
        data.check_data_set("gaussian")


def test_importing_the_data_module_builds_no_table_and_loads_no_scipy() -> None:
    code = (
        "import sys; from dgw.operands import bounds, data, quantisation, ragged, references\n"
        "assert 'scipy' not in sys.modules and data.table.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
