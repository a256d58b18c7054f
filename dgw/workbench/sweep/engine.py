"""A sweep's three rounds over any executor: all are screened, the finalists race, those that are wanted are counted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from dgw.errors import ChildFault, DgwError
from dgw.model import Case, Problem, Record
from dgw.workbench.plausibility import ranked
from dgw.workbench.protocol import SCREEN, Policy
from dgw.workbench.sweep import race
from dgw.workbench.sweep.lots import Lot, by_problem, divided

Keep = Callable[[Record], None]
Count = Literal["none", "finalists", "all"]


class Inline(Executor):
    """Does everything at once, in the thread that asks: one GPU, and Ctrl-C goes where it belongs."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A future that is finished already."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass(frozen=True)
class Workforce:
    """Who does the lots: an executor, a function that it can run, and how many lots at once.

    Where lots go to other processes, `pack` makes bytes of one, which the function takes, and it gives the records as
    JSON: pickled nouns would not leave out their defaults any more, and have other keys. `finish` gives the executor
    back; after an interruption it is told to drop what has not begun.
    """

    executor: Executor
    work: Callable[[Any], Any]
    width: int = 1
    pack: Callable[[Lot], bytes] | None = None
    finish: Callable[[bool], None] = lambda interrupted: None


@dataclass(frozen=True)
class Order:
    """What a sweep is to do: `cases` that are runnable, each once, and what is `known` of some of them from before.

    `policy` is that of the screening.
    """

    cases: Sequence[Case]
    known: Mapping[str, Record] = field(default_factory=dict)
    against: Mapping[Problem, Case] = field(default_factory=dict)
    always: Collection[str] = ()
    counters: str = "none"
    count: Count = "none"
    policy: Policy = SCREEN


def sweep(order: Order, force: Workforce, keep: Keep) -> dict[str, Record]:
    """Do the order; `keep` gets every record as soon as it is there, and again when a round has added to it.

    Raises what the lots raise (Missing, ChildFault) once nobody can go on.
    """
    return _Sweep(order, force, keep).run()


def idle(order: Order) -> bool:
    """Whether nothing of the order is left to do: all is screened, no race is open, and what is wanted is counted."""
    left = _Sweep(order, Workforce(Inline(), lambda lot: []), lambda record: None)
    return not (left.screening() or left.races() or left.counts())


class _Sweep:
    def __init__(self, order: Order, force: Workforce, keep: Keep) -> None:
        self.order, self.force, self._hand_on = order, force, keep
        self.records = dict(order.known)

    def run(self) -> dict[str, Record]:
        self._do(self.screening())
        self._do(self.races(), again=False)
        self._do(self.counts(), again=False)
        return self.records

    def _keep(self, record: Record) -> None:
        if self.records.get(record.case.key) != record:
            self.records[record.case.key] = record
            self._hand_on(record)

    def _lot(self, cases: Iterable[Case], lanes: tuple[str, ...], **more: Any) -> Lot:
        chosen = tuple(cases)
        problems = dict.fromkeys(case.problem for case in chosen)
        return Lot(
            cases=chosen,
            lanes=lanes,
            known=tuple(self.records[case.key] for case in chosen if case.key in self.records),
            against=tuple(self.order.against[p] for p in problems if p in self.order.against),
            always=tuple(key for key in self.order.always if any(case.key == key for case in chosen)),
            policy=self.order.policy,
            **more,
        )

    # -- rounds

    def screening(self) -> list[Lot]:
        """What is not known, to be checked and timed. Problems that are whole on one GPU race there at once."""
        waiting = [case for case in self.order.cases if case.key not in self.records]
        touched = {case.problem for case in waiting}
        whole: dict[Problem, int] = {}
        portions = divided([case for case in self.order.cases if case.problem in touched], self.force.width)
        for portion in portions:
            for problem in {case.problem for case in portion}:
                whole[problem] = whole.get(problem, 0) + 1
        lots = []
        for portion in portions:
            entire = [case for case in portion if whole[case.problem] == 1]
            pieces = [case for case in portion if whole[case.problem] > 1 and case.key not in self.records]
            lots += [self._lot(entire, ("check", "time", "race"))] if entire else []
            lots += [self._lot(pieces, ("check", "time"))] if pieces else []
        return lots

    def races(self) -> list[Lot]:
        """The finalists of problems that were in pieces, or whose race was lost: one problem, one GPU."""
        lots = []
        for records in by_problem(self.records).values():
            chosen = race.finalists(records, self.order.always)
            if chosen and not race.settled(chosen):
                lots.append(self._lot((record.case for record in chosen), ("race",)))
        return lots

    def counts(self) -> list[Lot]:
        """Those whose counters are wanted and not there yet."""
        if self.order.count == "none" or self.order.counters == "none":
            return []
        wanted = [case for case in self.order.cases if self._to_count(self.records.get(case.key))]
        portions = divided(wanted, self.force.width)
        return [self._lot(part, ("counters",), counters=self.order.counters) for part in portions]

    def _to_count(self, record: Record | None) -> bool:
        if record is None or not ranked(record) or any(m.collector == "ncu" for m in record.measurements):
            return False
        return self.order.count == "all" or bool(race.verdict(record))

    # -- portions

    def _do(self, lots: Sequence[Lot], again: bool = True) -> None:
        """All lots. What a lot that failed has left undone is tried once more where others went well."""
        faults: list[tuple[Lot, DgwError]] = []
        force = self.force
        futures = {force.executor.submit(force.work, force.pack(lot) if force.pack else lot): lot for lot in lots}
        for future in as_completed(futures):
            try:
                found = future.result()
                if force.pack:
                    found = msgspec.json.decode(found, type=list[Record])
            except Exception as error:
                faults.append((futures[future], _fault(error)))
                continue
            for record in found:
                self._keep(record)
        if not faults:
            return
        if not again or len(faults) == len(lots):
            raise faults[0][1]
        self._do([left for lot, _ in faults if (left := self._undone(lot)) is not None], again=False)

    def _undone(self, lot: Lot) -> Lot | None:
        cases = [case for case in lot.cases if case.key not in self.records or "race" in lot.lanes]
        return self._lot(cases, lot.lanes, counters=lot.counters) if cases else None


def _fault(error: Exception) -> DgwError:
    if isinstance(error, DgwError):
        return error
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return ChildFault(f"a worker of the sweep failed: {text[:300]}", "the same command again goes on")
