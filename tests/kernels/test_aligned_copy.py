"""The copies of operands that the copy engine cannot step through, executed on the CPU, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from dgw.kernels.hopper import alignment
from dgw.kernels.loader import load
from dgw.model import Launch, Operand, Problem, Source, gemm
from dgw.operands import layouts
from dgw.toolchain.build import build
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.nvrtc import compile_program
from dgw.workbench.binding import argument_bytes
from dgw.workbench.emulator.counters import Counters
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.measures import tabulate, with_ratios
from dgw.workbench.emulator.memory import Memory
from dgw.workbench.emulator.observer import Access, Outcome

PERSISTENT = load()["hopper/persistent"]
Elements = npt.NDArray[np.uint16]


@lru_cache(maxsize=2)
def ptx_of(source: Source) -> str:
    path = PERSISTENT.root / source.path
    return compile_program(path.read_text(), str(path), "compute_90a", source.defines, PERSISTENT.includes).ptx


class Loads(Counters):
    """Counts, and remembers each global byte range that was loaded: first and end."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: set[tuple[int, int]] = set()

    def memory(self, access: Access) -> None:
        super().memory(access)
        info = access.instructions[0]
        if access.space == "global" and info.kind == "ld":
            found = access.addresses[np.broadcast_to(access.mask, access.addresses.shape)]
            self.ranges.update((int(first), int(first) + info.width_bytes) for first in found)


