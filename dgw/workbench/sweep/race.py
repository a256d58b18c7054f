"""Who of the screened is measured again, and what comes of it: pure rules.

`screen/1` figures order the cases; those within `MARGIN` of the fastest, at most `MOST`, run a race (`race/1`): turn by
turn interleaved on one GPU, under the protocol of every final figure, until one is clearly fastest or the turns are
over. `sweep_verdict` is then `best`, `tied` (not slower than the best with 99.9 % confidence) or `slower`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from dgw.model import Measurement, Record
from dgw.workbench.collectors import timing
from dgw.workbench.locked_clock import at
from dgw.workbench.plausibility import ranked
from dgw.workbench.protocol import RACE, Policy

MOST = 6
MARGIN = 0.05
"""Of cases near the fastest, most are screened alike within this from sweep to sweep on an H200: a test says how many
are in the three of docs/h200/heatmap-2.json."""
COLLECTOR, PROTOCOL = "sweep", "race/1"
VERDICT = "sweep_verdict"
SCREEN = "screen/"
_TIMES = ("time_cold", "time_hot")


def screening(record: Record) -> Measurement | None:
    """The time by which a case is ordered: its screening's cold time, else the hot one; None where it has none."""
    for metric in _TIMES:
        for found in record.measurements:
            named = found.metric == metric and found.scope == "case" and found.protocol.startswith(SCREEN)
            if named and isinstance(found.value, int | float):
                return found
    return None


def screened(record: Record) -> float | None:
    """Seconds by which a case is ordered, None where it has none."""
    found = screening(record)
    return float(found.value) if found is not None and isinstance(found.value, int | float) else None


def verdict(record: Record) -> str:
    """`best`, `tied` or `slower` for a case that ran a race to its end, else an empty text."""
    found = record.get(VERDICT)
    return str(found.value) if found is not None and found.value else ""


def finalists(records: Iterable[Record], always: Collection[str] = (), most: int = MOST) -> list[Record]:
    """The fastest case and those within noise of it, fastest first, and behind them what shall race `always` (keys).

    Records that failed or are implausible are left out.
    """
    able = [record for record in records if ranked(record)]
    times = {record.case.key: found for record in able if (found := screened(record)) is not None}
    order = sorted((r for r in able if r.case.key in times), key=lambda record: times[record.case.key])
    if not order:
        return []
    limit = (1 + MARGIN) * times[order[0].case.key]
    chosen = [record for record in order if times[record.case.key] <= limit][:most]
    names = {record.case.key for record in chosen}
    return [*chosen, *(record for record in order if record.case.key in always and record.case.key not in names)]


def settled(chosen: Sequence[Record]) -> bool:
    """Whether these cases have raced already, with one that is best."""
    verdicts = [verdict(record) for record in chosen]
    return bool(verdicts) and all(verdicts) and verdicts.count("best") == 1


def verdicts(found: Mapping[str, Sequence[Measurement]], policy: Policy = RACE) -> dict[str, tuple[Measurement, ...]]:
    """What the race tells of each case, given its final figures: `sweep_verdict` and `ratio_to_best`.

    Members start together and leave at different turns, so the n-th sample of each belongs to turn n.
    """
    series = {key: one for key, measured in found.items() if (one := _series(measured)).best[1]}
    if not series:
        return {}
    longest = max(len(one.best[1]) for one in series.values())
    arrived = {key: one for key, one in series.items() if len(one.best[1]) == longest}
    medians = {key: timing.median_interval(list(one.best[1].values()))[0] for key, one in arrived.items()}
    best = min(medians, key=lambda key: medians[key])
    tied = timing.still_racing(arrived, policy.race)
    return {
        key: (
            _said("best" if key == best else "tied" if key in tied else "slower", policy),
            timing.ratio_measurement("best", one, series[best], policy),
        )
        for key, one in series.items()
    }


def _series(measured: Sequence[Measurement]) -> timing.Series:
    samples = {m.metric: dict(enumerate(m.samples)) for m in measured if m.metric in _TIMES and m.scope == "case"}
    return timing.Series(cold=samples.get("time_cold", {}), hot=samples.get("time_hot", {}))


def _said(text: str, policy: Policy) -> Measurement:
    protocol = f"{PROTOCOL}{at(policy.locked_hz)}"
    return Measurement(metric=VERDICT, value=text, unit="text", collector=COLLECTOR, protocol=protocol)
