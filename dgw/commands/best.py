"""`dgw best`: the stored winner for a shape on this device, and how far the default config is from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dgw.commands import options
from dgw.commands.options import Ask, split
from dgw.errors import NotComparable
from dgw.model import Problem, Record

if TYPE_CHECKING:
    from dgw.commands.session import Machine
    from dgw.reports.ranking import Ranking
    from dgw.workbench.store.store import RunHead
    from dgw.workbench.tuned import Tuned

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Shape = Annotated[options.Names, typer.Argument(metavar="[SHAPE]...", help="MxNxK or BxMxNxK, or by --shape.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE.json", help="Also a file of tuned configs, which profile takes."),
]


@app.command()
def best(
    shapes: Shape = None,
    shape: options.Shapes = None,
    variant: options.Variants = None,
    dtype: options.Dtypes = None,
    layout: options.Layouts = None,
    out: options.Out = "",
    device: options.Device = "",
    kernels: options.Kernels = None,
    kernel: options.Kernel = None,
    output: Output = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Places shown.")] = 5,
    json: options.AsJson = False,
) -> None:
    """The winner among everything in the store that was swept for a shape on this device; -o exports it.

    Tuned configs in .dgw/tuned.json (or DGW_TUNED) are what `dgw profile` then runs instead of the defaults.
    """
    from dgw import __version__
    from dgw.commands import request
    from dgw.commands.console import colour, note, say, width
    from dgw.commands.report import deliver
    from dgw.commands.session import machine
    from dgw.commands.sweep import defaults_of
    from dgw.reports.ranking import rankings, render
    from dgw.workbench import tuned
    from dgw.workbench.store import open_store

    wished = [*(shapes or ()), *(shape or ())]
    ask = Ask(
        variant=variant, shape=wished, dtype=dtype, layout=layout, out=out, device=device, kernels=kernels,
        kernel=kernel,
    )  # fmt: skip
    problems = request.problems(ask, "dgw best")
    where = machine(ask)
    variants = request.library(ask)
    wanted = [one.id for one in request.wanted(ask, split(variant), "", variants, where)] if variant else []
    store = open_store(looking=True)
    texts, entries = [], []
    for problem in problems:
        head, records = newest(store.of_shape(problem.shape), problem, where, wanted, ask)
        (ranking,) = rankings(records, defaults_of(variants, where))
        entry = entry_of(ranking, head, ask)
        entries.append(entry)
        texts.append(f"{render([ranking], top, width(), colour())}\nMeasured {head.created[:10]} in run {head.id}.")
    if json:
        say(tuned.encode(entries, __version__).decode())
    else:
        say("\n\n".join(texts))
    if output is not None:
        known = tuned.load(output) if output.is_file() else ()
        deliver(tuned.encode(tuned.merged(known, entries), __version__), output, f"dgw best {problems[0].shape}")
        if tuned.default_path() is None or tuned.default_path() != output:
            note(f"  try: {_measuring(ask, problems[0], entries[0].variant, 'dgw profile')} --tuned {output}")


def newest(
    stored: Sequence[tuple[RunHead, Record]], problem: Problem, where: Machine, wanted: Sequence[str], ask: Ask
) -> tuple[RunHead, list[Record]]:
    """The newest run in which configs of the problem raced on the device, else the newest in which they were timed.

    Raises NotComparable with the command that makes one, or that shows what there is instead.
    """
    from dgw.workbench.sweep import race
    from dgw.workbench.tuned import plain

    runs: dict[str, tuple[RunHead, list[Record]]] = {}
    untimed = ""
    for head, record in stored:
        fits = plain(record.case.problem) == plain(problem) and record.environment.device == where.device.name
        if not fits or not record.case.config or (wanted and record.case.variant not in wanted):
            continue
        if not _timed(record):
            untimed = untimed or head.id
        else:
            runs.setdefault(head.id, (head, []))[1].append(record)
    raced = [found for found in runs.values() if any(race.verdict(record) == "best" for record in found[1])]
    several = [found for found in runs.values() if len(found[1]) > 1]
    found = next(iter(raced or several), None)
    if found is None:
        what = f"{problem.shape} {problem.a.dtype} {problem.layout} on {where.device.name}"
        again = _measuring(ask, problem, wanted[0] if wanted else "", "dgw sweep")
        if untimed:
            raise NotComparable(
                f"best needs times measured on a GPU, and run {untimed} of {what} has none",
                again if where.engine == "gpu" else f"dgw report {untimed}",
            )
        raise NotComparable(f"nothing in the store was swept at {what}", again)
    return found


def _measuring(ask: Ask, problem: Problem, variant: str, command: str) -> str:
    """The command that measures a variant on the problem, with the kernels and the device that were asked for.

    Without a variant it is the user's own kernel, or a stage that is worth it.
    """
    from dgw.commands.request import typed

    own = ask.kernel is not None or ask.kernels is not None
    named = [variant] if variant else [] if own else ["cuda/tensor-core"]
    asked = replace(
        ask, variant=named, shape=[problem.shape], dtype=[problem.a.dtype], layout=[problem.layout]
    )  # fmt: skip
    return typed(asked, command)


def _timed(record: Record) -> bool:
    return record.number("time_cold") is not None or record.number("time_hot") is not None


def entry_of(ranking: Ranking, head: RunHead, ask: Ask) -> Tuned:
    """What a file of tuned configs keeps of a ranking's first place."""
    from dgw.reports.ranking import figure
    from dgw.workbench.tuned import Tuned, plain

    first = ranking.best
    found = figure(first) if first is not None else None
    if first is None or found is None or not isinstance(found.value, int | float):
        again = _measuring(ask, ranking.problem, first.case.variant if first is not None else "", "dgw sweep")
        raise NotComparable("every time in the store is implausible", f"{again} --fresh")
    return Tuned(
        device=first.environment.device,
        problem=plain(first.case.problem),
        variant=first.case.variant,
        version=first.case.version,
        config=first.case.config,
        seconds=float(found.value),
        protocol=found.protocol,
        driver=first.environment.driver,
        measured=head.created,
        run=head.id,
    )
