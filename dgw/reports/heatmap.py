"""A sweep as a map: two tunables span it, each cell tells the best of the configs that meet there, or why none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

from dgw.errors import NotComparable
from dgw.model import Config, Problem, Record
from dgw.reports.heatmap_cells import (
    STATES,
    Best,
    Cells,
    Square,
    Standing,
    State,
    Value,
    best_of,
    level,
    protocol_of,
    taken,
)
from dgw.reports.tables import SPECS, config_text, dtype_text, machine_text
from dgw.reports.units import UNIT_STYLE, Style, shared_unit, show_in
from dgw.workbench.locked_clock import said
from dgw.workbench.metrics import METRICS

ALIASES: Mapping[str, tuple[str, ...]] = {
    "time": ("time_cold", "time_hot"), "tflops": ("tflops",), "cublas": ("ratio_to_cublas",),
    "conflicts": ("conflict_ratio_ld",), "occupancy": ("theoretical_occupancy", "achieved_occupancy"),
    "registers": ("registers_per_thread",), "tensor-pipe": ("tensor_pipe_util",), "bound": ("bound_time",),
}  # fmt: skip
"""Short names of what is mapped most, each with the metrics that it stands for, the preferred one first."""


@dataclass(frozen=True)
class Panel:
    """One map: `at` are the values of the facets, `rows` go with the grid's y values and hold a square for each x."""

    at: tuple[tuple[str, Value], ...]
    rows: tuple[tuple[Square, ...], ...]

    @property
    def title(self) -> str:
        """`BK=32, STAGES=3`; empty without facets."""
        return ", ".join(f"{name}={value}" for name, value in self.at)


