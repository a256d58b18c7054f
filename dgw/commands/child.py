"""`dgw child`: the hidden command in which cases run, alone or under a profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def child(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    fifo: Annotated[Path, typer.Argument(help="The pipe on which to answer.")],
    extra: Annotated[
        list[Path] | None, typer.Option("--extra", help="A folder or file of further declarations.")
    ] = None,
) -> None:
    """Run the cases of a job file; the runner starts this, nobody types it."""
    from dgw.kernels.loader import load
    from dgw.workbench.child import serve

    raise typer.Exit(serve(load(tuple(extra or ())), job, fifo))
