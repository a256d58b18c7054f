"""Further passes over cases that the runner has finished: the same child once more, behind another tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dgw.model import Defect, Measurement, Outcome, Record, Variant
from dgw.workbench.children import End
from dgw.workbench.protocol import ChildJob, Group, Member, Message

Hear = Callable[[Message], None]
Listen = Callable[[ChildJob, Hear, Sequence[str], Mapping[str, str] | None, float], End]
"""Run one child: its job, who hears its messages, the argv prefix, its environment, and by what deadlines multiply."""


@dataclass(frozen=True)
class Target:
    """A case that can run, what is known of it so far, and what it is compared with."""

    member: Member
    variant: Variant
    record: Record
    against: tuple[Member, ...] = ()


@dataclass(frozen=True)
class Found:
    """What a pass adds to one record. `files` are (path, kind, name); an `outcome` replaces one that is ok.

    Measurements come behind those that the record has, or with `foremost` before them: then they are the ones that are
    found first.
    """

    key: str
    measurements: tuple[Measurement, ...] = ()
    flags: tuple[str, ...] = ()
    defects: tuple[Defect, ...] = ()
    outcome: Outcome | None = None
    reason: str = ""
    files: tuple[tuple[Path, str, str], ...] = ()
    foremost: bool = False

    def beside(self, known: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
        """Its measurements and those that the record has, in their order."""
        return (*self.measurements, *known) if self.foremost else (*known, *self.measurements)


@dataclass(frozen=True)
class Workplace:
    """What the runner lends a pass: a way to run children, a folder of its own, the cubins of dgw's device code."""

    listen: Listen
    folder: Path
    device_code: Mapping[str, str]
    deadline_s: float


class Pass(Protocol):
    """One pass. `lane` is the name by which jobs ask for it."""

    @property
    def lane(self) -> str:
        """The name of the lane."""

    def run(self, targets: Sequence[Target], place: Workplace, on_found: Callable[[Found], None]) -> None:
        """Give what was found for every target to `on_found`, as soon as it is known; absent with the reason if not."""


def grouped(members: Sequence[Member]) -> tuple[Group, ...]:
    """Members as groups, in order; neighbours of one problem share their inputs."""
    groups: list[Group] = []
    for member in members:
        if groups and groups[-1].members[0].case.problem == member.case.problem:
            groups[-1] = Group(members=(*groups[-1].members, member))
        else:
            groups.append(Group(members=(member,)))
    return tuple(groups)
