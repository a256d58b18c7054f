"""`--resume`: what an earlier run of the same code on the same machine has finished need not be done again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dgw.commands.session import Session, cache_folder
from dgw.model import Case, Record

if TYPE_CHECKING:
    from dgw.workbench.store import Store

ENGINES = {"gpu": "gpu", "emulator": "emulator", "static": "none"}
TIMES = ("time_cold", "time_hot")


def finished_before(session: Session, cases: Sequence[Case], store: Store) -> list[Record]:
    """Records in the store of the same cases, machine code, launches and device that have everything asked for."""
    from dgw.toolchain.cache import CompileCache
    from dgw.workbench.prepare import prepare

    cache = CompileCache(cache_folder())
    device = session.machine.device
    keys = [prepare(case, session.variants[case.variant], device, cache).record.resume_key for case in cases]
    found = store.finished(keys, lambda record: complete(session, record))
    return [found[key] for key in keys if key in found]


def complete(session: Session, record: Record) -> bool:
    """Whether a record was made by the same engine, at the same locked clock if any, and has the lanes wanted here."""
    from dgw.workbench.locked_clock import clock_of

    if record.environment.engine != ENGINES[session.machine.engine]:
        return False
    if session.machine.engine != "gpu":
        return session.machine.engine == "static" or record.check is not None
    if session.lanes - {"check"} and clock_of(record) not in (None, session.locked_hz):
        return False
    timed = "time" not in session.lanes or any(record.number(name) is not None for name in TIMES)
    counted = "counters" not in session.lanes or any(m.collector == "ncu" for m in record.measurements)
    return timed and counted and record.check is not None
