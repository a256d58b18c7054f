"""How a command that ran cases ends: report on standard output, what went wrong on standard error, exit code."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import typer

from dgw.commands.console import colour, complain, note, say, warn, width
from dgw.commands.misdeclared import mended_in
from dgw.commands.session import Session, exit_code
from dgw.commands.without_gpu import FOREIGN, UNABLE
from dgw.errors import DgwError, Missing, UsageError, worst
from dgw.model import Case, Finding, Record, Variant
from dgw.recipes.retyping import again, kernel_options, show, with_kernels
from dgw.reports.notes import failure_text

WARNINGS = 6
"""Failures that are spelled out on standard error; the report has all of them."""


def finish(
    session: Session,
    total: int,
    by_line: bool = False,
    findings: Sequence[Finding] = (),
    listings: Callable[[Session], str] | None = None,
) -> None:
    """Print the report, the findings and further listings, and leave with the exit code (typer.Exit)."""
    own = kernel_options(session.arguments)
    _report(session, by_line, [with_kernels(one, own) for one in findings], listings)
    code = exit_code(session)
    _warn_of_faults(session)
    for error in lost_counters(session):
        complain(error, session.arguments)
        code = worst([code, error.exit_code])
    for path in session.reports.values():
        traced = path.name.endswith(".trace.json")
        note(f"the timeline can be opened in ui.perfetto.dev: {path}" if traced
             else f"the counters can be opened: ncu-ui {path}")  # fmt: skip
    if not session.ask.no_store:
        note(f"run {session.id} is kept: dgw report {session.id}")
    if session.interrupted:
        interrupted(session, total)
    elif session.records and all(record.outcome == "refused" for record in session.records):
        nothing = nothing_ran(session.records, session.variants)
        complain(nothing, session.arguments)
        code = worst([code, nothing.exit_code])
    raise typer.Exit(int(code))


def _report(
    session: Session, by_line: bool, findings: Sequence[Finding], listings: Callable[[Session], str] | None
) -> None:
    from dgw.commands.request import rank
    from dgw.reports import findings as verdicts
    from dgw.reports import json, lines, terminal
    from dgw.reports.tables import build

    if session.ask.json:
        say(json.render(session.run, findings))
        return
    if not session.records:
        return
    blocks = build(session.records, rank(session.variants))
    say(terminal.render(blocks, width(), colour()))
    if by_line:
        say("\n" + lines.render(session.records, width(), colour()))
    if findings:
        say("\n" + verdicts.render(findings, width(), colour()))
    if listings is not None:
        say("\n" + listings(session))
    if session.machine.engine != "gpu":
        say("\n" + _no_time(session))


def _no_time(session: Session) -> str:
    text = f"Time was not measured because {session.machine.reason}."
    if any(r.outcome != "refused" and r.number("bound_time") is not None for r in session.records):
        text += f" The lower bound is what {session.machine.device.name} cannot beat, not an estimate."
    return text


def _warn_of_faults(session: Session) -> None:
    """A warning for the first case of every variant and way to fail; after some of them, how many more there are."""
    seen: dict[tuple[str, str], Record] = {}
    for record in session.records:
        if record.outcome not in ("ok", "refused"):
            seen.setdefault((record.case.variant, record.outcome), record)
    for record in list(seen.values())[:WARNINGS]:
        where = f"{record.case.variant} at {record.case.problem.shape}"
        warn(
            f"{where}: {record.outcome}: {failure_text(record)}",
            mended_in(record, session.variants) or advice(record),
            session.arguments,
        )
    if len(seen) > WARNINGS:
        warn(f"{len(seen) - WARNINGS} more kinds of failure are in the report")


def lost_counters(session: Session) -> list[DgwError]:
    """One error for every reason why a case that ran well has no counter at all although counters were wanted."""
    if session.machine.engine != "gpu" or "counters" not in session.lanes:
        return []
    from dgw.workbench.collectors.ncu_errors import error_of

    reasons: dict[str, None] = {}
    for record in session.records:
        counted = [m for m in record.measurements if m.collector == "ncu" and m.scope == "case"]
        if record.outcome == "ok" and counted and all(m.value is None for m in counted):
            reasons[next(m.absent for m in counted)] = None
    return [error_of(reason) for reason in reasons if reason]


def advice(record: Record) -> str:
    """The next command to type after a case that failed."""
    case, problem = record.case, record.case.problem
    emulated = ("--engine", "emulator")
    halved = {"m": max(1, problem.m // 2), "n": max(1, problem.n // 2)}
    if record.outcome == "wrong":
        return again("check", _on(case, data="integer"), *emulated)
    if record.outcome == "out-of-memory":
        return again("profile", _on(case, **halved))
    if record.outcome in ("timed-out", "crashed"):
        return again("check", case, *emulated)
    return show(case, "--source" if record.outcome == "compile-failed" else "--configs")


def _on(case: Case, **fields: Any) -> Case:
    """The same case with fields of its problem changed."""
    return msgspec.structs.replace(case, problem=msgspec.structs.replace(case.problem, **fields))


def nothing_ran(records: Sequence[Record], variants: Mapping[str, Variant]) -> DgwError:
    """What to say when every case was refused: that it takes a GPU, or what the first refuses, and what to do."""
    first = records[0]
    others = f" (and {len(records) - 1} more cases)" if len(records) > 1 else ""
    if all(record.reason.startswith((UNABLE, FOREIGN)) for record in records):
        return Missing(
            f"nothing ran: {first.case.variant} at {first.case.problem.shape}: {failure_text(first)}{others}",
            "the same on a machine with a GPU"
            if first.reason == FOREIGN
            else f"the same on a machine with a GPU; here, {again('profile', first.case)} tells registers, occupancy "
            "and a lower bound",
        )
    missing = {record.case.variant: _lacking(record, variants) for record in records}
    if all(missing.values()):
        packages = " ".join(dict.fromkeys(name for names in missing.values() for name in names))
        return Missing(f"nothing ran: {failure_text(first)}{others}", f"pip install {packages}")
    return UsageError(
        f"nothing ran: {first.case.variant} refuses {first.case.problem.shape} {first.case.problem.a.dtype}: "
        f"{failure_text(first)}{others}",
        mended_in(first, variants) or f"{show(first.case, '--configs')}; or another --shape, --dtype or --layout",
    )


def _lacking(record: Record, variants: Mapping[str, Variant]) -> list[str]:
    from dgw.workbench.prepare import lacking

    variant = variants.get(record.case.variant)
    return lacking(variant) if variant is not None else []


def interrupted(session: Session, total: int | None = None) -> None:
    """Say how much was finished, of `total` where that is known, and how to go on."""
    typed = [part for part in session.arguments if part != "--resume"]
    done = f"{len(session.records)}" if total is None else f"{len(session.records)} of {total}"
    note(f"error: interrupted: {done} cases are finished")
    if session.ask.no_store:
        note("  try: the same command without --no-store, which could then be resumed")
    else:
        note(f"  try: dgw {shlex.join([*typed, '--resume'])}")
