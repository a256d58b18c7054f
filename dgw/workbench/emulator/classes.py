"""Which CTAs need to be emulated: those of one class cost the same, so one of each is enough.

A class is what the cost of a tile of D can depend on: how many of its rows and columns exist (edge kind), where its
pieces of the operands start within 128 bytes, and, for CTAs that compute several tiles, how many. How blocks are mapped
to tiles is the kernel's business. A mapping is guessed, and what the CTA then writes shows whether the guess was right;
whatever the mapping, every tile is computed once, so a class weighs as many CTAs as it has tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from dgw.model import Config, Dim3, Problem
from dgw.operands.dtypes import numpy_dtype
from dgw.operands.layouts import batch_stride, strides

LINE_BYTES = 128
Tile = tuple[int, int, int]  # batch item, row of tiles, column of tiles
Key = tuple[int, ...]


@dataclass(frozen=True)
class TileClass:
    """Tiles that cost the same: what they have in common, how many there are, one of them."""

    key: Key
    count: int
    example: Tile


@dataclass(frozen=True)
class Tiling:
    """How D is cut: `tile` rows and columns, and how many tiles there are each way."""

    problem: Problem
    tile: tuple[int, int]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Batch items, rows of tiles, columns of tiles."""
        rows, cols = self.tile
        return self.problem.batch, -(-self.problem.m // rows), -(-self.problem.n // cols)

    @property
    def total(self) -> int:
        """How many tiles D has."""
        batch, down, across = self.counts
        return batch * down * across

    def block(self, tile: Tile) -> tuple[slice, slice]:
        """Rows and columns of D in a tile."""
        _, row, col = tile
        top, left = row * self.tile[0], col * self.tile[1]
        return slice(top, min(top + self.tile[0], self.problem.m)), slice(
            left, min(left + self.tile[1], self.problem.n)
        )

    def classes(self) -> list[TileClass]:
        """The classes of all tiles, the most frequent first."""
        batch, down, across = self.counts
        items = _grouped([self._item(index) for index in range(batch)])
        rows = _grouped([self._row(index) for index in range(down)])
        cols = _grouped([self._col(index) for index in range(across)])
        found: dict[Key, tuple[int, Tile]] = {}
        for (item, at_item), (row, at_row), (col, at_col) in product(items.items(), rows.items(), cols.items()):
            key = _key(item, row, col)
            example = (_middle(at_item), _middle(at_row), _middle(at_col))
            count = len(at_item) * len(at_row) * len(at_col)
            before = found.get(key)
            found[key] = (count, example) if before is None else (before[0] + count, before[1])
        classes = [TileClass(key, count, example) for key, (count, example) in found.items()]
        return sorted(classes, key=lambda each: -each.count)

    def keys(self) -> dict[Tile, Key]:
        """The class of every tile."""
        batch, down, across = self.counts
        items, rows = [self._item(index) for index in range(batch)], [self._row(index) for index in range(down)]
        cols = [self._col(index) for index in range(across)]
        return {
            (item, row, col): _key(items[item], rows[row], cols[col])
            for item, row, col in product(range(batch), range(down), range(across))
        }

    def _names(self) -> list[str]:
        return [name for name in ("a", "b", "c", "d", "bias", "residual") if name in self.problem.operands()]

    def _bytes(self, name: str, elements: int) -> int:
        return elements * numpy_dtype(self.problem.operands()[name].dtype).itemsize % LINE_BYTES

    def _item(self, index: int) -> Key:
        """Where the operands of a batch item start, in bytes of a 128-byte line; the offset of the operand included."""
        operands = self.problem.operands()
        return tuple(
            self._bytes(name, operands[name].offset + index * batch_stride(self.problem, name))
            for name in self._names()
        )

    def _row(self, index: int) -> Key:
        """Rows that exist, then how far each operand's piece is moved by the row of tiles."""
        top = index * self.tile[0]
        moved = (
            0 if name in ("b", "bias") else self._bytes(name, top * strides(self.problem, name)[0])
            for name in self._names()
        )
        return (min(self.tile[0], self.problem.m - top), *moved)

    def _col(self, index: int) -> Key:
        """Columns that exist, then how far each operand's piece is moved by the column of tiles."""
        left = index * self.tile[1]
        moved = (
            0 if name == "a" else self._bytes(name, left * strides(self.problem, name)[1]) for name in self._names()
        )
        return (min(self.tile[1], self.problem.n - left), *moved)


def _key(item: Key, row: Key, col: Key) -> Key:
    """Rows and columns that exist, then where in a line the tile's piece of each operand starts."""
    return (row[0], col[0], *(sum(parts) % LINE_BYTES for parts in zip(item, row[1:], col[1:], strict=True)))


def _grouped(keys: list[Key]) -> dict[Key, list[int]]:
    found: dict[Key, list[int]] = {}
    for index, key in enumerate(keys):
        found.setdefault(key, []).append(index)
    return found


def _middle(indices: list[int]) -> int:
    return indices[len(indices) // 2]


def candidates(tiling: Tiling, grid: Dim3, config: Config, tile: Tile) -> Iterator[Dim3]:
    """Blocks that may compute `tile` when each block computes one, the likeliest guess first; without repetitions."""
    seen = set()
    for block in _guesses(tiling, grid, config, tile):
        if block not in seen and all(0 <= at < size for at, size in zip(block, grid, strict=True)):
            seen.add(block)
            yield block


def _guesses(tiling: Tiling, grid: Dim3, config: Config, tile: Tile) -> Iterator[Dim3]:
    batch, down, across = tiling.counts
    item, row, col = tile
    if grid == (across, down, batch):
        yield col, row, item
    if grid == (down, across, batch):
        yield row, col, item
    per_item = down * across
    for place in _places(config, down, across, row, col):
        if grid == (per_item, 1, batch):
            yield place, 0, item
        if grid == (per_item, batch, 1):
            yield place, item, 0
        if grid == (per_item * batch, 1, 1):
            yield item * per_item + place, 0, 0


def _places(config: Config, down: int, across: int, row: int, col: int) -> Iterator[int]:
    """Linear positions of a tile: row by row, column by column, and in groups of rows or columns that stay in L2."""
    for name in ("GROUP_M", "GROUP_N", "GROUP"):
        group = config.get(name)
        if isinstance(group, int) and group > 1:
            yield _grouped_place(group, down, across, row, col)
            yield _grouped_place(group, across, down, col, row)
    yield row * across + col
    yield col * down + row


def _grouped_place(group: int, down: int, across: int, row: int, col: int) -> int:
    """Position of a tile when `group` rows of tiles are walked column by column before the next rows."""
    first = row // group * group
    height = min(group, down - first)
    return first * across + col * height + (row - first)


def rounds(tiles: int, blocks: int, least: int, most: int) -> tuple[int, int] | None:
    """How many blocks compute `least` and how many `most` tiles, when `blocks` share `tiles` as evenly as can be.

    None when that is not so.
    """
    if least == most:
        return (blocks, 0) if least * blocks == tiles else None
    if most != least + 1:
        return None
    more = tiles - least * blocks
    return (blocks - more, more) if 0 <= more <= blocks else None