@dataclass(frozen=True)
class Grid:
    """Maps of one problem on one machine that share their axes and their scale.

    `rest` says what became of the tunables on no axis, `protocol` under which rules the figures were taken, `judged` by
    what the best was found. `low` and `high` span the values; `better` is the end that is good.
    """

    problem: Problem
    subject: str
    machine: str
    metric: str
    label: str
    style: Style
    better: Literal["lower", "higher", ""]
    x: tuple[str, tuple[Value, ...]]
    y: tuple[str, tuple[Value, ...]]
    facets: tuple[str, ...]
    panels: tuple[Panel, ...]
    rest: str
    protocol: str
    judged: str
    low: float = 0.0
    high: float = 0.0
    unit: tuple[float, str] = (1.0, "")
    over: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What is mapped, of what, at which problem."""
        unit = self.unit[1] or ("%" if self.style == "percent" else "")
        what = f"{self.label}, {unit}" if unit else self.label
        return f"{what}: {self.subject} at {self.problem.shape}, {dtype_text(self.problem)}, {self.problem.layout}"

    @property
    def heading(self) -> str:
        """The title with the axes, and over which tunables each cell is the best."""
        over = f", best over {' and '.join(self.over)}" if self.over else ""
        return f"{self.title}; {self.y[0]} down, {self.x[0]} across{over}"

    @property
    def caption(self) -> str:
        """Device, configs, protocol, and how the best was found."""
        parts = [self.machine, self.rest, f"figures: {self.protocol}" if self.protocol else "", self.judged]
        return "; ".join(part for part in parts if part) + "."

    @property
    def standings(self) -> dict[Standing, str]:
        """How cells may stand, in words: only a race has a winner."""
        words = ("winner", "tied with it") if raced(self.judged) else ("best", "equally good")
        seen = {square.standing for square in self.squares}
        return {name: word for name, word in zip(("best", "tied"), words, strict=True) if name in seen}

    @property
    def squares(self) -> Iterator[Square]:
        """Every cell of every panel."""
        return (square for panel in self.panels for row in panel.rows for square in row)

    @property
    def states(self) -> tuple[State, ...]:
        """The kinds of cells without a value that occur, in a fixed order."""
        seen = {square.state for square in self.squares}
        return tuple(state for state in STATES if state in seen)

    def share(self, value: float) -> float:
        """Where a value lies from the bad end (0) to the good end (1); in the middle where all are equal."""
        if self.high <= self.low:
            return 0.5
        at = (value - self.low) / (self.high - self.low)
        return 1 - at if self.better == "lower" else at


@dataclass(frozen=True)
class Axes:
    """What a map is drawn along. `fixed` tunables have one value; `values` adds values of which no record may be."""

    x: str = ""
    y: str = ""
    facets: tuple[str, ...] = ()
    fixed: Mapping[str, Value] = field(default_factory=dict)
    values: Mapping[str, Sequence[Value]] = field(default_factory=dict)


def raced(how: str) -> bool:
    """Whether the best was found by a race, given how it was found in words."""
    return how.startswith("winner")


def metrics_of(name: str) -> tuple[str, ...]:
    """The metrics that a name stands for, the preferred one first; itself where it is one already."""
    if name in ALIASES:
        return ALIASES[name]
    if name in METRICS:
        return (name,)
    return tuple(key for key, metric in METRICS.items() if name in metric.aliases) or (name,)


def grid(records: Iterable[Record], metric: str = "tflops", axes: Axes | None = None) -> Grid:
    """The map of the records of one problem and device. Raises NotComparable where they span none.

    Axes that are not named are the two tunables with the most values, BN and BM before others.
    """
    axes = axes or Axes()
    known = [record for record in records if _at(record.case.config, axes.fixed)]
    if not known:
        raise NotComparable("there is no record with these tunables", "dgw sweep --variant NAME --shape MxNxK")
    first = known[0]
    if any(record.case.problem != first.case.problem for record in known):
        raise NotComparable("a map shows one problem, and these are several", "dgw heatmap --shape MxNxK")
    if len({record.environment.device for record in known if record.environment.device}) > 1:
        raise NotComparable("a map shows one device, and these records are of several", "dgw runs")
    key = _metric(known, metrics_of(metric))
    x, y = _plane(known, axes)
    facets = tuple(name for name in axes.facets if name not in (x, y))
    values = {name: _values(name, known, axes) for name in (x, y, *facets)}
    protocol = protocol_of(known, key)
    best = best_of(known, key, protocol)
    found = Cells(known, key, protocol, best)
    panels = [
        Panel(at, tuple(tuple(found.square({**dict(at), x: a, y: b}) for a in values[x]) for b in values[y]))
        for at in (tuple(zip(facets, chosen, strict=True)) for chosen in product(*(values[f] for f in facets)))
    ]
    even = level([square for panel in panels for row in panel.rows for square in row])
    if even and not raced(best.how):
        panels = [
            Panel(one.at, tuple(tuple(replace(s, standing="") for s in row) for row in one.rows)) for one in panels
        ]
        best = Best()
    judged = "; ".join(part for part in (best.how, even) if part)
    return _finished(known, key, protocol, judged, panels, (x, values[x]), (y, values[y]), facets)


def widest(records: Sequence[Record]) -> Axes:
    """The two tunables with the most values; among equals BN and BM first."""
    seen: dict[str, set[Value]] = {}
    for record in records:
        for name, value in record.case.config.items():
            seen.setdefault(name, set()).add(value)
    names = sorted(
        (name for name in seen if len(seen[name]) > 1), key=lambda n: (-len(seen[n]), n != "BN", n != "BM", n)
    )
    x, y = (*names, "", "")[:2]
    return Axes(*((y, x) if (x, y) == ("BM", "BN") else (x, y)))


def svg(made: Grid) -> str:
    """The map as an SVG file."""
    from dgw.reports.charts import heatmap
    from dgw.reports.charts import svg as drawn

    return drawn.standalone(heatmap.build(made))


def _at(config: Config, fixed: Mapping[str, Value]) -> bool:
    return all(config.get(name, value) == value for name, value in fixed.items())


def _metric(records: Sequence[Record], names: Sequence[str]) -> str:
    """The first of the names that any record has a value of; else the first."""
    return next((name for name in names if any(record.number(name) is not None for record in records)), names[0])


def _plane(records: Sequence[Record], axes: Axes) -> tuple[str, str]:
    counts = {
        name: len({record.case.config.get(name) for record in records})
        for name in dict.fromkeys(name for record in records for name in record.case.config)
    }
    counts |= {name: max(len(values), counts.get(name, 0)) for name, values in axes.values.items()}
    taken = {axes.x, axes.y, *axes.facets}
    free = sorted(
        (name for name in counts if name not in taken and counts[name] > 1),
        key=lambda name: (name not in ("BN", "BM"), name == "BM", -counts[name]),
    )
    x = axes.x or (free.pop(0) if free else "")
    y = axes.y or (free.pop(0) if free else "")
    if not x or not y or x == y:
        raise NotComparable("a map needs two tunables with more than one value", "dgw heatmap --x BN --y BM")
    return x, y


def _values(name: str, records: Sequence[Record], axes: Axes) -> tuple[Value, ...]:
    seen = {record.case.config[name] for record in records if name in record.case.config} | set(
        axes.values.get(name, ())
    )
    if name in axes.fixed:
        seen = {axes.fixed[name]}
    return tuple(sorted(seen, key=_place))


def _place(value: Value) -> tuple[bool, int, str]:
    """Numbers by size, then words."""
    return (False, value, "") if isinstance(value, int) else (True, 0, value)


def _finished(
    records: Sequence[Record],
    metric: str,
    protocol: str,
    judged: str,
    panels: Sequence[Panel],
    x: tuple[str, tuple[Value, ...]],
    y: tuple[str, tuple[Value, ...]],
    facets: tuple[str, ...],
) -> Grid:
    """The grid with its texts: the unit and the scale are those of all values together."""
    style, label = _style(metric, records)
    values = [square.value for panel in panels for row in panel.rows for square in row if square.value is not None]
    unit = shared_unit(values, style)
    shown = next((record for record in records if record.environment.engine != "none"), records[0])
    better: Literal["lower", "higher", ""] = METRICS[metric].better if metric in METRICS else ""
    lettered = [
        Panel(panel.at, tuple(tuple(_lettered(square, style, unit[0]) for square in row) for row in panel.rows))
        for panel in panels
    ]
    return Grid(
        problem=records[0].case.problem,
        subject=" and ".join(dict.fromkeys(record.case.variant for record in records)),
        machine=f"{machine_text(shown)}{said(records)}",
        metric=metric,
        label=label,
        style=style,
        better=better or ("lower" if metric == "bound_time" else ""),
        x=x,
        y=y,
        facets=facets,
        panels=tuple(lettered),
        rest=_rest(records, {x[0], y[0], *facets}),
        over=_over(records, {x[0], y[0], *facets}),
        protocol=protocol,
        judged=judged,
        low=min(values, default=0.0),
        high=max(values, default=0.0),
        unit=unit,
    )


def _style(metric: str, records: Sequence[Record]) -> tuple[Style, str]:
    for spec in SPECS:
        if spec.key == metric:
            return spec.style, spec.label
    unit = next((m.unit for record in records for m in taken(record, metric)), "")
    return UNIT_STYLE.get(unit, "count"), metric.replace("_", " ")


def _lettered(square: Square, style: Style, factor: float) -> Square:
    if square.value is None:
        return square
    text = show_in(square.value, style, factor).removesuffix(" %").removesuffix(" x")
    return replace(square, text=_short(text))


def _short(text: str) -> str:
    """At most four digits: a cell is small."""
    plain = text.replace(",", "")
    if plain.lstrip("-").replace(".", "", 1).isdigit() and "." in plain and len(plain) > 5:
        return f"{float(plain):.3g}" if abs(float(plain)) < 1000 else f"{float(plain):.0f}"
    return text


def _hidden(records: Sequence[Record], shown: set[str]) -> dict[str, dict[Value, None]]:
    """The tunables on no axis, with their values."""
    values: dict[str, dict[Value, None]] = {}
    for record in records:
        for name, value in record.case.config.items():
            if name not in shown:
                values.setdefault(name, {})[value] = None
    return values


def _over(records: Sequence[Record], shown: set[str]) -> tuple[str, ...]:
    """What a cell is the best over: variants, and tunables on no axis that vary."""
    several = len({record.case.variant for record in records}) > 1
    vary = [name for name, seen in _hidden(records, shown).items() if len(seen) > 1]
    return (*(["variants"] if several else []), *vary)


def _rest(records: Sequence[Record], shown: set[str]) -> str:
    """What became of the tunables on no axis: those that vary, and those that stand still."""
    still = {name: next(iter(seen)) for name, seen in _hidden(records, shown).items() if len(seen) == 1}
    over = _over(records, shown)
    parts = [f"each cell is the best over {', '.join(over)}"] if over else []
    parts += [f"at {config_text(still)}"] if still else []
    return "; ".join(parts)
