"""What stands at the top: a title, a few facts, and the figures that one looks for first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dgw.model import Record, Run
from dgw.reports.html.cases import positions
from dgw.reports.tables import Block, problem_text
from dgw.reports.units import show

BASELINES = "baselines/"


@dataclass(frozen=True)
class Tile:
    """One figure: its label, its text, and a line of small print."""

    label: str
    value: str
    note: str = ""


def title(blocks: Sequence[Block]) -> str:
    """The problem, or how many there are."""
    problems = dict.fromkeys(block.problem for block in blocks)
    if len(problems) == 1:
        return problem_text(next(iter(problems)))
    cases = sum(len(block.columns) for block in blocks)
    return f"{cases} cases of {len(problems)} problems" if blocks else "A run without cases"


def facts(run: Run, blocks: Sequence[Block]) -> list[tuple[str, str]]:
    """What is needed to find or repeat the run."""
    found = [
        ("run", run.id),
        ("measured", run.created[:19].replace("T", " ") + " UTC"),
        ("command", shlex.join(run.command)),
    ]
    found.append(("machine", "; ".join(dict.fromkeys(block.machine for block in blocks))))
    found.append(("dgw", f"{run.version}, commit {run.commit[:12]}" if run.commit else run.version))
    return [(name, text) for name, text in found if text]


def tiles(blocks: Sequence[Block]) -> list[Tile]:
    """Cases and their outcomes; then, of one problem, the fastest case, its standing and the bound; of many, counts."""
    records = [record for *_, record in positions(blocks)]
    found = [_outcomes(records)]
    if len(blocks) == 1:
        found += _fastest(blocks[0])
    elif blocks:
        found += _many(blocks)
    return found


def _outcomes(records: Sequence[Record]) -> Tile:
    counts: dict[str, int] = {}
    for record in records:
        counts[record.outcome] = counts.get(record.outcome, 0) + 1
    good = counts.pop("ok", 0)
    bad = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return Tile("cases", f"{good} of {len(records)} ok" if bad else str(len(records)), bad or "all ok")


def _own(block: Block) -> list[tuple[int, Record]]:
    """The cases that are not baselines and ended well."""
    return [(i, c.record) for i, c in enumerate(block.columns)
            if c.record.outcome == "ok" and not c.record.case.variant.startswith(BASELINES)]  # fmt: skip


def _time(record: Record) -> float | None:
    return record.number("time_cold") or record.number("time_hot")


def _fastest(block: Block) -> list[Tile]:
    timed = [(time, index) for index, record in _own(block) if (time := _time(record))]
    found = []
    if timed:
        _, best = min(timed)
        column = block.columns[best]
        rate, ratio = block.line("tflops"), block.line("ratio_to_cublas")
        cold = show(_time(column.record), "seconds")
        if rate is not None and rate.cells[best].value is not None:
            found.append(Tile("fastest stage", column.title, f"{show(rate.cells[best].value, 'rate')}, {cold}"))
        else:
            found.append(Tile("fastest stage", column.title, cold))
        if ratio is not None and ratio.cells[best].value is not None:
            found.append(Tile("against cuBLAS", ratio.text(best), f"95 % interval {ratio.interval(best)}"))
        if len(timed) > 1:
            worst, slow = max(timed)
            gained = show(worst / min(timed)[0], "times")
            found.append(Tile("from first to last", gained, f"faster than {block.columns[slow].title}"))
    bound = next(((b, r) for _, r in _own(block) if (b := r.number("bound_time"))), None)
    if bound is not None:
        pipe = bound[1].get("bound_pipe")
        found.append(
            Tile("lower bound", show(bound[0], "seconds"), f"set by {pipe.value}" if pipe and pipe.value else "")
        )
    return found


def _many(blocks: Sequence[Block]) -> list[Tile]:
    best = []
    for block in blocks:
        ratios = [r for _, record in _own(block) if (r := record.number("ratio_to_cublas"))]
        best += [max(ratios)] if ratios else []
    found = [Tile("problems", str(len(dict.fromkeys(block.problem for block in blocks))))]
    if best:
        ahead = sum(ratio > 1 for ratio in best)
        ranked = sorted(best)
        found.append(Tile("faster than cuBLAS", f"{ahead} of {len(best)}", "problems, by the best stage of each"))
        found.append(Tile("best stage, median", show(ranked[len(ranked) // 2], "times"), "of cuBLAS over all problems"))
    return found
