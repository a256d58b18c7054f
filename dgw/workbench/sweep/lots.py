"""A sweep in portions: which cases one GPU takes at a time, and what is done with them there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from dgw.model import Case, Noun, Problem, Record
from dgw.workbench import runner
from dgw.workbench.passes import Pass
from dgw.workbench.protocol import RACE, SCREEN, Policy
from dgw.workbench.sweep.race_pass import RacePass

LEAST = 8
"""Cases below which a portion does not pay for the start of a child."""


class Lot(Noun, frozen=True, kw_only=True):
    """Cases for one GPU, in `lanes` (check, time, race, counters).

    What is `known` of a case is not measured again. `against` is what the cases of its problem are compared with,
    `always` are keys that race in any event. Cases are screened by `policy`; the race is at its locked clock, if any.
    """

    cases: tuple[Case, ...]
    lanes: tuple[str, ...]
    known: tuple[Record, ...] = ()
    against: tuple[Case, ...] = ()
    always: tuple[str, ...] = ()
    counters: str = "none"
    policy: Policy = SCREEN


def divided(cases: Sequence[Case], width: int, least: int = LEAST) -> list[list[Case]]:
    """Portions for `width` GPUs: whole problems while there are enough of them, else for each GPU a piece of every
    problem that has pieces of at least `least` cases.

    For one GPU everything is one portion, since each costs the start of a child.
    """
    problems: dict[Problem, list[Case]] = {}
    for case in cases:
        problems.setdefault(case.problem, []).append(case)
    if width <= 1 or not cases:
        return [list(cases)] if cases else []
    if len(problems) >= 2 * width:
        return _whole(problems.values(), max(least, -(-len(cases) // (2 * width))))
    portions: list[list[Case]] = [[] for _ in range(width)]
    for members in problems.values():
        pieces = max(1, min(width, len(members) // least))
        for first in range(pieces):  # neighbours take about as long as each other, so every GPU gets some of all
            min(portions, key=len).extend(members[first::pieces])
    return [portion for portion in portions if portion]


def _whole(problems: Iterable[list[Case]], wanted: int) -> list[list[Case]]:
    """Whole problems, some in one portion while they are not more than `wanted` cases together."""
    portions: list[list[Case]] = []
    for members in problems:
        if portions and len(portions[-1]) + len(members) <= wanted:
            portions[-1] += members
        else:
            portions.append(list(members))
    return portions


def work(
    lot: Lot,
    session: runner.Session,
    keep: Callable[[Record], None] = lambda record: None,
    progress: runner.Progress = runner.quiet,
) -> list[Record]:
    """Do a lot on the GPU that `session` takes; `keep` gets every record as soon as it is finished.

    Each case is a group of its own, so that it is durable before the next starts.
    """
    known = {record.case.key: record for record in lot.known}
    against = {case.problem: case for case in lot.against}
    lanes = frozenset(lot.lanes)
    jobs = [
        runner.Job(
            case=case,
            lanes=lanes,
            known=known.get(case.key),
            against=_beside(case, against.get(case.problem)),
        )
        for case in lot.cases
    ]
    final = msgspec.structs.replace(RACE, locked_hz=lot.policy.locked_hz)
    passes: tuple[Pass, ...] = (RacePass(lot.always, final),) if "race" in lanes else ()
    setup = replace(
        session, counters=lot.counters, policy=lot.policy, passes=passes, together=1, lingers="race" in lanes
    )  # fmt: skip
    return runner.run(jobs, setup, keep, progress)


def _beside(case: Case, baseline: Case | None) -> tuple[Case, ...]:
    return () if baseline is None or baseline.key == case.key else (baseline,)


def by_problem(records: Mapping[str, Record]) -> dict[Problem, list[Record]]:
    """Records of each problem, in order."""
    found: dict[Problem, list[Record]] = {}
    for record in records.values():
        found.setdefault(record.case.problem, []).append(record)
    return found
