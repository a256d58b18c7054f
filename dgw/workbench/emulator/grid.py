"""Runs the CTAs that are needed to know what the whole grid does: one of each class, or all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dgw.model import Config, Dim3
from dgw.workbench.emulator.classes import Key, Tile, TileClass, Tiling, candidates, rounds
from dgw.workbench.emulator.counters import Counters
from dgw.workbench.emulator.machine import every_cta
from dgw.workbench.emulator.observer import Finding
from dgw.workbench.emulator.operands import Buffers, Writes

PROTOCOL = "emulator/1"

Run = Callable[[Sequence[Dim3], Counters], Sequence[Finding]]


@dataclass
class Coverage:
    """What was run of one launch.

    Each of `parts` holds the counts of some CTAs and how many CTAs of the grid each of them stands for. `tiles` of D
    were computed (None: all that the launch computes); `classes` of CTAs were told apart (0: the whole grid ran).
    """

    grid: int
    parts: list[tuple[Counters, int]] = field(default_factory=list)
    tiles: list[Tile] | None = None
    classes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def protocol(self) -> str:
        """`emulator/1 classes=4 of 1024 CTAs`, or `emulator/1 full grid of 16 CTAs`."""
        if self.classes:
            return f"{PROTOCOL} classes={self.classes} of {self.grid} CTAs"
        return f"{PROTOCOL} full grid of {self.grid} CTAs"


def run_all(grid: Dim3, run: Run, buffers: Buffers) -> Coverage:
    """Run every block."""
    problem = buffers.problem
    for item in range(problem.batch):
        buffers.fill((item, slice(0, problem.m), slice(0, problem.n)))
    blocks = every_cta(grid)
    counters = Counters()
    return Coverage(len(blocks), [(counters, 1)], findings=list(run(blocks, counters)))


def run_classes(
    tiling: Tiling, grid: Dim3, config: Config, run: Run, buffers: Buffers, writes: Writes
) -> Coverage | None:
    """Run one block of each class; None when it does not turn out which blocks these are.

    A block is accepted for the class of the tile that it was seen to write. `writes` must be empty at first, and holds
    what these blocks wrote afterwards.
    """
    blocks = grid[0] * grid[1] * grid[2]
    if blocks == tiling.total:
        return _one_tile_each(tiling, grid, config, run, buffers, writes)
    if blocks < tiling.total and len(tiling.classes()) == 1:
        return _several_tiles_each(tiling, grid, run, buffers, writes)
    return None


def _one_tile_each(
    tiling: Tiling, grid: Dim3, config: Config, run: Run, buffers: Buffers, writes: Writes
) -> Coverage | None:
    classes = tiling.classes()
    search = _Search(tiling, {each.key: each for each in classes}, run, buffers, writes)
    guesses = {each.key: list(candidates(tiling, grid, config, each.example)) for each in classes}
    for turn in range(max(len(guess) for guess in guesses.values())):
        for each in classes:
            if each.key in search.wanted and turn < len(guesses[each.key]):
                search.attempt(guesses[each.key][turn], each)
            if search.failed:
                return None
    if search.wanted:
        return None
    grid_size = grid[0] * grid[1] * grid[2]
    return Coverage(grid_size, search.parts, search.tiles, len(classes), search.findings)


class _Search:
    """Blocks tried so far, the classes still wanted, and what was counted."""

    def __init__(
        self, tiling: Tiling, wanted: dict[Key, TileClass], run: Run, buffers: Buffers, writes: Writes
    ) -> None:
        self.tiling, self.wanted, self.run, self.buffers, self.writes = tiling, wanted, run, buffers, writes
        self.parts: list[tuple[Counters, int]] = []
        self.tiles: list[Tile] = []
        self.findings: list[Finding] = []
        self.failed = False
        self._tried: set[Dim3] = set()
        self._seen: set[Tile] = set()
        self._keys: dict[Tile, Key] = {}

    def attempt(self, block: Dim3, expected: TileClass) -> None:
        """Run `block`, see which tile it writes, and take it for the class of that tile if that is still wanted."""
        if block in self._tried:
            return
        self._tried.add(block)
        self.buffers.fill((expected.example[0], *self.tiling.block(expected.example)))
        counters = Counters()
        findings = self.run([block], counters)
        new = self.writes.new_tiles(self.tiling.tile)
        if len(new) != 1 or new & self._seen:  # not one tile a block
            self.failed = True
            return
        self._seen |= new
        (tile,) = new
        key = expected.key if tile == expected.example else self._key(tile)
        if key not in self.wanted:
            return
        if tile != expected.example:  # its inputs were not there
            self.buffers.fill((tile[0], *self.tiling.block(tile)))
            counters = Counters()
            findings = self.run([block], counters)
            self.writes.new_tiles(self.tiling.tile)
        self.parts.append((counters, self.wanted.pop(key).count))
        self.tiles.append(tile)
        self.findings += findings

    def _key(self, tile: Tile) -> Key:
        if not self._keys:
            self._keys = self.tiling.keys()
        return self._keys[tile]


def _several_tiles_each(tiling: Tiling, grid: Dim3, run: Run, buffers: Buffers, writes: Writes) -> Coverage | None:
    """Blocks that go from tile to tile, all tiles alike: those with more and those with fewer tiles."""
    problem = tiling.problem
    for item in range(problem.batch):
        buffers.fill((item, slice(0, problem.m), slice(0, problem.n)))
    blocks = every_cta(grid)
    first, last = Counters(), Counters()
    findings = [*run(blocks[:1], first)]
    many = writes.new_tiles(tiling.tile)
    findings += run(blocks[-1:], last)
    few = writes.new_tiles(tiling.tile)
    shares = rounds(tiling.total, len(blocks), len(few), len(many))
    if shares is None or not few or few & many:
        return None
    parts = [(last, shares[0]), (first, shares[1])] if shares[1] else [(first, shares[0])]
    return Coverage(len(blocks), parts, sorted(many | few), len(parts), findings)
