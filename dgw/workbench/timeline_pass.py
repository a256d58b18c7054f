"""The timeline lane: chunks of cases under nsys, or under torch.profiler where there is no nsys; what each shows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dgw.errors import DgwError
from dgw.model import Measurement
from dgw.workbench.children import End
from dgw.workbench.collectors import nsys, timeline, trace_events
from dgw.workbench.collectors.nsys_sqlite import SOURCE, read_sqlite, scrub
from dgw.workbench.collectors.timeline import Timeline
from dgw.workbench.device.timeline import DIRECT, replay_range
from dgw.workbench.passes import Found, Target, Workplace, grouped
from dgw.workbench.protocol import Begin, ChildJob, Done, Message, Policy

CHUNK = 25
POLICY = Policy(replay_s=0.005)
_PATIENCE = 3.0


@dataclass
class _Heard:
    """What a child said: numbers of the cases that ended well, reasons of the others, and what it was doing last."""

    done: dict[str, tuple[Measurement, ...]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    current: str = ""
    spoke: bool = False

    def hear(self, message: Message) -> None:
        """Take note of a message."""
        self.spoke = True
        if isinstance(message, Begin):
            self.current = message.key
        elif isinstance(message, Done):
            self.current = ""
            if message.outcome == "ok":
                self.done[message.key] = message.measurements
            else:
                self.failed[message.key] = f"{message.outcome} under the profiler: {message.reason}"


@dataclass(frozen=True)
class _Session:
    """What one child left: the timeline, or why there is none (`lasting`: nor will there be)."""

    heard: _Heard
    end: End
    timeline: Timeline | None
    files: tuple[tuple[Path, str, str], ...] = ()
    problem: str = ""
    lasting: bool = False
    refused: bool = False  # the program was not even started


class TimelinePass:
    """Timelines of cases that passed their check. `tool` is nsys; None: torch.profiler stands in, and says so."""

    lane = "timeline"

    def __init__(self, tool: Path | None, env: Mapping[str, str] | None = None) -> None:
        self._tool = tool
        self._env = os.environ if env is None else env
        self._sessions = 0
        self._manual: str | None = None

    def run(self, targets: Sequence[Target], place: Workplace, on_found: Callable[[Found], None]) -> None:
        """A chunk at a time; a case that its chunk lost through no fault of its own is tried once more."""
        waiting = [target for target in targets if target.record.outcome == "ok"]
        tried: set[str] = set()
        while waiting:
            chunk, waiting = waiting[:CHUNK], waiting[CHUNK:]
            session = self._record(chunk, place)
            again = []
            for target in chunk:
                key = target.member.case.key
                reason = self._fault(key, session, place)
                lost = session.timeline is None or not session.timeline.named(key)
                if lost and not reason and key not in tried:
                    tried.add(key)
                    again.append(target)
                    continue
                on_found(self._found(key, session, reason))
            if session.lasting:
                for target in (*again, *waiting):
                    on_found(self._found(target.member.case.key, session, session.problem))
                return
            waiting = again + waiting

    def _fault(self, key: str, session: _Session, place: Workplace) -> str:
        heard = session.heard
        if key in heard.failed:
            return heard.failed[key]
        if key == heard.current:
            return f"under the profiler: {session.end.describe(_PATIENCE * place.deadline_s)}"
        return session.problem if session.lasting else ""

    def _record(self, chunk: Sequence[Target], place: Workplace) -> _Session:
        if self._tool is not None and self._manual is None:
            self._manual = nsys.manual_of(self._tool)
        session = self._record_once(chunk, place)
        if session.refused and self._manual != nsys.PLAIN:
            self._manual = nsys.PLAIN
            session = self._record_once(chunk, place)
        return session

    def _record_once(self, chunk: Sequence[Target], place: Workplace) -> _Session:
        self._sessions += 1
        report = place.folder / f"timeline-{self._sessions}"
        trace = "" if self._tool else str(report.with_name(f"{report.name}.torch.json"))
        job = ChildJob(
            kind="timeline", groups=grouped([target.member for target in chunk]), policy=POLICY,
            device_code=dict(place.device_code), trace=trace,
        )  # fmt: skip
        heard = _Heard()
        prefix = nsys.profile_command(self._tool, report, manual=self._manual or "") if self._tool else []
        environment = nsys.nsys_environment(self._env) if self._tool else None
        end = place.listen(job, heard.hear, prefix, environment, _PATIENCE)
        try:
            return self._read(report, heard, end, trace)
        except DgwError as error:
            return _Session(heard, end, None, problem=f"{error.message}; {error.hint}")

    def _read(self, report: Path, heard: _Heard, end: End, trace: str) -> _Session:
        if trace:
            read = trace_events.read_torch_trace(trace)
            return _Session(heard, end, read, (self._traced(read, report),))
        problem = nsys.diagnose(report, end.output, end.status, self._tool)
        if problem is not None and problem.kind == "report-not-exported" and self._tool is not None:
            nsys.export(self._tool, report.with_name(f"{report.name}.nsys-rep"), report.parent)
            problem = None
        if problem is not None:
            said = f"{problem.cause}; {problem.cure}"
            refused = problem.kind == "option" or (problem.kind == "report-missing" and end.status and not heard.spoke)
            return _Session(heard, end, None, problem=said, lasting=problem.missing, refused=bool(refused))
        sqlite = report.with_name(f"{report.name}.sqlite")
        read = read_sqlite(sqlite)
        scrub(sqlite)
        return _Session(heard, end, read, ((sqlite, "sqlite", sqlite.name), self._traced(read, report)))

    def _traced(self, read: Timeline, report: Path) -> tuple[Path, str, str]:
        path = trace_events.write_trace(read, report.with_name(f"{report.name}.trace.json"))
        return path, "trace.json", path.name

    def _found(self, key: str, session: _Session, reason: str) -> Found:
        read = session.timeline
        said = session.heard.done.get(key, ())
        if read is None or (reason and not read.named(key)):
            why = reason or session.problem or "the timeline does not hold this case"
            source = SOURCE if self._tool else trace_events.TORCH
            return Found(key, tuple(timeline.absences(source, why)))
        measured = timeline.measurements(read, key, DIRECT, waits=True)
        flags = () if self._tool else ("timeline: taken by torch.profiler, because nsys was not found",)
        return Found(key, (*measured, *said, *_replays(read, key, said)), flags, files=session.files)


def _replays(read: Timeline, key: str, said: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """`replayed_kernel_duration`, and `replay_agreement`: kernel time of the replays over their time by events."""
    values = {found.metric: found.value for found in said}
    launches, seconds = values.get("replay_launches"), values.get("replay_time")
    if not isinstance(launches, int) or not isinstance(seconds, float) or not seconds:
        return ()
    parts = timeline.parts(read, replay_range(key), waits=True)
    protocol = f"hot-graph {timeline.protocol_of(read)}"
    if not parts:
        return (timeline.absent("replayed_kernel_duration", "s", read.source, protocol, "no replay was recorded"),)
    found = timeline.durations(parts, launches, read.source, protocol, "replayed_kernel_duration")
    if not isinstance(found.value, float):
        return (found,)
    agreement = Measurement(
        metric="replay_agreement", value=found.value / seconds, unit="ratio", collector=read.source, protocol=protocol,
        tier="cupti",
    )  # fmt: skip
    return (found, agreement)
