"""Choosing which CTAs to run, against kernels that are only a mapping from blocks to tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dgw.model import Dim3, Operand, Problem, gemm
from dgw.workbench.emulator.classes import Tile, Tiling
from dgw.workbench.emulator.counters import Counters
from dgw.workbench.emulator.grid import run_all, run_classes
from dgw.workbench.emulator.observer import Finding
from dgw.workbench.emulator.operands import POISON, Buffers, Writes
from tests.workbench.emulator.events import access, instruction

STORE = instruction(0, "st.global.u16", 1, width=2)
BASE = 1 << 34


class FakeKernel:
    """Writes the tiles that `tiles_of` gives for a block, element by element, and remembers what was run."""

    def __init__(self, tiling: Tiling, tiles_of: Callable[[Dim3], Sequence[Tile]]) -> None:
        self.tiling, self.tiles_of = tiling, tiles_of
        self.buffers = Buffers(tiling.problem)
        self.writes = Writes(tiling.problem, BASE)
        self.ran: list[Dim3] = []
        self.blind: list[Dim3] = []  # blocks that ran without the inputs of their tile

    def run(self, blocks: Sequence[Dim3], counters: Counters) -> Sequence[Finding]:
        counters.begin([STORE], blocks, 1)
        self.ran += blocks
        for block in blocks:
            for tile in self.tiles_of(block):
                rows, _ = self.tiling.block(tile)
                if (self.buffers.items("a")[tile[0], rows].view(np.uint16) == POISON * 257).any():
                    self.blind.append(block)
                self._store(tile, counters)
        counters.finish()
        return ()

    def _store(self, tile: Tile, counters: Counters) -> None:
        rows, cols = self.tiling.block(tile)
        flat = np.arange(self.tiling.problem.m * self.tiling.problem.n).reshape(self.tiling.problem.m, -1)
        elements = flat[rows, cols].ravel()
        padded = np.zeros(-(-len(elements) // 32) * 32, dtype=np.int64)
        padded[: len(elements)] = elements
        event = access(
            [STORE], BASE + 2 * padded.reshape(1, -1, 32), np.arange(len(padded)).reshape(1, -1, 32) < len(elements)
        )
        counters.block(0, 1, event.addresses.shape[1])
        counters.memory(event)
        self.writes.memory(event)

    def classes(self, grid: Dim3, config: dict[str, int | str] | None = None):
        return run_classes(self.tiling, grid, config or {}, self.run, self.buffers, self.writes)


RAGGED = Tiling(gemm(5 * 32 - 7, 7 * 32 - 3, 16), (32, 32))
ROWS = {"row by row": lambda row, col: row * 7 + col, "column by column": lambda row, col: col * 5 + row}


def inverse(place: Callable[[int, int], int]) -> Callable[[Dim3], Sequence[Tile]]:
    tiles = {place(row, col): (0, row, col) for row in range(5) for col in range(7)}
    return lambda block: [tiles[block[0]]]


@pytest.mark.parametrize("order", sorted(ROWS))
def test_one_block_of_each_class_stands_for_the_whole_grid(order: str) -> None:
    kernel = FakeKernel(RAGGED, inverse(ROWS[order]))
    found = kernel.classes((35, 1, 1))
    assert found is not None
    assert found.classes == len(RAGGED.classes())
    assert sum(weight for _, weight in found.parts) == 35
    assert len(kernel.ran) < 15
    for block in kernel.blind:
        assert kernel.ran.count(block) == 2  # it ran again with its inputs
    scaled = sum(counters.executed()[0] * weight for counters, weight in found.parts)
    everything = FakeKernel(RAGGED, inverse(ROWS[order]))
    whole = run_all((35, 1, 1), everything.run, everything.buffers)
    assert scaled == whole.parts[0][0].executed()[0]
    assert found.protocol == f"emulator/1 classes={found.classes} of 35 CTAs"
    assert whole.protocol == "emulator/1 full grid of 35 CTAs"


def test_an_order_that_nobody_guesses_is_given_up() -> None:
    shuffled = np.random.default_rng(3).permutation(35)
    kernel = FakeKernel(RAGGED, inverse(lambda row, col: int(shuffled[row * 7 + col])))
    found = kernel.classes((35, 1, 1))
    if found is not None:  # every class may be met by chance; then its weight is right all the same
        assert sum(weight for _, weight in found.parts) == 35
    else:
        assert len(kernel.ran) <= 2 * 2 * len(RAGGED.classes())


def test_a_shuffled_order_of_equal_tiles_needs_one_block() -> None:
    tiling = Tiling(gemm(160, 448, 16), (32, 64))
    shuffled = np.random.default_rng(3).permutation(35)
    kernel = FakeKernel(tiling, inverse(lambda row, col: int(shuffled[row * 7 + col])))
    found = kernel.classes((35, 1, 1))
    assert found is not None
    assert (found.classes, found.parts[0][1]) == (1, 35)
    assert kernel.ran == [kernel.ran[0]] * len(kernel.ran)


def test_blocks_that_write_two_tiles_are_not_taken_for_one() -> None:
    kernel = FakeKernel(RAGGED, lambda block: [(0, block[0] // 7, block[0] % 7), (0, 0, 0)])
    assert kernel.classes((35, 1, 1)) is None


def test_blocks_that_write_nothing_are_not_taken_for_one() -> None:
    kernel = FakeKernel(RAGGED, lambda block: [])
    assert kernel.classes((35, 1, 1)) is None


def test_persistent_blocks_of_equal_tiles_have_two_classes() -> None:
    tiling = Tiling(gemm(160, 448, 16), (32, 64))
    kernel = FakeKernel(tiling, lambda block: [(0, p // 7, p % 7) for p in range(block[0], 35, 8)])
    found = kernel.classes((8, 1, 1))
    assert found is not None
    assert sorted(weight for _, weight in found.parts) == [3, 5]
    assert sum(counters.executed()[0] * weight for counters, weight in found.parts) == 35 * 64
    assert len(found.tiles or ()) == 5 + 4
    assert not kernel.blind


def test_persistent_blocks_of_ragged_tiles_run_in_full() -> None:
    kernel = FakeKernel(RAGGED, lambda block: [(0, p // 7, p % 7) for p in range(block[0], 35, 8)])
    assert kernel.classes((8, 1, 1)) is None
    assert kernel.ran == []


def test_inputs_are_generated_only_where_they_are_needed() -> None:
    problem = gemm(256, 256, 32)
    buffers = Buffers(problem)
    buffers.fill((0, slice(64, 128), slice(0, 32)))
    bits = buffers.items("a")[0].view(np.uint16)
    assert (bits[:64] == 0xFFFF).all()
    assert not (bits[64:128] == 0xFFFF).any()
    assert (buffers.items("d")[0].view(np.uint16) == 0xFFFF).all()


def test_padding_and_the_bytes_before_an_operand_are_poison() -> None:
    problem = Problem(
        m=4, n=3, k=2, a=Operand(dtype="f16", ld=8, offset=3), b=Operand(dtype="f16"), d=Operand(dtype="f32", ld=5)
    )
    buffers = Buffers(problem)
    buffers.fill((0, slice(0, 4), slice(0, 3)))
    assert buffers.offset_bytes("a") == 6
    assert (buffers.raw["a"][:6] == POISON).all()
    padded = buffers.flat["a"].view(np.uint16)
    assert (padded[2:8] == 0xFFFF).all()
    assert not (padded[:2] == 0xFFFF).any()
