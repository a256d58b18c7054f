"""`dgw diagnose`: what keeps a kernel from being faster, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from dgw.commands import options
from dgw.commands.console import colour, complain, note, say, width
from dgw.commands.options import Ask, split
from dgw.errors import UsageError, worst
from dgw.model import Case, Finding, Problem, Record, Step, Variant

if TYPE_CHECKING:
    from dgw.commands.session import Machine, Session
    from dgw.recipes.sequence import Request, Rung, Start

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
@options.spread
def diagnose(
    ctx: typer.Context,
    ask: Ask,
    sequence: Annotated[
        str, typer.Option("--sequence", metavar="NAME", help="quick, seven-step or precision. [default: quick]")
    ] = "quick",
    run: Annotated[
        str, typer.Option("--run", metavar="RUN", help="What a stored run says (an id, or last); nothing is measured.")
    ] = "",
    lock_clocks: options.LockClocks = 0,
    unknown: Annotated[bool, typer.Option("--unknown", help="Also what cannot be told, and how to get it.")] = False,
) -> None:
    """What keeps a kernel from being faster: causes with their evidence, the costliest first, and what to do.

    A sequence measures step by step, shows what each step saw, and says whether to go on and why. seven-step walks
    from a kernel up to what cures it; precision looks for the reason of a wrong result. It works with your own kernel
    (--kernel) and, without a GPU, in the emulator.
    """
    if run:
        from dgw.commands.locking import nothing_to_lock

        nothing_to_lock(lock_clocks, "a stored run is only read")
        _stored(run, ask, unknown)
        return
    _walk(ctx, ask, sequence, lock_clocks, unknown)


def _stored(run: str, ask: Ask, unknown: bool) -> None:
    from dgw.commands.conclusions import findings
    from dgw.commands.request import library
    from dgw.recipes.diagnosis import clean, untold
    from dgw.reports import json
    from dgw.reports.steps import causes
    from dgw.workbench.store import open_store

    stored = open_store(looking=True).run(run)
    ours = library(Ask())
    every = {record.case.key: findings(record, stored, ours, unknown=True) for record in stored.records}
    found = {key: tuple(one for one in told if unknown or not untold(one)) for key, told in every.items()}
    if ask.json:
        rows = [
            {
                "case": r.case.key,
                "variant": r.case.variant,
                "shape": r.case.problem.shape,
                "findings": json.findings(found[r.case.key], r),
            }
            for r in stored.records
        ]
        say(json.render(rows))
        return
    for record in stored.records:
        heading, key = f"{record.case.variant} at {record.case.problem.shape}", record.case.key
        ended = "" if record.outcome == "ok" else f"it is {record.outcome}: {record.reason}"
        say(causes(heading, found[key], width(), colour(), ended or clean(every[key])))


def _walk(ctx: typer.Context, ask: Ask, name: str, lock_mhz: int, unknown: bool) -> None:
    from dgw.commands import request
    from dgw.commands.locking import machine_to_lock
    from dgw.commands.session import Session
    from dgw.recipes.retyping import kernel_options, step_with_kernels
    from dgw.recipes.sequence import walk
    from dgw.recipes.sequences import SEQUENCES
    from dgw.reports.steps import step as text

    if name not in SEQUENCES:
        raise UsageError(f"no sequence is named {name!r}", f"--sequence {request.nearest(name, list(SEQUENCES))}")
    where = machine_to_lock(ask, lock_mhz)
    variants = request.library(ask)
    names = split(ask.variant)
    problems = request.problems(ask, f"dgw diagnose {' '.join(f'--variant {one}' for one in names)}".strip())
    wanted = request.wanted(ask, names, "", variants, where)
    configs = request.configs(ask.config)
    cases = [c for problem in problems for c in request.cases(problem, wanted, configs, where.device)]
    session = Session(ask, tuple(ctx.obj or ()), variants, where, lock_mhz=lock_mhz)
    own = kernel_options(session.arguments)
    walks: list[dict[str, Any]] = []
    for case in cases:
        steps: list[Step] = []
        walks.append({"case": case, "sequence": name, "steps": steps})

        def show(step: Step, steps: list[Step] = steps) -> None:
            step = step_with_kernels(step, own)
            steps.append(step)
            if not ask.json:
                say(text(step, width(), colour()))

        try:
            walk(SEQUENCES[name](_start(case, variants, where)), lambda asked: _fulfil(session, asked), show)
        except KeyboardInterrupt:
            session.interrupted = True
            break
        if unknown:
            walks[-1]["unknown"] = _untold(session, case)
    _end(session, walks)


def _untold(session: Session, case: Case) -> tuple[Finding, ...]:
    """What the recipes cannot tell of a case that was walked from, printed unless the output is JSON."""
    from dgw.recipes.diagnosis import diagnose, untold
    from dgw.recipes.retyping import kernel_options, with_kernels
    from dgw.reports.steps import causes

    own, record = kernel_options(session.arguments), session.finished.get(case.key)
    found = diagnose(record, session.machine.device) if record is not None else ()
    told = tuple(with_kernels(one, own) for one in found if untold(one))
    if told and not session.ask.json:
        say(causes("what cannot be told", told, width(), colour()))
    return told


def _start(case: Case, variants: Mapping[str, Variant], where: Machine) -> Start:
    from dgw.recipes.sequence import Start

    variant = variants[case.variant]
    rungs = _rungs(case.problem, variants, where)  # a walk stays in its ladder, and shows the tops of the others
    ladder = tuple(rung for rung in rungs if variant.stage is None or rung.family == variant.family)
    tops = {rung.family: rung for rung in rungs if variant.stage is not None and rung.family != variant.family}
    return Start(
        case=case,
        device=where.device,
        engine=where.engine,  # type: ignore[arg-type]
        space=variant.space,
        rungs=ladder,
        beside=tuple(tops.values()) if where.engine == "gpu" else (),
        own=variant.stage is None,
        accepts=lambda one: variants[one.variant].refuses(one.problem, one.config, where.device) is None,
    )


def _rungs(problem: Problem, variants: Mapping[str, Variant], where: Machine) -> tuple[Rung, ...]:
    """The stages that run here, the best family first and in it the lowest, with the tunables that each chooses for the
    problem: without a GPU those that a bare name means. What needs another package (Triton) is no rung."""
    from dgw.kernels.loader import FAMILY_ORDER
    from dgw.recipes.sequence import Rung

    found = []
    for family in FAMILY_ORDER:
        for variant in sorted(variants.values(), key=lambda one: one.stage or 0):
            named = where.engine == "gpu" or variant.portable
            runs = variant.runs_on(where.device.arch) and named and not variant.needs
            if variant.family == family and variant.stage is not None and runs:
                config = variant.config_for(problem, where.device)
                found.append(Rung(variant.id, variant.version, variant.stage, config, family))
    return tuple(found)


def _fulfil(session: Session, asked: Request) -> Sequence[Record]:
    """The records that answer a request, in its order. Raises KeyboardInterrupt when Ctrl-C ended it early."""
    from dgw.commands import lanes
    from dgw.commands.console import progress
    from dgw.commands.session import execute
    from dgw.recipes.sequence import COUNTED_ONLY
    from dgw.workbench.store import open_store

    note(f"measuring {len(asked.cases)} case{'s' if len(asked.cases) > 1 else ''}: {asked.why}")
    session.lanes = asked.lanes
    session.counters = ",".join(asked.metrics) or "none"
    session.passes = lanes.sanitizer(asked.sanitise, session.machine) if asked.sanitise else ()
    if session.passes:
        session.lanes |= {one.lane for one in session.passes}
    on_gpu = session.machine.engine == "gpu"
    before = {case.key: session.finished[case.key] for case in asked.cases if case.key in session.finished}
    known = before if on_gpu and asked.lanes == COUNTED_ONLY else {}
    if on_gpu and (asked.again or known):
        for key in before:
            del session.finished[key]
    with progress("diagnose") as bar:
        execute(session, asked.cases, bar, known, afresh=on_gpu and asked.again)
    for key, record in before.items():  # what was interrupted, or got nothing new, is still known
        session.finished.setdefault(key, record)
    if session.interrupted:
        raise KeyboardInterrupt
    for key in before:
        if key not in known and key in session.finished:
            session.finished[key] = _with_counters(session.finished[key], before[key])
            if not session.ask.no_store:
                open_store().put(session.id, session.finished[key])
    return [session.finished[case.key] for case in asked.cases if case.key in session.finished]


def _with_counters(timed: Record, before: Record) -> Record:
    """A record that was timed again, with the counters that it had before."""
    if timed is before or timed.outcome != "ok":
        return timed
    counted = tuple(m for m in before.measurements if m.collector in ("ncu", "derived"))
    return msgspec.structs.replace(
        timed, measurements=(*timed.measurements, *counted), artifacts=before.artifacts,
        flags=tuple(dict.fromkeys((*before.flags, *timed.flags))),
        environment=msgspec.structs.replace(timed.environment, ncu=before.environment.ncu),
    )  # fmt: skip


def _end(session: Session, walks: list[dict[str, Any]]) -> None:
    """JSON where it is asked for, where the run is kept, and the exit code: a wrong result is the finding of a walk."""
    from dgw.commands.ending import interrupted, nothing_ran
    from dgw.commands.misdeclared import mended_in
    from dgw.commands.session import exit_code
    from dgw.reports import json

    if session.ask.json:
        told = [json.walk(**one, records=session.records) for one in walks]
        say(json.render({"run": session.id, "walks": told}))
    elif session.machine.engine != "gpu" and session.records:
        say(f"Time was not measured because {session.machine.reason}; lower bounds were compared instead.")
    if not session.ask.no_store:
        note(f"run {session.id} is kept: dgw report {session.id}")
    code = exit_code(session)
    where = next(
        (one for r in session.records if r.outcome != "refused" and (one := mended_in(r, session.variants))), ""
    )
    if where:
        note(f"  try: {where}")
    if session.interrupted:
        interrupted(session)
    elif session.records and all(record.outcome == "refused" for record in session.records):
        nothing = nothing_ran(session.records, session.variants)
        complain(nothing, session.arguments)
        code = worst([code, nothing.exit_code])
    raise typer.Exit(int(code))
