"""`dgw check`: are the results right?"""

from __future__ import annotations

import typer

from dgw.commands import options
from dgw.commands.options import Ask, Engine, split
from dgw.errors import UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SHAPES = ("1x1x1", "17x63x65", "64x64x64", "127x255x96", "129x7x257")
"""Checked where no shape is given: the smallest, one tile, and edges on every side."""


@app.command()
@options.spread
def check(ctx: typer.Context, ask: Ask, family: options.Family = "", sanitize: options.Sanitize = None) -> None:
    """Check results against a float64 (or exact integer) reference: variants x types x layouts x shapes.

    Without --variant every stage of every family that runs here is checked. With --sanitize the same launches run again
    under compute-sanitizer, and a case with a finding is wrong.
    """
    from dgw.commands import lanes, request
    from dgw.commands.console import progress
    from dgw.commands.ending import finish
    from dgw.commands.session import Session, execute, machine

    if ask.engine is Engine.STATIC:
        raise UsageError("the engine static computes nothing that could be checked", "dgw check --engine emulator")
    where = machine(ask)
    problems = request.problems(ask, "dgw check", SHAPES)
    variants = request.library(ask)
    wanted = request.wanted(ask, split(ask.variant), family, variants, where, every=True)
    configs = request.configs(ask.config)
    cases = [case for problem in problems for case in request.cases(problem, wanted, configs, where.device)]
    passes = lanes.sanitizer(split(sanitize), where)
    session = Session(
        ask, tuple(ctx.obj or ()), variants, where, lanes=frozenset({"check", *(p.lane for p in passes)}), passes=passes
    )  # fmt: skip
    with progress("check") as bar:
        execute(session, cases, bar)
    finish(session, len(cases))
