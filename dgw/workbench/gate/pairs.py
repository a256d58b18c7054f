"""A pair of fresh processes, one for each side, alive at once on one GPU and taking turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dgw.errors import ChildFault, Missing, NotComparable
from dgw.model import Environment, Outcome
from dgw.workbench import turns
from dgw.workbench.children import Child
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.rounds import Round
from dgw.workbench.gate.sides import SideSetup
from dgw.workbench.protocol import (
    Begin,
    ChildJob,
    Done,
    Garbled,
    Hello,
    Member,
    Message,
    Policy,
    Ready,
    Turned,
    Unavailable,
)

SideName = Literal["base", "head"]
SIDES: tuple[SideName, SideName] = ("base", "head")
_SAME = ("device", "device_uuid", "driver", "cuda")


@dataclass(frozen=True)
class PairCase:
    """What a pair measures: the member of each side."""

    key: str
    base: Member
    head: Member

    def member(self, side: SideName) -> Member:
        """That of one side."""
        return self.base if side == "base" else self.head


@dataclass(frozen=True)
class Fault:
    """A case that failed while it was timed."""

    side: SideName
    outcome: Outcome
    reason: str


@dataclass(frozen=True)
class Lab:
    """Where pairs are measured. `clock` is a steady clock in seconds; `variables` pin the GPU."""

    base: SideSetup
    head: SideSetup
    policy: GatePolicy
    device_code: dict[str, str]
    folder: Path
    deadline_s: float = 30.0
    start_s: float = 120.0
    clock: Callable[[], float] = time.monotonic
    variables: dict[str, str] = field(default_factory=dict)

    def side(self, name: SideName) -> SideSetup:
        """One side."""
        return self.base if name == "base" else self.head


class _Stopped(Exception):
    """A case failed on one side; `dead` when the process cannot go on."""

    def __init__(self, fault: Fault, dead: bool) -> None:
        super().__init__(fault.reason)
        self.fault, self.dead = fault, dead


@dataclass
class Pair:
    """One pair. `run` measures; `rounds` and `faults` hold what came of each case, also when it is interrupted."""

    lab: Lab
    name: str
    warm_up_s: float
    check: bool = False
    rounds: dict[str, tuple[Round, ...]] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    hot: dict[str, str] = field(default_factory=dict)
    _children: dict[SideName, Child] = field(default_factory=dict)
    _starts: int = 0
    _warm: bool = False

    def run(self, cases: Sequence[PairCase], seed: int) -> None:
        """Measure all cases in an order drawn from `seed`. A case that fails costs itself only.

        Raises Missing without a GPU, NotComparable when the sides see different ones, ChildFault when a side does not
        even start.
        """
        draw = random.Random(seed)
        waiting = list(cases)
        draw.shuffle(waiting)
        try:
            while waiting:
                if not self._children:
                    self._start()
                case = waiting.pop(0)
                try:
                    self.rounds[case.key] = self._measure(case, draw)
                except _Stopped as stopped:
                    self.faults[case.key] = stopped.fault
                    if stopped.dead:
                        self._end()
        finally:
            self._end()

    # -- processes

    def _start(self) -> None:
        self._starts += 1
        policy = self.lab.policy
        job = ChildJob(
            kind="turns", policy=Policy(replay_s=policy.turn_s, max_sets=policy.max_sets, seed=policy.seed),
            device_code=self.lab.device_code,
        )  # fmt: skip
        for name in SIDES:
            side = self.lab.side(name)
            folder = self.lab.folder / f"{self.name}-{self._starts}-{name}"
            self._children[name] = Child(
                side.child_argv, job, folder, environment=side.variables(self.lab.variables)
            )  # fmt: skip
        seen = {name: self._hello(name) for name in SIDES}
        for what in _SAME:
            base, head = (getattr(seen[name], what) for name in SIDES)
            if base != head:
                raise NotComparable(
                    f"base and head do not see the same GPU and driver: {what} {base or 'unknown'} and "
                    f"{head or 'unknown'}",
                    "give both sides one GPU, such as CUDA_VISIBLE_DEVICES=0",
                )
        self.environment, self._warm = seen["head"], False

    def _hello(self, name: SideName) -> Environment:
        message = self._children[name].answer(self.lab.start_s)
        if isinstance(message, Hello):
            return message.environment
        if isinstance(message, Unavailable):
            raise Missing(f"no GPU can be used by {name}: {message.reason}", "dgw doctor, or dgw gate --exact")
        end = self._children.pop(name).finish()
        raise ChildFault(f"the process of {name} did not start: {end.describe(self.lab.start_s)}", "dgw doctor")

    def _end(self) -> None:
        for child in self._children.values():
            child.ask(turns.encode(turns.Leave()))
        for child in self._children.values():
            child.finish()
        self._children.clear()

    # -- talking

    def _ask(self, name: SideName, request: turns.Prepare | turns.Turn | turns.Release) -> Message:
        child = self._children[name]
        child.ask(turns.encode(request))
        while True:
            message = child.answer(self.lab.deadline_s)
            if isinstance(message, Begin | Garbled):
                continue
            if isinstance(message, Done) and message.outcome != "ok":
                dead = message.outcome == "crashed"
                raise _Stopped(Fault(name, message.outcome, message.reason), dead)
            if message is not None:
                return message
            end = self._children.pop(name).finish()
            outcome: Outcome = "timed-out" if end.how == "timed-out" else "crashed"
            raise _Stopped(Fault(name, outcome, f"while timed: {end.describe(self.lab.deadline_s)}"), True)

    def _prepare(self, case: PairCase) -> None:
        """Head chooses how many launches a turn has, base has as many."""
        launches, sets = 0, {}
        for name in ("head", "base"):
            side: SideName = "head" if name == "head" else "base"
            ready = self._ask(side, turns.Prepare(name=case.key, member=case.member(side), launches=launches))
            assert isinstance(ready, Ready)
            launches, sets[side] = ready.launches, ready.sets
            if ready.hot:
                self.hot[case.key] = ready.hot
        if sets["base"] != sets["head"]:
            reason = f"base rotates over {sets['base']} buffer sets and head over {sets['head']}: memory is short"
            raise _Stopped(Fault("base", "out-of-memory", reason), False)

    def _turn(self, name: SideName, key: str) -> Turned:
        answer = self._ask(name, turns.Turn(name=key))
        assert isinstance(answer, Turned)
        return answer

    # -- measuring

    def _measure(self, case: PairCase, draw: random.Random) -> tuple[Round, ...]:
        self._prepare(case)
        if not self._warm:
            self._settle(case.key)
            self._warm = True
        self._round(case.key, draw)  # not kept: caches, clocks and the first switch between the processes
        rounds = tuple(self._round(case.key, draw) for _ in range(self.lab.policy.rounds))
        for name in SIDES:
            self._ask(name, turns.Release(name=case.key, check=self.check))
        return rounds

    def _round(self, key: str, draw: random.Random) -> Round:
        order = list(SIDES)
        draw.shuffle(order)
        found = {name: self._turn(name, key) for name in order}
        base, head = found["base"], found["head"]
        reasons = dict.fromkeys((*base.throttle, *head.throttle))
        return Round(
            base=base.seconds, head=head.seconds, base_clock=base.sm_clock, head_clock=head.sm_clock,
            throttle=tuple(reasons),
        )  # fmt: skip

    def _settle(self, key: str) -> None:
        """Turns of both sides until the SM clock holds still (five readings within 1 %), within limits of time."""
        policy, began = self.lab.policy, self.lab.clock()
        clocks: list[float] = []
        while (spent := self.lab.clock() - began) < policy.most_warm_up * self.warm_up_s:
            for name in SIDES:
                clock = self._turn(name, key).sm_clock
                clocks = [*clocks[-4:], clock] if clock else clocks
            steady = not clocks or (len(clocks) == 5 and max(clocks) - min(clocks) <= 0.01 * max(clocks))
            if steady and spent >= self.warm_up_s:
                return
