"""`dgw list`: the variants there are."""

from __future__ import annotations

import typer

from dgw.commands import options
from dgw.commands.console import colour, say, width

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def list_variants(
    family: options.Family = "",
    kernels: options.Kernels = None,
    kernel: options.Kernel = None,
    json: options.AsJson = False,
) -> None:
    """The variants there are: ladders first, lowest stage first, then baselines."""
    from dgw.commands.request import ladder, library, rank
    from dgw.reports.json import render
    from dgw.reports.terminal import listing

    variants = library(options.Ask(kernels=kernels, kernel=kernel))
    order = rank(variants)
    shown = ladder(variants, family) if family else sorted(variants.values(), key=lambda v: order[v.id])
    if json:
        say(render([{
            "id": v.id, "version": v.version, "stage": v.stage, "idea": v.idea, "dtypes": v.dtypes,
            "architectures": v.architectures, "needs": v.needs, "tunables": [t.name for t in v.space],
        } for v in shown]))  # fmt: skip
        return
    rows = [(v.id, " ".join(v.architectures), " ".join(v.dtypes), v.idea) for v in shown]
    say(listing(("variant", "from", "types", "idea"), rows, width(), colour()))
