"""Which cases race, and what a race tells."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import msgspec

from dgw.model import Case, Measurement, Record, gemm
from dgw.workbench.protocol import RACE
from dgw.workbench.sweep import race


def timed(seconds: float, protocol: str, samples: tuple[float, ...] = ()) -> Measurement:
    return Measurement(
        metric="time_cold", value=seconds, unit="s", collector="timing", protocol=protocol, samples=samples
    )


def screened(name: str, seconds: float, **more: object) -> Record:
    case = Case(problem=gemm(64, 64, 64), variant=f"t/{name}")
    return msgspec.structs.replace(
        Record(case=case, outcome="ok", measurements=(timed(seconds, "screen/1 cold-graph/1"),)), **more
    )


def names(records: list[Record]) -> list[str]:
    return [record.case.variant.removeprefix("t/") for record in records]


def test_those_within_noise_of_the_fastest_race_fastest_first() -> None:
    found = race.finalists([screened("c", 1.02), screened("a", 1.0), screened("d", 1.06), screened("b", 1.01)])
    assert names(found) == ["a", "b", "c"]


def test_screenings_of_one_case_that_is_near_the_fastest_seldom_differ_by_more_than_the_margin() -> None:
    """In the three sweeps of the evidence; else a case that might win would often not race."""
    stored = json.loads((Path(__file__).parents[3] / "docs" / "h200" / "heatmap-2.json").read_text(encoding="utf-8"))
    times, fastest = defaultdict(list), dict[int, float]()
    for name in ("run", "one", "dask"):
        for record in msgspec.convert(stored[name]["records"], list[Record]):
            seconds, depth = race.screened(record), record.case.problem.k
            if seconds is not None:
                times[record.case.key, depth].append(seconds)
                fastest[depth] = min(seconds, fastest.get(depth, seconds))
    near = {key: found for key, found in times.items() if len(found) == 3 and min(found) < 1.1 * fastest[key[1]]}
    alike = [max(found) / min(found) - 1 <= race.MARGIN for found in near.values()]
    assert len(alike) >= 20
    assert sum(alike) / len(alike) >= 0.9


def test_there_is_a_limit_to_how_many_race() -> None:
    found = race.finalists([screened(f"v{n}", 1 + n / 10000) for n in range(50)])
    assert names(found) == [f"v{n}" for n in range(race.MOST)]


def test_what_shall_race_always_does_however_slow() -> None:
    slow = screened("default", 9.0)
    assert names(race.finalists([screened("a", 1.0), slow], [slow.case.key])) == ["a", "default"]


def test_what_is_wrong_or_impossible_never_races() -> None:
    impossible = screened("b", 0.1, flags=("above the roofline: 0.1 s",))
    found = race.finalists([screened("a", 1.0), impossible, screened("c", 0.2, outcome="wrong")])
    assert names(found) == ["a"]


def test_the_order_is_that_of_the_screening_even_after_a_race() -> None:
    raced = screened("a", 1.0)
    raced = msgspec.structs.replace(raced, measurements=(timed(5.0, "cold-graph/1"), *raced.measurements))
    assert race.screened(raced) == 1.0
    assert raced.number("time_cold") == 5.0


def samples(middle: float, turns: int, seed: int) -> tuple[float, ...]:
    noise = random.Random(seed)
    return tuple(middle * noise.uniform(0.999, 1.001) for _ in range(turns))


def test_a_race_names_one_best_and_tells_ties_from_slower_ones() -> None:
    found = race.verdicts(
        {
            "a": [timed(1.0, "cold-graph/1", samples(1.0, 24, 1))],
            "b": [timed(1.0001, "cold-graph/1", samples(1.0001, 24, 2))],
            "c": [timed(1.05, "cold-graph/1", samples(1.05, 11, 3))],
        }
    )
    verdicts = {key: told[0].value for key, told in found.items()}
    assert sorted(verdicts.values()) == ["best", "slower", "tied"]
    assert verdicts["c"] == "slower"
    ratio = found["c"][1]
    assert (ratio.metric, ratio.protocol) == ("ratio_to_best", "paired/1 cold-graph/1")
    assert len(ratio.samples) == 11
    assert ratio.high is not None
    assert ratio.high < 1.0


def test_who_is_alone_is_best() -> None:
    found = race.verdicts({"a": [timed(1.0, "cold-graph/1", samples(1.0, 11, 1))]}, RACE)
    assert found["a"][0].value == "best"


def test_a_race_without_figures_tells_nothing() -> None:
    assert race.verdicts({"a": [Measurement(metric="time_cold", collector="timing", absent="gone")]}) == {}


def test_a_race_is_settled_when_every_finalist_has_a_verdict_and_one_is_best() -> None:
    def told(name: str, value: str) -> Record:
        record = screened(name, 1.0)
        said = Measurement(metric=race.VERDICT, value=value, collector="sweep")
        return msgspec.structs.replace(record, measurements=(*record.measurements, said))

    assert race.settled([told("a", "best"), told("b", "tied")])
    assert not race.settled([told("a", "best"), screened("b", 1.0)])
    assert not race.settled([told("a", "tied"), told("b", "tied")])
    assert not race.settled([])
