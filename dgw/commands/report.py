"""`dgw report`: a stored run in another form."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from dgw.commands import options
from dgw.commands.console import colour, note, say, width
from dgw.errors import UsageError
from dgw.model import Run

app = typer.Typer(rich_markup_mode=None, add_completion=False)

FORMS = (".json", ".md", ".csv", ".txt")


@app.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a run or the beginning of one; `last`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A file; its ending says in which form.")
    ] = None,
    json: options.AsJson = False,
) -> None:
    """A stored run as a table on the terminal, or as JSON, Markdown, CSV or text in a file."""
    from dgw.workbench.store import open_store

    form = ".json" if json else ".txt"
    if output is not None:
        form = output.suffix.lower()
        if form not in FORMS:
            raise UsageError(
                f"no report has the ending {output.suffix or 'of ' + output.name!r}", f"-o {output.stem}.md"
            )
    text = text_of(open_store().run(run), form, width(), output is None and colour())
    if output is None:
        say(text)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}", f"dgw report {run} -o ./{output.name}") from error
    note(f"wrote {output}")


def text_of(run: Run, form: str, columns: int = 120, coloured: bool = False) -> str:
    """The run in one of FORMS, its cases sorted as a ladder."""
    from dgw.commands.request import library, rank
    from dgw.reports import csv, json, markdown, terminal
    from dgw.reports.tables import build

    if form == ".json":
        return json.render(run)
    blocks = build(run.records, rank(library(options.Ask())))
    if form == ".md":
        return markdown.render(blocks, f"dgw run {run.id}: {shlex.join(run.command)}")
    if form == ".csv":
        return csv.render(blocks)
    return terminal.render(blocks, columns, coloured) + "\n"
