"""The cells of a map: which of the records that meet there is shown, how it stands, or why there is no value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dgw.model import Config, Measurement, Record
from dgw.reports.notes import failure_text
from dgw.workbench.metrics import METRICS
from dgw.workbench.plausibility import ranked
from dgw.workbench.sweep import race

Value = int | str
State = Literal["ok", "absent", "wrong", "failed", "infeasible", "not-run"]
Standing = Literal["best", "tied", ""]

STATES: Mapping[State, str] = {
    "wrong": "wrong result", "failed": "did not run through", "infeasible": "cannot run", "not-run": "not run",
    "absent": "ran, without this figure",
}  # fmt: skip
"""What a cell without a figure says, in words."""


@dataclass(frozen=True)
class Square:
    """One cell. `record` is the config that it shows; `reason` says why there is no value.

    `configs` met here, of which `bad` gave a wrong result.
    """

    state: State = "not-run"
    value: float | None = None
    text: str = ""
    reason: str = ""
    standing: Standing = ""
    record: Record | None = None
    configs: int = 0
    bad: int = 0


def taken(record: Record, metric: str) -> list[Measurement]:
    """Every figure of the whole case that a record has of a metric."""
    return [m for m in record.measurements if m.metric == metric and m.scope == "case" and number(m) is not None]


def number(found: Measurement) -> float | None:
    """Its value where that is a number."""
    return float(found.value) if isinstance(found.value, int | float) and not isinstance(found.value, bool) else None


def protocol_of(records: Sequence[Record], metric: str) -> str:
    """Of figures of the time lane those of one protocol are shown: the one under which most records have theirs."""
    counts: dict[str, int] = {}
    for record in records:
        for protocol in {m.protocol for m in taken(record, metric) if m.collector == "timing"}:
            counts[protocol] = counts.get(protocol, 0) + 1
    return max(counts, key=lambda name: (counts[name], name.startswith(race.SCREEN)), default="")


def figure(record: Record, metric: str, protocol: str) -> Measurement | None:
    """The figure of a metric; of the time lane only one under this protocol."""
    timed = (m for m in taken(record, metric) if m.collector != "timing" or m.protocol == protocol)
    return next(timed, None)


@dataclass(frozen=True)
class Best:
    """Who is best and tied with it (case keys), and how that was found."""

    best: frozenset[str] = frozenset()
    tied: frozenset[str] = frozenset()
    how: str = ""


def best_of(records: Sequence[Record], metric: str, protocol: str) -> Best:
    """From the race where there was one; without times the best figure, unless most of them are equal, or all."""
    said = {record.case.key: race.verdict(record) for record in records}
    if "best" in said.values():
        best, tied = (frozenset(key for key, verdict in said.items() if verdict == name) for name in ("best", "tied"))
        return Best(best, tied, f"winner (outlined) and ties (hatched): {race.PROTOCOL}")
    better = METRICS[metric].better if metric in METRICS else ""
    better = better or ("lower" if metric == "bound_time" else "")
    values = {
        r.case.key: value
        for r in records
        if ranked(r) and (m := figure(r, metric, protocol)) and (value := number(m)) is not None
    }
    if not better or not values:
        return Best()
    end = min(values.values()) if better == "lower" else max(values.values())
    equal = frozenset(key for key, value in values.items() if value == end)
    if len(equal) == len(values) > 1:
        return Best()  # which `level` says of what is shown
    if 2 * len(equal) > len(values) > 1:
        return Best(how="most cells are equally good")
    word = "smallest" if better == "lower" else "largest"
    if len(equal) == 1:
        return Best(equal, how=f"outlined: the {word}")
    return Best(tied=equal, how=f"hatched: the {word}, equal to the last digit")


def level(squares: Sequence[Square]) -> str:
    """That all cells show the same, in words; empty where they do not, or are not two with a figure."""
    values = [square.value for square in squares if square.value is not None]
    if len(values) < 2 or len(set(values)) > 1:
        return ""
    return "all cells are equal" if len(values) == len(squares) else "all cells with a figure are equal"


@dataclass(frozen=True)
class Cells:
    """Finds what stands in a cell."""

    records: Sequence[Record]
    metric: str
    protocol: str
    best: Best

    def square(self, at: Mapping[str, Value]) -> Square:
        """The cell where tunables have these values."""
        here = [record for record in self.records if _at_all(record.case.config, at)]
        if not here:
            return Square()
        bad = sum(record.outcome == "wrong" for record in here)
        good = sorted((record for record in here if ranked(record)), key=self._order)
        if not good:
            return self._without(here, bad)
        chosen = good[0]
        shown = figure(chosen, self.metric, self.protocol)
        value = number(shown) if shown is not None else None
        key = chosen.case.key
        standing: Standing = "best" if key in self.best.best else "tied" if key in self.best.tied else ""
        if value is None:
            other = chosen.get(self.metric)
            reason = (other.absent if other is not None else "") or "not measured"
            if other is not None and other.value is not None:
                reason = f"measured under another protocol, {other.protocol}"
            return Square("absent", reason=reason, standing=standing, record=chosen, configs=len(here), bad=bad)
        return Square("ok", value, standing=standing, record=chosen, configs=len(here), bad=bad)

    def _order(self, record: Record) -> tuple[int, float, float]:
        """The winner first, then ties, then by time; without times by the figure itself."""
        key = record.case.key
        place = 0 if key in self.best.best else 1 if key in self.best.tied else 2
        time = race.screened(record)
        if time is None:
            time = record.number("time_cold") or record.number("time_hot")
        shown = figure(record, self.metric, self.protocol)
        value = number(shown) if shown is not None else None
        higher = self.metric in METRICS and METRICS[self.metric].better == "higher"
        own = float("inf") if value is None else -value if higher else value
        return place, float("inf") if time is None else time, own

    def _without(self, here: Sequence[Record], bad: int) -> Square:
        """A cell without any good config: wrong weighs more than failed, failed more than refused."""
        for state, outcomes in (("wrong", ("wrong",)), ("failed", ()), ("infeasible", ("refused",))):
            for record in here:
                failed = not outcomes and record.outcome not in ("wrong", "refused")
                if record.outcome in outcomes or failed:
                    reason = failure_text(record) if record.outcome != "ok" else "; ".join(record.flags)
                    return Square(state, reason=reason, record=record, configs=len(here), bad=bad)  # type: ignore[arg-type]
        return Square()


def _at_all(config: Config, at: Mapping[str, Value]) -> bool:
    return all(config.get(name) == value for name, value in at.items())
