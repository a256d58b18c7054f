"""The race of a sweep's finalists as a pass: after the screening, in the same child, on the same GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dgw.model import Case, Measurement, Problem
from dgw.workbench.passes import Found, Target, Workplace
from dgw.workbench.protocol import RACE, ChildJob, Done, Group, Member, Message, Policy
from dgw.workbench.schedule import Schedule
from dgw.workbench.sweep import race


@dataclass(frozen=True)
class RacePass:
    """Measures the finalists of every problem against each other; `always` are keys of cases that race in any event.

    What the cases are compared with runs along without competing.
    """

    always: Collection[str] = ()
    policy: Policy = RACE
    lane: str = "race"

    def run(self, targets: Sequence[Target], place: Workplace, on_found: Callable[[Found], None]) -> None:
        """One race for each problem whose finalists have not raced yet."""
        fields: dict[Problem, list[Target]] = {}
        for target in targets:
            fields.setdefault(target.record.case.problem, []).append(target)
        for entered in fields.values():
            chosen = race.finalists((target.record for target in entered), self.always)
            if chosen and not race.settled(chosen):
                by_key = {target.record.case.key: target for target in entered}
                self._race([by_key[record.case.key] for record in chosen], place, on_found)

    def _race(self, entered: Sequence[Target], place: Workplace, on_found: Callable[[Found], None]) -> None:
        members: dict[str, Member] = {}
        for target in entered:
            for beside in target.against:
                members[beside.case.key] = msgspec.structs.replace(beside, reported=False)
        for target in entered:
            against = tuple(beside.case.key for beside in target.against)
            members[target.member.case.key] = msgspec.structs.replace(target.member, against=against)
        finished: dict[str, Done] = {}
        schedule = Schedule([Group(members=tuple(members.values()), lanes=("check", "time"))], place.deadline_s)

        def hear(message: Message) -> None:
            schedule.hear(message)
            if isinstance(message, Done):
                finished[message.key] = message

        while schedule.left:
            schedule.begin()
            code = dict(place.device_code)
            job = ChildJob(kind="measure", groups=tuple(schedule.left), policy=self.policy, device_code=code)
            end = place.listen(job, hear, (), None, 1.0)
            for verdict in schedule.end(end):
                finished[verdict.key] = Done(key=verdict.key, outcome=verdict.outcome, reason=verdict.reason)
        self._report([target.record.case for target in entered], finished, on_found)

    def _report(self, cases: Sequence[Case], finished: Mapping[str, Done], on_found: Callable[[Found], None]) -> None:
        good = {key: done.measurements for key, done in finished.items() if done.outcome == "ok"}
        keys = [case.key for case in cases]
        said = race.verdicts({key: good[key] for key in keys if key in good}, self.policy)
        for key in keys:
            done = finished.get(key)
            if done is None:
                continue
            told: tuple[Measurement, ...] = said.get(key, ())
            on_found(
                Found(
                    key=key,
                    measurements=(*done.measurements, *told),
                    flags=done.flags,
                    outcome=None if done.outcome == "ok" else done.outcome,
                    reason=done.reason,
                    foremost=True,
                )
            )
