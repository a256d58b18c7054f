"""How well the pipes of an SM work beside each other, where nothing was measured.

The time is taken to be a norm of the cycles of the pipes: their sum for the norm 1, where one waits for the other, the
most of them for an infinite one. With anything in between a pipe that is nearly as busy as the busiest counts too.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isinf

from dgw.model import Evidence

PLAIN, AHEAD = 2.0, 4.0
"""Of kernels that load tiles between barriers, and of those that copy ahead. On an H200 the tiled kernels of the first
kind came to `PLAIN_SEEN`, and the best of the second to `AHEAD_SEEN` (tests/data/bottlenecks.json.gz): what is taken is
nearer to the maximum than most, so that no pipe that hides is priced too high."""
PLAIN_SEEN, AHEAD_SEEN = (1.2, 1.9), 4.5


def norm(ahead: bool) -> float:
    """The norm of a kernel whose copies run ahead of its products, or do not."""
    return AHEAD if ahead else PLAIN


def together(cycles: Iterable[float], norm: float) -> float:
    """Cycles that pipes with so many cycles of work take together."""
    each = [one for one in cycles if one > 0]
    most = max(each, default=0.0)
    return most if not each or isinf(norm) else most * sum((one / most) ** norm for one in each) ** (1 / norm)


def assumed(norm: float) -> tuple[Evidence, ...]:
    """What was taken, as evidence; nothing where it was measured."""
    if isinf(norm):
        return ()
    seen = f"at most {AHEAD_SEEN:g}" if norm == AHEAD else f"{PLAIN_SEEN[0]:g} to {PLAIN_SEEN[1]:g}"
    why = f"an estimate; 1 would be one after another, kernels of the kind came to {seen} on an H200"
    return (Evidence(metric="overlap of pipes", value=norm, why=why),)
