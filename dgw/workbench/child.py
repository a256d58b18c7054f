"""The child process: checks, times and launches for profilers. It imports torch only for foreign code in the job."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dgw.errors import DgwError
from dgw.model import Check, Measurement, Outcome, Variant
from dgw.workbench import pacing, turn
from dgw.workbench.collectors import timing
from dgw.workbench.device import mma_rate
from dgw.workbench.device.arena import Arena
from dgw.workbench.device.bench import Competitor, GpuBench, verify
from dgw.workbench.device.buffers import BufferSet, SeparateSet
from dgw.workbench.device.context import Gpu
from dgw.workbench.device.driver import CudaError, Driver
from dgw.workbench.device.inputs import Inputs
from dgw.workbench.device.launch import Kernels
from dgw.workbench.device.nvml import Sensors
from dgw.workbench.environment import device_of, gpu_environment
from dgw.workbench.protocol import (
    Begin,
    Bye,
    ChildJob,
    Done,
    Group,
    Hello,
    Member,
    Message,
    Speaker,
    Unavailable,
    read_job,
)

CONTEXT_LOST = 13  # exit status: the context is dead, start another child


class ContextLost(Exception):
    """The CUDA context is dead: nothing more can be done in this process."""


@dataclass
class Entry:
    """What is known so far of one member."""

    competitor: Competitor
    check: Check
    measurements: list[Measurement] = field(default_factory=list)


def outcome_of(error: Exception, gpu: Gpu) -> tuple[Outcome, str]:
    """What an exception means for the case, and its text. A dead context is always `crashed`."""
    text = error.message if isinstance(error, DgwError) else f"{type(error).__name__}: {error}"
    text = " ".join(text.split())[:500]
    if not gpu.alive():
        return "crashed", text
    if isinstance(error, CudaError):
        return error.outcome, text
    return ("out-of-memory" if type(error).__name__ == "OutOfMemoryError" else "launch-failed"), text


class Worker:
    """Works through the groups of a job on one GPU and says what happens through `say`."""

    def __init__(
        self, gpu: Gpu, sensors: Sensors, variants: Mapping[str, Variant], job: ChildJob, say: Callable[[Message], None]
    ) -> None:
        self.gpu, self.sensors, self.variants, self.job, self.say = gpu, sensors, variants, job, say
        self.kernels = Kernels(gpu)
        self.inputs = Inputs(gpu, self.kernels, job.device_code.get("fill", ""))
        self.l2_bytes = gpu.attribute("L2_CACHE_SIZE")
        self.ceiling: Measurement | None = None
        self.warm = False  # whether the SM clock has settled since this child began
        self.arena: Arena | None = None  # of the group before, for the next one if that has the same problem

    def announce(self, key: str, phase: str) -> None:
        """Say what comes next."""
        self.say(Begin(key=key, phase=phase))

    def work(self) -> None:
        """Do every group. Raises ContextLost after saying which case broke the context."""
        if self.job.kind == "timeline":
            self._timelines()
            return
        for number, group in enumerate(self.job.groups):
            if number and self.job.paced:
                pacing.await_word(self.say)
            (self._profile if self.job.kind == "profile" else self._measure)(group)
        if self.arena is not None and not self.job.lingers:
            self.arena.free()

    def fail(self, key: str, error: Exception, check: Check | None = None) -> None:
        """Report a case that raised; raises ContextLost when nothing can follow."""
        outcome, reason = outcome_of(error, self.gpu)
        self.say(Done(key=key, outcome=outcome, reason=reason, check=check))
        if outcome == "crashed":
            raise ContextLost

    def _arena(self, group: Group) -> Arena | None:
        first = group.members[0].case
        self.announce(first.key, "inputs")
        kept, self.arena = self.arena, None
        if kept is not None and kept.problem == first.problem:
            return kept
        try:
            if kept is not None:
                kept.free()
            judged = self.job.kind == "measure"
            return Arena(self.gpu, self.kernels, self.inputs, self.job.device_code, first.problem, judged)
        except Exception as error:
            outcome, reason = outcome_of(error, self.gpu)
            for member in group.members:
                self.say(Done(key=member.case.key, outcome=outcome, reason=reason))
            if outcome == "crashed":
                raise ContextLost from error
            return None

    def _competitor(self, member: Member, arena: Arena, sets: Sequence[BufferSet] = ()) -> Competitor:
        variant = self.variants.get(member.case.variant)
        if variant is None:
            raise DgwError(f"this process knows no variant {member.case.variant}", "dgw list")
        competitor = Competitor(self.gpu, self.kernels, member, variant)
        competitor.bind(sets or arena.sets[:1])
        return competitor

    def _measure(self, group: Group) -> None:
        arena = self._arena(group)
        if arena is None:
            return
        try:
            timed = "time" in group.lanes
            entries = [e for member in group.members if (e := self._checked(member, arena, final=not timed))]
            if timed and entries:
                entries = self._timed(group, arena, entries)
            for entry in entries if timed else ():
                self.say(
                    Done(
                        key=entry.competitor.key,
                        outcome="ok",
                        check=entry.check,
                        measurements=tuple(entry.measurements),
                    )
                )
        finally:
            self.arena = arena

    def _checked(self, member: Member, arena: Arena, final: bool) -> Entry | None:
        """Run once on a poisoned D and judge it; reports whatever is not right, and when `final` what is, too."""
        key = member.case.key
        self.announce(key, "check")
        try:
            arena.sets[0].poison("d")
            competitor = self._competitor(member, arena)
            competitor.run_once()
            self.announce(key, "reference")
            check = arena.checker.check(arena.sets[0], competitor.roundings)
        except Exception as error:
            self.fail(key, error)
            arena.restore()
            return None
        if check.passed and not final:
            return Entry(competitor, check)
        if check.passed:
            self.say(Done(key=key, outcome="ok", check=check))
            competitor.release()
            return None
        self.say(Done(key=key, outcome="wrong", reason=check.detail, check=check))
        competitor.release()
        arena.restore()
        return None

    def _timed(self, group: Group, arena: Arena, entries: list[Entry]) -> list[Entry]:
        policy = self.job.policy
        rotation = arena.rotate(self.l2_bytes, policy.max_sets)
        entrants, ready = [], []
        for entry in entries:
            self.announce(entry.competitor.key, "capture")
            try:
                entry.competitor.bind(arena.sets)
                entrant = entry.competitor.prepare(len(arena.sets), policy)
                entrants.append(replace(entrant, competes=entry.competitor.member.reported))
                ready.append(entry)
            except Exception as error:
                self.fail(entry.competitor.key, error, entry.check)
        if not ready:
            return []
        bench = GpuBench(self.gpu, self.sensors, [entry.competitor for entry in ready], self.announce)
        try:
            if not self.warm:
                timing.settle(bench, ready[0].competitor.key, policy, ready[0].competitor.widest)
                self.warm = True
            series = timing.sample(bench, entrants, policy)
            self.ceiling = self._mma_rate(group)
        except CudaError as error:
            self._lost_in_group(bench, ready, error)
            return []
        names = {m.case.key: self.variants[m.case.variant].name or m.case.variant for m in group.members}
        return [entry for entry in ready if self._finished(entry, bench, arena, series, names, rotation.absent)]

    def _mma_rate(self, group: Group) -> Measurement | None:
        """The rate of mma.sync in the state in which the group left the GPU; not while screening."""
        code = self.job.device_code.get("mma_rate", "")
        if self.job.policy.name != "final" or not code:
            return None
        return mma_rate.measure(self.gpu, self.kernels, code, group.members[0].case.problem.a.dtype)

    def _lost_in_group(self, bench: GpuBench, ready: list[Entry], error: CudaError) -> None:
        """A replay failed: the member announced last broke it, and the runner lets the others start again."""
        outcome, reason = outcome_of(error, self.gpu)
        key = bench.current or ready[0].competitor.key
        self.say(Done(key=key, outcome=outcome, reason=reason))
        raise ContextLost from error

    def _finished(
        self,
        entry: Entry,
        bench: GpuBench,
        arena: Arena,
        series: Mapping[str, timing.Series],
        names: Mapping[str, str],
        no_cold: str,
    ) -> bool:
        """Energy, activity, and the check of all outputs after timing; False when that one fails."""
        policy, key = self.job.policy, entry.competitor.key
        problem = entry.competitor.member.case.problem
        mine = series[key]
        found = list(timing.time_measurements(mine, problem.flops, problem.compulsory_bytes, policy, no_cold))
        baselines = {other: names[other] for other in entry.competitor.member.against if other in names}
        found += timing.group_measurements(series, key, baselines, policy)
        if self.ceiling is not None and entry.competitor.member.plan is not None:
            found += [self.ceiling, timing.share_of_rate(mine, problem.flops, self.ceiling, policy)]
        try:
            if policy.energy_s > 0:
                self.announce(key, "energy")
                found.append(self._energy(bench, key, mine))
            if self.job.activity:
                self.announce(key, "activity")
                found.append(self._activity(entry.competitor, mine))
            self.announce(key, "check after timing")
            verify(arena, entry.competitor)
            after = arena.check(entry.competitor.roundings)
        except Exception as error:
            self.fail(key, error, entry.check)
            return False
        entry.competitor.release()
        if not after.passed:
            self.say(Done(key=key, outcome="wrong", reason=f"after timing: {after.detail}", check=after))
            arena.restore()
            return False
        entry.measurements = found
        return True

    def _energy(self, bench: GpuBench, key: str, series: timing.Series) -> Measurement:
        readings = [reading.power for reading in series.readings if reading.power is not None]
        sensor = timing.median_interval(readings)[0] if readings else None
        counted = bench.counter_power(key, self.job.policy.energy_s)
        seconds = timing.median_interval(list(series.best[1].values()))[0]
        return timing.energy_measurement(counted, sensor, seconds, self.sensors.absent)

    def _activity(self, competitor: Competitor, series: timing.Series) -> Measurement:
        from dgw.workbench.collectors import activity

        cache = competitor.widest
        graph, launches = competitor.graph(cache)
        try:
            durations = activity.record_replays(graph.launch, self.gpu.synchronise)
        except (ImportError, RuntimeError) as error:
            return activity.unavailable(f"{type(error).__name__}: {error}", cache)
        return activity.measurement(durations, launches, cache)

    def _profile(self, group: Group) -> None:
        """One launch per member inside an NVTX range of domain dgw whose name is the case's key."""
        import nvtx

        arena = self._arena(group)
        if arena is None:
            return
        for member in group.members:
            key = member.case.key
            self.announce(key, "profile")
            try:
                sets = [SeparateSet(arena.sets[0])] if self.job.separate else []
                competitor = self._competitor(member, arena, sets)
                if member.plan is None:
                    competitor.run_once()  # foreign code may choose its kernel with launches of its own
                nvtx.push_range(key, domain="dgw")
                try:
                    competitor.run_once()
                finally:
                    nvtx.pop_range(domain="dgw")
                competitor.release()
            except Exception as error:
                self.fail(key, error)
                continue
            self.say(Done(key=key, outcome="ok"))
        arena.free()

    def _timelines(self) -> None:
        """Every member in the ranges that nsys, or torch.profiler, records."""
        from dgw.workbench.device import timeline

        try:
            with timeline.marking(self.job.trace) as mark:
                for group in self.job.groups:
                    self._timeline(group, mark)
        except ImportError as error:
            for member in (member for group in self.job.groups for member in group.members):
                self.say(Done(key=member.case.key, outcome="launch-failed", reason=f"ranges cannot be marked: {error}"))

    def _timeline(self, group: Group, mark: Any) -> None:
        from dgw.workbench.device import timeline

        arena = self._arena(group)
        if arena is None:
            return
        for member in group.members:
            self.announce(member.case.key, "timeline")
            try:
                competitor = self._competitor(member, arena)
                found = timeline.run_marked(self.gpu, competitor, mark, self.job.policy)
                competitor.release()
            except Exception as error:
                self.fail(member.case.key, error)
                continue
            self.say(Done(key=member.case.key, outcome="ok", measurements=found))
        arena.free()


