"""The ladder on a GPU: each rung against the one before and cuBLAS, its claims, single figures, the fused epilogue."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from parts import measure, ratio
from topic import Done, Topic, of, thin

from dgw.model import Finding, Record, Run
from dgw.workbench.metrics import resolve

FUSED = ("--bias", "--activation", "gelu", "--quantise", "row", "--out", "s8")
KEPT = (
    "time_cold", "time_hot", "tflops", "ratio_to_cublas", "ratio_to_unfused", "ratio_to_torch-compile",
    "ratio_to_tensor-core", "share_of_mma_rate", "mma_sync_rate", "dram_bytes", "conflict_ratio_ld",
    "conflict_ratio_st", "tensor_pipe_util", "fma_pipe_util", "stall_long_scoreboard", "registers_per_thread",
    "shared_mem_per_block", "spill_store_bytes", "spill_load_bytes", "achieved_occupancy", "energy", "power",
    "sm_clock",
)  # fmt: skip
FULL = (*KEPT, "throttle", "bound_time", "bound_pipe",
        *(metric.key for metric in resolve("std") if not metric.key.endswith("_per_issue")))  # fmt: skip
"""What the report of the ladder shows and its recipes read."""
LARGE, SHORT, EPILOGUE = "4096x4096x4096", "4096x4096x1024", "8192x1024x1024"


def findings(done: Done, recipe: str) -> list[Finding]:
    """What `dgw compare --json` concluded by this recipe."""
    found = msgspec.convert(json.loads(done.out).get("findings", []), type=list[Finding])
    return [finding for finding in found if finding.recipe == recipe]


def claims(topic: Topic, where: str, done: Done) -> list[Finding]:
    """A row for all claims that stages make of their counters."""
    made = findings(done, "claims")
    held = [finding for finding in made if finding.verdict.startswith("held")]
    for finding in made:
        if finding not in held:
            sys.stderr.write(f"  {finding.verdict}\n")
    topic.show(f"{where}: claims of stages that held", len(held), "", "==", max(len(made), 1))
    return made


def rungs(topic: Topic, dtype: str) -> dict[str, Any]:
    """The CUDA ladder at 4096^3: speed-ups, which are figures (some ideas pay elsewhere, or later), and claims."""
    done = topic.dgw("compare", "--family", "cuda", "--shape", LARGE, "--dtype", dtype, "--against", "cublas", "--json")
    where = f"{LARGE} {dtype}"
    for finding in findings(done, "ladder"):
        variant = finding.verdict.partition(":")[0]
        known = {evidence.metric: evidence for evidence in finding.evidence}
        before, baseline = known["speedup_over_previous"], known["ratio_to_baseline"]
        if not before.why.startswith("the first rung"):
            topic.figure(f"{where}: {variant} against the rung before, speed-up", number(before.value), "x")
        topic.figure(f"{where}: {variant} against cuBLAS", number(baseline.value), "ratio")
    top = of(done.run, "tensor-core")
    ratio(topic, f"{where}: tensor-core against cuBLAS", top.get("ratio_to_cublas"), 0.55)
    topic.show(f"{where}: tensor-core of the mma.sync rate", top.number("share_of_mma_rate"), "ratio", ">=", 0.75)
    made = claims(topic, where, done)
    spills(topic, where, done.run)
    return {"run": thin(done.run, FULL), "claims": made}


def number(value: float | int | str | None) -> float | None:
    """The value where it is a number."""
    return float(value) if isinstance(value, int | float) else None


def spills(topic: Topic, where: str, run: Run, family: str = "cuda") -> None:
    """Spills of the default configs of a family; a figure that is absent is no zero."""
    own = [record for record in run.records if record.case.variant.startswith(f"{family}/")]
    known = [r.number(metric) for r in own for metric in ("spill_store_bytes", "spill_load_bytes")]
    total = None if None in known else sum(value or 0 for value in known)
    topic.show(f"{where}: bytes spilled by default configs", total, "B", "==", 0)


def persistent(topic: Topic) -> dict[str, Any]:
    """persistent against tensor-core, interleaved with the whole ladder, where k is long and where it is short."""
    run = topic.dgw(
        "compare", "--family", "cuda", "--shape", f"{LARGE},{SHORT}", "--against", "cuda/tensor-core,cublas",
        "--counters", "none", "--json",
    ).run  # fmt: skip
    for shape, bar in ((LARGE, 1.0), (SHORT, 1.05)):
        found = at(run, shape, "cuda/persistent").get("ratio_to_tensor-core")
        ratio(topic, f"persistent against tensor-core at {shape}", found, bar)
    own = [r.number("ratio_to_cublas") or 0.0 for r in run.records if r.case.variant.startswith("cuda/")]
    topic.show("best stage against cuBLAS, of both shapes (aim)", max(own, default=0.0), "ratio", ">=", 0.60)
    return {"run": thin(run, KEPT)}


def simt(topic: Topic) -> dict[str, Any]:
    """f32 on the FMA pipe."""
    run = topic.dgw(
        "profile", "--variant", "cuda/double-buffered", "--shape", LARGE, "--dtype", "f32", "--against", "cublas",
        "--counters", "none", "--json",
    ).run  # fmt: skip
    found = of(run, "double-buffered").get("ratio_to_cublas")
    ratio(topic, "f32 double-buffered at 4096^3 nn against cuBLAS", found, 0.75)
    return {"run": thin(run, KEPT)}


def triton(topic: Topic) -> dict[str, Any]:
    """Triton's persistent kernel."""
    shapes = (LARGE, "8192x8192x8192")
    run = topic.dgw(
        "profile", "--variant", "triton/persistent", "--shape", ",".join(shapes), "--against", "cublas", "--counters",
        "none", "--json",
    ).run  # fmt: skip
    for shape in shapes:
        found = at(run, shape, "triton/persistent").get("ratio_to_cublas")
        ratio(topic, f"Triton persistent against cuBLAS at {shape}", found, 0.95)
    return {"run": thin(run, KEPT)}


