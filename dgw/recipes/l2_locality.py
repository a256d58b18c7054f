"""Operands read from DRAM many times, because blocks that run together do not want the same of them."""

from __future__ import annotations

from dgw.model import Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

GOOD_ORDER = 1.5
"""Readings of each input that a good order of tiles is taken to leave, an assumption: stored records of an H200 with
one have 1.0 (all of it fits in L2) to 2.8."""
LEAST_REREADS = 3.0
"""DRAM reads over the bytes of the inputs. Large operands are read again for each group of tiles even in a good order:
2.8 times is the most of stored records of an H200 with one (`square`)."""


def applies(facts: Facts) -> bool:
    """Products of which an input element is used more than a few times."""
    return facts.problem.known and min(facts.problem.m, facts.problem.n) > 64


def judge(facts: Facts) -> Finding | None:
    """What DRAM moved beyond one reading of each input, as far as DRAM or the wait for it limits the kernel."""
    read, problem = facts.number("dram_read_bytes") or 0.0, facts.problem
    inputs = problem.bytes_of("a", "b")
    rereads = read / inputs / facts.launches  # each launch begins with flushed caches under the profiler
    plan = facts.record.plan
    if rereads < LEAST_REREADS or (plan is not None and plan.workspaces):
        return None
    wasted = 1 - GOOD_ORDER / rereads
    dram = facts.share("dram")
    cost = max(
        facts.relief({"dram": wasted * facts.busy.get("dram", 0.0)}), facts.late("long_scoreboard", "barrier") * dram
    )
    evidence = (
        facts.evidence(
            "dram_read_bytes", inputs, f"each input read once; {GOOD_ORDER:g} times are assumed to be needed"
        ),
        facts.evidence("l2_hit_rate"),
        facts.evidence("dram_throughput"),
    )
    verdict = (
        f"L2 locality: DRAM delivers {read / 1e9:.3g} GB where the inputs have {inputs / 1e9:.3g} GB "
        f"({rereads:.1f} times), "
        f"L2 holds {100 * facts.total('l2_hit_rate'):.0f} % of what is asked for, and DRAM is busy "
        f"{100 * dram:.0f} % of the time"
    )
    step = "let blocks take tiles in groups of rows and start at the same k (GROUP_M of cuda/tensor-core)"
    return found(RECIPE.name, verdict, cost, evidence, step)


RECIPE = Recipe(
    name="l2-locality",
    about="operands read from DRAM many times because of the order of tiles",
    needs=("dram_read_bytes", "dram_throughput", "l2_hit_rate"),
    judge=judge,
    applies=applies,
)
