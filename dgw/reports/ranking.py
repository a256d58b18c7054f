"""A sweep as a list for each problem: the fastest configs, which of them are tied, and how far the default is off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dgw.model import Case, Config, Measurement, Problem, Record
from dgw.reports.notes import failure_text
from dgw.reports.tables import config_text, machine_text, problem_text
from dgw.reports.terminal import Paint, listing
from dgw.reports.units import show
from dgw.workbench.locked_clock import said
from dgw.workbench.plausibility import ranked
from dgw.workbench.sweep import race

RANKS = {"best": 0, "tied": 1, "slower": 2, "": 2}
WORDS = {"best": "best", "tied": "tied", "slower": "slower", "": "screened"}
TOP = 10


@dataclass(frozen=True)
class Ranking:
    """One problem on one machine. `order` is fastest first; `reasons` counts why others have no place."""

    problem: Problem
    machine: str
    order: tuple[Record, ...]
    outcomes: Mapping[str, int]
    reasons: Mapping[tuple[str, str], int]
    default: Record | None = None

    @property
    def best(self) -> Record | None:
        """The winner, or the fastest of a screening without a race."""
        return self.order[0] if self.order else None

    @property
    def tied(self) -> tuple[Record, ...]:
        """Those that are not slower than the winner."""
        return tuple(record for record in self.order if race.verdict(record) == "tied")


Default = Callable[[Case], Config]
"""The config that a case's variant takes for its problem when nobody tunes it."""


def rankings(records: Iterable[Record], defaults: Default) -> tuple[Ranking, ...]:
    """A ranking for each problem and device."""
    groups: dict[tuple[Problem, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.case.problem, record.environment.device), []).append(record)
    return tuple(_ranking(members, defaults) for members in groups.values())


def _ranking(members: Sequence[Record], defaults: Default) -> Ranking:
    placed = _placed([r for r in members if ranked(r) and figure(r) is not None])
    failed: Counter[tuple[str, str]] = Counter((r.outcome, failure_text(r)) for r in members if r.outcome != "ok")
    default = next((r for r in placed if r.case.config and r.case.config == defaults(r.case)), None)
    shown = next((r for r in members if r.environment.engine != "none"), members[0])
    return Ranking(
        problem=members[0].case.problem,
        machine=f"{machine_text(shown)}{said(members)}",
        order=tuple(placed),
        outcomes=Counter(record.outcome for record in members),
        reasons=failed,
        default=default,
    )


def figure(record: Record) -> Measurement | None:
    """The time that a record is placed by: final where it raced, else its screening; without a GPU the lower bound."""
    for metric in ("time_cold", "time_hot", "bound_time"):
        found = record.get(metric)
        if found is not None and isinstance(found.value, int | float):
            return found
    return None


def _placed(records: Sequence[Record]) -> list[Record]:
    """The best, those tied with it, then the others by how far they are from it, each under its own protocol."""
    if not records:
        return []
    best = min(records, key=lambda record: (RANKS[race.verdict(record)], _value(record)))

    def place(record: Record) -> tuple[int, float, float]:
        far = distance(record, best)
        return RANKS[race.verdict(record)], far[0] if far else float("inf"), _value(record)

    return sorted(records, key=place)


def _value(record: Record) -> float:
    found = figure(record)
    return float(found.value) if found is not None and isinstance(found.value, int | float) else float("inf")


def distance(record: Record, best: Record) -> tuple[float, float | None, float | None] | None:
    """Time of `record` / time of `best` with its interval: from the race where both ran it, else from one protocol.

    None where nothing allows the comparison.
    """
    raced = record.get("ratio_to_best")
    if race.verdict(best) == "best" and raced is not None and isinstance(raced.value, int | float) and raced.value > 0:
        return 1 / raced.value, _inverse(raced.high), _inverse(raced.low)
    screened, fastest = race.screened(record), race.screened(best)
    if screened is not None and fastest:
        return screened / fastest, None, None
    own, other = figure(record), figure(best)
    if own is None or other is None or own.metric != other.metric:
        return None
    if own.protocol != other.protocol and own.metric != "bound_time":
        return None
    if not isinstance(own.value, int | float) or not isinstance(other.value, int | float) or not other.value:
        return None
    return own.value / other.value, None, None


