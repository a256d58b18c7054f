"""The members of a group on the GPU: bound, captured into graphs, replayed between events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from dgw.model import Variant
from dgw.workbench.collectors import timing
from dgw.workbench.device.arena import Arena
from dgw.workbench.device.buffers import BufferSet, ForeignBuffer
from dgw.workbench.device.context import Gpu, Graph
from dgw.workbench.device.launch import Kernels, Workspaces, bind_plan
from dgw.workbench.device.nvml import Sensors
from dgw.workbench.protocol import Member, Policy

_PROBE_LAUNCHES = 20


def bind_foreign(gpu: Gpu, variant: Variant, member: Member, buffers: BufferSet) -> Callable[[], None]:
    """A callable that runs foreign code on dgw's stream, which torch is told about. Imports torch."""
    import torch

    torch.cuda.init()
    stream: Any = torch.cuda.ExternalStream(int(gpu.stream))
    problem = member.case.problem
    handles = {name: ForeignBuffer(problem, name, buffers.address(name)) for name in problem.operands()}
    assert variant.bind is not None
    with torch.cuda.stream(stream):
        call = variant.bind(problem, member.case.config, handles)

    def run() -> None:
        with torch.cuda.stream(stream):
            call()

    return run


class Competitor:
    """One member: its callable per buffer set, its graphs. Raises what binding raises."""

    def __init__(self, gpu: Gpu, kernels: Kernels, member: Member, variant: Variant) -> None:
        self.member, self.key = member, member.case.key
        self.roundings = variant.roundings
        self._gpu, self._kernels, self._variant = gpu, kernels, variant
        self._scratch = Workspaces(gpu, member.plan.workspaces if member.plan else {})
        self._runs: list[Callable[[], None]] = []
        self._graphs: dict[timing.Cache, tuple[Graph, int]] = {}
        self.first_seconds = 0.0

    def bind(self, sets: Sequence[BufferSet]) -> None:
        """Bind to every set that it is not yet bound to."""
        for buffers in sets[len(self._runs) :]:
            self._runs.append(self._bound(buffers))

    def _bound(self, buffers: BufferSet) -> Callable[[], None]:
        if self.member.plan is None:
            return bind_foreign(self._gpu, self._variant, self.member, buffers)
        problem = self.member.case.problem
        return bind_plan(
            self._gpu, self._kernels, problem, self.member.plan, self.member.cubins, buffers, self._scratch
        )  # fmt: skip

    def run_once(self) -> None:
        """One launch on the first set, finished when this returns; its seconds are kept."""
        self.first_seconds = self._gpu.elapsed(self._runs[0])
        self._gpu.synchronise()

    def enqueue(self) -> None:
        """One launch on the first set, not waited for."""
        self._runs[0]()

    def single_seconds(self) -> float:
        """About the time of one launch, back to back: from a short graph when launches are short."""
        self.run_once()
        if self.first_seconds > 2e-3:
            return self.first_seconds
        graph = self._capture(_PROBE_LAUNCHES, 1)
        try:
            self._gpu.elapsed(graph.launch)
            return self._gpu.elapsed(graph.launch) / _PROBE_LAUNCHES
        finally:
            graph.destroy()

    def _capture(self, launches: int, sets: int) -> Graph:
        def record() -> None:
            for number in range(launches):
                self._runs[number % sets]()

        return Graph(self._gpu, record)

    def prepare(self, sets: int, policy: Policy) -> timing.Entrant:
        """Capture the hot graph and, when there are several sets, the cold one; one that the policy wants only."""
        single = self.single_seconds()
        hot = cold = 0
        if policy.hot or sets == 1:
            hot = timing.launches_per_replay(single, 1, policy.replay_s)
            self._graphs["hot"] = (self._capture(hot, 1), hot)
        if sets > 1:
            cold = timing.launches_per_replay(single, sets, policy.replay_s)
            self._graphs["cold"] = (self._capture(cold, sets), cold)
        for graph, _ in self._graphs.values():
            self._gpu.elapsed(graph.launch)
        return timing.Entrant(self.key, hot, cold)

    def capture_widest(self, sets: int, policy: Policy, launches: int = 0) -> int:
        """Capture one graph over all sets, of `launches` launches (0: of about the policy's length); how many it has.

        It is replayed once, so that the first turn finds everything in place.
        """
        count = launches or timing.launches_per_replay(self.single_seconds(), sets, policy.replay_s)
        graph = self._capture(count, sets)
        self._graphs["cold" if sets > 1 else "hot"] = (graph, count)
        self._gpu.elapsed(graph.launch)
        return count

    @property
    def widest(self) -> timing.Cache:
        """The graph that uses all sets."""
        return "cold" if "cold" in self._graphs else "hot"

    def graph(self, cache: timing.Cache) -> tuple[Graph, int]:
        """A graph and the launches in it."""
        return self._graphs[cache]

    def release(self) -> None:
        """Give the graphs and workspaces back."""
        for graph, _ in self._graphs.values():
            graph.destroy()
        self._graphs.clear()
        self._scratch.free()


class GpuBench:
    """What timing.Bench asks for, on the GPU."""

    def __init__(
        self, gpu: Gpu, sensors: Sensors, competitors: Sequence[Competitor], say: Callable[[str, str], None]
    ) -> None:
        self._gpu, self._sensors, self._say = gpu, sensors, say
        self._competitors = {competitor.key: competitor for competitor in competitors}
        self.current = ""  # key of the member that was announced last

    def replay(self, key: str, cache: timing.Cache, sensors: bool) -> timing.Replay:
        """One replay; the sensors are read while it runs."""
        graph, _ = self._competitors[key].graph(cache)
        readings: list[timing.Telemetry] = []
        look = sensors and not self._sensors.absent
        meanwhile = (lambda: readings.append(self._sensors.telemetry())) if look else None
        return timing.Replay(self._gpu.elapsed(graph.launch, meanwhile), readings[0] if readings else None)

    def now(self) -> float:
        """The host's steady clock."""
        return time.perf_counter()

    def announce(self, key: str, phase: str) -> None:
        """Tell the runner."""
        self.current = key
        self._say(key, phase)

    def counter_power(self, key: str, seconds: float) -> float | None:
        """Mean power (W) over about `seconds` of replays, by the energy counter; None where it cannot tell.

        One replay is always queued behind the one that runs, so that the GPU is never idle between readings.
        """
        if seconds <= 0 or self._sensors.joules() is None:
            return None
        competitor = self._competitors[key]
        graph, _ = competitor.graph(competitor.widest)
        readings: list[tuple[float, float]] = []
        end = self.now() + seconds
        waits = self._gpu.in_flight(graph.launch)
        while self.now() < end:
            next(waits)
            joules = self._sensors.joules()
            if joules is not None:
                readings.append((self.now(), joules))
        self._gpu.synchronise()
        return timing.counter_power(readings)


def verify(arena: Arena, competitor: Competitor) -> None:
    """Poison D of every set and replay the graph that uses them all once."""
    arena.poison()
    graph, _ = competitor.graph(competitor.widest)
    arena.gpu.elapsed(graph.launch)
