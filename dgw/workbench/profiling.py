"""The counter lane's bookkeeping: chunks of cases under a profiler, what their reports held, what is tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dgw.model import Measurement
from dgw.workbench.children import End
from dgw.workbench.counters import CHUNK, CounterLane, Harvest
from dgw.workbench.protocol import Begin, ChildJob, Done, Group, Member, Message

Listen = Callable[[ChildJob, Sequence[str], Callable[[Message], None]], End]
"""Run one child behind an argv prefix, pass its messages on, say how it ended."""


@dataclass(frozen=True)
class Counted:
    """What the lane found for one case. `report` is the file that holds it."""

    key: str
    measurements: tuple[Measurement, ...]
    flags: tuple[str, ...] = ()
    report: Path | None = None


@dataclass
class _Heard:
    """What one child under the profiler said."""

    current: str = ""
    failed: dict[str, str] = field(default_factory=dict)

    def hear(self, message: Message) -> None:
        if isinstance(message, Begin):
            self.current = message.key
        elif isinstance(message, Done):
            self.current = ""
            if message.outcome != "ok":
                self.failed[message.key] = f"{message.outcome} under the profiler: {message.reason}"


class CounterPass:
    """Profiles members in chunks. A case that is lost through no fault of its own is tried once more."""

    def __init__(
        self, lane: CounterLane, listen: Listen, folder: Path, device_code: dict[str, str], deadline_s: float
    ) -> None:
        self._lane, self._listen, self._folder = lane, listen, folder
        self._device_code, self._deadline_s = device_code, deadline_s
        self._reports = 0

    def run(self, members: Sequence[Member], on_counted: Callable[[Counted], None]) -> None:
        """Give every member's counters to `on_counted`, chunk by chunk; absent with the reason where there are none."""
        waiting, tried = list(members), set[str]()
        while waiting:
            chunk, waiting = waiting[:CHUNK], waiting[CHUNK:]
            heard, harvest, report, end = self._profile(chunk)
            if harvest.retry:
                waiting = [*chunk, *waiting]
                continue
            again: list[Member] = []
            for member in chunk:
                key = member.case.key
                kernels = harvest.kernels.get(key, ())
                fault = self._fault(key, heard, harvest, end)
                if kernels or fault or key in tried:
                    reason = "" if kernels else fault or harvest.reason or "the report does not hold this case"
                    on_counted(self._counted(member, kernels, reason, report))
                else:
                    tried.add(key)
                    again.append(member)
            if harvest.fatal:
                for member in [*again, *waiting]:
                    on_counted(self._counted(member, (), harvest.reason, None))
                return
            waiting = again + waiting

    def _profile(self, chunk: Sequence[Member]) -> tuple[_Heard, Harvest, Path, End]:
        self._reports += 1
        report = self._folder / f"counters-{self._reports}.ncu-rep"
        heard = _Heard()
        groups: list[Group] = []
        for member in chunk:  # neighbours of one problem share their inputs
            if groups and groups[-1].members[0].case.problem == member.case.problem:
                groups[-1] = Group(members=(*groups[-1].members, member))
            else:
                groups.append(Group(members=(member,)))
        job = ChildJob(kind="profile", groups=tuple(groups), device_code=self._device_code)
        end = self._listen(job, self._lane.command(report), heard.hear)
        return heard, self._lane.harvest(report, end.output, end.status), report, end

    def _fault(self, key: str, heard: _Heard, harvest: Harvest, end: End) -> str:
        """Why this case will have no counters however often it is tried; empty when it may have."""
        if key in heard.failed:
            return heard.failed[key]
        if key == heard.current:
            return f"under the profiler: {end.describe(self._deadline_s)}"
        return harvest.reason if harvest.fatal else ""

    def _counted(self, member: Member, kernels: Sequence[object], reason: str, report: Path | None) -> Counted:
        flags: tuple[str, ...] = ()
        declared = member.plan.kernels if member.plan else "any"
        if kernels and declared != "any" and len(kernels) != declared:
            flags = (f"kernels: the profiler saw {len(kernels)}, the plan declares {declared}",)
        found = self._lane.measurements(kernels, reason)
        return Counted(member.case.key, found, flags, report if kernels else None)
