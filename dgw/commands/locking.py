"""`--lock-clocks` of the commands that take times: only where there is a GPU of this machine to hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dgw.commands.console import note
from dgw.commands.options import Ask, Cluster, Engine
from dgw.errors import UsageError

if TYPE_CHECKING:
    from dgw.commands.session import Machine, Session

WITHOUT = "the same without --lock-clocks"


def machine_to_lock(ask: Ask, megahertz: int) -> Machine:
    """`session.machine`, which with a clock to lock (0: none) has to be a GPU.

    Raises UsageError where there is none to lock, and for a clock that it does not reach; Missing where it cannot be
    used.
    """
    from dgw.commands.session import gpu_is_here, machine

    if not megahertz:
        return machine(ask)
    if isinstance(ask.engine, Cluster):
        raise UsageError(f"the GPUs of a cluster are not locked from here ({ask.engine})", WITHOUT)
    if ask.engine not in (Engine.AUTO, Engine.GPU):
        raise UsageError(f"the engine {ask.engine} has no clock that could be locked", WITHOUT)
    if ask.engine is Engine.AUTO and not gpu_is_here():
        raise UsageError("there is no GPU here whose clock could be locked", WITHOUT)
    where = machine(replace(ask, engine=Engine.GPU))  # the emulator does not stand in for it
    highest = where.device.clock_hz * 1e-6
    if megahertz > highest:
        raise UsageError(
            f"the SM clock of {where.device.name} is at most {highest:.0f} MHz, not {megahertz}",
            f"--lock-clocks {highest:.0f}, or less",
        )
    return where


def try_lock(session: Session, names: Sequence[str] | None = None) -> None:
    """Find out before anything is measured, once a session, whether its clock may be locked on a GPU that is free.

    `names` are the GPUs of a sweep (none: all of them); without, it is the first that there is. Raises Missing where it
    may not, UsageError for a name that no GPU has.
    """
    from dgw.workbench import clocks, slots

    if session.lock_mhz and not session.lock_tried:
        here = slots.visible()
        clocks.try_lock(here[:1] if names is None else slots.alike(slots.chosen(here, names)), session.lock_mhz, note)
        session.lock_tried = True


def nothing_to_lock(megahertz: int, why: str) -> None:
    """Raises UsageError where a clock was to be locked and no time is taken, because of `why`."""
    if megahertz:
        raise UsageError(f"--lock-clocks is for times, and {why}", WITHOUT)
