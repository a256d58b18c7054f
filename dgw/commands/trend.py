"""`dgw trend`: what the nights say."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from dgw.commands import gate_output, options
from dgw.commands.options import split
from dgw.errors import Exit, NotComparable, UsageError

if TYPE_CHECKING:
    from dgw.model import Record, Run
    from dgw.workbench.gate.trend import Series

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Metric = Annotated[str, typer.Option("--metric", metavar="NAME", help="The ratio that is followed.")]
Last = Annotated[int, typer.Option("--last", metavar="N", min=1, help="How many of the newest runs are read.")]
FailOnDrop = Annotated[bool, typer.Option("--fail-on-drop", help="Exit with 1 when a series dropped and stays there.")]
Anchor = Annotated[
    str,
    typer.Option(
        "--anchor", metavar="REF", help="Measure head against this release in pairs on a GPU; release: the newest tag."
    ),
]


@app.command()
def trend(
    ctx: typer.Context,
    metric: Metric = "ratio_to_cublas",
    variant: options.Variants = None,
    shape: options.Shapes = None,
    last: Last = 200,
    fail_on_drop: FailOnDrop = False,
    anchor: Anchor = "",
    suite: options.Suite = "",
    kernels: options.Kernels = None,
    json: options.AsJson = False,
) -> None:
    """Stored nightly runs over time: ratios to cuBLAS, each series with its library version, and where they step.

    A gate lets each small loss pass; --anchor adds them up, by measuring head against the last release in pairs.
    """
    if anchor:
        _anchored(anchor, suite, variant, shape, kernels, json, tuple(ctx.obj or ()))
    from dgw.workbench.gate.trend import series_of, with_steps

    series = series_of(_chosen(_runs(last), split(variant), split(shape)), metric)
    if not series:
        raise NotComparable(
            f"no stored run has {metric}", "dgw profile --suite seeds --against cublas, every night, on a GPU"
        )
    with tempfile.TemporaryDirectory(prefix="dgw-trend-") as folder:
        found, rule = with_steps(series, _otava(), Path(folder))
    _print(found, rule, json)
    dropped = any(one.open_drop is not None for one in found)
    raise typer.Exit(int(Exit.WRONG if fail_on_drop and dropped else Exit.OK))


def _runs(last: int) -> list[Run]:
    from dgw.workbench.store import open_store

    store = open_store(looking=True)
    return [store.run(summary.id) for summary in store.runs(last)]


def _chosen(runs: list[Run], variants: list[str], shapes: list[str]) -> list[Run]:
    def wanted(record: Record) -> bool:
        names = (record.case.variant, record.case.variant.partition("/")[2])
        return (not variants or any(name in variants for name in names)) and (
            not shapes or record.case.problem.shape in shapes
        )

    return [msgspec.structs.replace(run, records=tuple(filter(wanted, run.records))) for run in runs]


def _otava() -> Path | None:
    """apache-otava, which pins its own libraries and therefore lives in an environment of its own."""
    named = os.environ.get("DGW_OTAVA")
    if named and not Path(named).is_file():
        raise UsageError(f"DGW_OTAVA names {Path(named).name}, which is not there", "DGW_OTAVA=VENV/bin/otava")
    found = named or shutil.which("otava")
    return Path(found) if found else None


def _print(series: list[Series], rule: str, as_json: bool) -> None:
    from dgw.commands.console import colour, say
    from dgw.reports import trend as report

    if as_json:
        content = {"schema": "dgw.trend/1", "rule": rule, "series": msgspec.to_builtins(series)}
        say(msgspec.json.format(msgspec.json.encode(content), indent=1).decode())
    else:
        say(report.render(series, rule, colour()))


def _anchored(
    anchor: str,
    suite: str,
    variant: options.Variants,
    shape: options.Shapes,
    kernels: Path | None,
    as_json: bool,
    arguments: tuple[str, ...],
) -> None:
    """A gate of the widest plan against a release; what it finds is kept as an anchor (typer.Exit)."""
    from dgw.commands.gate_time import TimePick, time_gate
    from dgw.workbench.gate.trees import latest_release

    ref = latest_release(Path.cwd()) if anchor == "release" else anchor
    pick = TimePick(suite=suite, variant=variant, shape=shape, kernels=kernels, base=ref, plan="release")
    gate_output.publish(time_gate(pick, arguments, kind="anchor"), gate_output.Outputs(json=as_json))
