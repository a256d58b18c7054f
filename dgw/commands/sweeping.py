"""What `sweep` and `heatmap` share: compile all, take over what is finished, measure the rest, keep each result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from dgw.commands.console import note
from dgw.commands.locking import try_lock
from dgw.commands.resume import complete
from dgw.commands.session import Session, begin, cache_folder
from dgw.errors import StoreError
from dgw.model import Artifact, Case, Problem, Record

if TYPE_CHECKING:
    from dgw.workbench.prepare import Prepared
    from dgw.workbench.store import Store
    from dgw.workbench.sweep.engine import Count, Workforce
    from dgw.workbench.sweep.space import Field


@dataclass
class View:
    """Where a sweep says how far it is; the default says nothing."""

    doing: Callable[[str], None] = lambda text: None
    begins: Callable[[int], None] = lambda total: None
    record: Callable[[Record], None] = lambda record: None


@dataclass(frozen=True)
class Wish:
    """What is asked of a sweep beyond its cases: who counts, what is compared, which GPUs, whether to begin anew."""

    fields: Sequence[Field]
    against: Mapping[Problem, Case] = field(default_factory=dict)
    count: Count = "none"
    gpus: Sequence[str] = ()
    fresh: bool = False
    scheduler: str = ""


def run(session: Session, wish: Wish, view: View) -> None:
    """Do the sweep; every record is in the session, and in the store unless --no-store, before the next starts.

    Ctrl-C ends it early with `interrupted` set; what is finished stays. Raises StoreError when the store cannot take
    more, Missing when no GPU is left or its clock may not be locked.
    """
    try:
        _Sweeping(session, wish, view).run()
    except KeyboardInterrupt:
        session.interrupted = True
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        hint = "free some space; what is finished is kept"
        raise StoreError(f"cannot write{where}: {error.strerror}", hint) from error


class _Sweeping:
    def __init__(self, session: Session, wish: Wish, view: View) -> None:
        self.session, self.wish, self.view = session, wish, view
        self.store: Store | None = None
        self.prepared: dict[str, Prepared] = {}
        self.beside: dict[str, Prepared] = {}
        self.twins: dict[str, list[str]] = {}

    def run(self) -> None:
        earlier = self._same_command()
        goes_on = self.session.ask.resume or bool(earlier)
        if not goes_on:  # else it may be that nothing is left for which a clock would be locked
            try_lock(self.session, self.wish.gpus)
        self.store = begin(self.session)
        self._refused()
        self._prepare()
        if goes_on:
            self._take_over(earlier)
        on_gpu = self.session.machine.engine == "gpu"
        self._on_gpu() if on_gpu else self._on_cpu()

    # -- keeping

    def keep(self, record: Record) -> None:
        """Keep a record and those of the cases that execute the same."""
        for one in (record, *self._twins_of(record)):
            self.session.finished[one.case.key] = one
            if self.store is not None:
                self.store.put(self.session.id, one)
            self.view.record(one)

    def _keep_new(self, record: Record) -> None:
        """Keep a record that came with a whole portion, unless it has been kept when it was finished."""
        if self.session.finished.get(record.case.key) != record:
            self.keep(record)

    def _keep_told(self, record: Record) -> None:
        """Keep a record that a worker told of ahead of its portion; one that is known already may be further on."""
        if record.case.key not in self.session.finished:
            self.keep(record)

    def _keep_all(self, records: Sequence[Record]) -> None:
        for record in records:
            self.session.finished[record.case.key] = record
            self.view.record(record)
        if self.store is not None:
            self.store.put_many(self.session.id, records)

    # -- before anything runs

    def _refused(self) -> None:
        """What the declarations refuse is known before any launch."""
        from dgw.workbench.environment import host_environment

        device = self.session.machine.device
        where = msgspec.structs.replace(host_environment(), device=device.name, arch=device.arch)
        self.view.begins(sum(len(one.cases) + len(one.refused) for one in self.wish.fields))
        self._keep_all(
            [
                Record(case=case, outcome="refused", reason=reason, environment=where)
                for one in self.wish.fields
                for case, reason in one.refused
            ]
        )

    def _prepare(self) -> None:
        from dgw.toolchain.cache import CompileCache
        from dgw.workbench.sweep import compiling

        cases = {case.key: case for one in self.wish.fields for case in one.cases}
        beside = {case.key: case for case in self.wish.against.values() if case.key not in cases}
        variants, device = self.session.variants, self.session.machine.device

        def progress(done: int, total: int, text: str) -> None:
            self.view.doing(f"{text} {done} of {total}")

        wanted = [*cases.values(), *beside.values()]
        found = compiling.prepare_all(wanted, variants, device, CompileCache(cache_folder()), progress)
        self.prepared = {key: found[key] for key in cases}
        # foreign code is left to the machine on which it runs: only that knows what is installed there
        self.beside = {key: found[key] for key in beside if found[key].identity}
        self._keep_all([one.record for one in self.prepared.values() if not one.runnable])
        for twin, first in compiling.twins(self.prepared).items():
            self.twins.setdefault(first, []).append(twin)

    def _cases(self) -> list[Case]:
        """What is to be measured: every runnable case, and of those that execute the same the first."""
        same = {twin for twins in self.twins.values() for twin in twins}
        return [one.record.case for key, one in self.prepared.items() if one.runnable and key not in same]

    # -- taking over

    def _same_command(self) -> str:
        """The newest run of the same command line, which is gone on with; empty where there is none, or --fresh."""
        if self.wish.fresh or self.session.ask.no_store:
            return ""
        from dgw.workbench.store import open_store

        mine = plan_words(self.session.arguments)
        return next((one.id for one in open_store().runs() if plan_words(one.command[1:]) == mine), "")

    def _take_over(self, earlier: str) -> None:
        if self.store is None:
            return
        keys = {self.prepared[case.key].record.resume_key: case.key for case in self._cases()}
        found = list(self.store.finished(keys, self._usable).values())
        if not found:
            return
        self._keep_all([record for one in found for record in (one, *self._twins_of(one))])
        source = f"run {earlier} of the same command" if earlier else "earlier runs"
        note(f"{len(found)} of {len(keys)} cases are finished and taken over from {source}; --fresh begins anew")

    def _twins_of(self, record: Record) -> list[Record]:
        from dgw.workbench.sweep.compiling import twin_record

        return [twin_record(record, self.prepared[key].record) for key in self.twins.get(record.case.key, ())]

    def _usable(self, record: Record) -> bool:
        """Whether an earlier record has what is asked and was made with this driver."""
        here = self.session.machine.environment
        same = here is None or record.environment.driver == here.driver
        return same and complete(self.session, record)

    # -- doing

    def _on_cpu(self) -> None:
        from dgw.commands.sweep_cpu import emulate

        left = [case for case in self._cases() if case.key not in self.session.finished]
        emulate(self.session, left, self.keep, self.view.doing)

    def _on_gpu(self) -> None:
        from dgw.workbench.protocol import SCREEN
        from dgw.workbench.sweep.engine import Order, idle, sweep
        from dgw.workbench.sweep.space import default

        cases = self._cases()
        finished, variants, device = self.session.finished, self.session.variants, self.session.machine.device
        defaults = {
            (one.problem, name): default(variants[name], one.problem, device)
            for one in self.wish.fields
            for name in {case.variant for case in one.cases}
        }
        order = Order(
            cases=cases,
            known={case.key: finished[case.key] for case in cases if case.key in finished},
            against=self.wish.against,
            always=[case.key for case in cases if case.config == defaults[case.problem, case.variant]],
            counters=self.session.counters,
            count=self.wish.count,
            policy=msgspec.structs.replace(SCREEN, locked_hz=self.session.locked_hz),
        )
        if not idle(order):
            try_lock(self.session, self.wish.gpus)
        force = self._force()
        done = False
        try:
            sweep(order, force, self._keep_new)
            done = True
        finally:
            force.finish(not done)

    def _force(self) -> Workforce:
        ready = {**self.prepared, **self.beside}
        if self.wish.scheduler:
            from dgw.commands.sweep_cluster import cluster_force

            return cluster_force(self.wish.scheduler, self.session, ready, self._keep_told, self.view.doing)
        from dgw.commands.sweep_local import local_force

        return local_force(self.session, self.wish.gpus, ready, self.keep, self.view.doing, self._artifacts())

    def _artifacts(self) -> Callable[..., Artifact] | None:
        if self.store is None:
            return None
        store, reports = self.store, self.session.reports

        def keep_artifact(path: object, kind: str, name: str) -> Artifact:
            artifact = store.artifacts.add(path, kind, name)  # type: ignore[arg-type]
            reports[artifact.sha256] = store.artifacts.path(artifact)
            return artifact

        return keep_artifact


_FORM = ("--resume", "--json", "--terminal", "--fresh")
_FORM_WITH_VALUE = ("-o", "--output", "--top", "--gpus", "--deadline")


def plan_words(arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line without what says only how to show it or on which GPUs to run it."""
    kept: list[str] = []
    skip = False
    for word in arguments:
        if skip:
            skip = False
            continue
        if word in _FORM_WITH_VALUE:
            skip = True
        elif word not in _FORM and not word.startswith(tuple(f"{name}=" for name in _FORM_WITH_VALUE)):
            kept.append(word)
    return tuple(kept)