def _inverse(value: float | None) -> float | None:
    return 1 / value if value else None


def render(found: Sequence[Ranking], top: int = TOP, width: int = 80, colour: bool = False) -> str:
    """The rankings as text: `top` places of each problem, and why the others have none."""
    return "\n\n".join(_text(one, top, width, colour) for one in found)


def _text(one: Ranking, top: int, width: int, colour: bool) -> str:
    head = f"{problem_text(one.problem)} on {one.machine}"
    parts = [Paint(colour).head(head), _counts(one)]
    if one.order:
        parts += ["", _table(one, top, width, colour), "", *_sentences(one)]
    parts += [f"{count} x {outcome}: {reason}" for (outcome, reason), count in _most(one.reasons)]
    return "\n".join(parts)


def _counts(one: Ranking) -> str:
    total = sum(one.outcomes.values())
    parts = [f"{count} {outcome}" for outcome, count in sorted(one.outcomes.items(), key=lambda item: item[0] != "ok")]
    return f"{total} configs: {', '.join(parts)}"


def _most(reasons: Mapping[tuple[str, str], int], most: int = 6) -> list[tuple[tuple[str, str], int]]:
    """The most frequent reasons, failures before refusals."""
    return sorted(reasons.items(), key=lambda item: (item[0][0] == "refused", -item[1]))[:most]


def _table(one: Ranking, top: int, width: int, colour: bool) -> str:
    best = one.order[0]
    several = len({record.case.variant for record in one.order}) > 1
    shown = list(one.order[:top])
    if one.default is not None and one.default not in shown:
        shown.append(one.default)
    time = figure(best)
    bound = time is not None and time.metric == "bound_time"
    rows = [_row(one, record, best, several) for record in shown]
    return listing(("", "lower bound" if bound else "time", "rate", "x best", "", "config"), rows, width, colour)


def _row(one: Ranking, record: Record, best: Record, several: bool) -> tuple[str, ...]:
    found, far = figure(record), distance(record, best)
    place = str(one.order.index(record) + 1)
    value = found.value if found is not None else None
    name = f"{record.case.variant} " if several else ""
    default = " (default)" if record is one.default else ""
    return (
        place,
        show(value, "seconds"),
        show(record.get("tflops").value if record.get("tflops") else None, "rate"),  # type: ignore[union-attr]
        f"{far[0]:.3f}" if far else "-",
        "" if found is not None and found.metric == "bound_time" else WORDS[race.verdict(record)],
        f"{name}{config_text(record.case.config)}{default}",
    )


def _sentences(one: Ranking) -> list[str]:
    best = one.order[0]
    found = figure(best)
    if found is None:
        return []
    if found.metric == "bound_time":
        return ["Without a GPU there is no winner: the order is that of the lower bounds, which nothing can beat."]
    lines = []
    if race.verdict(best) == "best":
        tied = len(one.tied)
        lines.append(f"{tied} more cannot be told from the best." if tied else "The best is clearly fastest.")
    else:
        lines.append("No race was run: the order is that of the screening.")
    far = distance(one.default, best) if one.default is not None else None
    if far is not None and one.default is not best:
        between = f" ({100 * (far[1] - 1):+.1f} % .. {100 * (far[2] - 1):+.1f} %)" if far[1] and far[2] else ""
        lines.append(f"The default config takes {100 * (far[0] - 1):+.1f} %{between} of the best one's time.")
    elif one.default is best:
        lines.append("The best config is the default one.")
    protocols = dict.fromkeys(f.protocol for record in one.order if (f := figure(record)) and f.protocol)
    lines.append(f"Protocols: {', '.join(protocols)}; ties: {race.PROTOCOL}.")
    return lines
