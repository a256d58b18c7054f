"""A child that takes turns: it prepares what it is given and replays it when it is told to, once for each request.

Two such children live at once on one GPU and are told in turn, so that both meet the same state of the machine.
Requests are JSON lines on the FIFO `requests` in the folder of the job file, answers go where every answer goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dgw.model import Check, Noun, Outcome, Variant
from dgw.workbench.children import REQUESTS
from dgw.workbench.collectors import timing
from dgw.workbench.device.arena import Arena
from dgw.workbench.device.bench import Competitor, verify
from dgw.workbench.device.context import Gpu
from dgw.workbench.device.inputs import Inputs
from dgw.workbench.device.launch import Kernels
from dgw.workbench.device.nvml import Sensors
from dgw.workbench.protocol import Begin, ChildJob, Done, Member, Message, Ready, Turned


class Prepare(Noun, frozen=True, kw_only=True, tag="prepare"):
    """Bind and capture `member` as `name`; `launches` a replay (0: as many as the policy's `replay_s` holds)."""

    name: str
    member: Member
    launches: int = 0


class Turn(Noun, frozen=True, kw_only=True, tag="turn"):
    """Replay `name` once."""

    name: str


class Release(Noun, frozen=True, kw_only=True, tag="release"):
    """Give up what `name` holds; with `check` judge its outputs first, which were poisoned and written once more."""

    name: str
    check: bool = False


class Leave(Noun, frozen=True, kw_only=True, tag="leave"):
    """Nothing more is wanted."""


Request = Prepare | Turn | Release | Leave
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Request)


def encode(request: Request) -> bytes:
    """One line, newline included."""
    return _encoder.encode(request) + b"\n"


def requests(folder: Path) -> Iterator[Request]:
    """What is asked until it is `Leave`, or until the other end is closed. Raises msgspec.DecodeError for nonsense."""
    with (folder / REQUESTS).open("rb") as lines:
        for line in lines:
            request = _decoder.decode(line)
            if isinstance(request, Leave):
                return
            yield request


@dataclass
class _Prepared:
    competitor: Competitor
    launches: int


@dataclass
class TurnServer:
    """The child's side. `fail` reports an exception (and raises when the context is dead)."""

    gpu: Gpu
    sensors: Sensors
    variants: Mapping[str, Variant]
    job: ChildJob
    kernels: Kernels
    inputs: Inputs
    say: Callable[[Message], None]
    outcome_of: Callable[[Exception, Gpu], tuple[Outcome, str]]
    arena: Arena | None = None
    absent: str = ""
    prepared: dict[str, _Prepared] = field(default_factory=dict)
    lost: bool = False

    def serve(self, folder: Path) -> None:
        """Answer every request; ends early, with `lost` set, when the context is dead."""
        for request in requests(folder):
            try:
                self._answer(request)
            except Exception as error:
                outcome, reason = self.outcome_of(error, self.gpu)
                name = request.name if not isinstance(request, Leave) else ""
                self.say(Done(key=name, outcome=outcome, reason=reason))
                self.lost = outcome == "crashed"
                if self.lost:
                    return
                self.prepared.pop(name, None)

    def _answer(self, request: Request) -> None:
        if isinstance(request, Prepare):
            self.say(Begin(key=request.name, phase="prepare"))
            self._prepare(request)
        elif isinstance(request, Turn):
            self._turn(request.name)
        elif isinstance(request, Release):
            check = self._release(request)
            passed = check is None or check.passed
            reason = "" if passed or check is None else f"after timing: {check.detail}"
            self.say(Done(key=request.name, outcome="ok" if passed else "wrong", reason=reason, check=check))

    def _prepare(self, request: Prepare) -> None:
        member, policy = request.member, self.job.policy
        arena = self._arena_of(member)
        if not arena.sets[1:]:
            self.absent = arena.rotate(self.gpu.attribute("L2_CACHE_SIZE"), policy.max_sets).absent
        competitor = Competitor(self.gpu, self.kernels, member, self._variant(member))
        competitor.bind(arena.sets)
        launches = competitor.capture_widest(len(arena.sets), policy, request.launches)
        self.prepared[request.name] = _Prepared(competitor, launches)
        self.say(Ready(name=request.name, launches=launches, sets=len(arena.sets), hot=self.absent))

    def _variant(self, member: Member) -> Variant:
        """The declaration, or a stand-in for one that this side does not have: its plan says all that is needed."""
        known = self.variants.get(member.case.variant)
        if known is not None or member.plan is None:
            return self.variants[member.case.variant]
        plan = member.plan
        return Variant(id=member.case.variant, version=0, idea="", dtypes=(), plan=lambda *_: plan)

    def _arena_of(self, member: Member) -> Arena:
        """Buffers of the member's problem; those of another problem are given back, prepared members with them."""
        problem = member.case.problem
        if self.arena is None or self.arena.problem != problem:
            for name in list(self.prepared):
                self.prepared.pop(name).competitor.release()
            if self.arena is not None:
                self.arena.free()
                self.arena = None
            self.arena = Arena(self.gpu, self.kernels, self.inputs, self.job.device_code, problem)
        return self.arena

    def _turn(self, name: str) -> None:
        one = self.prepared[name]
        graph, _ = one.competitor.graph(one.competitor.widest)
        seen: list[timing.Telemetry] = []
        look = None if self.sensors.absent else lambda: seen.append(self.sensors.telemetry())
        seconds = self.gpu.elapsed(graph.launch, look)
        found = seen[0] if seen else timing.Telemetry()
        self.say(
            Turned(
                name=name, seconds=seconds / one.launches, sm_clock=found.sm_clock, power=found.power,
                temperature=found.temperature, throttle=found.throttle,
            )
        )  # fmt: skip

    def _release(self, request: Release) -> Check | None:
        one = self.prepared.pop(request.name, None)
        if one is None or self.arena is None:
            return None
        check = None
        if request.check:
            verify(self.arena, one.competitor)
            check = self.arena.check(one.competitor.roundings)
        one.competitor.release()
        return check
