"""One launch of several: its own facts, and the cycles that it takes at least where none were measured."""

from __future__ import annotations

import msgspec

from dgw.model import Pointer, TensorMap, Workspace
from dgw.recipes.facts import SCHEDULERS, Facts


def alone(facts: Facts, place: int) -> Facts:
    """What is known of the launch `place` of several (scope `kernel PLACE`), as if it were all there is; of the lines
    of a source nobody knows to which launch they belong. The facts themselves where there is but one launch."""
    if facts.launches == 1:
        return facts
    scope = f"kernel {place}"
    own = tuple(msgspec.structs.replace(one, scope="case") for one in facts.record.measurements if one.scope == scope)
    plan = facts.record.plan
    if plan is not None and place < len(plan.launches):
        plan = msgspec.structs.replace(plan, steps=(plan.launches[place],), kernels=1)
    return Facts(msgspec.structs.replace(facts.record, measurements=own, plan=plan), facts.device)


def product(facts: Facts) -> Facts:
    """The facts of the launch that multiplies."""
    return alone(facts, facts.product)


def issue_slots(facts: Facts, place: int) -> float | None:
    """Cycles of an SM in which its schedulers issue the instructions of a launch; None where they are not counted."""
    own = alone(facts, place)
    executed = own.number("issued") or own.number("inst_executed")
    return None if executed is None else executed / SCHEDULERS / facts.device.sms


def bytes_moved(facts: Facts, place: int) -> float | None:
    """Bytes that a launch reads and writes, at least: what it stores, and of what it loads no more than the other
    matrices that it is given hold, each once. None where its accesses are not counted."""
    own, plan = alone(facts, place), facts.record.plan
    loaded, stored = own.number("global_bytes_ld"), own.number("global_bytes_st")
    if loaded is None or stored is None or plan is None or place >= len(plan.launches):
        return None
    given = plan.launches[place].arguments
    matrices = {one.operand for one in given if isinstance(one, Pointer | TensorMap)} - {"bias"}
    held = float(facts.problem.bytes_of(*(matrices & facts.problem.operands().keys())))
    held += sum(plan.workspaces.get(one.name, 0) for one in given if isinstance(one, Workspace))
    others = held - stored if held > stored else held  # what it reads and writes in place it holds once
    return stored + min(loaded, others)


def least_cycles(facts: Facts, place: int) -> float | None:
    """Cycles that a launch beside the product takes at least: those of its instructions or of the bytes that it moves,
    whichever are more. None where neither is counted."""
    moved = bytes_moved(facts, place)
    memory = None if moved is None else moved / facts.device.dram_bytes_per_s * facts.device.clock_hz
    known = [cycles for cycles in (issue_slots(facts, place), memory) if cycles is not None]
    return max(known) if known else None
