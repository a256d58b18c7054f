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
SMALL = ((64, 64), (128, 64), (128, 128), (256, 64), (256, 128), (256, 256), (512, 512))
"""Rows and columns, and depth, of the smallest problem: the first that the kernel does not refuse."""
DEPTHS = (32, 64, 128, 16)
RACE = ("race", "racecheck")
"""How the reason of a wrong record begins where the emulator or racecheck saw two threads at one address."""
PENDING = "async-pending"
"""The same where it saw what a copy of cp.async had not brought yet."""
NEAR = 0.5
"""Share of the error bound from which an accumulator is short of bits, although the check still passes."""


def precision(start: Start) -> Talk:
    """Five checks, each on the smallest problem that can fail for its reason."""
    for title, cases, sanitise, wrong in _questions(start):
        records = yield Request(cases, title, lanes=CHECK, sanitise=sanitise)
        yield _step(title, records, wrong)


def _questions(start: Start) -> list[tuple[str, tuple[Case, ...], tuple[str, ...], str]]:
    edge, depth = _smallest(start)
    tile = _k_tile(start, edge)
    on_gpu = start.engine == "gpu"
    races = ("racecheck",) if on_gpu else ()
    slices = [(edge, edge, tile * count) for count in (1, 2, 3, 4, 5)]
    ragged = [(edge, edge, tile * 3 + 8), (edge, edge, tile * 4 + 8)]
    return [
        (
            "1 index formulas", _cases(start, [(edge, edge, depth)], ("one-hot", "integer")), (),
            f"an index formula is wrong: on {edge}x{edge}x{depth} little else can be; the first wrong element says "
            "which row or column",
        ),
        (
            "2 synchronisation", _cases(start, [(2 * edge, 2 * edge, 4 * tile)], ("integer",)), races,
            "the same code is wrong with more k tiles, or two threads race: a barrier or a wait for copies is missing",
        ),
        (
            "3 edges", _cases(start, EDGES, ("integer",)), (),
            "whole tiles are right and ragged ones are not: what lies beyond an edge must be loaded as zero",
        ),
        (
            "4 accumulator", _cases(start, [(edge, edge, LONG)], ("normal", "outliers")), (),
            "whole numbers are right and long sums are not: the accumulator, or where it is rounded, is too narrow",
        ),
        (
            "5 odd and even k tiles", _cases(start, [*slices, *ragged], ("integer",)), (),
            "it depends on how many k tiles there are: buffers are exchanged before the copy into them has landed",
        ),
    ]  # fmt: skip


def _accepted(start: Start, size: tuple[int, int, int]) -> bool:
    return all(start.accepts(case) for case in _cases(start, [size], ("integer",)))


def _smallest(start: Start) -> tuple[int, int]:
    """The first of SMALL that the kernel takes; the very first where it takes none, so that its reason is shown."""
    return next(((edge, depth) for edge, depth in SMALL if _accepted(start, (edge, edge, depth))), SMALL[0])


def _k_tile(start: Start, edge: int) -> int:
    """The depth of a k tile: declared, else the first of DEPTHS that the kernel takes once and three times."""
    declared = next((value for name in K_TILE if isinstance(value := start.case.config.get(name), int)), None)
    taken = (one for one in DEPTHS if _accepted(start, (edge, edge, one)) and _accepted(start, (edge, edge, 3 * one)))
    return declared or next(taken, DEPTHS[0])


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
    elif any(r.reason.startswith(PENDING) for r in bad):
        why = (
            "a tile is read before it is there: a wait for copies, or a barrier behind it, is missing at the line named"
        )
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
