"""Correctness before time: every case of a side once, judged against its reference; what fails costs itself only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dgw.errors import Missing
from dgw.model import Environment
from dgw.workbench.children import Child
from dgw.workbench.gate.sides import SideSetup
from dgw.workbench.protocol import Bye, ChildJob, Done, Hello, Member, Message, Unavailable
from dgw.workbench.schedule import Request, Schedule, group


def check(
    side: SideSetup,
    members: Mapping[str, Member],
    device_code: dict[str, str],
    folder: Path,
    variables: Mapping[str, str],
    deadline_s: float,
    start_s: float,
) -> tuple[dict[str, Done], Environment]:
    """How each member ended, by key, and where it ran. Raises Missing without a GPU."""
    found: dict[str, Done] = {}
    environment = Environment()
    schedule = Schedule(group(Request(member, ("check",)) for member in members.values()), deadline_s)
    started = 0
    while schedule.left:
        started += 1
        schedule.begin()
        job = ChildJob(kind="measure", groups=tuple(schedule.left), device_code=device_code)
        child = Child(
            side.child_argv, job, folder / f"check-{side.name}-{started}", environment=side.variables(variables)
        )  # fmt: skip
        try:
            for message in child.messages(deadline_s, start_s):
                schedule.hear(message)
                environment = _heard(message, found, environment)
                if isinstance(message, Bye):
                    break
        finally:
            end = child.finish()
        for verdict in schedule.end(end):
            found[verdict.key] = Done(key=verdict.key, outcome=verdict.outcome, reason=verdict.reason)
    return {key: found[member.case.key] for key, member in members.items() if member.case.key in found}, environment


def _heard(message: Message, found: dict[str, Done], environment: Environment) -> Environment:
    if isinstance(message, Unavailable):
        raise Missing(f"no GPU can be used: {message.reason}", "dgw doctor, or dgw gate --exact")
    if isinstance(message, Done):
        found[message.key] = message
    return message.environment if isinstance(message, Hello) else environment
