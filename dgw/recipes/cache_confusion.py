"""A time taken with operands in L2 that is read as one from DRAM, or the reverse."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe

APART = 1.2
"""Cold time over hot time from which it matters which of them is meant."""
FLAG = "cold lane with a hot L2"


def judge(facts: Facts) -> Finding | None:
    """A cold time that DRAM cannot deliver is wrong; a hot one below DRAM's is a figure of L2."""
    cold, hot = facts.number("time_cold"), facts.number("time_hot")
    flag = next((flag for flag in facts.record.flags if flag.startswith(FLAG)), "")
    needed = facts.problem.compulsory_bytes / facts.device.dram_bytes_per_s if facts.problem.known else 0.0
    evidence = (
        facts.evidence("time_cold", needed, "what DRAM needs for the operands, s"),
        facts.evidence("time_hot", needed, "what DRAM needs for the operands, s"),
        facts.evidence("l2_hit_rate"),
    )
    step = "name the lane with every figure; weights of an inference step are cold"
    if flag or (cold is not None and cold < needed):
        why = flag or f"the cold time {cold or 0:.4g} s is below the {needed:.4g} s that DRAM needs"
        return Finding(
            recipe=RECIPE.name, verdict=f"cold/hot confusion: {why}", confidence="high", evidence=evidence,
            next_step="more buffer sets than fit L2 (protocol of the time lane): " + facts.command(("time_cold",)),
        )  # fmt: skip
    if cold is None and hot is not None and hot < needed * APART:
        verdict = (
            f"cold/hot confusion: only a hot time is known, {hot * 1e6:.4g} us, which L2 delivered and DRAM could not"
        )
    elif cold and hot and cold / hot > APART:
        verdict = (
            f"cold and hot differ: {cold * 1e6:.4g} us from DRAM, {hot * 1e6:.4g} us from L2 "
            f"({cold / hot:.2f} times); only "
            "figures of the same lane may be compared"
        )
    else:
        return None
    return Finding(
        recipe=RECIPE.name,
        verdict=verdict,
        confidence="medium",
        evidence=(
            *evidence,
            Evidence(metric="cold over hot", value=cold / hot if cold and hot else None, threshold=APART),
        ),
        next_step=step,
    )


RECIPE = Recipe(
    name="cache-confusion",
    about="a time from L2 that is read as one from DRAM",
    needs=("time_hot|time_cold",),
    judge=judge,
    applies=lambda facts: facts.record.environment.engine == "gpu",
)
