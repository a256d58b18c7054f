"""`dgw import`: take over a run that was exported elsewhere, or make one of a report of Nsight."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dgw.commands import options
from dgw.commands.console import note, say, warn

if TYPE_CHECKING:
    from dgw.model import Problem, Run
    from dgw.workbench.store import Store

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Shape = Annotated[str, typer.Option("--shape", "-s", metavar="MxNxK", help="What the kernels computed, if you know.")]
Dtype = Annotated[str, typer.Option("--dtype", "-t", metavar="NAME", help="Type of its inputs.")]
Layout = Annotated[str, typer.Option("--layout", "-l", metavar="nn|nt|tn|tt", help="Layout of A and B.")]


@app.command()
def import_run(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="What `dgw report RUN -o FILE.json` wrote; a report of ncu (.ncu-rep, or .csv of its raw or details "
            "page), a timeline of nsys (.sqlite, .nsys-rep), or a trace of torch.profiler (.json).",
        ),
    ],
    shape: Shape = "",
    dtype: Dtype = "f16",
    layout: Layout = "nn",
    json: options.AsJson = False,
) -> None:
    """Take a run that was exported elsewhere into the store, or make a run of a report of Nsight.

    A run that is already there is completed. An exported run keeps its id and the time when it was made, so that `last`
    means it only if none was made later; the id that is printed always does. Kernels of a report become cases
    `foreign/NAME`; what they computed is unknown unless you say it with --shape.
    """
    from dgw.errors import UsageError
    from dgw.reports.json import render
    from dgw.workbench.foreign.files import is_foreign
    from dgw.workbench.store import open_store
    from dgw.workbench.store.exchange import import_run

    if not file.is_file():
        reason = "it is a folder" if file.is_dir() else "there is no such file"
        raise UsageError(f"cannot read {file}: {reason}", "dgw import FILE")
    store = open_store()
    if is_foreign(file):
        run = _foreign(file, _problem(shape, dtype, layout), store)
    else:
        run = import_run(file)
        store.begin(run)
    if json:
        say(render({"run": run.id, "cases": len(run.records)}))
    else:
        say(f"run {run.id}: {len(run.records)} cases. Look at it: dgw report {run.id}")
    (newest,) = store.runs(1)
    if newest.id != run.id:
        note(f"`last` is still run {newest.id}, which was made later")


def _problem(shape: str, dtype: str, layout: str) -> Problem | None:
    if not shape:
        return None
    from dgw.commands import request
    from dgw.commands.options import Ask

    return request.problems(Ask(shape=[shape], dtype=[dtype], layout=[layout]), "dgw import FILE")[0]


def _foreign(file: Path, problem: Problem | None, store: Store) -> Run:
    """The run that a report makes, with the report kept beside it; its command names the file without its folder."""
    import tempfile

    import msgspec

    from dgw import __version__
    from dgw.commands.session import commit, stamp
    from dgw.model import Run
    from dgw.workbench.foreign import read_foreign
    from dgw.workbench.tools import find_tool

    with tempfile.TemporaryDirectory(prefix="dgw-import-") as folder:
        found = read_foreign(file, Path(folder), problem, store.cases, find_tool("nsys"))
        kept = store.artifacts.add(found.keep, found.kind, file.name)
    if found.damage:
        warn(f"{file.name}: {found.damage}; what is whole was read", "ask whoever sent it for a whole one")
    records = tuple(msgspec.structs.replace(record, artifacts=(kept,)) for record in found.records)
    identity, created = stamp()
    typed = ("dgw", "import", file.name, *(("--shape", problem.shape) if problem is not None else ()))
    run = Run(
        id=identity, created=created, command=typed, version=__version__, commit=commit(), records=records
    )  # fmt: skip
    store.begin(run)
    note(f"the report is kept: {store.artifacts.path(kept)}")
    return run
