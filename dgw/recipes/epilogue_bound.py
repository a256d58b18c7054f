"""Work on the finished sums that takes longer than it takes to make them."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes import launches
from dgw.recipes.facts import SCHEDULERS, Facts
from dgw.recipes.recipe import Recipe, cannot_tell, found
from dgw.recipes.wrong_path_for_m1 import FEW

AN_ELEMENT = 48.0
"""Instructions of a thread for each element of D that an epilogue may take (scale, exchange, bias, activation, round):
a bar between what was counted on an H200 (tests/data/bottlenecks.json.gz), at most 23 where the epilogue is no defect,
and 805 where one is planted."""
FMA_LOOP = 1.6
"""Instructions for each multiply-add of a warp, the widening of narrow operands included: a round figure above the 1.15
to 1.36 counted there for whole kernels with tiles."""
A_LOAD = 12.0
"""Instructions around a copy or a load of fragments (its address, its predicate, its place): the most counted there, of
`tensor` at k = 256, where all that is no product is shared out among its loads."""
SLOTS = 1.5
"""Issue slots that pass for each instruction of an epilogue, an assumption on the careful side: `slow-gelu` against the
product of `passes`, of the same records, gives 2.8, but is the only pair that tells."""

PRICE = f"cycles; an instruction is assumed to take {SLOTS:g} slots"


def applies(facts: Facts) -> bool:
    """One product in a kernel or two; more are passes. What blocks do for each other is not told from an epilogue."""
    plan = facts.record.plan
    alone = plan is None or not any(launch.together for launch in plan.launches)
    return alone and facts.problem.known and facts.launches <= 2 and min(facts.problem.m, facts.problem.n) > FEW


def beside(facts: Facts) -> tuple[float, float, float]:
    """Warp instructions that neither multiply nor bring operands, the same of a thread for each element of D, and the
    warp instructions that do multiply and bring."""
    executed, problem = facts.number("issued") or facts.number("inst_executed") or 0.0, facts.problem
    brought = facts.total("global_requests_ld", "ldsm_inst", "smem_requests_ld", "smem_requests_st")
    local = facts.local_sectors / 4
    products = facts.total("tensor_inst") if facts.uses_tensor_cores else FMA_LOOP * problem.flops / 64
    loop = products + A_LOAD * (brought + local)
    others = executed - loop
    return others, others * 32 / (problem.m * problem.n * problem.batch), loop


def judge(facts: Facts) -> Finding | None:
    """Instructions that neither multiply nor bring operands, for each element of D. They cost their share of the issue
    slots: a block that finishes its tile multiplies nothing meanwhile. Of several launches, that of the product alone
    is looked at; what the others do is no epilogue of its blocks."""
    own = launches.product(facts)
    missing = (*RECIPE.missing(own), *(("elapsed_cycles",) if facts.measured and not own.measured else ()))
    if missing:
        return cannot_tell(RECIPE, facts, missing)
    others = [launches.least_cycles(facts, place) or 0.0 for place in range(facts.launches) if place != facts.product]
    return _judge(own, facts.cycles - own.cycles if facts.measured else sum(others))


def _judge(facts: Facts, elsewhere: float) -> Finding | None:
    """The finding on the launch that multiplies; others take the cycles `elsewhere`."""
    others, each, loop = beside(facts)
    if each < AN_ELEMENT or others < loop / 2:
        return None
    slots = others / SCHEDULERS / facts.device.sms
    busy = max(facts.busy.get("tensor", 0.0), facts.busy.get("fma", 0.0), 1.0)
    whole, pipe = facts.cycles if facts.measured else slots + busy, "tensor" if facts.uses_tensor_cores else "fma"
    cost = slots / (slots + busy + elsewhere)
    if facts.measured:
        most = 1 - facts.share("tensor") if facts.uses_tensor_cores else 0.95  # meanwhile other warps multiply
        cost = min(most, 0.95, slots / facts.cycles * SLOTS) * facts.cycles / (facts.cycles + elsewhere)
    evidence = (
        Evidence(metric="instructions an element of D", value=each, threshold=AN_ELEMENT, why="without the main loop"),
        Evidence(metric="cycles of issue", value=slots, threshold=whole, why=PRICE if facts.measured else "in all"),
        facts.evidence("alu_pipe_util"),
        facts.evidence("fma_pipe_util", why="beside the products of tensor cores"),
        facts.evidence("tensor_pipe_util"),
    )
    verdict = (
        f"the epilogue takes {each:.0f} instructions for each element of "
        f"D{facts.line('stall_samples', 'inst_executed')}, "
        f"{100 * slots / whole:.0f} % of the issue slots, while the {pipe} pipe is at work "
        f"{100 * min(1.0, facts.busy.get(pipe, 0.0) / whole):.0f} %"
    )
    step = (
        "a cheaper form of the activation, or persistent blocks that copy meanwhile: dgw show cuda/persistent --source"
    )
    return found(RECIPE.name, verdict, cost, evidence, step)


RECIPE = Recipe(
    name="epilogue-bound",
    about="work on the finished sums that takes longer than making them",
    needs=("inst_executed", "tensor_inst", "global_requests_ld", "ldsm_inst"),
    judge=judge,
    applies=applies,
)
