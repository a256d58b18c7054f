"""`dgw report`: a stored run in another form, or two runs beside each other."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dgw.commands import options
from dgw.commands.console import colour, note, say, width
from dgw.errors import NotComparable, UsageError
from dgw.model import Run

if TYPE_CHECKING:
    from dgw.reports.tables import Block

app = typer.Typer(rich_markup_mode=None, add_completion=False)

FORMS = (".html", ".json", ".md", ".csv", ".txt", ".svg", ".png")


@app.command()
def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="Its id or the beginning of it, or `last`: the run that was made last, which need not be the one "
            "imported last. [default: last]",
            show_default=False,
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help=f"The ending says in which form: {' '.join(FORMS)}."),
    ] = None,
    chart: Annotated[
        str, typer.Option("--chart", metavar="NAME", help="The chart of an .svg or .png. [default: the first there is]")
    ] = "",
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option("--compare", metavar="RUN1 RUN2", help="Two runs, or two devices, beside each other."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """A stored run as a table on the terminal, as a self-contained HTML page, or as Markdown, JSON, CSV or a chart."""
    from dgw.workbench.store import open_store

    form = _form(output, chart, json)
    store = open_store(looking=True)
    if compare is None:
        made = rendered(store.run(run or "last"), form, chart, width(), output is None and colour())
        deliver(made, output, f"dgw report {run or 'last'}")
        return
    if run:
        raise UsageError(
            f"--compare takes two runs, and {run} is a third", f"dgw report --compare {shlex.join(compare)}"
        )
    if chart:
        raise UsageError("a comparison has one chart of its own", "leave --chart out")
    made = compared(store.run(compare[0]), store.run(compare[1]), form, width(), output is None and colour())
    deliver(made, output, f"dgw report --compare {shlex.join(compare)}")


def compared(base: Run, head: Run, form: str, columns: int = 120, coloured: bool = False) -> str | bytes:
    """Two runs beside each other in one of FORMS. Raises NotComparable where no case can be compared."""
    from dgw.commands.conclusions import why
    from dgw.reports import comparison_text
    from dgw.reports.charts import forest, png, svg
    from dgw.reports.comparison import compare
    from dgw.reports.html.comparison import render

    found = compare(base, head, why)
    if form in comparison_text.FORMS:
        return comparison_text.FORMS[form](found)
    if form == ".html":
        return render(found)
    if form == ".txt":
        return comparison_text.terminal(found, columns, coloured) + "\n"
    drawn = forest.build(found)
    if drawn is None:
        raise NotComparable("no case has a time in both runs", "-o x.md, which lists the counters that changed")
    return svg.standalone(drawn) if form == ".svg" else png.render(drawn)


def _form(output: Path | None, chart: str, json: bool) -> str:
    """Which of FORMS is wanted. Raises UsageError for an ending that is none, and a chart that goes nowhere."""
    if output is None:
        if chart:
            raise UsageError("a chart needs a file to go to", f"--chart {chart} -o {chart}.svg")
        return ".json" if json else ".txt"
    form = output.suffix.lower()
    if form not in FORMS:
        ending = f"no report has the ending {output.suffix!r}" if output.suffix else f"{output} has no ending"
        raise UsageError(f"{ending}: {' '.join(FORMS)}", f"-o {output.stem}.html")
    if chart and form not in (".svg", ".png"):
        raise UsageError(f"a chart is no {form} file", f"--chart {chart} -o {output.stem}.svg")
    return form


def deliver(made: str | bytes, output: Path | None, command: str) -> None:
    """Print what was made, or write it to a file and say so. Raises UsageError where it cannot be written."""
    if output is None:
        say(made if isinstance(made, str) else made.decode())
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(made.encode() if isinstance(made, str) else made)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}", f"{command} -o ./{output.name}") from error
    note(f"wrote {output}")


def rendered(run: Run, form: str, chart: str = "", columns: int = 120, coloured: bool = False) -> str | bytes:
    """The run in one of FORMS, its cases sorted as a ladder."""
    from dgw.commands.request import library, rank
    from dgw.reports import csv, json, markdown, terminal
    from dgw.reports.tables import build

    if form == ".json":
        return json.render(run)
    variants = library(options.Ask())
    blocks = build(run.records, rank(variants))
    texts: dict[str, Callable[[], str | bytes]] = {
        ".md": lambda: markdown.render(blocks, f"dgw run {run.id}: {shlex.join(run.command)}"),
        ".csv": lambda: csv.render(blocks),
        ".txt": lambda: terminal.render(blocks, columns, coloured) + "\n",
    }
    if form in texts:
        return texts[form]()
    if form in (".svg", ".png"):
        return _picture(blocks, form, chart)
    from dgw.commands.conclusions import extras
    from dgw.reports.html.page import render

    return render(run, blocks, extras(run, variants))


def _picture(blocks: tuple[Block, ...], form: str, name: str) -> str | bytes:
    """One chart. Raises UsageError for an unknown one, NotComparable where the run has no figures for it."""
    from dgw.commands.request import nearest
    from dgw.reports.charts import png, svg
    from dgw.reports.charts.catalogue import KINDS, available, picture

    if name and name not in KINDS:
        raise UsageError(f"no chart is named {name!r}", f"--chart {nearest(name, list(KINDS))}")
    there = available(blocks)
    wanted = name or next(iter(there), "times")
    drawn = picture(wanted, blocks)
    if drawn is None:
        hint = f"--chart {' or '.join(there)}" if there else KINDS[wanted].needs
        raise NotComparable(f"the run has no figures for {wanted}, which needs {KINDS[wanted].needs}", hint)
    return svg.standalone(drawn) if form == ".svg" else png.render(drawn)
