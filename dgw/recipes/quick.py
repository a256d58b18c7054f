"""The short sequence: measure once, name what costs most, say what to do."""

from __future__ import annotations

from dgw.model import Step
from dgw.recipes import retyping
from dgw.recipes.diagnosis import clean, diagnose, serious, untold
from dgw.recipes.sequence import Request, Start, Talk, evidence, figure, metrics, untested

FIGURES = (
    "time_cold", "tflops", "bound_time", "tensor_pipe_util", "fma_pipe_util", "dram_throughput", "achieved_occupancy",
    "conflict_ratio_ld",
)  # fmt: skip


def quick(start: Start) -> Talk:
    """One measurement; the causes, the costliest first, and what the record cannot tell."""
    (record, *_) = yield Request((start.case,), "everything that a recipe needs", metrics=metrics())
    found = diagnose(record, start.device)
    nothing = clean(found) if record.outcome == "ok" else ""
    unknown = sorted(finding.recipe for finding in found if untold(finding)) if not nothing else []
    first = next((finding for finding in found if serious(finding)), None)
    if record.outcome != "ok":
        why = retyping.failed(record)
    else:
        why = f"begin with {first.recipe}: {first.next_step}" if first is not None else "nothing serious found"
    yield Step(
        title="what it costs",
        evidence=evidence(record, start.device, *FIGURES),
        findings=tuple(finding for finding in found if not untold(finding)),
        seen=(
            *([nothing] if nothing else []),
            f"{record.case.variant} at {record.case.problem.shape}: {figure(record)}",
            *([lacking] if (lacking := untested(record)) else []),
            *([f"cannot be told here: {', '.join(unknown)}"] if unknown else []),
        ),
        decision="go on" if first is not None else "stop",
        why=why,
        variant=record.case.variant,
        config=record.case.config,
    )
