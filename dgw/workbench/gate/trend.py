"""Trends: one figure of stored runs over time, told apart by everything that must not change, and where it steps.

The figure is a ratio to cuBLAS, taken in the same turns, so that clocks of different nights cancel as far as both react
alike to them. A series ends where the GPU, the driver, the cuBLAS or the protocol becomes another one.

The simple rule, where apache-otava is not there: among the last `WINDOW` points, every split is tried with the nearest
6, 12 and 25 points on each side (at least `LEAST`) by Student's t (pooled variance, two-sided). The strongest is a
change point where its p, times the number of tries, is at most 1e-4 and the means differ by at least 1 %. Then both
parts are searched again.
"""

from __future__ import annotations

import csv
import math
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from dgw.model import Noun, Record, Run

LEAST = 4
WINDOW = 50
REACH = (6, 12, 25)
P = 1e-4
MAGNITUDE = 0.01
OTAVA_S = 120.0
Values = npt.NDArray[np.float64]


class Point(Noun, frozen=True, kw_only=True):
    """One night: when (ISO 8601), of which commit, and the ratio with its interval."""

    created: str
    run: str
    commit: str = ""
    value: float
    low: float | None = None
    high: float | None = None


class Step(Noun, frozen=True, kw_only=True):
    """A change point: the first point of the new level, the means before and after (of the points around it), and p."""

    index: int
    created: str
    commit: str
    before: float
    after: float
    p: float
    rule: str

    @property
    def change(self) -> float:
        """Relative change: below 0, what was measured became slower against cuBLAS."""
        return self.after / self.before - 1


class Series(Noun, frozen=True, kw_only=True):
    """The points of one case under one set of conditions, oldest first, and where they step."""

    label: str
    variant: str
    metric: str
    device: str
    driver: str
    library: str  # version of cuBLAS
    protocol: str
    points: tuple[Point, ...]
    steps: tuple[Step, ...] = ()

    @property
    def open_drop(self) -> Step | None:
        """The newest step, where it is for the worse: nothing has made up for it since."""
        last = self.steps[-1] if self.steps else None
        return last if last is not None and last.change < 0 else None


def series_of(runs: Iterable[Run], metric: str = "ratio_to_cublas") -> list[Series]:
    """All series in the runs, in the order in which they first appear; runs may come in any order."""
    points: dict[tuple[str, ...], list[Point]] = {}
    for run in sorted(runs, key=lambda one: (one.created, one.id)):
        for record in run.records:
            found = record.get(metric)
            if record.outcome != "ok" or found is None or not isinstance(found.value, int | float):
                continue
            point = Point(
                created=run.created, run=run.id, commit=run.commit, value=float(found.value), low=found.low,
                high=found.high,
            )  # fmt: skip
            points.setdefault(_conditions(record, metric, found.protocol), []).append(point)
    names = ("label", "variant", "metric", "device", "driver", "library", "protocol")
    return [Series(**dict(zip(names, key, strict=True)), points=tuple(found)) for key, found in points.items()]  # type: ignore[arg-type]


def _conditions(record: Record, metric: str, protocol: str) -> tuple[str, ...]:
    from dgw.workbench.gate.facts import label_of

    case, where = record.case, record.environment
    label = label_of(case.variant, case.problem, case.config)
    return (label, case.variant, metric, where.device, where.driver, where.cublas or where.torch, protocol)


def steps(values: Sequence[float]) -> list[tuple[int, float]]:
    """The simple rule: (index of the first value after the step, p) of each change point, in order."""
    start = max(0, len(values) - WINDOW)
    return [(start + index, p) for index, p in _search(np.asarray(values[start:], np.float64))]


def _search(values: Values) -> list[tuple[int, float]]:
    tries = [
        (split, width)
        for split in range(LEAST, len(values) - LEAST + 1)
        for width in REACH
        if width == REACH[0] or width // 2 < max(split, len(values) - split)
    ]
    if not tries:
        return []
    tested = [(*_tested(values[max(0, at - width) : at], values[at : at + width]), at) for at, width in tries]
    p, change, best = min(tested)
    p = min(1.0, p * len(tries))
    if p > P or change < MAGNITUDE:
        return []
    later = [(best + index, q) for index, q in _search(values[best:])]
    return [*_search(values[:best]), (best, p), *later]


