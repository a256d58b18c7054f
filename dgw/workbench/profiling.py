"""The counter lane's bookkeeping: chunks of cases under a profiler, what their reports held, what is tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dgw.model import Measurement
from dgw.workbench.children import End
from dgw.workbench.counters import CHUNK, CounterLane, Harvest
from dgw.workbench.passes import grouped
from dgw.workbench.protocol import Begin, Bye, ChildJob, Done, Member, Message
from dgw.workbench.turn import Turn


@dataclass(frozen=True)
class Running:
    """A child behind the profiler: `listen` passes its messages on and says how it ended, `stop` kills it unheard."""

    listen: Callable[[Callable[[Message], None]], End]
    stop: Callable[[], object]


Start = Callable[[ChildJob, Sequence[str]], Running]
"""Start one child behind an argv prefix."""


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


@dataclass
class _Chunk:
    """Cases whose child has been started. It touches the GPU when its turn is given."""

    members: list[Member]
    report: Path
    running: Running
    turn: Turn
    heard: _Heard = field(default_factory=_Heard)


class CounterPass:
    """Profiles members in chunks. A case that is lost through no fault of its own is tried once more.

    While one chunk has the GPU the profiler and the child of the next are started already; they wait for their turn,
    which they get when the last case of the chunk before is done. Its report is written and read meanwhile.
    """

    def __init__(
        self, lane: CounterLane, start: Start, folder: Path, device_code: dict[str, str], deadline_s: float
    ) -> None:
        self._lane, self._start, self._folder = lane, start, folder
        self._device_code, self._deadline_s = device_code, deadline_s
        self._reports = 0
        self._tried: set[str] = set()
        self._ahead: _Chunk | None = None

    def run(self, members: Sequence[Member], on_counted: Callable[[Counted], None]) -> None:
        """Give every member's counters to `on_counted`, chunk by chunk; absent with the reason where there are none."""
        waiting = list(members)
        try:
            while self._ahead is not None or waiting:
                chunk, self._ahead = self._ahead or self._begin(waiting), None
                end = self._listen(chunk, waiting)
                harvest = self._lane.harvest(chunk.report, end.output, end.status)
                if harvest.retry or harvest.fatal:
                    self._call_back(waiting)
                if harvest.retry:
                    waiting[:0] = chunk.members
                    continue
                again = self._settle(chunk, harvest, end, on_counted)
                if harvest.fatal:
                    for member in [*again, *waiting]:
                        on_counted(self._counted(member, (), harvest.reason, None))
                    return
                waiting[:0] = again
        finally:
            self._call_back(waiting)

    def _call_back(self, waiting: list[Member]) -> None:
        """Stop the child that was started ahead; its cases wait again."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            waiting[:0] = ahead.members
            ahead.running.stop()

    def _begin(self, waiting: list[Member]) -> _Chunk:
        """Take a chunk off `waiting` and start its child."""
        members = waiting[:CHUNK]
        del waiting[:CHUNK]
        self._reports += 1
        report = self._folder / f"counters-{self._reports}.ncu-rep"
        turn = Turn(self._folder / f"turn-{self._reports}")
        job = ChildJob(
            kind="profile", groups=grouped(members), device_code=self._device_code, turn=str(turn.path)
        )  # fmt: skip
        try:
            return _Chunk(members, report, self._start(job, self._lane.command(report)), turn)
        except BaseException:
            turn.give()
            raise

    def _listen(self, chunk: _Chunk, waiting: list[Member]) -> End:
        """Hear a chunk to its end. The next one is started at its first word, not before: what a profiler locks, the
        one whose turn it is has locked then. The GPU goes to the next as soon as this one is done with it."""

        def hear(message: Message) -> None:
            chunk.heard.hear(message)
            if self._ahead is None and waiting:
                self._ahead = self._begin(waiting)
            if isinstance(message, Bye) and self._ahead is not None:
                self._ahead.turn.give()

        chunk.turn.give()
        end = chunk.running.listen(hear)
        if self._ahead is not None:
            self._ahead.turn.give()
        return end

    def _settle(self, chunk: _Chunk, harvest: Harvest, end: End, on_counted: Callable[[Counted], None]) -> list[Member]:
        """Hand on what is decided; the members to try again."""
        again: list[Member] = []
        for member in chunk.members:
            key = member.case.key
            kernels = harvest.kernels.get(key, ())
            fault = self._fault(key, chunk.heard, harvest, end)
            if kernels or fault or key in self._tried:
                reason = "" if kernels else fault or harvest.reason or "the report does not hold this case"
                on_counted(self._counted(member, kernels, reason, chunk.report))
            else:
                self._tried.add(key)
                again.append(member)
        return again

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
