"""Runs cases in child processes and survives what they do: each finished case is handed on before the next starts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from dgw.errors import Missing
from dgw.model import Artifact, Case, Device, Environment, Measurement, Record, Variant
from dgw.toolchain.cache import CompileCache
from dgw.workbench import locked_clock, plausibility, prepare
from dgw.workbench.children import End
from dgw.workbench.counters import CounterLane, NcuLane, NoLane
from dgw.workbench.passes import Found, Pass, Target, Workplace
from dgw.workbench.probing import probe
from dgw.workbench.profiling import Counted, CounterPass, Running
from dgw.workbench.protocol import (
    Begin,
    ChildJob,
    Done,
    Group,
    Hello,
    Lane,
    Member,
    Message,
    Policy,
    Unavailable,
)
from dgw.workbench.schedule import MOST_IN_GROUP, Request, Schedule, group
from dgw.workbench.slots import Held, nobody
from dgw.workbench.succession import Succession

OnRecord = Callable[[Record], None]
Progress = Callable[[int, int, str], None]
_LANES: tuple[Lane, ...] = ("check", "time")
_PROFILER_PATIENCE = 3.0  # a profiler runs a kernel many times


@dataclass(frozen=True)
class Job:
    """A case to run, in `lanes` (check is always among them), timed interleaved with the cases in `against`.

    What is `known` of it from before is neither checked nor timed again, only counted and passed on to the passes.
    """

    case: Case
    lanes: frozenset[str] = frozenset({"check", "time"})
    against: tuple[Case, ...] = ()
    known: Record | None = None


@dataclass(frozen=True, kw_only=True)
class Session:
    """What a run needs besides its cases.

    `child_argv` is the command of a child; the job file and the FIFO are appended to it. `counters` names the metrics
    of the counter lane; `counter_lane` replaces ncu. `deadline_s` is the longest silence of a child, `start_s` the
    longest before its first word. `keep_artifact(path, kind, name)` stores a file. `passes` come after everything else,
    each over the cases that ask for its lane. `device` and `environment` are what `probe` answered; without
    `environment` a child is asked first, and its device counts. `gpu` takes a GPU for as long as cases run on it;
    `together` is how many cases are timed interleaved. With `lingers` one child does the jobs of the passes as well.
    What is `prepared` is not prepared again.
    """

    variants: Mapping[str, Variant]
    device: Device
    child_argv: Sequence[str]
    engine: Literal["gpu"] = "gpu"
    environment: Environment | None = None
    cache_dir: Path | None = None
    counters: str = "none"
    counter_lane: CounterLane | None = None
    policy: Policy = field(default_factory=Policy)
    activity: bool = False
    instruction_mix: bool = False
    deadline_s: float = 30.0
    start_s: float = 120.0
    keep_artifact: Callable[[Path, str, str], Artifact] | None = None
    passes: Sequence[Pass] = ()
    gpu: Callable[[], AbstractContextManager[Held]] = nobody
    together: int = MOST_IN_GROUP
    lingers: bool = False
    prepared: Mapping[str, prepare.Prepared] = field(default_factory=dict)


def quiet(done: int, total: int, text: str) -> None:
    """A progress that shows nothing."""


def run(jobs: Sequence[Job], session: Session, on_record: OnRecord, progress: Progress = quiet) -> list[Record]:
    """Run all jobs; the final record of each, in order.

    `on_record` gets a case's record as soon as it is finished, and once more, completed, when the counter lane has
    added to it: the key stays the same. On KeyboardInterrupt the children are killed; what is finished was handed on.
    Raises Missing when there is no GPU, ChildFault when no child can be started.
    """
    if not jobs:
        return []
    with tempfile.TemporaryDirectory(prefix="dgw-") as folder:
        return _Run(jobs, session, on_record, progress, Path(folder)).run()


@dataclass
class _Run:
    jobs: Sequence[Job]
    session: Session
    on_record: OnRecord
    progress: Progress
    folder: Path
    records: dict[str, Record] = field(default_factory=dict)
    prepared: dict[str, prepare.Prepared] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    device: Device | None = None
    device_code: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    ncu: str = ""
    kept: dict[Path, Artifact] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_key = {job.case.key: job for job in reversed(self.jobs)}

    @cached_property
    def children(self) -> Succession:
        """The children, one after another."""
        setup = self.session
        return Succession(setup.child_argv, self.folder, setup.deadline_s, setup.start_s, setup.lingers)

    def run(self) -> list[Record]:
        if self.session.environment is not None:
            self.environment, self.device = self.session.environment, self.session.device
        else:
            self.environment, self.device = probe(self.session.child_argv, self.session.start_s)
        self._prepare()
        requests = [request for job in self._unique() if (request := self._request(job))]
        with self.session.gpu() as self.children.held:
            try:
                if requests:
                    self._measure(group(requests, self.session.together))
                self._count()
                for further in self.session.passes:
                    self._pass(further)
            finally:
                self.children.dismiss()
        self.progress(len(self.jobs), len(self.jobs), "")
        return [self.records[job.case.key] for job in self.jobs]

    def _unique(self) -> list[Job]:
        return list({job.case.key: job for job in self.jobs}.values())

    # -- preparing

    def _prepare(self) -> None:
        """Compile everything, then hand on what cannot run."""
        assert self.device is not None
        cache = CompileCache(self.session.cache_dir) if self.session.cache_dir else CompileCache(self.folder / "cache")
        cases = {case.key: case for job in self.jobs for case in (job.case, *job.against)}
        variants = self.session.variants
        self.progress(0, len(self.jobs), "compiling")
        self.prepared = {key: found for key in cases if (found := self.session.prepared.get(key))}
        fresh = [(case, variants[case.variant]) for key, case in cases.items() if key not in self.prepared]
        recent = prepare.warm_cache(fresh, self.device, cache, plumbing=prepare.DEVICE_CODE)
        for case, variant in fresh:
            found = prepare.prepare(case, variant, self.device, recent, self.session.instruction_mix)
            self.prepared[case.key] = found
        for job in self._unique():
            found = self.prepared[job.case.key]
            if not found.runnable:
                self._hand_on(found.record)
            elif job.known is not None:
                self.records[job.case.key] = job.known
        self.device_code = {
            name: self._file(f"{name}.cubin", cubin)
            for name, cubin in prepare.device_code(self.device.arch, cache).items()
        }

    def _file(self, name: str, content: bytes) -> str:
        path = self.folder / name
        if not path.exists():
            path.write_bytes(content)
        return str(path)

    def _member(self, case: Case, against: Sequence[Case] = ()) -> Member:
        found = self.prepared[case.key]
        launches = found.plan.launches if found.plan else ()
        cubins = [found.builds[launch.source] for launch in launches]
        return Member(
            case=case,
            plan=found.plan,
            cubins=tuple(self._file(f"{built.sha256}.cubin", built.cubin) for built in cubins),
            against=tuple(other.key for other in against),
        )

    def _request(self, job: Job) -> Request | None:
        if job.known is not None or not self.prepared[job.case.key].runnable:
            return None
        lanes = tuple(lane for lane in _LANES if lane == "check" or lane in job.lanes)
        return Request(self._member(job.case, job.against), lanes, self._beside(job))

    def _beside(self, job: Job) -> tuple[Member, ...]:
        return tuple(self._member(case) for case in job.against if self.prepared[case.key].runnable)

    # -- checking and timing

    def _measure(self, groups: list[Group]) -> None:
        schedule = Schedule(groups, self.session.deadline_s)
        while schedule.left:
            schedule.begin()
            job = ChildJob(
                kind="measure", groups=tuple(schedule.left), policy=self.session.policy,
                device_code=self.device_code, activity=self.session.activity, paced=True,
            )  # fmt: skip

            def hear(message: Message) -> None:
                schedule.hear(message)
                if isinstance(message, Done):
                    self._finish(message)

            end = self._listen(job, hear)
            for verdict in schedule.end(end):
                self._finish(Done(key=verdict.key, outcome=verdict.outcome, reason=verdict.reason))

    def _listen(
        self,
        job: ChildJob,
        hear: Callable[[Message], None],
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        patience: float = 1.0,
    ) -> End:
        """Run one child to its end; `hear` gets every message. `patience` multiplies the deadlines."""
        return self.children.listen(job, self._noticing(hear), prefix, environment, patience)

    def _noticing(self, hear: Callable[[Message], None]) -> Callable[[Message], None]:
        """`hear`, and what the runner itself makes of a message."""

        def notice(message: Message) -> None:
            hear(message)
            if isinstance(message, Hello):
                self.environment = message.environment
            elif isinstance(message, Unavailable):
                raise Missing(f"no GPU can be used: {message.reason}", "dgw doctor, or --engine emulator")
            elif isinstance(message, Begin):
                self._show(message)

        return notice

    def _show(self, message: Begin) -> None:
        found = self.prepared.get(message.key)
        name = f"{found.record.case.variant} {found.record.case.problem.shape}" if found else message.key
        self.progress(len(self.records), len(self.jobs), f"{name}: {message.phase}")

    def _finish(self, done: Done) -> None:
        """Make the record of a finished case and hand it on; a baseline that is no job is only remembered."""
        assert self.device is not None
        found = self.prepared.get(done.key)
        if found is None:
            return
        record = msgspec.structs.replace(
            found.record,
            outcome=done.outcome,
            reason=done.reason,
            check=done.check,
            environment=self.environment,
            measurements=(*found.record.measurements, *done.measurements),
        )
        if done.key in self.records:  # a baseline of a later group, finished before
            return
        job = self.by_key.get(done.key)
        if done.outcome != "ok":
            self.failures[done.key] = f"{record.case.variant}: {done.outcome}: {done.reason}"
        if job is None:
            return
        if done.outcome == "ok":
            record = self._with_missing_ratios(record, job)
            flags = (*record.flags, *done.flags, *plausibility.flags(record, self.device))
            record = msgspec.structs.replace(record, flags=flags)
        self._hand_on(record)

    def _with_missing_ratios(self, record: Record, job: Job) -> Record:
        """Say why there is no ratio to a baseline that could not be timed."""
        absent = []
        for case in job.against:
            metric = f"ratio_to_{self.session.variants[case.variant].name}"
            if "time" not in job.lanes or case.key == job.case.key or record.get(metric) is not None:
                continue
            stopped = self.prepared[case.key].record
            why = self.failures.get(case.key) or f"{case.variant} was not timed in this group"
            if stopped.outcome != "ok":
                why = f"{case.variant}: {stopped.outcome}: {stopped.reason}"
            absent.append(Measurement(metric=metric, unit="ratio", collector="timing", protocol="paired/1", absent=why))
        return msgspec.structs.replace(record, measurements=(*record.measurements, *absent))

    def _hand_on(self, record: Record) -> None:
        measured = locked_clock.named(record.measurements, self.session.policy.locked_hz)
        record = msgspec.structs.replace(record, measurements=measured)
        self.records[record.case.key] = record
        self.on_record(record)
        self.progress(len(self.records), len(self.jobs), f"{record.case.variant} {record.case.problem.shape}")

    # -- counters

    def _count(self) -> None:
        """The counter lane, for what passed its check: records are handed on again with their counters."""
        jobs = [job for job in self._unique() if "counters" in job.lanes and self.records[job.case.key].outcome == "ok"]
        if not jobs or (self.session.counters == "none" and self.session.counter_lane is None):
            return
        lane = self._lane()
        if isinstance(lane, NoLane):
            for job in jobs:
                self._add(Counted(job.case.key, lane.absences()))
            return
        scratch = self.folder / "profiler"

        def start(job: ChildJob, prefix: Sequence[str]) -> Running:
            child = self.children.start(job, prefix, lane.environment(os.environ, scratch))
            return Running(
                lambda hear: self.children.hear(child, self._noticing(hear), True, _PROFILER_PATIENCE), child.finish
            )

        def add(counted: Counted) -> None:
            self.ncu = self.ncu or lane.version
            self._add(counted)

        counting = CounterPass(lane, start, self.folder, self.device_code, self.session.deadline_s * _PROFILER_PATIENCE)
        counting.run([self._member(job.case) for job in jobs], add)

    def _lane(self) -> CounterLane | NoLane:
        assert self.device is not None
        if self.session.counter_lane is not None:
            return self.session.counter_lane
        from dgw.workbench.tools import find_tool

        tool = find_tool("ncu")
        if tool is None:
            return NoLane("Nsight Compute (ncu) was not found", self.session.counters, self.device.arch)
        return NcuLane(tool, self.session.counters, self.device.arch)

    def _add(self, counted: Counted) -> None:
        """Complete a record with its counters. A figure that both lanes have keeps both, told apart by collector."""
        assert self.device is not None
        record = self.records[counted.key]
        artifacts = record.artifacts
        if counted.report is not None and self.session.keep_artifact is not None:
            if counted.report not in self.kept:  # one report holds many cases
                self.kept[counted.report] = self.session.keep_artifact(counted.report, "ncu-rep", counted.report.name)
            artifacts = (*artifacts, self.kept[counted.report])
        record = msgspec.structs.replace(
            record,
            measurements=(*record.measurements, *counted.measurements),
            artifacts=artifacts,
            environment=msgspec.structs.replace(record.environment, ncu=self.ncu),
        )
        flags = (*record.flags, *counted.flags, *plausibility.flags(record, self.device))
        self._hand_on(msgspec.structs.replace(record, flags=tuple(dict.fromkeys(flags))))

    # -- further passes

    def _pass(self, further: Pass) -> None:
        """A pass over every case that can run and asks for it; records are handed on again with what it found."""
        wanted = [job for job in self._unique() if further.lane in job.lanes and self.prepared[job.case.key].runnable]
        targets = [
            Target(member, self.session.variants[job.case.variant], self.records[job.case.key], self._beside(job))
            for job in wanted
            if (member := self._member(job.case))
        ]
        folder = self.folder / further.lane
        folder.mkdir(exist_ok=True)
        place = Workplace(self._listen, folder, self.device_code, self.session.deadline_s)
        if targets:
            further.run(targets, place, self._take)

    def _take(self, found: Found) -> None:
        record = self.records[found.key]
        keep = self.session.keep_artifact
        artifacts = tuple(keep(*file) for file in found.files) if keep is not None else ()
        changed = found.outcome is not None and record.outcome == "ok"
        measured = found.beside(record.measurements)
        self._hand_on(
            msgspec.structs.replace(
                record,
                outcome=found.outcome if changed else record.outcome,
                reason=found.reason if changed else record.reason,
                measurements=measured,
                flags=tuple(dict.fromkeys((*record.flags, *found.flags, *plausibility.clock_flags(measured)))),
                defects=(*record.defects, *found.defects),
                artifacts=(*record.artifacts, *artifacts),
            )
        )
