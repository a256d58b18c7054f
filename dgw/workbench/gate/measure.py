"""Runs a time gate: both sides planned and checked, turns taken in pairs of processes, counters of what changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dgw.model import Config, Device, Environment, Problem, digest
from dgw.toolchain.cache import CompileCache
from dgw.workbench.counters import CounterLane
from dgw.workbench.gate import counting
from dgw.workbench.gate.checking import check
from dgw.workbench.gate.counting import Calibration, Counts
from dgw.workbench.gate.decide import look
from dgw.workbench.gate.facts import key_of, label_of
from dgw.workbench.gate.pairs import Fault, Lab, Pair, PairCase
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.rounds import PairRounds, Stage
from dgw.workbench.gate.sides import Entry, SideJob, SideSetup, Wanted, both
from dgw.workbench.gate.verdict import Status
from dgw.workbench.prepare import device_code
from dgw.workbench.protocol import Done, Member

SENTINEL = "sentinel "
_STAND_INS = 2  # sentinels where nothing is unchanged: head's code on both sides

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Comparison:
    """What is compared: one problem with one variant (base's may have another id) and the tunables asked for."""

    key: str
    label: str
    problem: Problem
    variant: str
    base_variant: str
    asked: Config = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Everything a gate needs. `earlier(subject)` gives the pairs of earlier gates over the same two sides.

    `lane` counts (None: no counters, because of `no_lane`); `variables` pin the GPU.
    """

    base: SideSetup
    head: SideSetup
    wanted: Sequence[Comparison]
    device: Device
    policy: GatePolicy
    cache: Path
    folder: Path
    time_identical: bool = False
    lane: CounterLane | None = None
    no_lane: str = ""
    calibration: Calibration | None = None
    deadline_s: float = 30.0
    start_s: float = 120.0
    variables: dict[str, str] = field(default_factory=dict)
    earlier: Callable[[str], list[PairRounds]] = lambda subject: []


@dataclass
class Found:
    """What is known of one comparison so far. `status` is set once it is decided without time."""

    comparison: Comparison
    base: Entry
    head: Entry
    status: Status | None = None
    reasons: list[str] = field(default_factory=list)
    identical: bool = False
    timed: bool = False
    hot: str = ""

    def decide(self, status: Status, reason: str) -> None:
        """What is decided first stays."""
        if self.status is None:
            self.status = status
        self.reasons.append(reason)


@dataclass
class Measured:
    """What a gate measured. `pairs` are this attempt's, `pooled` all attempts'; `subject` names the two sides."""

    found: dict[str, Found] = field(default_factory=dict)
    sentinels: list[str] = field(default_factory=list)
    pairs: list[PairRounds] = field(default_factory=list)
    earlier: list[PairRounds] = field(default_factory=list)
    counts: dict[str, Counts] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    subject: str = ""
    attempt: int = 1
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def pooled(self) -> list[PairRounds]:
        """Earlier attempts and this one."""
        return [*self.earlier, *self.pairs]

    @property
    def timed(self) -> list[str]:
        """Keys of the comparisons that time decides: what failed meanwhile is not among them."""
        return [key for key, one in self.found.items() if one.timed and one.status is None]


def measure(setup: Setup, progress: Progress) -> Measured:
    """Run the gate. Ctrl-C ends it early with `interrupted` set; what was measured stays.

    Raises ChildFault when a side does not load, Missing without a GPU, NotComparable when the sides see different GPUs.
    """
    run = _Gate(setup, progress)
    try:
        run.plan()
        run.check()
        run.time()
        run.count()
    except KeyboardInterrupt:
        run.out.interrupted = True
    return run.out


def counted_repeatedly(setup: Setup, repeats: int, progress: Progress) -> Counts:
    """Head's cases counted several times, for a calibration. Raises as `measure` does."""
    run = _Gate(setup, progress)
    run.plan()
    run.check()
    members = {key: one.head.member for key, one in run.out.found.items() if one.status is None}
    if setup.lane is None or not members:
        return Counts(absent="no case can be counted")
    folder = setup.folder / "calibration"
    return counting.count(
        setup.lane, setup.head, members, run.code, folder, setup.variables, setup.deadline_s, repeats
    )  # fmt: skip


class _Gate:
    def __init__(self, setup: Setup, progress: Progress) -> None:
        self.setup, self.progress = setup, progress
        self.out = Measured()
        self.cases: dict[str, PairCase] = {}
        self.code: dict[str, str] = {}
        self.pairs_done = 0

    # -- what there is

    def plan(self) -> None:
        """Ask both sides, and decide what needs no GPU."""
        setup = self.setup
        self._say("compiling both sides")
        jobs = {
            side.name: SideJob(
                device=setup.device, folder=str(setup.folder / f"cubins-{side.name}"), cache=str(setup.cache),
                wanted=tuple(
                    Wanted(
                        key=c.key, problem=c.problem, asked=c.asked,
                        variant=c.base_variant if side is setup.base else c.variant,
                    )
                    for c in setup.wanted
                ),
            )
            for side in (setup.base, setup.head)
        }  # fmt: skip
        answers = both(setup.base, setup.head, jobs, setup.folder)
        for comparison in setup.wanted:
            base, head = (answers[side.name][comparison.key] for side in (setup.base, setup.head))
            self.out.found[comparison.key] = _classified(Found(comparison, base, head))
        for name, cubin in device_code(setup.device.arch, CompileCache(setup.cache)).items():
            path = setup.folder / f"{name}.cubin"
            path.write_bytes(cubin)
            self.code[name] = str(path)

    def _say(self, text: str) -> None:
        self.progress(self.pairs_done, self._pairs_expected(), text)

    def _pairs_expected(self) -> int:
        policy = self.setup.policy
        done = self.pairs_done
        return policy.screen_pairs if done <= policy.screen_pairs else policy.screen_pairs + policy.confirm_pairs

    # -- correctness

    def check(self) -> None:
        """Head's results, and base's where its code is another one."""
        open_ = {key: one for key, one in self.out.found.items() if one.status in (None, "new")}
        head = {key: one.head.member for key, one in open_.items() if one.head.record is not None}
        base = {key: one.base.member for key, one in open_.items() if one.status is None and not one.identical}
        self._say("checking the results of head")
        self._judge_checks(head, self.setup.head, self._head_ended)
        self._say("checking the results of base")
        self._judge_checks(base, self.setup.base, self._base_ended)
        self.out.subject = self._subject()

    def _judge_checks(
        self, members: dict[str, Member], side: SideSetup, ended: Callable[[Found, Done], None]
    ) -> None:  # fmt: skip
        if not members:
            return
        setup = self.setup
        done, environment = check(
            side, members, self.code, setup.folder, setup.variables, setup.deadline_s, setup.start_s
        )
        if side is setup.head:
            self.out.environment = environment
        for key, one in done.items():
            ended(self.out.found[key], one)

    @staticmethod
    def _head_ended(found: Found, done: Done) -> None:
        if done.outcome == "wrong":
            found.status = None  # also of a new case
            found.decide("wrong", f"head's result is wrong: {done.reason}")
        elif done.outcome != "ok":
            found.status = None
            found.decide("failed", f"head: {done.outcome}: {done.reason}")

    @staticmethod
    def _base_ended(found: Found, done: Done) -> None:
        if done.outcome == "wrong":
            found.decide("new", f"base's result is wrong, so there is nothing to compare with: {done.reason}")
        elif done.outcome != "ok":
            found.decide("failed", f"base: {done.outcome}: {done.reason}")

    def _subject(self) -> str:
        """What gates must have in common to pool their pairs: code of both sides, GPU, driver, and how pairs are taken.

        Not how they are judged, nor the seed: with another one a gate would be tried again until it is green.
        """
        out, policy = self.out, self.setup.policy
        code = {key: (one.base.identity, one.head.identity) for key, one in out.found.items()}
        where = [out.environment.device, out.environment.device_uuid, out.environment.driver]
        return digest([code, where, policy.protocol, policy.rounds, policy.turn_s, policy.locked_hz])[:32]

    # -- time

    def time(self) -> None:
        """The screen, and fresh pairs for what it asks for."""
        out, policy = self.out, self.setup.policy
        for key, one in out.found.items():
            if one.status is None and (not one.identical or self.setup.time_identical):
                one.timed = True
                self.cases[key] = PairCase(key, one.base.member, one.head.member)
            elif one.status is None:
                one.decide("identical", "the machine code and the launches are the same on both sides")
        if not self.cases:
            return
        if not self.setup.time_identical:
            out.earlier = self.setup.earlier(out.subject)
            out.attempt = 1 + max((pair.attempt for pair in out.earlier), default=0)
            self._add_sentinels()
        self._pairs("screen", list(self.cases), policy.screen_pairs, ())
        seen = look(out.pooled, out.timed, policy)
        again = [key for key in seen.again if key in self.cases]
        if again:
            watched = [key for key in out.sentinels if key in self.cases]
            flagged = tuple(sorted(seen.flagged))
            self._pairs("confirm", [*again, *watched], policy.confirm_pairs, flagged)

    def _add_sentinels(self) -> None:
        """Unchanged cases, or where nothing is unchanged head's code on both sides."""
        policy, found = self.setup.policy, self.out.found
        unchanged = [key for key, one in found.items() if one.status == "identical" and one.head.plan is not None]
        draw = random.Random(policy.seed)
        if unchanged:
            chosen = draw.sample(unchanged, min(policy.sentinels, len(unchanged)))
        else:
            own = [key for key in self.cases if found[key].head.plan is not None]
            chosen = draw.sample(own, min(policy.sentinels, _STAND_INS, len(own)))
        for key in chosen:
            name, member = SENTINEL + key, found[key].head.member
            self.cases[name] = PairCase(name, member, member)
            self.out.sentinels.append(name)

    def _pairs(self, stage: Stage, keys: list[str], count: int, flagged: tuple[str, ...]) -> None:
        setup, policy = self.setup, self.setup.policy
        lab = Lab(
            setup.base, setup.head, policy, self.code, setup.folder, setup.deadline_s, setup.start_s,
            variables=setup.variables,
        )  # fmt: skip
        for number in range(count):
            first = not self.out.pairs
            pair = Pair(
                lab, f"{stage}-{number}", policy.first_warm_up_s if first else policy.warm_up_s, check=first
            )  # fmt: skip
            text = f"{stage} pair {number + 1} of {count}, {len(keys)} cases"
            self._say(text)
            try:
                pair.run([self.cases[key] for key in keys if key in self.cases], self._seed(stage, number))
            finally:
                self._take(pair, stage, number, flagged)

    def _seed(self, stage: Stage, number: int) -> int:
        return int(digest([self.setup.policy.seed, stage, number, self.out.attempt])[:12], 16)

    def _take(self, pair: Pair, stage: Stage, number: int, flagged: tuple[str, ...]) -> None:
        self.pairs_done += 1
        if pair.rounds:
            self.out.pairs.append(
                PairRounds(stage=stage, number=number, cases=pair.rounds, flagged=flagged, attempt=self.out.attempt)
            )
        for key, why in pair.hot.items():
            if key in self.out.found:
                self.out.found[key].hot = why
        for key, fault in pair.faults.items():
            self._fail(key, fault)

    def _fail(self, key: str, fault: Fault) -> None:
        """A case that failed while timed is not timed again; a sentinel is only dropped."""
        self.cases.pop(key, None)
        if key not in self.out.found:
            self.out.notes.append(f"a sentinel failed on {fault.side}: {fault.outcome}: {fault.reason}")
            return
        status: Literal["wrong", "failed"] = "failed"
        if fault.outcome == "wrong" and fault.side == "head":
            status = "wrong"
        self.out.found[key].decide(status, f"{fault.side}: {fault.outcome}: {fault.reason}")

    # -- counters

    def count(self) -> None:
        """Counters of every case whose code changed and that works."""
        setup, out = self.setup, self.out
        changed = {key: one for key, one in out.found.items() if one.status is None and not one.identical}
        if not changed:
            return
        if setup.lane is None:
            if setup.no_lane:
                out.notes.append(f"counters: unavailable, {setup.no_lane}")
            return
        for side in (setup.base, setup.head):
            self._say(f"counters of {side.name}")
            members = {key: (one.base if side is setup.base else one.head).member for key, one in changed.items()}
            out.counts[side.name] = counting.count(
                setup.lane, side, members, self.code, setup.folder / f"counters-{side.name}", setup.variables,
                setup.deadline_s,
            )  # fmt: skip
            if out.counts[side.name].absent:
                out.notes.append(f"counters of {side.name}: unavailable, {out.counts[side.name].absent}")
                return


def _classified(found: Found) -> Found:
    """What is decided by what the sides declare and compile."""
    base, head = found.base, found.head
    if not head.known or head.outcome == "refused":
        why = f"head refuses it: {head.reason}" if head.known else f"head has no variant {found.comparison.variant}"
        gone = base.known and base.outcome != "refused"
        found.decide("missing" if gone else "refused", why)
    elif head.outcome != "ok":
        found.decide("failed", f"head: {head.outcome}: {head.reason}")
    elif not base.known or base.outcome == "refused":
        found.decide("new", f"base refuses it: {base.reason}" if base.known else "base has no such variant")
    elif base.outcome != "ok":
        found.decide("failed", f"base: {base.outcome}: {base.reason}")
    else:
        found.identical = bool(head.identity) and base.identity == head.identity
    return found


def comparisons(
    device: Device, problems: Iterable[Problem], variants: Sequence[tuple[str, str]], asked: Sequence[Config]
) -> list[Comparison]:
    """Every problem with every variant (head's id, base's id) and every config asked for."""
    found = {}
    for problem in problems:
        for head, base in variants:
            for config in asked:
                key = key_of(device.name, problem, head, config)
                found[key] = Comparison(key, label_of(head, problem, config), problem, head, base, config)
    return list(found.values())
