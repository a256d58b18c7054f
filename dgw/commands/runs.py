"""`dgw runs`: the runs in the store."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from dgw.commands import options
from dgw.commands.console import colour, say, width

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def runs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, newest first.")] = 20,
    json: options.AsJson = False,
) -> None:
    """The runs in the store, newest first."""
    from dgw.reports.json import render
    from dgw.reports.terminal import listing
    from dgw.workbench.store import open_store

    store = open_store(looking=True)
    found = store.runs(limit)
    if json:
        say(render(found))
        return
    if not found:
        say(f"The store {store.location} holds no run yet: dgw profile --variant swizzled --shape 4096x4096x4096")
        return
    rows = [
        (
            run.id,
            run.created[:16].replace("T", " "),
            run.device,
            str(run.records),
            str(run.not_ok),
            shlex.join(run.command),
        )
        for run in found
    ]
    say(listing(("run", "created (UTC)", "device", "cases", "failed", "command"), rows, width(), colour()))
