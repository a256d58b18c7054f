"""`dgw metrics`: the metrics there are."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from dgw.commands import options
from dgw.commands.console import colour, say, width
from dgw.errors import UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def metrics(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SET|NAME]...", help="Only these. [default: all]")
    ] = None,
    arch: options.Arch = "sm_90a",
    json: options.AsJson = False,
) -> None:
    """The metrics there are: unit, sets, what an architecture calls them, and what they mean."""
    from dgw.model import sm
    from dgw.reports.json import render
    from dgw.reports.terminal import listing
    from dgw.workbench.metrics import ARCHITECTURES, METRICS, SETS, Absent, counter_name, passes, resolve

    if not re.fullmatch(r"sm_\d+[a-z]?", arch) or sm(arch) < sm(ARCHITECTURES[0]):
        raise UsageError(f"no counters are known for {arch!r}", f"--arch {' or '.join(ARCHITECTURES)}")
    chosen = resolve(names, arch) if names else list(METRICS.values())
    if json:
        say(render({"sets": list(SETS.values()), "metrics": chosen}))
        return
    rows = []
    for metric in chosen:
        name = counter_name(metric, arch)
        known = (
            f"Reason: {name.reason}."
            if isinstance(name, Absent) and metric.names
            else name
            if isinstance(name, str)
            else ""
        )
        meaning = " ".join(part for part in (metric.meaning, known) if part)
        rows.append((metric.key, metric.unit, " ".join(metric.sets), " ".join(metric.aliases), meaning))
    say(
        listing(
            ("metric", "unit", "sets", "aliases", f"meaning, and the counter of ncu on {arch}"), rows, width(), colour()
        )
    )
    if not names:
        sets = [(s.name, str(passes(s, arch) or "-"), s.meaning) for s in SETS.values()]
        say("\n" + listing(("set", "passes", "meaning"), sets, width(), colour()))
