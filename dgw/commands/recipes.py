"""`dgw recipes`: the causes that `dgw diagnose` looks for."""

from __future__ import annotations

from typing import Annotated

import typer

from dgw.commands import options
from dgw.commands.console import colour, say, width
from dgw.errors import UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def recipes(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these. [default: all]")] = None,
    json: options.AsJson = False,
) -> None:
    """The causes that `dgw diagnose` looks for: what each is about, and the metrics it needs."""
    from dgw.commands.request import nearest
    from dgw.recipes import registry
    from dgw.reports.json import render
    from dgw.reports.terminal import listing

    every = {recipe.name: recipe for recipe in registry.recipes()}
    for name in names or ():
        if name not in every:
            raise UsageError(f"no recipe is named {name!r}", f"dgw recipes {nearest(name, list(every))}".strip())
    chosen = [every[name] for name in names] if names else list(every.values())
    if json:
        say(render([{"name": r.name, "about": r.about, "needs": r.needs} for r in chosen]))
        return
    rows = [(r.name, r.about, " ".join(need.replace("|", " or ") for need in r.needs) or "-") for r in chosen]
    say(listing(("recipe", "what it looks for", "metrics it needs"), rows, width(), colour()))
