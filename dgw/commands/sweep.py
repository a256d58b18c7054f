"""`dgw sweep`: every config of a space checked, screened, and the best measured against each other."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from dgw.commands import options
from dgw.commands.options import Ask, Cluster, split
from dgw.errors import UsageError
from dgw.model import Case, Config, Problem, Variant

if TYPE_CHECKING:
    from dgw.commands.session import Machine, Session
    from dgw.commands.spaces import Narrowed
    from dgw.commands.sweeping import Wish
    from dgw.workbench.sweep.space import Field

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Space = Annotated[
    options.Names,
    typer.Option("--space", metavar="K=V[,V]", help="The values that tunables may take: BM=64,128 BK=16..128."),
]
Fix = Annotated[
    options.Names,
    typer.Option("--fix", metavar="K=V|default", help="One value; default: all others as by default."),
]
Sample = Annotated[
    int | None, typer.Option("--sample", metavar="N", min=1, help="Only N of the configs that can run. [default: all]")
]
CountFor = Annotated[str, typer.Option("--count", metavar="finalists|all", help="Which cases --counters are for.")]
Gpus = Annotated[options.Names, typer.Option("--gpus", metavar="N[,N]", help="Numbers or UUIDs. [default: all]")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure everything anew, even if it is finished.")]
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="Places shown of each problem.")]
Counters = Annotated[str, typer.Option("--counters", metavar="SET|NAMES", help="Also counters: quick, std, names.")]


@app.command()
@options.spread
def sweep(
    ctx: typer.Context,
    ask: Ask,
    space: Space = None,
    fix: Fix = None,
    sample: Sample = None,
    against: options.Against = None,
    counters: Counters = "none",
    count: CountFor = "finalists",
    gpus: Gpus = None,
    lock_clocks: options.LockClocks = 0,
    fresh: Fresh = False,
    top: Top = 10,
) -> None:
    """Variants x shapes x types x configs: each compiled, checked and screened; the best race until they separate.

    The same command again goes on where the last one ended. Without a GPU the configs run in the emulator.
    """
    from dgw.commands import request
    from dgw.commands.spaces import narrowed
    from dgw.commands.sweep_view import watching
    from dgw.commands.sweeping import run

    where = place(ask, lock_clocks)
    problems = request.problems(ask, " ".join(["dgw sweep", *(f"--variant {name}" for name in split(ask.variant))]))
    variants = request.library(ask)
    wanted = request.wanted(ask, split(ask.variant), "", variants, where)
    narrow = narrowed(space, fix, wanted, request.typed(ask, "dgw sweep"))
    fields = fields_of(ask, problems, wanted, narrow, where, sample)
    session = session_of(ask, tuple(ctx.obj or ()), variants, where, counters, lock_clocks)
    wish = wish_of(fields, session, against, count, gpus, fresh)
    with watching("dgw sweep") as view:
        run(session, wish, view)
    _finish(session, fields, top)


def place(ask: Ask, lock_mhz: int = 0) -> Machine:
    """Where the cases run: on this machine, or on the GPUs of a cluster, whose clocks are not locked from here."""
    from dgw.commands.locking import machine_to_lock

    if lock_mhz or not isinstance(ask.engine, Cluster):
        return machine_to_lock(ask, lock_mhz)
    from dgw.commands.sweep_cluster import cluster_machine

    return cluster_machine(ask)


def fields_of(
    ask: Ask,
    problems: Sequence[Problem],
    variants: Sequence[Variant],
    narrow: Narrowed,
    where: Machine,
    sample: int | None,
) -> list[Field]:
    """The cases of every problem: the space, or the configs that were typed. Raises UsageError for an empty one."""
    from dgw.commands import request
    from dgw.workbench.prepare import refusal
    from dgw.workbench.sweep.space import Field, field

    if not ask.config:
        return [field(problem, variants, narrow, where.device, sample or 0, ask.seed) for problem in problems]
    if narrow:
        raise UsageError("--config names the configs, so there is no space to narrow", "leave --space and --fix out")
    typed = request.configs(ask.config)
    by_id = {variant.id: variant for variant in variants}
    found = []
    for problem in problems:
        cases = request.cases(problem, variants, typed)
        reasons = [(case, refusal(case, by_id[case.variant], where.device)) for case in cases]
        able = tuple(case for case, reason in reasons if not reason)
        found.append(Field(problem, able, tuple((case, reason) for case, reason in reasons if reason)))
    return found


def session_of(
    ask: Ask,
    arguments: tuple[str, ...],
    variants: Mapping[str, Variant],
    where: Machine,
    counters: str,
    lock_mhz: int = 0,
) -> Session:
    """A session whose cases are checked and timed, and counted where counters are asked for."""
    from dgw.commands.session import Session
    from dgw.workbench.metrics import resolve

    resolve(counters, where.device.arch)
    lanes = frozenset({"check", "time"})
    return Session(ask, arguments, variants, where, counters, lanes=lanes, lock_mhz=lock_mhz)


def wish_of(
    fields: Sequence[Field],
    session: Session,
    against: options.Names,
    count: str,
    gpus: options.Names,
    fresh: bool,
) -> Wish:
    """What the sweep is to do. Nothing is timed beside unless it is named: it would double the time of each case."""
    from dgw.commands import request
    from dgw.commands.sweeping import Wish
    from dgw.workbench import slots

    device = session.machine.device
    scheduler = str(session.ask.engine) if isinstance(session.ask.engine, Cluster) else ""
    if scheduler and split(gpus):
        raise UsageError("the GPUs of a cluster are those of its workers", "leave --gpus out")
    if session.machine.engine == "gpu" and not scheduler:
        slots.chosen(slots.visible(), split(gpus))  # a name that is none is said before anything is compiled
    if count not in ("finalists", "all"):
        raise UsageError(f"--count cannot be {count!r}", "--count finalists or --count all")
    beside = request.baselines(against or ["none"], session.variants, session.machine)
    if len(beside) > 1:
        raise UsageError("a sweep compares with one baseline", f"--against {beside[0].name}")
    compared = {
        one.problem: Case(
            problem=one.problem, variant=v.id, version=v.version, config=v.config_for(one.problem, device)
        )
        for one in fields
        for v in beside
    }
    counted = "none" if session.counters == "none" else count
    return Wish(
        fields=fields, against=compared, count=counted, gpus=split(gpus), fresh=fresh, scheduler=scheduler,  # type: ignore[arg-type]
    )  # fmt: skip


def _finish(session: Session, fields: Sequence[Field], top: int) -> None:
    """The rankings, what went wrong, how to go on after an interruption, and the exit code (typer.Exit)."""
    from dgw.commands.console import colour, say, width
    from dgw.reports import json
    from dgw.reports.ranking import rankings, render

    if session.ask.json:
        say(json.render(session.run, ()))
    elif session.records:
        say(render(rankings(session.records, defaults_of(session.variants, session.machine)), top, width(), colour()))
    leave(session, sum(len(one.cases) + len(one.refused) for one in fields))


def defaults_of(variants: Mapping[str, Variant], where: Machine) -> Callable[[Case], Config]:
    """What a variant takes for a case's problem when nobody tunes it; nothing for a variant that is not known here."""
    from dgw.workbench.sweep.space import default

    def of(case: Case) -> Config:
        variant = variants.get(case.variant)
        return {} if variant is None else default(variant, case.problem, where.device)

    return of


def leave(session: Session, total: int) -> None:
    """Where the run is kept, what to type after an interruption, and the exit code (typer.Exit)."""
    from dgw.commands.console import complain, note
    from dgw.commands.ending import lost_counters, nothing_ran
    from dgw.commands.session import exit_code
    from dgw.errors import worst

    code = exit_code(session)
    counted = replace(session, lanes=session.lanes | {"counters"}) if session.counters != "none" else session
    for error in lost_counters(counted):
        complain(error, session.arguments)
        code = worst([code, error.exit_code])
    if not session.ask.no_store:
        note(f"run {session.id} is kept: dgw report {session.id}")
    if session.interrupted:
        again = [part for part in session.arguments if part not in ("--resume", "--fresh")]
        failed = sum(record.outcome not in ("ok", "refused") for record in session.records)
        note(f"error: interrupted: {len(session.records)} of {total} cases are finished, {failed} of them failed")
        note(f"  try: dgw {shlex.join([*again, '--resume'])}")
    elif session.records and all(record.outcome == "refused" for record in session.records):
        nothing = nothing_ran(session.records, session.variants)
        complain(nothing, session.arguments)
        code = worst([code, nothing.exit_code])
    raise typer.Exit(int(code))
