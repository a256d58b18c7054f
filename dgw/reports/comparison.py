"""Two runs beside each other: which cases can be compared, how their times stand, and which counters changed.

A ratio is the first run's time over the second's: above 1 the second is faster. Its interval follows from those of both
medians, which were taken independently: on logarithms, each side's distances are squared and added (the method of
variance estimates recovery; Zou and Donner, 2008). What differs between two runs as a whole, such as the power state
of the board, is not in it; `dgw gate` measures in turn for that reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dgw.errors import NotComparable
from dgw.model import Measurement, Record, Run
from dgw.reports.notes import failure_text
from dgw.reports.tables import SPECS, Cell, Line, config_text, machine_text, problem_text
from dgw.reports.units import show
from dgw.workbench.locked_clock import said

TIMES = ("time_cold", "time_hot")
FASTER, SLOWER, ALIKE, UNTIMED = "faster", "slower", "no difference shown", "not timed"
COUNTED = (
    "registers_per_thread", "shared_mem_per_block", "spill_store_bytes", "theoretical_occupancy", "achieved_occupancy",
    "conflict_ratio_ld", "conflict_ratio_st", "tensor_pipe_util", "fma_pipe_util", "dram_bytes", "l2_hit_rate",
    "energy", "smem_wavefronts_actual", "gld_sectors_per_request", "gst_sectors_per_request", "tensor_inst", "fma_inst",
    "barrier_inst", "bound_time",
)  # fmt: skip
"""The figures beside time that are compared, as the card knows them."""
WORTH_SAYING = 0.01
"""A figure that changes by a smaller share is not listed as a change."""


@dataclass(frozen=True)
class Change:
    """One figure of both cases, as people read it."""

    label: str
    before: str
    after: str
    factor: float | None  # after over before

    @property
    def text(self) -> str:
        """`registers per thread 128 -> 96`."""
        return f"{self.label} {self.before} -> {self.after}"


@dataclass(frozen=True)
class Pair:
    """A case of both runs: `ratio` with its 95 % interval, or why there is none (`untimed`).

    `changes` are the other figures that differ, `because` explains the times where that was asked.
    """

    title: str
    base: Record
    head: Record
    metric: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    untimed: str = ""
    changes: tuple[Change, ...] = ()
    because: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """What the interval says of the second run."""
        if self.ratio is None:
            return UNTIMED
        if self.low is None or self.high is None:
            return ALIKE
        return FASTER if self.low > 1 else SLOWER if self.high < 1 else ALIKE


@dataclass(frozen=True)
class Comparison:
    """What could be compared, what could not and why, and what only one of the runs has."""

    base: Run
    head: Run
    pairs: tuple[Pair, ...]
    refused: tuple[tuple[str, str], ...]
    only_base: tuple[str, ...]
    only_head: tuple[str, ...]

    @property
    def devices(self) -> tuple[str, str] | None:
        """The two devices, where each run has one and they differ."""
        ours = {pair.base.environment.device for pair in self.pairs}
        theirs = {pair.head.environment.device for pair in self.pairs}
        return (ours.pop(), theirs.pop()) if ours != theirs and len(ours) == len(theirs) == 1 else None

    @property
    def names(self) -> tuple[str, str]:
        """What the runs are called in tables: by their devices where those differ, else first and second."""
        return self.devices or ("first", "second")

    @property
    def title(self) -> str:
        """Both runs, or both devices, the second one first."""
        one, other = self.devices or (self.base.id, self.head.id)
        return f"{other} against {one}"

    def machines(self, which: int) -> str:
        """The machines of one side (0 or 1) of the pairs."""
        records = [(pair.base, pair.head)[which] for pair in self.pairs]
        return "; ".join(dict.fromkeys(f"{machine_text(record)}{said([record])}" for record in records))

    def count(self, verdict: str) -> int:
        """How many pairs have a verdict."""
        return sum(pair.verdict == verdict for pair in self.pairs)

    @property
    def mean(self) -> float | None:
        """The geometric mean of the ratios."""
        logs = [math.log(pair.ratio) for pair in self.pairs if pair.ratio]
        return math.exp(sum(logs) / len(logs)) if logs else None


Why = Callable[[Record, Record], Sequence[str]]
"""What explains the difference between two records, in sentences; nothing where it cannot be told."""


def compare(base: Run, head: Run, why: Why | None = None) -> Comparison:
    """Match the cases of two runs by problem, variant and config; `why` is asked about those that differ in time.

    Raises NotComparable when no pair can be compared.
    """
    titles = _titles([*base.records, *head.records])
    there = {_identity(record): record for record in head.records}
    pairs, refused = [], []
    for record in base.records:
        other = there.get(_identity(record))
        if other is None:
            continue
        title = titles[_identity(record)]
        reason = refusal(record, other)
        if reason:
            refused.append((title, reason))
        else:
            pair = _pair(title, record, other)
            if why is not None and pair.verdict in (FASTER, SLOWER):
                pair = replace(pair, because=tuple(why(record, other)))
            pairs.append(pair)
    here = {_identity(record) for record in base.records}
    found = Comparison(
        base, head, tuple(pairs), tuple(refused),
        tuple(title for identity, title in titles.items() if identity in here and identity not in there),
        tuple(title for identity, title in titles.items() if identity not in here),
    )  # fmt: skip
    if not pairs:
        raise NotComparable(*_nothing(found))
    return found


def _nothing(found: Comparison) -> tuple[str, str]:
    """Why nothing is compared, and what to do about it."""
    runs = f"{found.base.id} and {found.head.id}"
    if not found.refused:
        only = f" ({found.only_base[0]} against {found.only_head[0]})" if found.only_base and found.only_head else ""
        return f"{runs} have no case in common{only}", "two runs of the same variants, configs and shapes: dgw runs"
    title, reason = found.refused[0]
    more = f"; and {len(found.refused) - 1} more cases" if len(found.refused) > 1 else ""
    return f"{runs} cannot be compared: {title}: {reason}{more}", "measure both under the same conditions: dgw profile"


def refusal(base: Record, head: Record) -> str:
    """Why two records of one case are not compared; empty when they are."""
    for record in (base, head):
        if record.outcome != "ok":
            return f"{record.outcome}: {failure_text(record)}"
    ours, theirs = base.environment, head.environment
    if ours.engine != theirs.engine:
        return f"one by the engine {ours.engine}, the other by {theirs.engine}"
    if ours.device == theirs.device and ours.driver != theirs.driver:
        return f"measured under different drivers, {ours.driver or 'unknown'} and {theirs.driver or 'unknown'}"
    protocols = [(a.protocol, b.protocol) for metric in TIMES
                 if (a := _timed(base, metric)) is not None and (b := _timed(head, metric)) is not None]  # fmt: skip
    if protocols and all(one != other for one, other in protocols):
        return f"measured under different protocols, {protocols[0][0]} and {protocols[0][1]}"
    return ""


def _identity(record: Record) -> tuple[object, ...]:
    case = record.case
    return case.problem, case.variant, tuple(sorted(case.config.items()))


def _titles(records: Sequence[Record]) -> dict[tuple[object, ...], str]:
    """By identity: the variant, with the config and the problem where they tell cases apart."""
    configs: dict[tuple[object, str], set[tuple[object, ...]]] = {}
    for record in records:
        configs.setdefault((record.case.problem, record.case.variant), set()).add(_identity(record))
    problems = dict.fromkeys(record.case.problem for record in records)
    shapes = {problem.shape for problem in problems}
    found = {}
    for record in records:
        case = record.case
        title = case.variant.removeprefix("baselines/")
        title += f" {config_text(case.config)}" if len(configs[case.problem, case.variant]) > 1 else ""
        if len(problems) > 1:
            title += f" {case.problem.shape if len(shapes) == len(problems) else problem_text(case.problem)}"
        found[_identity(record)] = title
    return found


def _timed(record: Record, metric: str) -> Measurement | None:
    found = record.get(metric)
    return found if found is not None and isinstance(found.value, int | float) and found.value > 0 else None


def _pair(title: str, base: Record, head: Record) -> Pair:
    changes = tuple(change for key in COUNTED if (change := _change(key, base, head)) is not None)
    if base.case.version != head.case.version:
        changes = (Change("declared version", str(base.case.version), str(head.case.version), None), *changes)
    for metric in TIMES:
        ours, theirs = _timed(base, metric), _timed(head, metric)
        if ours is not None and theirs is not None and ours.protocol == theirs.protocol:
            return Pair(title, base, head, metric, *quotient(ours, theirs), changes=changes)
    why = next((m.absent for r in (base, head) for metric in TIMES if (m := r.get(metric)) and m.absent), "")
    return Pair(title, base, head, untimed=why or "no time in both runs", changes=changes)


def quotient(base: Measurement, head: Measurement) -> tuple[float, float | None, float | None]:
    """The ratio of two positive medians and its 95 % interval, None where either has no interval."""
    ours, theirs = float(base.value or 0), float(head.value or 0)
    ratio = ours / theirs
    if None in (base.low, base.high, head.low, head.high):
        return ratio, None, None
    down = math.hypot(math.log(ours / (base.low or ours)), math.log((head.high or theirs) / theirs))
    up = math.hypot(math.log((base.high or ours) / ours), math.log(theirs / (head.low or theirs)))
    return ratio, ratio * math.exp(-down), ratio * math.exp(up)


_SPEC = {spec.key: spec for spec in SPECS}


def _change(key: str, base: Record, head: Record) -> Change | None:
    """A figure that both have from one collector under one protocol, and that differs by more than WORTH_SAYING."""
    ours, theirs = base.get(key), head.get(key)
    if ours is None or theirs is None or (ours.collector, ours.protocol) != (theirs.collector, theirs.protocol):
        return None
    before, after = ours.value, theirs.value
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return None
    if abs(after - before) <= WORTH_SAYING * max(abs(before), abs(after)):
        return None
    spec = _SPEC[key]
    return Change(spec.label, show(before, spec.style), show(after, spec.style), after / before if before else None)


@dataclass(frozen=True)
class Table:
    """The comparison as text, one row a pair, every column in one unit."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(found: Comparison) -> Table:
    """Times of both runs, ratio, interval and verdict of every pair; the one table that every renderer shows."""
    cells = []
    for pair in found.pairs:
        for record in (pair.base, pair.head):
            timed = _timed(record, pair.metric) if pair.metric else None
            cells.append(Cell() if timed is None else Cell(timed.value, timed.low, timed.high))
    times = Line("time", "time", "time", "seconds", tuple(cells))
    unit = f", {times.unit[1]}" if times.unit[1] else ""
    ratios = Line("ratio_to_cublas", "ratio", "time", "times",
                  tuple(Cell(pair.ratio, pair.low, pair.high) for pair in found.pairs))  # fmt: skip
    rows = [
        (pair.title, pair.metric.removeprefix("time_") or "-", times.text(2 * i), times.text(2 * i + 1), ratios.text(i),
         ratios.interval(i), pair.verdict)
        for i, pair in enumerate(found.pairs)
    ]  # fmt: skip
    one, other = found.names
    head = ("case", "lane", f"{one}{unit}", f"{other}{unit}", "ratio", "95 % interval", f"{other} is")
    return Table(head, tuple(rows))
