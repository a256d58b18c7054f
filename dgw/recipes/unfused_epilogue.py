"""What follows the product done by kernels of its own, which read and write all of D again."""

from __future__ import annotations

from dgw.model import Evidence, Finding
from dgw.recipes import launches
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe, found


def applies(facts: Facts) -> bool:
    """Problems that ask for more than the product."""
    problem = facts.problem
    more = problem.epilogue.activation != "none" or problem.epilogue.quantise != "none"
    return problem.known and (more or problem.bias is not None or problem.residual is not None)


def judge(facts: Facts) -> Finding | None:
    """Kernels beside the largest, their cycles, and the bytes that they move. Without cycles, what those after the
    product take at least. Kernels before the product, which copy operands to where it can read them, are no
    epilogue."""
    kernels = facts.launches
    if kernels < 2 or kernels == facts.product + 1:
        return None
    each = [
        float(m.value)
        for m in facts.record.measurements
        if m.metric == "elapsed_cycles" and m.scope.startswith("kernel ") and isinstance(m.value, int | float)
    ]
    moved, cycles = _moved(facts), _cycles(facts)
    own = max(launches.product(facts).cycles or facts.cycles, launches.issue_slots(facts, facts.product) or 0.0)
    share = 1 - max(each) / sum(each) if len(each) > 1 else cycles / (cycles + own)
    evidence = [
        Evidence(metric="kernels", value=kernels, threshold=1.0, why="with a fused epilogue"),
        Evidence(metric="share of the cycles outside the product", value=share),
        Evidence(metric="bytes read and written again", value=moved, threshold=0.0),
    ]
    slots = [launches.issue_slots(facts, place) for place in _after(facts)]
    if counted := [number for number in slots if number is not None]:
        why = "cycles of the product"
        evidence.append(Evidence(metric="issue slots outside the product", value=sum(counted), threshold=own, why=why))
    verdict = (
        f"unfused epilogue: {kernels} kernels, and those beside the product take {100 * share:.0f} % of the time to "
        f"read and write {moved / 1e6:.3g} MB again"
    )
    return found(RECIPE.name, verdict, share, evidence, facts.command(variant="cuda/fused-epilogue"))


def _after(facts: Facts) -> range:
    """The launches after the product."""
    return range(facts.product + 1, facts.launches)


def _moved(facts: Facts) -> float:
    """Bytes that the launches after the product read and write: as counted, else D once each."""
    once = 2 * facts.bytes_of_d
    counted = [launches.bytes_moved(facts, place) for place in _after(facts)]
    return sum(once if moved is None else moved for moved in counted)


def _cycles(facts: Facts) -> float:
    """Cycles that the launches after the product take at least: instructions or bytes, whichever take longer."""
    device = facts.device
    once = 2 * facts.bytes_of_d / device.dram_bytes_per_s * device.clock_hz
    return sum(launches.least_cycles(facts, place) or once for place in _after(facts))


RECIPE = Recipe(
    name="unfused-epilogue",
    about="what follows the product done by kernels of its own",
    needs=("elapsed_cycles|bound_time",),
    judge=judge,
    applies=applies,
)
