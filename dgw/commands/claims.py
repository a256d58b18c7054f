"""`dgw claims`: what the stages claim of their counters, and whether it held in a stored run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from dgw.commands import options
from dgw.commands.console import colour, say, width
from dgw.errors import NotComparable, UsageError

if TYPE_CHECKING:
    from dgw.model import Claim, Variant

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def claims(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these. [default: all]")] = None,
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="Whether they held there (an id, or last).")] = "",
    kernels: options.Kernels = None,
    kernel: options.Kernel = None,
    json: options.AsJson = False,
) -> None:
    """What every stage claims of its counters; with --run whether it held in a stored run, and by which figures.

    A claim is judged only where both figures come from the same collector, protocol and device.
    """
    from dgw.commands import request
    from dgw.recipes.claims import statement
    from dgw.reports.json import render
    from dgw.reports.terminal import listing

    variants = request.library(options.Ask(kernels=kernels, kernel=kernel))
    declared = _declared(variants, names or ())
    if run:
        _held(run, variants, declared, json)
        return
    if json:
        say(render([{"variant": name, "claims": of} for name, of in declared.items()]))
        return
    rows = [
        (name, f"{statement(claim)}{_condition(claim)}" + (f": {claim.why}" if claim.why else ""))
        for name, of in declared.items()
        for claim in of
    ]
    say(listing(("stage", "what it claims"), rows, width(), colour()))


def _declared(variants: Mapping[str, Variant], names: list[str] | tuple[str, ...]) -> dict[str, tuple[Claim, ...]]:
    """The claims of the variants of these names (bare: of every family), lowest stage first. Raises UsageError."""
    from dgw.commands.request import nearest, rank

    order = rank(variants)
    every = {v.id: v.claims for v in sorted(variants.values(), key=lambda v: order[v.id]) if v.claims}
    chosen: dict[str, tuple[Claim, ...]] = {}
    for name in names:
        found = {one: of for one, of in every.items() if name in (one, one.partition("/")[2])}
        if not found:
            hint = f"dgw claims {nearest(name, list(every)).partition(' or ')[0]}".rstrip()
            raise UsageError(f"no variant {name} claims anything", hint if "," not in hint else "dgw claims")
        chosen |= found
    return chosen if names else every


def _condition(claim: Claim) -> str:
    only = [*claim.dtypes, *claim.layouts, *claim.when]
    return f" ({', '.join(only)} only)" if only else ""


def _held(run: str, variants: Mapping[str, Variant], declared: Mapping[str, tuple[Claim, ...]], json: bool) -> None:
    from dgw.commands.conclusions import ladders
    from dgw.recipes import claims
    from dgw.recipes.diagnosis import of
    from dgw.reports.json import render
    from dgw.reports.terminal import listing
    from dgw.workbench.store import open_store

    stored = open_store(looking=True).run(run)
    judged = []
    for records in ladders(stored, variants):
        problem, device = records[0].case.problem, of(records[0])
        if found := claims.check(records, declared, device):
            judged.append((problem, device, found))
    if not judged:
        raise NotComparable(
            f"no case of run {stored.id} is of a stage with such a claim",
            "dgw compare --family cuda --shape 4096x4096x4096 --counters std",
        )
    if json:
        say(render([{"problem": problem, "device": device.name, "claims": found} for problem, device, found in judged]))
        return
    blocks = []
    for problem, device, found in judged:
        head = f"{problem.shape} {problem.a.dtype} {problem.layout} on {device.name}"
        parts = [one.verdict.partition(": ") for one in found]
        rows = [(verdict, text) for verdict, _, text in parts]
        blocks.append(listing(("claim", head), rows, width(), colour()))
    say("\n\n".join(blocks))
