"""The short sequence: measure once, name what costs most, say what to do."""

from __future__ import annotations

from dgw.model import Step
from dgw.recipes import retyping
from dgw.recipes.diagnosis import diagnose, untold
from dgw.recipes.sequence import Request, Start, Talk, evidence, figure, metrics, untested

FIGURES = (
    "time_cold", "tflops", "bound_time", "tensor_pipe_util", "fma_pipe_util", "dram_throughput", "achieved_occupancy",
    "conflict_ratio_ld",
)  # fmt: skip


def quick(start: Start) -> Talk:
    """One measurement; the causes, the costliest first, and what the record cannot tell."""
    (record, *_) = yield Request((start.case,), "everything that a recipe needs", metrics=metrics())
    found = diagnose(record, start.device)
    causes = tuple(finding for finding in found if not untold(finding))
    unknown = sorted(finding.recipe for finding in found if untold(finding))
    first = next((finding for finding in causes if finding.cost is not None), None)
    if record.outcome == "refused":
        why = f"it is not for this problem: {record.reason}; {retyping.show(record.case, '--configs')}"
    elif record.outcome != "ok":
        why = f"it is {record.outcome}: {record.reason}; its reason: {retyping.look_for_reason(record.case)}"
    elif first is None:
        why = "no recipe finds anything that costs time"
    else:
        why = first.next_step
    yield Step(
        title="what it costs",
        evidence=evidence(record, start.device, *FIGURES),
        findings=causes,
        seen=(
            f"{record.case.variant} at {record.case.problem.shape}: {figure(record)}",
            *([lacking] if (lacking := untested(record)) else []),
            *([f"cannot be told here: {', '.join(unknown)}"] if unknown else []),
        ),
        decision="stop",
        why=why,
        variant=record.case.variant,
        config=record.case.config,
    )
