"""The GPUs of this machine at work on a sweep: one in this thread, several in a thread each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dgw.commands.console import note, warn
from dgw.commands.session import Session, cache_folder, child_argv
from dgw.model import Artifact, Record

if TYPE_CHECKING:
    from dgw.workbench.prepare import Prepared
    from dgw.workbench.slots import Held
    from dgw.workbench.sweep.engine import Workforce
    from dgw.workbench.sweep.lots import Lot


def local_force(
    session: Session,
    gpus: Sequence[str],
    prepared: Mapping[str, Prepared],
    keep: Callable[[Record], None],
    doing: Callable[[str], None],
    keep_artifact: Callable[..., Artifact] | None,
) -> Workforce:
    """The GPUs asked for, else all that are like the first. Each lot takes one that nobody holds."""
    from dgw.workbench import clocks, runner, slots
    from dgw.workbench.sweep import lots
    from dgw.workbench.sweep.engine import Inline, Workforce

    found = slots.chosen(slots.visible(), gpus)
    here = slots.alike(found)
    if len(here) < len(found):
        warn(f"{len(found) - len(here)} GPUs are not a {here[0].name} and stay out of the sweep", "--gpus 0,1")
    stop, lock = threading.Event(), threading.Lock()

    def hold() -> AbstractContextManager[Held]:
        return clocks.hold(here, session.lock_mhz, note, stop.is_set)

    setup = runner.Session(
        variants=session.variants,
        device=session.machine.device,
        environment=session.machine.environment,
        child_argv=child_argv(session.ask),
        cache_dir=cache_folder(),
        deadline_s=session.ask.deadline,
        keep_artifact=keep_artifact,
        gpu=hold,
        prepared=prepared,
    )

    def one_by_one(record: Record) -> None:
        with lock:
            keep(record)

    def progress(done: int, total: int, text: str) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        doing(text)

    def work(lot: Lot) -> list[Record]:
        return lots.work(lot, setup, one_by_one, progress)

    if len(here) < 2:
        return Workforce(Inline(), work)
    pool = ThreadPoolExecutor(max_workers=len(here), thread_name_prefix="gpu")

    def finish(interrupted: bool) -> None:
        if interrupted:
            stop.set()
        pool.shutdown(wait=True, cancel_futures=interrupted)

    return Workforce(pool, work, len(here), finish=finish)
