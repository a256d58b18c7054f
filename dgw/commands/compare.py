"""`dgw compare`: variants side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from dgw.commands import options
from dgw.commands.options import Ask, split
from dgw.commands.profile import measure

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
@options.spread
def compare(
    ctx: typer.Context,
    ask: Ask,
    names: Annotated[list[str] | None, typer.Argument(metavar="[VARIANT]...", help="Two or more variants.")] = None,
    family: options.Family = "",
    against: options.Against = None,
    counters: options.Counters = "std",
    by_line: options.ByLine = False,
) -> None:
    """Variants side by side, sorted as a ladder: by family, lowest stage first, baselines last."""
    measure(ctx, ask, split([*(names or ()), *(ask.variant or ())]), against, counters, by_line, family)