def at(run: Run, shape: str, variant: str) -> Record:
    """The record of a variant at a shape."""
    return next(r for r in run.records if (r.case.problem.shape, r.case.variant) == (shape, variant))


def fused(topic: Topic, shape: str, bar: float) -> dict[str, Any]:
    """One kernel against the sequence of torch operations and against torch.compile, with the bytes of each."""
    done = topic.dgw(
        "compare", "--variant", "cuda/fused-epilogue", "--shape", shape, *FUSED, "--against", "unfused,torch-compile",
        "--counters", "quick,conflict_ratio_ld", "--json", limit_s=240,
    )  # fmt: skip
    run, what = done.run, f"bias + GELU + per-row s8 at {shape}: fused"
    own = at(run, shape, "cuda/fused-epilogue")
    problem = own.case.problem
    compared = own.check.compared if own.check else 0
    topic.show(f"{what}, elements of D that were compared", compared, "", "==", problem.m * problem.n)
    ratio(topic, f"{what} against the unfused sequence", own.get("ratio_to_unfused"), bar)
    topic.show(f"{what} against torch.compile (aim)", own.number("ratio_to_torch-compile"), "ratio", ">=", 1.0)
    mine = own.number("dram_bytes")
    for other, name in (("baselines/unfused", "the unfused sequence"), ("baselines/torch-compile", "torch.compile")):
        theirs = at(run, shape, other).number("dram_bytes")
        topic.show(f"{what}, its DRAM bytes of those of {name}", mine / theirs if mine and theirs else None, "ratio",
                   "<" if other.endswith("unfused") else "<=", 1.0)  # fmt: skip
    return {"run": thin(run, KEPT), "claims": claims(topic, what, done)}


def first(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Runs of one part as one, for tables; the claims of all."""
    runs = [part["run"] for part in parts]
    whole = msgspec.structs.replace(runs[0], records=tuple(record for run in runs for record in run.records))
    return {"run": whole, "claims": [claim for part in parts for claim in part.get("claims", ())]}


PARTS = {
    "rungs": lambda topic: first([rungs(topic, "f16"), rungs(topic, "bf16")]),
    "persistent": persistent,
    "simt": simt,
    "triton": triton,
    "fused": lambda topic: first([fused(topic, EPILOGUE, 1.4), fused(topic, LARGE, 1.0)]),
}


if __name__ == "__main__":
    sys.exit(measure("ladder", PARTS))
