"""Shapes are parsed strictly, and coverings cover."""

from __future__ import annotations

import hashlib
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgw.errors import UsageError
from dgw.operands.ragged import RAGGED_SIZES, ragged_shapes
from dgw.operands.shapes import covering_shapes, parse_shape

FIRST_SIZES = (1, 7, 16, 17, 63, 64, 65, 127, 128, 129, 255, 257)
SIZE = st.integers(1, 2**31)


@given(st.tuples(SIZE, SIZE, SIZE, SIZE))
def test_a_written_shape_reads_back(sizes: tuple[int, int, int, int]) -> None:
    assert parse_shape("x".join(map(str, sizes))) == sizes


def test_three_sizes_are_one_batch_item() -> None:
    assert parse_shape(" 4096x1X7 ") == (1, 4096, 1, 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4096",
        "64x64",
        "1x2x3x4x5",
        "0x1x1",
        "1x-1x1",
        "1x1x2147483649",
        "1x1x1.5",
        "1xx1",
        "axbxc",
        "1e3x1x1",
        "٣x1x1",
    ],
)
def test_a_malformed_shape_is_refused_with_the_form_to_write(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_shape(text)
    assert "MxNxK" in caught.value.hint


@pytest.mark.parametrize("sizes", [FIRST_SIZES, RAGGED_SIZES, (5,), (1, 2), (3, 1, 3)])
def test_strength_two_covers_every_pair_of_every_two_dimensions_once(sizes: tuple[int, ...]) -> None:
    shapes = covering_shapes(sizes)
    pairs = set(product(sizes, sizes))
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert {(shape[first], shape[second]) for shape in shapes} == pairs
    assert len(shapes) == len(pairs)


def test_the_first_sizes_give_at_least_sixty_triples_always_the_same() -> None:
    shapes = covering_shapes(FIRST_SIZES)
    assert len(set(shapes)) >= 60
    assert shapes == covering_shapes(list(FIRST_SIZES))


def test_strength_one_and_three_cover_sizes_and_triples() -> None:
    assert covering_shapes((1, 2), 1) == [(1, 1, 1), (2, 2, 2)]
    assert set(covering_shapes((1, 2), 3)) == set(product((1, 2), repeat=3))
    with pytest.raises(UsageError):
        covering_shapes((1, 2), 4)


def test_the_ragged_list_is_frozen() -> None:
    shapes = ragged_shapes()
    text = "\n".join("x".join(map(str, shape)) for shape in shapes)
    assert len(shapes) == len(set(shapes)) == 248
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "3b9ece3bb897f401"


def test_the_ragged_list_covers_pairs_and_odd_and_even_numbers_of_k_tiles_at_every_pipeline_depth() -> None:
    shapes = ragged_shapes()
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert {(shape[first], shape[second]) for shape in shapes} >= set(product(RAGGED_SIZES, RAGGED_SIZES))
    depths = {k for m, n, k in shapes}
    for tile in (32, 64, 128):
        assert {tile - 1, tile, tile + 1} <= depths
    for stages in (2, 3, 4, 5):
        assert {64 * stages - 1, 64 * stages, 64 * stages + 1} <= depths
    many = {k // 64 % 2 for m, n, k in shapes if -(-m // 128) * -(-n // 128) > 148}
    assert many == {0, 1}
