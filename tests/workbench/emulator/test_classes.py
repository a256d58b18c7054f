"""CTA classes: tiles that cost the same, and guesses which block computes a tile."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgw.model import Operand, gemm
from dgw.workbench.emulator.classes import Tiling, candidates, rounds


def test_an_aligned_problem_has_one_class() -> None:
    (only,) = Tiling(gemm(4096, 4096, 4096), (128, 128)).classes()
    assert only.count == 1024
    assert only.example == (0, 16, 16)


def test_edges_make_classes_of_their_own() -> None:
    classes = Tiling(gemm(1000, 520, 64), (128, 128)).classes()
    assert {(each.key[0], each.key[1], each.count) for each in classes} == {
        (128, 128, 28), (104, 128, 4), (128, 8, 7), (104, 8, 1),
    }  # fmt: skip


def test_odd_leading_dimensions_split_tiles_by_their_address_in_a_line() -> None:
    problem = gemm(512, 512, 64)
    padded = Operand(dtype="f16", ld=513)
    classes = Tiling(type(problem)(**{**_fields(problem), "d": padded}), (16, 64)).classes()
    assert len(classes) == 4  # rows of tiles start 16 x 513 x 2 B = 32 B (mod 128) apart
    assert sum(each.count for each in classes) == 32 * 8


def _fields(problem) -> dict[str, object]:
    return {name: getattr(problem, name) for name in ("m", "n", "k", "a", "b", "d")}


@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 700), n=st.integers(1, 700), tile=st.sampled_from([(128, 128), (64, 32), (16, 16)]))
def test_classes_cover_every_tile_once(m: int, n: int, tile: tuple[int, int]) -> None:
    tiling = Tiling(gemm(m, n, 40), tile)
    classes = tiling.classes()
    assert sum(each.count for each in classes) == tiling.total
    for each in classes:
        rows, cols = tiling.block(each.example)
        assert (rows.stop - rows.start, cols.stop - cols.start) == each.key[:2]


def test_a_batch_whose_items_start_elsewhere_has_more_classes() -> None:
    tight = Tiling(gemm(64, 64, 64, batch=4, op="batched"), (64, 64))
    assert [each.count for each in tight.classes()] == [4]
    odd = Tiling(gemm(1, 3, 1, batch=64, op="batched"), (64, 64))
    assert len(odd.classes()) == 64


@pytest.mark.parametrize("grid", [(5, 3, 1), (3, 5, 1), (15, 1, 1)])
def test_every_tile_has_a_block_among_the_guesses(grid: tuple[int, int, int]) -> None:
    tiling = Tiling(gemm(3 * 64, 5 * 64, 32), (64, 64))
    found = [list(candidates(tiling, grid, {}, (0, row, col))) for row, col in product(range(3), range(5))]
    assert all(found)
    assert len({blocks[0] for blocks in found}) == 15


def test_grouped_orders_are_permutations_of_the_grid() -> None:
    tiling = Tiling(gemm(7 * 64, 5 * 64, 32), (64, 64))
    found = {
        next(candidates(tiling, (35, 1, 1), {"GROUP_M": 4}, (0, row, col))) for row in range(7) for col in range(5)
    }
    assert found == {(place, 0, 0) for place in range(35)}


def test_persistent_blocks_share_tiles_as_evenly_as_can_be() -> None:
    assert rounds(1024, 132, 7, 8) == (132 - 100, 100)
    assert rounds(1024, 128, 8, 8) == (128, 0)
    assert rounds(1024, 132, 8, 8) is None
    assert rounds(1024, 132, 6, 8) is None
