"""A GPU for gates that is played: children that speak the protocol in this process, with times that a test decides."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dgw.model import Check, Environment
from dgw.toolchain.devices import device
from dgw.workbench import turns
from dgw.workbench.children import End
from dgw.workbench.protocol import Begin, Bye, ChildJob, Done, Hello, Member, Message, Ready, Turned, Unavailable

ENVIRONMENT = Environment(device="h200", arch="sm_90a", driver="580.159", cuda="13.0", device_uuid="f00d", engine="gpu")
H200 = device("h200")


@dataclass
class Lab:
    """What happens on which side. `slow`: variant -> factor of time; `what`: variant -> what goes wrong, and when.

    `what` is one of wrong, crashes, hangs (when checked), wrong-later, crashes-later, hangs-later (when timed).
    """

    sigma: float = 0.001
    slow: dict[str, dict[str, float]] = field(default_factory=lambda: {"base": {}, "head": {}})
    what: dict[str, dict[str, str]] = field(default_factory=lambda: {"base": {}, "head": {}})
    environments: dict[str, Environment] = field(default_factory=lambda: dict.fromkeys(("base", "head"), ENVIRONMENT))
    no_gpu: str = ""
    throttle: tuple[str, ...] = ()
    interrupt_after: int = -1  # turns
    interrupt_with: signal.Signals = signal.SIGINT
    turns: int = 0
    started: list[str] = field(default_factory=list)
    alive: int = 0
    most_alive: int = 0

    def noise(self, *what: object) -> float:
        """The same for the same turn of the same process, whatever happened before."""
        seed = [ord(letter) for letter in "/".join(map(str, what))]
        return math.exp(self.sigma * float(np.random.default_rng(seed).standard_normal()))


class PlayedChild:
    """Stands in for dgw.workbench.children.Child; `argv` ends with the side's name."""

    lab: Lab

    def __init__(
        self, argv: Sequence[str], job: ChildJob, folder: Path, prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.side, self.job, self.folder = argv[-1], job, folder
        self.answers: list[Message | None] = []
        self.members: dict[str, Member] = {}
        self.count = 0
        self.timed_out = self.bye = False
        self.lab.started.append(folder.name)
        self.lab.alive += 1
        self.lab.most_alive = max(self.lab.alive, self.lab.most_alive)
        self.answers.append(
            Unavailable(reason=self.lab.no_gpu)
            if self.lab.no_gpu
            else Hello(pid=1, environment=self.lab.environments[self.side], device=H200)
        )

    def what(self, member: Member) -> str:
        return self.lab.what[self.side].get(member.case.variant, "")

    # -- a child of kind measure

    def messages(self, deadline_s: float, start_s: float) -> Iterator[Message]:
        yield self.answers[0]  # type: ignore[misc]
        for group in self.job.groups:
            for member in group.members:
                yield Begin(key=member.case.key, phase="check")
                match self.what(member):
                    case "crashes":
                        return
                    case "hangs":
                        self.timed_out = True
                        return
                    case "wrong":
                        failed = Check(passed=False, compared=1, detail="1 of 1 elements are wrong")
                        yield Done(key=member.case.key, outcome="wrong", reason=failed.detail, check=failed)
                    case _:
                        yield Done(key=member.case.key, outcome="ok", check=Check(passed=True, compared=1))
        self.bye = True
        yield Bye()

    # -- a child of kind turns

    def ask(self, request: bytes) -> None:
        found = turns._decoder.decode(request)
        if isinstance(found, turns.Prepare):
            self.members[found.name] = found.member
            self.answers += [Begin(key=found.name, phase="prepare"), self.ready(found)]
        elif isinstance(found, turns.Turn):
            self.answers.append(self.turn(found.name))
        elif isinstance(found, turns.Release):
            wrong = found.check and self.what(self.members[found.name]) == "wrong-later"
            self.answers.append(Done(key=found.name, outcome="wrong" if wrong else "ok", reason="after timing: bad"))

    def ready(self, request: turns.Prepare) -> Message:
        return Ready(name=request.name, launches=request.launches or 100, sets=3)

    def turn(self, name: str) -> Message | None:
        self.lab.turns += 1
        self.count += 1
        if self.lab.turns == self.lab.interrupt_after:
            signal.raise_signal(self.lab.interrupt_with)
        member = self.members[name]
        what = self.what(member)
        if what == "hangs-later":
            self.timed_out = True
            return None
        if what == "crashes-later":
            return Done(key=name, outcome="crashed", reason="CUDA_ERROR_ILLEGAL_ADDRESS")
        sentinel = name.startswith("sentinel ")
        factor = 1.0 if sentinel else self.lab.slow[self.side].get(member.case.variant, 1.0)
        factor *= self.lab.slow[self.side].get("*", 1.0)
        seconds = 1e-4 * factor * self.lab.noise(self.folder.name, name, self.count)
        return Turned(name=name, seconds=seconds, sm_clock=1.98e9, throttle=self.lab.throttle)

    def answer(self, limit_s: float) -> Message | None:
        return self.answers.pop(0)

    def finish(self) -> End:
        self.lab.alive -= 1
        return End("timed-out" if self.timed_out else "exited", -11, self.bye, False, "")
