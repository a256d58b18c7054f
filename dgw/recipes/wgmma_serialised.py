"""wgmma that the compiler made wait for each other, which it says in a remark and nowhere else."""

from __future__ import annotations

import re

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found

REMARK = re.compile(r"C75\d\d")
CAUSES = {
    "C7510": "wgmma in flight across a function boundary or a condition",
    "C7511": "not enough registers for the accumulators in flight",
    "C7514": "an accumulator is touched by other instructions while in flight",
    "C7517": "accumulators are read before the wait for them",
}

UNCOUNTED = 0.5
"""Share of the time that a remark is taken to cost where the tensor pipe was not counted: an assumption, which only
puts it before what costs less; no stored record has such a remark."""


def judge(facts: Facts) -> Finding | None:
    """The remarks of ptxas are facts; their price is the slack of the tensor pipe. Where nothing was counted it is an
    assumption, and never of high confidence."""
    remarks = [flag for flag in facts.record.flags if REMARK.search(flag)]
    if not remarks:
        return None
    code = REMARK.search(remarks[0])
    name = code[0] if code else ""
    pipe = facts.number("tensor_pipe_util_active")
    cost = 1 - pipe if pipe is not None else UNCOUNTED
    assumed = Evidence(
        metric="share of the time", value=UNCOUNTED, why="an assumption: the tensor pipe was not counted"
    )
    evidence = (
        Evidence(metric=name, value=len(remarks), threshold=0.0, why=CAUSES.get(name, remarks[0])),
        facts.evidence("tensor_pipe_util_active"),
        facts.evidence("stall_gmma"),
        facts.evidence("spill_store_bytes"),
        *((assumed,) if pipe is None else ()),
    )
    verdict = f"wgmma serialised ({name}: {CAUSES.get(name, 'as ptxas remarks')}): the compiler put waits between them"
    step = (
        "accumulators of at most 128 registers a thread, touched only after wgmma.wait_group 0, no branch around wgmma"
    )
    return found(RECIPE.name, verdict, cost, evidence, step, sure=pipe is not None)


RECIPE = Recipe(
    name="wgmma-serialised",
    about="wgmma that the compiler made wait for each other",
    needs=("registers_per_thread",),
    judge=judge,
    applies=lambda facts: facts.device.arch in ("sm_90a", "sm_90"),
)
