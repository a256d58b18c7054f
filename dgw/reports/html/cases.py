"""The table of all cases: one row each, in one unit a column, with the base value that sorting goes by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dgw.model import Record
from dgw.reports.tables import Block, Cell, Line, dtype_text
from dgw.reports.units import UNKNOWN

COLUMNS = (
    "error_of_bound", "time_cold", "time_hot", "tflops", "ratio_to_cublas", "share_of_mma_rate", "bound_time", "energy",
    "achieved_occupancy", "registers_per_thread", "conflict_ratio_ld", "conflict_ratio_st", "tensor_pipe_util",
    "dram_bytes", "l2_hit_rate",
)  # fmt: skip
"""The lines of the card that are columns of the table, each where any case knows it."""


@dataclass(frozen=True)
class Shown:
    """One text and what it is sorted by: the value in base units, or the text itself (None)."""

    text: str
    value: float | None = None
    title: str = ""


@dataclass(frozen=True)
class Row:
    """One case: where its details are, and its cells in the order of the head."""

    anchor: str
    variant: str
    family: str
    outcome: str
    cells: tuple[Shown, ...]


@dataclass(frozen=True)
class Cases:
    """The heads of all columns (`True`: of numbers) and the rows."""

    head: tuple[tuple[str, bool], ...]
    rows: tuple[Row, ...]

    def values(self, name: str) -> list[str]:
        """The different values of `outcome` or `family`, in order of appearance."""
        return list(dict.fromkeys(getattr(row, name) for row in self.rows))


def anchor(block: int, column: int) -> str:
    """The id of the details of a case."""
    return f"case-{block + 1}-{column + 1}"


def positions(blocks: Sequence[Block]) -> Iterator[tuple[int, int, Block, Record]]:
    """Number of the block, of the column, the block and the record, of every case."""
    for number, block in enumerate(blocks):
        for column, one in enumerate(block.columns):
            yield number, column, block, one.record


def build(blocks: Sequence[Block]) -> Cases:
    """The table over all blocks; problem and types are columns only where they differ."""
    lines = [line for key in COLUMNS if (line := merged(blocks, key)) is not None]
    texts = {
        "shape": [block.problem.shape for _, _, block, _ in positions(blocks)],
        "types": [
            dtype_text(block.problem) if block.problem.known else UNKNOWN for _, _, block, _ in positions(blocks)
        ],
        "layout": [block.problem.layout or UNKNOWN for _, _, block, _ in positions(blocks)],
        "data": [f"{block.problem.data}, seed {block.problem.seed}" for _, _, block, _ in positions(blocks)],
        "machine": [block.machine for _, _, block, _ in positions(blocks)],
    }
    kept = {name: found for name, found in texts.items() if len(set(found)) > 1}
    head = [("case", False), *((name, False) for name in kept), ("outcome", False)]
    head += [(line.heading.strip(), True) for line in lines]
    rows = []
    for index, (number, column, block, record) in enumerate(positions(blocks)):
        cells = [*(Shown(found[index], _volume(record) if name == "shape" else None) for name, found in kept.items())]
        cells += [Shown(record.outcome), *(_shown(line, index) for line in lines)]
        family = record.case.variant.partition("/")[0]
        title = block.columns[column].title
        rows.append(Row(anchor(number, column), title, family, record.outcome, tuple(cells)))
    return Cases(tuple(head), tuple(rows))


def merged(blocks: Sequence[Block], key: str) -> Line | None:
    """A line of all blocks side by side, in one unit; None where no case knows it."""
    found = [block.line(key) for block in blocks]
    first = next((line for line in found if line is not None), None)
    if first is None:
        return None
    cells: list[Cell] = []
    for block, line in zip(blocks, found, strict=True):
        cells += line.cells if line is not None else [Cell()] * len(block.columns)
    whole = Line(first.key, first.label, first.group, first.style, tuple(cells))
    return whole if any(cell.value is not None for cell in cells) else None


def _shown(line: Line, index: int) -> Shown:
    cell = line.cells[index]
    value = float(cell.value) if isinstance(cell.value, int | float) else None
    if cell.value is None:
        return Shown(UNKNOWN, None, cell.absent)
    told = f"95 % interval {line.interval(index)}" if cell.low is not None and cell.high is not None else ""
    return Shown(line.text(index), value, told)


def _volume(record: Record) -> float | None:
    problem = record.case.problem
    return float(problem.flops) if problem.known else None