@dataclass
class Copying:
    """The copying launch of a problem, run in the emulator; a buffer ends where the last line of its operand does."""

    problem: Problem
    names: tuple[str, ...] = field(init=False)
    stored: dict[str, Elements] = field(default_factory=dict)  # what the buffer of an operand holds
    first: dict[str, int] = field(default_factory=dict)  # address of its first element
    copies: dict[str, Elements] = field(default_factory=dict)
    loads: Loads = field(default_factory=Loads)
    outcome: Outcome = field(init=False)

    def __post_init__(self) -> None:
        self.names = alignment.copied(self.problem)
        memory, bits = Memory(), np.random.default_rng(len(self.names))
        for name in ("a", "b"):
            offset = self.problem.operands()[name].offset
            size = offset + layouts.extent(self.problem, name)
            self.stored[name] = bits.integers(1, 1 << 16, size, dtype=np.uint16)  # never what padding becomes
            self.first[name] = memory.register(name, self.stored[name], writable=False) + 2 * offset
        for name, size in alignment.workspaces(self.problem).items():
            self.copies[name] = np.full(size // 2, 0xFFFF, np.uint16)
            self.first[name] = memory.register(name, self.copies[name])
        self.outcome = self._emulated(self.launch(), memory)

    def launch(self) -> Launch:
        (found,) = alignment.copying(self.problem)
        return found

    def _emulated(self, launch: Launch, memory: Memory) -> Outcome:
        def tensor_map(_: object) -> bytes:
            raise AssertionError("the copy takes no tensor map")

        place = self.first.__getitem__
        parameters = [argument_bytes(self.problem, x, place, place, tensor_map) for x in launch.arguments]
        ran = EmulatedLaunch(ptx_of(launch.source), launch.entry, launch.grid, launch.block, parameters, memory)
        outcome = ran.run(observer=self.loads)
        self.loads.finish()
        return outcome

    def copy(self, name: str) -> Elements:
        """The copy of an operand, lines by elements."""
        return self.copies[f"aligned {name}"].reshape(alignment.stored_shape(self.problem, name)[0], -1)

    def expected(self, name: str) -> Elements:
        """The lines of an operand, and zeros up to whole 128 bytes."""
        count, width = alignment.stored_shape(self.problem, name)
        offset, step = self.problem.operands()[name].offset, self.problem.leading_dimension(name)
        found = np.zeros((count, -(-width // 64) * 64), np.uint16)
        for line in range(count):
            start = offset + line * step
            found[line, :width] = self.stored[name][start : start + width]
        return found


def copying(problem: Problem) -> tuple[Launch, ...]:
    """The launch that copies what has to be."""
    return alignment.copying(problem)


def is_right(copying: Copying, names: Sequence[str] = ("a", "b")) -> None:
    """Every bit is; nothing outside of the operands was read, not even where there is memory."""
    assert copying.names == tuple(names)
    assert copying.outcome.findings == ()
    for name in names:
        np.testing.assert_array_equal(copying.copy(name), copying.expected(name))
    spans = [(copying.first[name], copying.first[name] + 2 * layouts.extent(copying.problem, name)) for name in names]
    outside = [(low, end) for low, end in copying.loads.ranges if not any(x <= low and end <= y for x, y in spans)]
    assert outside == []


def strided(width_a: int, ld_a: int, offset_a: int, width_b: int, ld_b: int, offset_b: int, rows: int) -> Problem:
    """A of `rows` lines and B of `width_a` lines, with these widths, steps and offsets in elements."""
    problem = gemm(rows, width_b, width_a)
    return msgspec.structs.replace(
        problem,
        a=Operand(dtype="f16", ld=ld_a, offset=offset_a),
        b=Operand(dtype="f16", ld=ld_b, offset=offset_b),
    )


@pytest.mark.parametrize("width", [1, 7, 8, 9, 63, 64, 65])
def test_lines_of_every_width_are_copied_from_every_distance(width: int) -> None:
    """Odd steps put the lines at all eight distances, even ones at some, multiples of eight at that of the offset."""
    for step, offset in ((width | 1, 0), (width + 3 | 1, 6), (-(-width // 2) * 2 + 2, 1), (-(-width // 8) * 8 + 16, 5)):
        is_right(Copying(strided(width, step, offset, 255, 257, 3, 19)))


@pytest.mark.parametrize("offset", range(8))
def test_a_base_off_alignment_is_copied_from_its_first_element_on(offset: int) -> None:
    names = ("a", "b") if offset else ("b",)
    is_right(Copying(strided(72, 80, offset, 136, 140, offset, 5)), names)


@pytest.mark.parametrize("name", ["a", "b"])
def test_one_operand_alone_is_copied_by_one_row_of_blocks(name: str) -> None:
    odd = (1001, 1001, 0)
    problem = strided(*(odd if name == "a" else (8, 8, 0)), *(odd if name == "b" else (64, 64, 0)), rows=6)
    copying = Copying(problem)
    assert copying.launch().grid[1] == 1
    is_right(copying, (name,))


@pytest.mark.parametrize("rows", [1, 2])
def test_lines_end_where_their_memory_does(rows: int) -> None:
    for width in (1, 8, 1001, 1008):
        is_right(Copying(strided(width, width, 3, 1, 9, 0, rows)), ("a",) if width == 1 else ("a", "b"))


def test_blocks_stride_over_what_is_larger_than_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "BLOCKS", 3)
    copying = Copying(strided(1001, 1001, 0, 129, 131, 2, 50))
    assert copying.launch().grid == (3, 2, 1)
    is_right(copying)


def test_a_problem_of_a_thousand_fills_every_sm_in_one_wave() -> None:
    (launch,) = copying(gemm(1001, 1001, 1001))
    assert 132 <= launch.grid[0] * launch.grid[1] <= alignment.BLOCKS
    (launch,) = copying(gemm(16383, 16383, 16383))
    assert launch.grid[0] == alignment.BLOCKS


@pytest.mark.parametrize(("step", "off"), [(1001, 7 / 8), (1002, 3 / 4), (1004, 1 / 2)])
def test_a_line_is_read_in_sixteen_bytes_and_only_off_alignment_twice(step: int, off: float) -> None:
    """`off`: the share of lines that are off alignment. Single elements would be eight loads for each store."""
    copying = Copying(strided(1001, step, 0, 999, step, 0, 24))
    is_right(copying)
    totals = with_ratios(tabulate(copying.loads).totals())
    moved = sum(2 * copying.copy(name).size for name in copying.names)
    assert totals["global_sectors_st"] * 32 == moved
    assert totals["global_requests_ld"] == pytest.approx((1 + off) * totals["global_requests_st"], rel=0.01)
    assert totals["gld_sectors_per_request"] <= 17
    assert totals["global_bytes_ld"] <= (1 + off) * moved


def test_the_copy_spills_no_registers_and_its_blocks_fill_an_sm(cache: CompileCache) -> None:
    (launch,) = copying(gemm(1001, 1001, 1001))
    used = build(launch.source, PERSISTENT.root, PERSISTENT.includes, "sm_90a", cache).resources(launch.entry)
    assert (used.spill_store_bytes, used.spill_load_bytes, used.local_bytes) == (0, 0, 0)
    assert used.registers <= 64
