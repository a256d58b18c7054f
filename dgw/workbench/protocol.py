"""What the runner and its child say to each other.

The job is a JSON file. The child answers with JSON lines on a named FIFO that nothing else writes to, so whatever a
kernel or a profiler prints on standard output does no harm. A line that cannot be read is kept as :class:`Garbled`.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Literal

import msgspec

from dgw.model import Case, Check, Device, Environment, Measurement, Noun, Outcome, Plan

PROTOCOL = 1
Lane = Literal["check", "time", "counters"]


class Policy(Noun, frozen=True, kw_only=True):
    """How the time lane samples. Times in seconds.

    `name` is `final` or `screen`: figures taken under different names are never compared. `budget_s` bounds the samples
    of one member of a group; at least `min_turns` turns are taken whatever they cost. Without `hot` only cold samples
    are taken where there are any. In a `race` a member leaves as soon as it is clearly slower than the fastest, and the
    race ends when that one is alone; the figure is the confidence that a member is slower. `locked_hz` is the SM clock
    that the GPU is held at meanwhile, which every protocol then names; 0 where its clocks are its own.
    """

    name: Literal["final", "screen"] = "final"
    turns: int = 30
    min_turns: int = 6
    replay_s: float = 0.010
    budget_s: float = 4.0
    warm_up_s: float = 2.0
    energy_s: float = 0.5
    max_sets: int = 256
    seed: int = 0
    hot: bool = True
    race: float = 0.0
    locked_hz: float = 0.0


SCREEN = Policy(
    name="screen", turns=7, min_turns=3, replay_s=0.002, budget_s=0.5, warm_up_s=1.0, energy_s=0.0, hot=False
)  # fmt: skip
RACE = Policy(turns=24, min_turns=11, budget_s=10.0, warm_up_s=1.0, energy_s=0.0, hot=False, race=0.999)
"""Eleven turns are the least after which order statistics can tell with 99.9 % confidence."""


class Member(Noun, frozen=True, kw_only=True):
    """One case of a group: what to launch, and the cubin file of each launch (same order as `plan.launches`).

    `reported` is False for a baseline that is only there to be compared with. `plan` None means foreign code (`bind`).
    """

    case: Case
    plan: Plan | None = None
    cubins: tuple[str, ...] = ()
    against: tuple[str, ...] = ()  # keys of the members this one is compared with
    reported: bool = True


class Group(Noun, frozen=True, kw_only=True):
    """Members of one problem, checked one after another and timed interleaved."""

    members: tuple[Member, ...]
    lanes: tuple[Lane, ...] = ("check",)


class ChildJob(Noun, frozen=True, kw_only=True):
    """What a child has to do: `probe` says hello and ends, `measure` checks and times, `profile` launches in ranges.

    `turns` reads requests from the FIFO beside the job file (:mod:`dgw.workbench.turns`) until it is told to leave.
    `turn` is the file of a Turn that the child waits for before it touches the GPU (empty: it does not wait).
    `timeline` launches and replays in ranges; `trace` names the file into which torch.profiler writes them (empty: nsys
    is attached).
    """

    kind: Literal["probe", "measure", "profile", "timeline", "turns"]
    groups: tuple[Group, ...] = ()
    policy: Policy = Policy()
    device_code: dict[str, str] = {}  # name of a device source -> its cubin file
    trace: str = ""
    separate: bool = False  # profile: every operand in an allocation of its own, so that a sanitizer sees its ends
    turn: str = ""
    activity: bool = False  # also time the replays through CUPTI activity records (imports torch)
    lingers: bool = False  # after the job wait for the path of another one on standard input
    paced: bool = False  # after each group but the last wait for a line on standard input
    protocol: int = PROTOCOL


class Hello(Noun, frozen=True, kw_only=True, tag="hello"):
    """The child is up; `pid` is its own process (under a profiler not the one the runner started)."""

    pid: int
    environment: Environment
    device: Device
    protocol: int = PROTOCOL


class Unavailable(Noun, frozen=True, kw_only=True, tag="unavailable"):
    """There is no GPU, driver or context to work with; nothing of the job was done."""

    reason: str


class Begin(Noun, frozen=True, kw_only=True, tag="begin"):
    """From now on the case `key` is being worked on, in `phase`; also the sign of life that moves the deadline."""

    key: str
    phase: str


class Done(Noun, frozen=True, kw_only=True, tag="done"):
    """The case `key` is finished with this outcome and these numbers."""

    key: str
    outcome: Outcome
    reason: str = ""
    check: Check | None = None
    measurements: tuple[Measurement, ...] = ()
    flags: tuple[str, ...] = ()


class Ready(Noun, frozen=True, kw_only=True, tag="ready"):
    """A member is prepared under `name`: every turn will be one replay of `launches` launches over `sets` buffer sets.

    With one set the inputs are hot, for the reason `hot`.
    """

    name: str
    launches: int
    sets: int = 1
    hot: str = ""


class Turned(Noun, frozen=True, kw_only=True, tag="turned"):
    """One turn: seconds of one launch, and a reading of the sensors meanwhile (Hz, W, degrees C, NVML's names)."""

    name: str
    seconds: float
    sm_clock: float | None = None
    power: float | None = None
    temperature: float | None = None
    throttle: tuple[str, ...] = ()


class Pause(Noun, frozen=True, kw_only=True, tag="pause"):
    """A group is finished; the next one begins when the runner says so, because what was told is durable."""


class Bye(Noun, frozen=True, kw_only=True, tag="bye"):
    """The job is finished, or the context is dead (`context_lost`) and another child has to go on."""

    context_lost: bool = False
    lingers: bool = False  # the child waits for another job


class Garbled(Noun, frozen=True, kw_only=True, tag="garbled"):
    """A line on the FIFO that is no message."""

    line: str


Message = Hello | Unavailable | Begin | Done | Ready | Turned | Pause | Bye | Garbled
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """The message of one line; never raises."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Garbled(line=line[:200].decode("utf-8", "replace"))


def write_job(path: Path, job: ChildJob) -> None:
    """Write the job file."""
    path.write_bytes(msgspec.json.encode(job))


def read_job(path: Path) -> ChildJob:
    """Read a job file; raises msgspec.DecodeError when it is not one."""
    return msgspec.json.decode(path.read_bytes(), type=ChildJob)


class Speaker:
    """The child's end of the FIFO: each message is written by one call, complete, before `say` returns."""

    def __init__(self, fifo: Path, patience_s: float = 10.0) -> None:
        """Open it. Raises OSError when nobody listens for `patience_s`: the runner has been killed meanwhile.

        An open that waits for a reader would wait for ever then, with a GPU's lock in its hands.
        """
        limit = time.monotonic() + patience_s
        while True:
            try:
                self._file = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError as error:
                if error.errno != errno.ENXIO or time.monotonic() > limit:
                    raise
                time.sleep(0.01)
        os.set_blocking(self._file, True)

    def say(self, message: Message) -> None:
        """Send one message; blocks while the runner has not read enough of the earlier ones."""
        data = encode(message)
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Close this end."""
        os.close(self._file)
