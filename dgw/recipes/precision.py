"""The seeds' order for wrong results: index formulas, synchronisation, edges, accumulator, odd against even k tiles.

Each step can only fail for the reason in its name, given that the steps before have passed; so the first that fails
names the reason, and the walk stops there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dgw.model import Case, Evidence, Problem, Record, Step
from dgw.recipes.sequence import Request, Start, Talk, with_problem
from dgw.recipes.tiling import K_TILE

CHECK = frozenset({"check"})
EDGES = ((127, 255, 96), (1000, 1000, 1000), (65, 17, 63))
LONG = 4096
RACE = ("race", "racecheck")
"""How the reason of a wrong record begins where the emulator or racecheck saw two threads at one address."""
NEAR = 0.5
"""Share of the error bound from which an accumulator is short of bits, although the check still passes."""


def precision(start: Start) -> Talk:
    """Five checks, each on the smallest problem that can fail for its reason."""
    for title, cases, sanitise, wrong in _questions(start):
        records = yield Request(cases, title, lanes=CHECK, sanitise=sanitise)
        yield _step(title, records, wrong)


def _questions(start: Start) -> list[tuple[str, tuple[Case, ...], tuple[str, ...], str]]:
    tile = next((value for name in K_TILE if isinstance(value := start.case.config.get(name), int)), 32)
    on_gpu = start.engine == "gpu"
    races = ("racecheck",) if on_gpu else ()
    slices = [(64, 64, tile * count) for count in (1, 2, 3, 4, 5)]
    ragged = [(64, 64, tile * 3 + 8), (64, 64, tile * 4 + 8)]
    return [
        (
            "1 index formulas", _cases(start, [(64, 64, 64)], ("one-hot", "integer")), (),
            "an index formula is wrong: on 64^3 nothing else can be; the first wrong element says which row or column",
        ),
        (
            "2 synchronisation", _cases(start, [(128, 128, 4 * tile)], ("integer",)), races,
            "the same code is wrong with more k tiles, or two threads race: a barrier or a wait for copies is missing",
        ),
        (
            "3 edges", _cases(start, EDGES, ("integer",)), (),
            "whole tiles are right and ragged ones are not: what lies beyond an edge must be loaded as zero",
        ),
        (
            "4 accumulator", _cases(start, [(64, 64, LONG)], ("normal", "outliers")), (),
            "whole numbers are right and long sums are not: the accumulator, or where it is rounded, is too narrow",
        ),
        (
            "5 odd and even k tiles", _cases(start, [*slices, *ragged], ("integer",)), (),
            "it depends on how many k tiles there are: buffers are exchanged before the copy into them has landed",
        ),
    ]  # fmt: skip


def _cases(start: Start, shapes: Sequence[tuple[int, int, int]], data: Sequence[str]) -> tuple[Case, ...]:
    return tuple(with_problem(start.case, _sized(start.case.problem, size, kind)) for size in shapes for kind in data)


def _sized(problem: Problem, size: tuple[int, int, int], data: str) -> Problem:
    """The problem with other sizes: tight leading dimensions, other data, one batch item."""
    m, n, k = size
    changed = {
        name: msgspec.structs.replace(operand, ld=None) for name in ("a", "b", "c", "d", "bias", "residual")
        if (operand := getattr(problem, name)) is not None
    }  # fmt: skip
    return msgspec.structs.replace(problem, m=m, n=n, k=k, data=data, **changed)


def _step(title: str, records: Sequence[Record], wrong: str) -> Step:
    bad = [r for r in records if r.outcome not in ("ok", "refused")]
    ran = [r for r in records if r.outcome != "refused"]
    checks = [r.check for r in ran if r.check is not None and r.check.error is not None and r.check.bound]
    share = max((c.error / c.bound for c in checks if c.error is not None and c.bound), default=None)
    seen = tuple(
        f"{r.case.problem.shape} {r.case.problem.data}: {r.outcome}{': ' + r.reason if r.reason else ''}"
        for r in (bad or records)[:6]
    )
    if any(r.reason.startswith(RACE) for r in bad):
        why = "two threads race: a barrier, or a wait for copies, is missing at the line named"
    elif bad:
        why = wrong
    elif not ran:
        why = f"none of these was executed, so this step says nothing: {records[0].reason if records else ''}"
    elif title.startswith("4") and share is not None and share > NEAR:
        why = (
            f"right, but the worst error is {100 * share:.0f} % of what is allowed: "
            "the accumulator has few bits to spare"
        )
    else:
        why = f"{len(ran)} of {len(records)} ran and are right"
    return Step(
        title=title,
        evidence=(Evidence(metric="worst error over its bound", value=share, threshold=1.0),)
        if share is not None
        else (),
        seen=seen,
        decision="stop" if bad else "go on",
        why=why,
        variant=records[0].case.variant if records else "",
    )
