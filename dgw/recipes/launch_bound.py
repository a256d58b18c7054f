"""A multiplication cut into so many launches, or so small, that starting takes longer than computing."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

LAUNCH, IN_A_GRAPH = 2.4e-6, 0.9e-6
"""Seconds that a launch takes beside the work of its blocks, at most and at least. From the planted `slices` on an H200
(tests/data/bottlenecks.json.gz): the cycles that ncu counted for a launch, or the time of one in a replayed graph, less
the active cycles of a block. In a graph the caches of instructions stay warm, which ncu's cycles of a block do not
know, so that the second is too low. The rule takes the first."""
PRICE = f"an estimate, {LAUNCH * 1e6:g} us each as ncu counted on an H200 ({IN_A_GRAPH * 1e6:g} in a graph)"
MANY = 4
"""Launches from which it is a pattern and not a pass or two."""


def applies(facts: Facts) -> bool:
    """Anything whose launches are known."""
    return facts.record.plan is not None or facts.launches > 1 or facts.known("timeline_kernels")


def judge(facts: Facts) -> Finding | None:
    """Launches times what one costs, of the time; launches that also leave SMs empty cost those too. Without a GPU the
    time is the lower bound of the work and the starting on top of it."""
    seconds = facts.number("time_cold") or facts.number("time_hot")
    timed, seconds = seconds is not None, seconds or facts.cycles / facts.device.clock_hz
    kernels = max(facts.launches, int(facts.number("timeline_kernels") or 0))
    floor = kernels * LAUNCH
    if kernels < MANY or not seconds:
        return None
    work = f" of the {seconds * 1e6:.3g} us" if timed else f" on top of {seconds * 1e6:.3g} us of work at least"
    seconds = max(seconds, floor) if timed else seconds + floor
    blocks = facts.blocks
    empty = max(0.0, 1 - blocks / facts.device.sms) if blocks is not None else 0.0
    starting = floor / seconds
    cost = max(starting, (1 - 1 / kernels) * empty) if starting > 0.2 or empty > 0.2 else starting
    evidence = (
        Evidence(metric="kernels", value=kernels, threshold=1.0, why="would do"),
        Evidence(
            metric="microseconds to start them", value=floor * 1e6, threshold=seconds * 1e6, why=f"in all; {PRICE}"
        ),
        facts.evidence("gap_time"),
        Evidence(metric="blocks of a launch", value=blocks, threshold=float(facts.device.sms), why="SMs"),
    )
    verdict = f"launch-bound: starting {kernels} kernels takes up to {floor * 1e6:.3g} us{work}" + (
        f", and each fills {100 * (1 - empty):.0f} % of the SMs" if empty else ""
    )
    return found(
        RECIPE.name, verdict, cost, evidence, "one launch for all tiles, or persistent blocks: stage persistent"
    )


RECIPE = Recipe(
    name="launch-bound",
    about="so many launches that starting takes longer than computing",
    needs=("time_cold|time_hot|bound_time",),
    judge=judge,
    applies=applies,
)
