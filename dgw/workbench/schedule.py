"""What is left to do after a child ended, and whose fault that was: pure bookkeeping, no processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from dgw.model import Case, Outcome
from dgw.workbench.children import End
from dgw.workbench.protocol import Begin, Done, Group, Lane, Member, Message

MOST_IN_GROUP = 10  # jobs that are timed interleaved, a whole ladder; the results of a group become durable together
MOST_CHECKED = 64  # jobs that share inputs and a reference and are only checked, one after another
_PATIENCE = 2  # children that end before they begin a case, before that is the case's own fault


@dataclass(frozen=True)
class Request:
    """One case to measure: its member, its lanes, and the baseline members that it is compared with."""

    member: Member
    lanes: tuple[Lane, ...]
    baselines: tuple[Member, ...] = ()


def group(requests: Iterable[Request], most: int = MOST_IN_GROUP) -> list[Group]:
    """Requests of one problem and the same lanes side by side, in the order they came: at most `most` in a group that
    is timed, and MOST_CHECKED where nothing is.

    A baseline that is no request of its own group joins it unreported.
    """
    together: dict[tuple[Case | object, ...], list[list[Request]]] = {}
    order: list[list[Request]] = []
    for request in requests:
        key = (msgspec.json.encode(request.member.case.problem, order="sorted"), request.lanes)
        batches = together.setdefault(key, [])
        if not batches or len(batches[-1]) >= (most if "time" in request.lanes else MOST_CHECKED):
            batches.append([])
            order.append(batches[-1])
        batches[-1].append(request)
    return [_joined(batch) for batch in order]


def _joined(batch: Sequence[Request]) -> Group:
    members: dict[str, Member] = {}  # baselines first, so that it is known early when one fails
    for request in batch:
        for baseline in request.baselines:
            members[baseline.case.key] = msgspec.structs.replace(baseline, reported=False)
    members.update({request.member.case.key: request.member for request in batch})
    return Group(members=tuple(members.values()), lanes=batch[0].lanes)


@dataclass(frozen=True)
class Verdict:
    """What the runner concludes about a case that cannot speak for itself any more."""

    key: str
    outcome: Outcome
    reason: str


@dataclass
class Schedule:
    """The groups still to do. Feed it every message and every end; it never loses a case and always makes progress."""

    groups: list[Group]
    deadline_s: float
    current: str = ""
    phase: str = ""
    progressed: bool = False
    silent: int = 0
    finished: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """A new child starts on what is left."""
        self.current, self.phase, self.progressed = "", "", False

    def hear(self, message: Message) -> None:
        """Take note of a message."""
        if isinstance(message, Begin):
            self.current, self.phase = message.key, message.phase
        elif isinstance(message, Done):
            self.progressed = True
            self.finished.add(message.key)
            if message.outcome != "ok":
                self.failed.add(message.key)
            if message.key == self.current:
                self.current = ""

    @property
    def left(self) -> list[Group]:
        """The groups that still owe a record, without what failed.

        A finished member that others are compared with stays, unreported; a group of such members alone is done.
        """
        rest = []
        for one in self.groups:
            owing = [m for m in one.members if m.reported and m.case.key not in self.finished]
            wanted = {key for member in owing for key in member.against}
            members = []
            for member in one.members:
                key = member.case.key
                if key in self.failed or (key in self.finished and key not in wanted):
                    continue
                owed = member.reported and key not in self.finished
                members.append(msgspec.structs.replace(member, reported=owed))
            if any(member.reported for member in members):
                rest.append(msgspec.structs.replace(one, members=tuple(members)))
        return rest

    def end(self, end: End) -> list[Verdict]:
        """Whom the end of a child is laid to: the case announced last and not finished, else nobody at first.

        Children that end again and again before any case begins are laid to the first case left, and when that happens
        to three cases in a row, to all that are left.
        """
        self.groups = self.left
        if not self.groups:
            return []
        waiting = [member.case.key for one in self.groups for member in one.members if member.reported]
        running = {member.case.key for one in self.groups for member in one.members}
        if self.current in running:
            self.silent = 0
            outcome: Outcome = "timed-out" if end.how == "timed-out" else "crashed"
            return self._close([Verdict(self.current, outcome, f"{self.phase}: {end.describe(self.deadline_s)}")])
        if self.progressed:
            self.silent = 0
            return []
        self.silent += 1
        if self.silent < _PATIENCE:
            return []
        reason = f"the child ended before it began the case: {end.describe(self.deadline_s)}"
        blamed = waiting[:1] if self.silent < _PATIENCE + 2 else waiting
        return self._close([Verdict(key, "crashed", reason) for key in blamed])

    def _close(self, verdicts: list[Verdict]) -> list[Verdict]:
        self.finished.update(verdict.key for verdict in verdicts)
        self.failed.update(verdict.key for verdict in verdicts)
        self.groups = self.left
        return verdicts
