"""`dgw baseline`: the approved facts of the exact gate, in the repository."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dgw.commands import options
from dgw.commands.console import colour, note, say, width
from dgw.commands.exact import Compared, Examination, Folder, Pick, examination, folder
from dgw.errors import DgwError, Exit, UsageError, worst

if TYPE_CHECKING:
    from dgw.workbench.baselines import BaselineFile
    from dgw.workbench.gate.facts import Facts
    from dgw.workbench.gate.verdict import GateCase, GateReport

app = typer.Typer(
    rich_markup_mode=None, add_completion=False, no_args_is_help=True,
    help="What was approved of kernels: code, resources and counts, kept in perf/baselines and compared by dgw gate.",
)  # fmt: skip

Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why this is right; reviewers read it.")]
Until = Annotated[
    str,
    typer.Option("--until", metavar="YYYY-MM-DD", help="The last day on which the gate takes it. [default: always]"),
]


class Red(DgwError):
    """An approval of something that is wrong or did not run."""

    exit_code = Exit.WRONG


@app.command()
def show(baselines: Folder = None, family: options.Family = "", json: options.AsJson = False) -> None:
    """What is approved, and every approval with its reason."""
    from dgw.errors import NotComparable
    from dgw.reports import baselines as shown
    from dgw.reports.json import render

    place = folder(baselines)
    files = [file for file in place.files() if not family or file.family == family]
    if not files:
        wanted = f" of {family}" if family else ""
        raise NotComparable(
            f"nothing{wanted} is approved in {place.shown}", 'dgw baseline approve --reason "the first"'
        )
    say(render(files) if json else shown.render(files, width(), colour()))


@app.command()
@options.spread_of(Pick)
def diff(pick: Pick, json: options.AsJson = False) -> None:
    """What `approve` would change; writes nothing. Leaves with 0 also where something is worse."""
    from dgw.reports import gate_terminal
    from dgw.workbench.gate.verdict import encode

    subject, compared = _examined(pick, "dgw baseline diff", every=False)
    found = _report(subject, compared)
    say(encode(found).decode() if json else gate_terminal.render(found, width(), colour()))
    raise typer.Exit(int(worst([_RED[case.status] for case in found.cases if case.status in _RED])))


_RED = {"wrong": Exit.WRONG, "failed": Exit.FAULT}


@app.command()
@options.spread_of(Pick)
def approve(reason: Reason = "", until: Until = "", *, pick: Pick, json: options.AsJson = False) -> None:
    """Take the facts of the code that is here as what later changes are compared with. Commit the files it writes.

    Nothing is written where a result is wrong, or a case crashes or does not compile.
    """
    from dgw.reports.json import render

    _demand(reason, until)
    subject, compared = _examined(pick, "dgw baseline approve", every=True)
    found = _report(subject, compared)
    _refuse(found.cases)
    written = _write(subject, compared, {case.key: case for case in found.cases}, " ".join(reason.split()), until)
    if json:
        say(render(written))
    elif not written:
        say("nothing changed: all of it is approved already")
    for one in [] if json else written:
        say(f"{one['file']}: {one['changed']} of {one['cases']} cases approved")
        note("\n".join(f"  {change}" for change in one["changes"]))


def _refuse(cases: Sequence[GateCase]) -> None:
    """Raises where a case is red, or where none ran at all."""
    red = [case for case in cases if case.status in _RED]
    if red:
        more = f" (and {len(red) - 1} more)" if len(red) > 1 else ""
        error = Red(
            f"nothing was approved: {red[0].label} is {red[0].status}: {'; '.join(red[0].reasons)}{more}",
            f"dgw check --variant {red[0].variant} --engine emulator",
        )
        error.exit_code = worst([_RED[case.status] for case in red])
        raise error
    if cases and all(case.status == "refused" for case in cases):
        raise UsageError(f"nothing ran: {'; '.join(cases[0].reasons)}", f"dgw show {cases[0].variant} --configs")


def _demand(reason: str, until: str) -> None:
    if len(reason.split()) < 1:
        raise UsageError(
            "an approval needs a reason", 'dgw baseline approve --reason "what changed, and why it is right"'
        )
    try:
        if until and date.fromisoformat(until) < datetime.now(UTC).date():
            raise UsageError(f"--until {until} is over", "--until with a day to come, as YYYY-MM-DD")
    except ValueError as error:
        raise UsageError(f"--until {until!r} is no day", "--until 2030-12-31") from error


def _examined(pick: Pick, command: str, every: bool) -> tuple[Examination, list[Compared]]:
    from dgw.commands.console import progress

    subject = examination(pick, command)
    with progress(command.removeprefix("dgw ")) as bar:
        return subject, list(subject.run(bar, every))


def _report(subject: Examination, compared: list[Compared]) -> GateReport:
    from dgw.commands.gate_exact import report

    return report(subject, compared, (), "fail", False, 0.0)


def _write(
    subject: Examination, compared: list[Compared], judged: dict[str, GateCase], reason: str, until: str
) -> list[dict[str, Any]]:
    """Write the files of which something changed; one summary each."""
    from dgw import __version__
    from dgw.commands.gate_sides import head_commit
    from dgw.workbench.baselines import Approval, approve

    commit = head_commit(subject.pick.kernels or subject.pick.kernel)
    places: dict[tuple[str, str, str], list[Compared]] = {}
    for one in compared:
        if one.known.outcome == "ok":
            places.setdefault((one.known.toolchain, one.known.variant.family, one.known.compiler), []).append(one)
    gone = subject.left({one.known.facts.key for one in compared}, {toolchain for toolchain, _, _ in places})
    written = []
    for (toolchain, family, compiler), members in places.items():
        old = subject.file(toolchain, family)
        fresh = [one for one in members if _is_new(one, old, compiler, _suite(subject))]
        said = {one.known.facts.key: _change(judged[one.known.facts.key], one.known.facts) for one in fresh}
        dropped = [facts for facts in gone if facts.variant.partition("/")[0] == family]
        if not fresh and not dropped:
            continue
        changes = [*said.values(), *(f"{f.label}: dropped" for f in dropped)]
        entry = Approval(
            approved=datetime.now(UTC).date().isoformat(), reason=reason, dgw=__version__, commit=commit,
            suite=_suite(subject), until=until, changes=tuple(changes),
        )  # fmt: skip
        place = (subject.device.arch, toolchain, family, compiler)
        file = approve(old, [one.known.facts for one in fresh], entry, place, [facts.key for facts in dropped])
        subject.baselines.write(file)
        name = subject.baselines.name(subject.device.arch, toolchain, family)
        written.append({"file": name, "cases": len(file.cases), "changed": len(fresh), "changes": changes})
    return written


def _suite(subject: Examination) -> str:
    """The suite that approved cases belong to from now on; none where it was narrowed or changed."""
    return subject.pick.named if subject.pick.whole_suite else ""


def _is_new(one: Compared, old: BaselineFile | None, compiler: str, suite: str) -> bool:
    """Whether an approval of this case says anything that the file does not."""
    if old is None or old.compiler != compiler or one.until or one.base != one.known.facts:
        return True
    return bool(suite) and suite not in old.cases[one.known.facts.key].suites


def _change(case: GateCase, facts: Facts) -> str:
    from dgw.reports.gate_text import change_text
    from dgw.workbench.gate.exact import compiled_only

    why = compiled_only(facts)
    unseen = f" (only compiled, the result was not checked: {why})" if why else ""
    what = "new" if case.status == "missing" else "; ".join(map(change_text, case.changed)) or case.status
    return f"{case.label}: {what}{unseen}"
