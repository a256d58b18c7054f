"""What follows the product done by kernels of its own, which read and write all of D again."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found


def applies(facts: Facts) -> bool:
    """Problems that ask for more than the product."""
    problem = facts.problem
    more = problem.epilogue.activation != "none" or problem.epilogue.quantise != "none"
    return problem.known and (more or problem.bias is not None or problem.residual is not None)


def judge(facts: Facts) -> Finding | None:
    """Kernels beside the largest, their cycles, and the bytes that they move; without cycles, the bytes alone. Kernels
    before the product, which copy operands to where it can read them, are no epilogue."""
    kernels = facts.launches
    if kernels < 2 or kernels == facts.product + 1:
        return None
    each = [
        float(m.value)
        for m in facts.record.measurements
        if m.metric == "elapsed_cycles" and m.scope.startswith("kernel ") and isinstance(m.value, int | float)
    ]
    passes = 2 * (kernels - 1) * facts.bytes_of_d
    cycles = passes / facts.device.dram_bytes_per_s * facts.device.clock_hz
    share = 1 - max(each) / sum(each) if len(each) > 1 else cycles / (cycles + facts.cycles)
    evidence = (
        Evidence(metric="kernels", value=kernels, threshold=1.0, why="with a fused epilogue"),
        Evidence(metric="share of the cycles outside the product", value=share),
        Evidence(metric="bytes of D read and written again", value=passes, threshold=0.0),
    )
    verdict = (
        f"unfused epilogue: {kernels} kernels, and those beside the product take {100 * share:.0f} % of the time to "
        "read and write "
        f"{passes / 1e6:.3g} MB of D again"
    )
    return found(RECIPE.name, verdict, share, evidence, facts.command(variant="cuda/fused-epilogue"))


RECIPE = Recipe(
    name="unfused-epilogue",
    about="what follows the product done by kernels of its own",
    needs=("elapsed_cycles|bound_time",),
    judge=judge,
    applies=applies,
)
