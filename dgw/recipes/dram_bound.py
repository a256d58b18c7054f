"""A kernel that takes as long as DRAM takes to move its bytes."""

from __future__ import annotations

from dgw.model import Finding
from dgw.recipes import unfused_epilogue
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

BUSY = 0.60
"""Share of the peak of the data sheet from which DRAM is what counts; copies reach 0.88 of it, and phases that DRAM
fills alternate with others."""
NO_CURE = 0.9
"""What is named of the share of DRAM where its bytes are needed, a convention: what can be cured and costs about as
much comes before it."""
AVOIDABLE = 2.0
"""Bytes moved over those of the operands, from which most of them need not be moved."""


def judge(facts: Facts) -> Finding | None:
    """DRAM is busier than anything else. With about the bytes of the operands that is the end of the road for this
    type; with far more, or far more written than D has, they are intermediate results."""
    share, problem = facts.share("dram"), facts.problem
    if not problem.known:
        return None
    moved, written = facts.number("dram_bytes") or 0.0, facts.number("dram_write_bytes") or 0.0
    out = facts.bytes_of_d
    factor = moved / problem.compulsory_bytes
    plan = facts.record.plan
    intermediate = (plan is not None and bool(plan.workspaces)) or written > 2 * out + problem.compulsory_bytes / 4
    if share < (BUSY / 2 if intermediate and factor > AVOIDABLE else BUSY) or share < facts.busiest[1] - 0.1:
        return None
    if factor > AVOIDABLE and (not intermediate or explained_elsewhere(facts)):
        return None  # what is read again is a matter of L2, what an epilogue moves one of fusing it
    evidence = (
        facts.evidence("dram_throughput", BUSY),
        facts.evidence("dram_bytes", problem.compulsory_bytes, "bytes of the operands"),
        facts.evidence("dram_write_bytes", out, "bytes of D"),
    )
    if factor > AVOIDABLE:
        cost = max(share, facts.slack) * (1 - 1 / factor)
        verdict = (
            f"DRAM-bound by intermediate results: {moved / 1e9:.3g} GB are moved where the operands have "
            f"{problem.compulsory_bytes / 1e9:.3g} GB, {written / 1e9:.3g} GB of them written where D has "
            f"{out / 1e9:.3g}"
        )
        return found(RECIPE.name, verdict, cost, evidence, "keep partial sums in registers: fewer parts of k, or one")
    verdict = (
        f"DRAM-bound: {100 * share:.0f} % of the peak, {moved / 1e9:.3g} GB moved where the operands have "
        f"{problem.compulsory_bytes / 1e9:.3g} GB; only fewer bytes would make it faster"
    )
    step = "a narrower type of the weights, or more rows at once (a larger M reads the same weights)"
    return found(RECIPE.name, verdict, share * NO_CURE, evidence, step, sure=False)


def explained_elsewhere(facts: Facts) -> bool:
    """Whether the bytes are those of an epilogue in kernels of its own."""
    return facts.launches > 1 and unfused_epilogue.applies(facts)


RECIPE = Recipe(
    name="dram-bound",
    about="DRAM is what the time goes to",
    needs=("dram_throughput", "dram_bytes", "dram_write_bytes"),
    judge=judge,
)
