"""The rounds of a sweep over executors that work, fail and lose a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from dgw.errors import ChildFault, Missing
from dgw.model import Case, Measurement, Record, gemm
from dgw.workbench.sweep import race
from dgw.workbench.sweep.engine import Inline, Order, Workforce, idle, sweep
from dgw.workbench.sweep.lots import Lot, divided


def case(number: int, m: int = 64) -> Case:
    return Case(problem=gemm(m, 64, 64), variant="t/x", config={"N": number})


CASES = [case(n) for n in range(20)]


def test_one_gpu_takes_everything_at_once() -> None:
    both = [*CASES, case(1, 128)]
    assert divided(both, 1) == [both]
    assert divided([], 1) == divided([], 2) == []


@pytest.mark.parametrize(("count", "width", "pieces"), [(20, 2, 2), (20, 4, 2), (64, 4, 4), (7, 4, 1)])
def test_one_problem_is_cut_for_several_gpus_but_not_too_small(count: int, width: int, pieces: int) -> None:
    cases = [case(n) for n in range(count)]
    portions = divided(cases, width)
    assert len(portions) == pieces
    together = [one for portion in portions for one in portion]
    assert sorted(together, key=lambda one: int(one.config["N"])) == cases
    assert max(map(len, portions)) - min(map(len, portions)) <= 1


def test_every_gpu_gets_one_portion_with_some_of_all_of_a_few_problems() -> None:
    """So that each starts one child, and none gets only the slow ones of neighbours."""
    cases = [case(n, m) for m in (64, 128, 192) for n in range(40)]
    first, second = divided(cases, 2)
    for portion in (first, second):
        assert [sum(one.problem.m == m for one in portion) for m in (64, 128, 192)] == [20, 20, 20]
    assert [one.config["N"] for one in first][:3] == [0, 2, 4]
    assert [one.config["N"] for one in second][:3] == [1, 3, 5]


def test_many_problems_stay_whole() -> None:
    cases = [case(n, 8 * m) for m in range(1, 9) for n in range(5)]
    portions = divided(cases, 2)
    assert [one for portion in portions for one in portion] == cases
    assert len(portions) > 1
    for m in range(1, 9):
        assert sum(any(one.problem.m == 8 * m for one in portion) for portion in portions) == 1


@dataclass
class Gpus:
    """Does lots: the time of a case is its number; a scripted fault for a lot by its position."""

    faults: dict[int, Exception] = field(default_factory=dict)
    lots: list[Lot] = field(default_factory=list)

    def work(self, lot: Lot) -> list[Record]:
        self.lots.append(lot)
        fault = self.faults.pop(len(self.lots) - 1, None)
        if fault is not None:
            raise fault
        known = {record.case.key: record for record in lot.known}
        records = [known.get(one.key) or self._screened(one) for one in lot.cases]
        if "race" in lot.lanes:
            records = self._raced(records, lot.always)
        if "counters" in lot.lanes:
            records = [self._more(r, Measurement(metric="l2_hit_rate", value=0.5, collector="ncu")) for r in records]
        return records

    def _screened(self, one: Case) -> Record:
        time = Measurement(
            metric="time_cold", value=1.0 + int(one.config["N"]) / 200, unit="s", collector="timing",
            protocol="screen/1 cold-graph/1",
        )  # fmt: skip
        return Record(case=one, outcome="ok", measurements=(time,))

    def _raced(self, records: list[Record], always: Sequence[str]) -> list[Record]:
        chosen: dict[str, str] = {}
        for problem in dict.fromkeys(record.case.problem for record in records):
            found = race.finalists([r for r in records if r.case.problem == problem], always)
            chosen |= {r.case.key: "slower" if n else "best" for n, r in enumerate(found)}
        said = {key: Measurement(metric=race.VERDICT, value=v, collector="sweep") for key, v in chosen.items()}
        return [self._more(r, said[r.case.key]) if r.case.key in said else r for r in records]

    def _more(self, record: Record, found: Measurement) -> Record:
        return msgspec.structs.replace(record, measurements=(*record.measurements, found))


def run(
    gpus: Gpus, order: Order, width: int = 1, executor: Executor | None = None
) -> tuple[dict[str, Record], list[Record]]:
    kept: list[Record] = []
    with executor or Inline() as chosen:
        found = sweep(order, Workforce(chosen, gpus.work, width), kept.append)
    return found, kept


def verdicts(found: dict[str, Record]) -> list[str]:
    return [race.verdict(found[one.key]) for one in CASES]


def test_on_one_gpu_screening_and_race_are_one_lot() -> None:
    gpus = Gpus()
    found, kept = run(gpus, Order(CASES, always=[CASES[19].key]))
    assert [lot.lanes for lot in gpus.lots] == [("check", "time", "race")]
    assert verdicts(found)[0] == "best"
    assert verdicts(found)[19] == "slower"
    assert len(kept) == 20


@pytest.mark.parametrize("executor", [lambda: Inline(), lambda: ThreadPoolExecutor(1)])
def test_on_two_gpus_a_problem_is_screened_in_pieces_and_races_on_one(executor: Callable[[], Executor]) -> None:
    gpus = Gpus()
    found, _ = run(gpus, Order(CASES), 2, executor())
    assert [(len(lot.cases), lot.lanes) for lot in gpus.lots] == [
        (10, ("check", "time")), (10, ("check", "time")), (race.MOST, ("race",)),
    ]  # fmt: skip
    assert verdicts(found).count("best") == 1
    assert found == run(Gpus(), Order(CASES))[0]


def test_what_is_known_is_not_done_again() -> None:
    before, _ = run(Gpus(), Order(CASES))
    gpus = Gpus()
    found, kept = run(gpus, Order(CASES, known=before))
    assert gpus.lots == []
    assert kept == []
    assert found == before


def test_an_order_is_idle_once_all_is_screened_raced_and_counted_as_it_wants() -> None:
    counted = Order(CASES, counters="quick", count="finalists")
    assert not idle(Order(CASES))
    before, _ = run(Gpus(), Order(CASES))
    assert idle(Order(CASES, known=before))
    assert not idle(replace(counted, known=before))
    screened = {key: msgspec.structs.replace(r, measurements=r.measurements[:1]) for key, r in before.items()}
    assert not idle(Order(CASES, known=screened))
    after, _ = run(Gpus(), counted)
    assert idle(replace(counted, known=after))


def test_a_part_that_is_known_goes_to_the_race_without_being_timed() -> None:
    before, _ = run(Gpus(), Order(CASES[:12]))
    screened = {
        key: msgspec.structs.replace(record, measurements=record.measurements[:1]) for key, record in before.items()
    }
    gpus = Gpus()
    found, _ = run(gpus, Order(CASES, known=screened))
    assert len(gpus.lots) == 1
    assert {record.case.key for record in gpus.lots[0].known} == set(screened)
    assert verdicts(found).count("best") == 1


@pytest.mark.parametrize(("count", "counted"), [("none", 0), ("finalists", 6), ("all", 20)])
def test_counters_are_for_those_that_are_wanted(count: Any, counted: int) -> None:
    gpus = Gpus()
    found, _ = run(gpus, Order(CASES, counters="quick", count=count))
    assert sum(record.number("l2_hit_rate") is not None for record in found.values()) == counted
    assert all(lot.counters == "quick" for lot in gpus.lots if "counters" in lot.lanes)


def test_what_a_lost_lot_leaves_is_done_by_the_others() -> None:
    gpus = Gpus(faults={1: Missing("the GPU has fallen off the bus", "dgw doctor")})
    found, _ = run(gpus, Order(CASES), 2)
    assert len(found) == 20
    assert verdicts(found).count("best") == 1


def test_when_nobody_is_left_the_sweep_ends_with_what_happened() -> None:
    gpus = Gpus(faults={0: Missing("the GPU has fallen off the bus", "dgw doctor")})
    with pytest.raises(Missing, match="fallen off"):
        run(gpus, Order(CASES))


def test_an_executor_that_loses_a_worker_is_a_fault_with_advice() -> None:
    gpus = Gpus(faults={0: RuntimeError("KilledWorker: sweep-1")})
    with pytest.raises(ChildFault, match="KilledWorker") as caught:
        run(gpus, Order(CASES))
    assert "goes on" in caught.value.hint