def take_turns(worker: Worker, job_file: Path) -> None:
    """Answer requests until there are no more. Raises ContextLost."""
    from dgw.workbench.turns import TurnServer

    server = TurnServer(
        worker.gpu, worker.sensors, worker.variants, worker.job, worker.kernels, worker.inputs, worker.say, outcome_of
    )
    server.serve(job_file.absolute().parent)
    if server.lost:
        raise ContextLost


def _import_ahead(job: ChildJob) -> None:
    """Import what the job will need anyway, while another child has the GPU."""
    foreign = any(member.plan is None for group in job.groups for member in group.members)
    for name in ("nvtx", "cuda.bindings.driver", *(("torch",) if foreign else ())):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def serve(variants: Mapping[str, Variant], job_file: Path, fifo: Path, api: Any = None, nvml: Any = None) -> int:
    """Do the job in `job_file`, answer on `fifo`; the exit status is 0, or CONTEXT_LOST after a CUDA fault.

    `api` and `nvml` are stand-ins for cuda.bindings.driver and pynvml.
    """
    speaker = Speaker(fifo)
    try:
        job = read_job(job_file)
        if job.turn:
            _import_ahead(job)
            turn.wait(job.turn)
        try:
            gpu = Gpu(Driver(api))
            sensors = Sensors(gpu.uuid, nvml)
            device = device_of(gpu)
            speaker.say(Hello(pid=os.getpid(), environment=gpu_environment(gpu, sensors, device), device=device))
            worker = Worker(gpu, sensors, variants, job, speaker.say) if job.groups else None
        except (CudaError, ImportError) as error:
            speaker.say(Unavailable(reason=str(error)))
            return 0
        try:
            if job.kind == "turns":
                take_turns(Worker(gpu, sensors, variants, job, speaker.say), job_file)
            elif worker is not None:
                worker.work()
                while worker.job.lingers:
                    worker.job = pacing.further_job(speaker.say)
                    worker.work()
        except ContextLost:
            speaker.say(Bye(context_lost=True))
            return CONTEXT_LOST
        except pacing.Forsaken:
            return 0
        speaker.say(Bye())
        return 0
    finally:
        speaker.close()
