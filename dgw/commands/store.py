"""`dgw store`: where results are kept."""

from __future__ import annotations

from typing import Annotated

import typer

from dgw.commands import options
from dgw.commands.console import say

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="Where results are kept.")


@app.command()
def path(json: options.AsJson = False) -> None:
    """Where the store is (without a password)."""
    from dgw.reports.json import render
    from dgw.workbench.store import open_store

    location = open_store(looking=True).location
    say(render({"store": location}) if json else location)


@app.command()
def info(json: options.AsJson = False) -> None:
    """How many runs and cases the store holds, and where its files are."""
    from dgw.reports.json import render
    from dgw.workbench.store import open_store

    store = open_store(looking=True)
    runs = store.runs()
    facts = {"store": store.location, "artifacts": str(store.artifacts.folder), "runs": len(runs),
             "cases": sum(run.records for run in runs)}  # fmt: skip
    if json:
        say(render(facts))
    else:
        say("\n".join(f"{name:<10} {value}" for name, value in facts.items()))


@app.command()
def prune(
    keep: Annotated[int, typer.Option("--keep", min=0, help="How many of the newest runs stay.")] = 50,
    json: options.AsJson = False,
) -> None:
    """Delete all but the newest runs, and every file that no remaining run names."""
    from dgw.reports.json import render
    from dgw.reports.units import show
    from dgw.workbench.store import open_store

    pruned = open_store(looking=True).prune(keep)
    if json:
        say(render(pruned))
    else:
        say(f"deleted {pruned.runs} runs and {pruned.files} files ({show(pruned.bytes, 'bytes')})")
