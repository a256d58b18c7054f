"""Clocks held down by power or heat while the time was taken."""

from __future__ import annotations

from dgw.model import Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found
from dgw.workbench.locked_clock import clock_of

LEAST_DROP = 0.03
"""Share of the highest clock; steps of 15 MHz below it are the usual case under load."""
POWER = {"SwPowerCap", "none", "GpuIdle"}


def judge(facts: Facts) -> Finding | None:
    """The clock while the samples were taken against the highest, or the locked one, and why. Not a property of the
    kernel, so never high; held down by power alone, or for a reason that is not known, it is a note."""
    locked = clock_of(facts.record) or 0.0
    clock, highest = facts.number("sm_clock") or 0.0, locked or facts.device.clock_hz
    lost = 1 - clock / highest
    if lost < LEAST_DROP:
        return None
    reasons = facts.text("throttle") or "reason unknown"
    evidence = (
        facts.evidence("sm_clock", highest, "locked clock, Hz" if locked else "highest clock, Hz"),
        facts.evidence("power"),
        facts.evidence("temperature"),
    )
    most = f"{highest / 1e6:.0f}{' locked' if locked else ''}"
    verdict = f"throttled: the SM clock was {clock / 1e6:.0f} MHz of {most} ({reasons})"
    step = "compare at equal clocks (--lock-clocks), and use cycles, which do not depend on them"
    if locked:
        step = "lock a lower clock, which power and heat allow"
    if not facts.text("throttle") or set(reasons.replace(",", " ").split()) <= POWER:
        return Finding(
            recipe=RECIPE.name, verdict=verdict, confidence="medium", evidence=evidence, next_step=step
        )  # what works hard draws power: no cause beside the others
    return found(RECIPE.name, verdict, lost, evidence, step, sure=False)


RECIPE = Recipe(
    name="throttled",
    about="clocks held down by power or heat",
    needs=("sm_clock",),
    judge=judge,
    applies=lambda facts: facts.record.environment.engine == "gpu",
)