def _tested(left: Values, right: Values) -> tuple[float, float]:
    """p that both come from one level, and the relative distance of their means."""
    from scipy.special import stdtr

    freedom = len(left) + len(right) - 2
    spread = math.sqrt((left.var() * len(left) + right.var() * len(right)) / freedom)
    error = spread * math.sqrt(1 / len(left) + 1 / len(right))
    apart = abs(float(right.mean() - left.mean()))
    t = apart / error if error > 0 else (math.inf if apart > 0 else 0.0)
    return 2 * float(stdtr(freedom, -t)), apart / abs(float(left.mean()))


def with_steps(series: Sequence[Series], otava: Path | None, folder: Path) -> tuple[list[Series], str]:
    """The series with their change points, and which rule found them (with the reason where otava could not)."""
    if otava is None:
        return [_stepped(one, steps(_values(one)), "simple") for one in series], "simple rule: otava was not found"
    found = _ask_otava(series, otava, folder)
    if isinstance(found, str):
        return [_stepped(one, steps(_values(one)), "simple") for one in series], f"simple rule: {found}"
    made = [_stepped(one, at, "otava") for one, at in zip(series, found, strict=True)]
    return made, "apache-otava"


def _values(series: Series) -> list[float]:
    return [point.value for point in series.points]


def _stepped(series: Series, at: Sequence[tuple[int, float]], rule: str) -> Series:
    """Means are those of the level before and of the level after, from step to step."""
    values = _values(series)
    edges = [0, *(index for index, _ in at), len(values)]
    made = []
    for number, (index, p) in enumerate(at):
        before, after = values[edges[number] : index], values[index : edges[number + 2]]
        point = series.points[index]
        made.append(
            Step(
                index=index, created=point.created, commit=point.commit, before=float(np.mean(before)),
                after=float(np.mean(after)), p=p, rule=rule,
            )
        )  # fmt: skip
    return msgspec.structs.replace(series, steps=tuple(made))


def _ask_otava(series: Sequence[Series], otava: Path, folder: Path) -> list[list[tuple[int, float]]] | str:
    """The change points that apache-otava reports, or why it did not. It runs in an environment of its own."""
    lines = ["tests:"]
    for number, one in enumerate(series):
        with (folder / f"s{number}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["time", "ratio"])
            writer.writerows([point.created, repr(point.value)] for point in one.points)
        lines += [
            f"  s{number}:", "    type: csv", f"    file: {folder / f's{number}.csv'}", "    time_column: time",
            "    attributes: []", "    metrics: [ratio]",
        ]  # fmt: skip
    config = folder / "otava.yaml"
    config.write_text("\n".join(lines) + "\n")
    names = [f"s{number}" for number in range(len(series))]
    command = [
        str(otava), "analyze", *names, "--config-file", str(config), "--output", "json", "-P", str(P), "-M",
        str(MAGNITUDE), "--window", str(WINDOW), "--since", "1970-01-01",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=OTAVA_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"otava did not run: {type(error).__name__}"
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()]
        return f"otava ended with status {done.returncode}: {last[-1].strip() if last else 'no message'}"
    return _read_otava(done.stdout, names)


def _read_otava(text: str, names: Sequence[str]) -> list[list[tuple[int, float]]] | str:
    found: dict[str, list[tuple[int, float]]] = {}
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            for name, groups in msgspec.json.decode(line.encode()).items():
                found[name] = [
                    (int(change["index"]), float(change["pvalue"])) for group in groups for change in group["changes"]
                ]
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
            return "otava's answer is not what version 0.8 prints"
    missing = [name for name in names if name not in found]
    return f"otava said nothing of {len(missing)} series" if missing else [found[name] for name in names]
