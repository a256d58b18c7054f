"""`dgw import`: take over a run that was exported elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dgw.commands import options
from dgw.commands.console import say

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def import_run(
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="What `dgw report RUN -o FILE.json` wrote.")],
    json: options.AsJson = False,
) -> None:
    """Take a run that was exported elsewhere into the store; a run that is already there is completed."""
    from dgw.reports.json import render
    from dgw.workbench.store import open_store
    from dgw.workbench.store.exchange import import_run

    run = import_run(file)
    store = open_store()
    store.begin(run)
    if json:
        say(render({"run": run.id, "cases": len(run.records)}))
    else:
        say(f"run {run.id}: {len(run.records)} cases. Look at it: dgw report {run.id}")
