"""`dgw heatmap`: two tunables as a map, swept as far as it is not yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dgw.commands import options
from dgw.commands.options import Ask, split
from dgw.commands.sweep import Fix, Fresh, Gpus, Sample, Space, fields_of, leave, place, session_of, wish_of
from dgw.errors import NotComparable, UsageError
from dgw.model import Config, Problem, Record, Variant

if TYPE_CHECKING:
    from dgw.commands.session import Machine, Session
    from dgw.commands.spaces import Narrowed
    from dgw.reports.heatmap import Axes, Grid

app = typer.Typer(rich_markup_mode=None, add_completion=False)

FORMS = (".png", ".svg", ".csv", ".txt")
X = Annotated[str, typer.Option("--x", metavar="TUNABLE", help="To the right. [default: BN]")]
Y = Annotated[str, typer.Option("--y", metavar="TUNABLE", help="Downwards. [default: BM]")]
Facet = Annotated[options.Names, typer.Option("--facet", metavar="NAME[,NAME]", help="A map for each value.")]
Metric = Annotated[
    options.Names,
    typer.Option(
        "--metric",
        "-m",
        metavar="NAME[,NAME]",
        help="time tflops cublas conflicts occupancy registers tensor-pipe bound ... [default: tflops, bound]",
    ),
]
Rest = Annotated[
    str, typer.Option("--rest", metavar="best|default", help="Tunables on no axis. [default: best; no GPU: default]")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help=f"One of {' '.join(FORMS)}.")]
Terminal = Annotated[bool, typer.Option("--terminal", help="Print the map although it goes to a file.")]
OfRun = Annotated[str, typer.Option("--run", metavar="RUN", help="Draw a run in the store; nothing is measured.")]


@app.command()
@options.spread
def heatmap(
    ctx: typer.Context,
    ask: Ask,
    x: X = "",
    y: Y = "",
    facet: Facet = None,
    metric: Metric = None,
    space: Space = None,
    fix: Fix = None,
    rest: Rest = "",
    sample: Sample = None,
    against: options.Against = None,
    output: Output = None,
    terminal: Terminal = False,
    of_run: OfRun = "",
    gpus: Gpus = None,
    lock_clocks: options.LockClocks = 0,
    fresh: Fresh = False,
) -> None:
    """A map of tile sizes: what is not in the store is swept, then drawn on the terminal, as PNG, SVG or CSV.

    Without a GPU it shows what the emulator counts and the compiler says: conflicts, registers, occupancy, bounds.
    """
    from dgw.commands import request
    from dgw.commands.locking import nothing_to_lock
    from dgw.commands.sweep_view import watching
    from dgw.commands.sweeping import run

    _form(output)
    if of_run:
        nothing_to_lock(lock_clocks, "a stored run is only drawn")
        _stored(of_run, split(metric) or ["tflops"], _typed_axes(x, y, split(facet), fix), output, terminal)
        return
    where = place(ask, lock_clocks)
    problems = request.problems(ask, " ".join(["dgw heatmap", *(f"--variant {name}" for name in split(ask.variant))]))
    variants = request.library(ask)
    wanted = request.wanted(ask, split(ask.variant), "", variants, where)
    names = split(metric) or ["tflops" if where.engine == "gpu" else "bound"]
    counters, beside = _needs(names, against, where)
    rest = rest or ("best" if where.engine == "gpu" else "default")
    axes, narrow = _plan(wanted, x, y, split(facet), space, fix, rest, request.typed(ask, "dgw heatmap"))
    ask = replace(ask, resume=not fresh)
    session = session_of(ask, tuple(ctx.obj or ()), variants, where, counters, lock_clocks)
    fields = fields_of(ask, problems, wanted, narrow, where, sample)
    wish = wish_of(fields, session, beside, "all", gpus, fresh)
    with watching("dgw heatmap") as view:
        run(session, wish, view)
    total = sum(len(one.cases) + len(one.refused) for one in fields)
    _finish(session, problems, names, axes, total, output, terminal)


def _form(output: Path | None) -> str:
    """The ending that says what to write. Raises UsageError for one that is none."""
    if output is None:
        return ""
    form = output.suffix.lower()
    if form not in FORMS:
        raise UsageError(f"no map has the ending {output.suffix or 'of ' + output.name!r}", f"-o {output.stem}.png")
    return form


def _needs(names: Sequence[str], against: options.Names, where: Machine) -> tuple[str, options.Names]:
    """The counters that the metrics need, and the baseline. Raises UsageError for a metric that there is not."""
    from dgw.reports.heatmap import metrics_of
    from dgw.workbench.metrics import METRICS, resolve

    counted = []
    for name in names:
        keys = metrics_of(name)
        if keys == (name,) and name not in METRICS:
            resolve(name, where.device.arch)  # says the nearest names
        key = keys[0]
        supplied = METRICS[key].collectors if key in METRICS else ()
        if where.engine == "gpu" and key in METRICS and METRICS[key].from_ncu and "static" not in supplied:
            counted.append(key)
    if any("ratio_to_cublas" in metrics_of(name) for name in names) and not against:
        against = ["cublas"]
    return ",".join(counted) or "none", against


def _plan(
    variants: Sequence[Variant],
    x: str,
    y: str,
    facets: Sequence[str],
    space: options.Names,
    fix: options.Names,
    rest: str,
    command: str,
) -> tuple[Axes, Narrowed]:
    """The axes of the maps and the values that tunables take. Raises UsageError."""
    from dgw.commands.spaces import axis, narrowed
    from dgw.reports.heatmap import Axes

    if rest not in ("best", "default"):
        raise UsageError(f"--rest cannot be {rest!r}", "--rest best or --rest default")
    narrow = narrowed(space, fix, variants, command)
    tunables = {tunable.name: tunable for variant in reversed(variants) for tunable in variant.space}
    values = {name: narrow.get(name, tunable.values) for name, tunable in tunables.items()}
    free = [name for name in ("BN", "BM", *tunables) if name in tunables and len(values[name]) > 1]
    named = [axis(name, variants, f"{command} --facet") for name in facets]
    along = axis(x, variants, f"{command} --x") if x else next((n for n in free if n not in (y, *named)), "")
    down = axis(y, variants, f"{command} --y") if y else next((n for n in free if n not in (along, *named)), "")
    if len(tunables) < 2:
        hint = "declare two tunables, or dgw heatmap --variant cuda/tensor-core --shape 4096x4096x4096"
        raise UsageError("a map needs a variant with two tunables", hint)
    again = "{} --x {} --y {}".format(command, *list(tunables)[:2])
    if not along or not down:
        raise UsageError("a map needs two tunables with more than one value", again)
    if len({along, down, *named}) < 2 + len(named) or len(named) > 2:
        raise UsageError("axes and facets are different tunables, and there are at most two facets", again)
    shown = (along, down, *named)
    if rest == "default":
        narrow |= {name: (tunables[name].default,) for name in tunables if name not in shown and name not in narrow}
    return Axes(along, down, tuple(named), values={name: values[name] for name in shown}), narrow


def _typed_axes(x: str, y: str, facets: Sequence[str], fix: options.Names) -> Axes:
    from dgw.commands.request import configs
    from dgw.reports.heatmap import Axes

    fixed: Config = {}
    for config in configs([text for text in fix or () if text != "default"]):
        fixed |= config
    return Axes(x, y, tuple(facets), fixed=fixed)


def _finish(
    session: Session,
    problems: Sequence[Problem],
    names: Sequence[str],
    axes: Axes,
    total: int,
    output: Path | None,
    terminal: bool,
) -> None:
    """The maps, or the run as JSON, and the exit code (typer.Exit)."""
    from dgw.commands.console import complain, say
    from dgw.reports import json

    if session.ask.json:
        say(json.render(session.run, ()))
    of: Mapping[Problem, list[Record]] = {problem: [] for problem in problems}
    for record in session.records:
        of[record.case.problem].append(record)
    if any(record.outcome != "refused" for record in session.records):
        try:
            maps = _maps([records for records in of.values() if records], names, axes)
            if output is not None or not session.ask.json:
                _show(maps, output, terminal)
        except NotComparable as error:
            complain(error, session.arguments)
    leave(session, total)


def _stored(run: str, names: Sequence[str], axes: Axes, output: Path | None, terminal: bool) -> None:
    from dgw.workbench.store import open_store

    of: dict[tuple[Problem, str], list[Record]] = {}
    for record in open_store(looking=True).run(run).records:
        of.setdefault((record.case.problem, record.case.variant.partition("/")[0]), []).append(record)
    tuned = [records for records in of.values() if any(record.case.config for record in records)]
    if not tuned:
        raise NotComparable(f"no case of run {run} has tunables", "dgw sweep --variant tensor-core --shape MxNxK")
    _show(_maps(tuned, names, axes), output, terminal)


def _maps(groups: Sequence[list[Record]], names: Sequence[str], axes: Axes) -> list[Grid]:
    from dgw.reports.heatmap import grid

    return [grid(records, name, axes) for records in groups for name in names]


def _show(maps: Sequence[Grid], output: Path | None, terminal: bool) -> None:
    """Print the maps, write them, or both; several go to files numbered by what they show."""
    from dgw.commands.console import colour, say, width
    from dgw.commands.report import deliver
    from dgw.reports import heatmap_text

    if output is None or terminal:
        say("\n\n".join(heatmap_text.render(one, width(), colour()) for one in maps))
    if output is None:
        return
    for one in maps:
        parts = [output.stem]
        parts += [one.problem.shape] if len({other.problem for other in maps}) > 1 else []
        parts += [one.metric] if len({other.metric for other in maps}) > 1 else []
        path = output.with_name("-".join(parts) + output.suffix)
        deliver(_made(one, _form(output)), path, "dgw heatmap ...")


def _made(one: Grid, form: str) -> str | bytes:
    from dgw.reports import heatmap_csv, heatmap_text
    from dgw.reports.charts import heatmap as chart
    from dgw.reports.charts import png
    from dgw.reports.heatmap import svg

    if form == ".csv":
        return heatmap_csv.render(one)
    if form == ".txt":
        return heatmap_text.render(one) + "\n"
    return svg(one) if form == ".svg" else png.render(chart.build(one))
