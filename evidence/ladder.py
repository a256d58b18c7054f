"""The ladder on a GPU: each rung against the one before and cuBLAS, its claims, the fused epilogue, ragged shapes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from topic import Done, Topic, of, outcomes, thin, verdicts

from dgw.model import Finding, Record, Run

CUDA = ("naive", "tiled", "swizzled", "double-buffered", "tensor-core", "fused-epilogue", "persistent")
FUSED = ("--bias", "--activation", "gelu", "--quantise", "row", "--out", "s8")
KEPT = (
    "time_cold", "time_hot", "tflops", "ratio_to_cublas", "ratio_to_unfused", "ratio_to_torch-compile",
    "share_of_mma_rate", "mma_sync_rate", "dram_bytes", "conflict_ratio_ld", "conflict_ratio_st", "tensor_pipe_util",
    "fma_pipe_util", "stall_long_scoreboard", "registers_per_thread", "spill_store_bytes", "spill_load_bytes",
    "achieved_occupancy", "energy", "power", "sm_clock",
)  # fmt: skip


def findings(done: Done) -> list[Finding]:
    """What `dgw compare --json` concluded."""
    return msgspec.convert(json.loads(done.out).get("findings", []), type=list[Finding])


def rungs(topic: Topic, dtype: str, shape: str) -> tuple[Run, list[Finding]]:
    """The CUDA ladder on one shape: speed-ups and claims."""
    done = topic.dgw("compare", "--family", "cuda", "--shape", shape, "--dtype", dtype, "--against", "cublas", "--json")
    run, found = done.run, findings(done)
    where = f"{shape} {dtype}"
    for finding in (f for f in found if f.recipe == "ladder"):
        for evidence in finding.evidence:
            if evidence.metric == "speedup_over_previous" and isinstance(evidence.value, float):
                variant = finding.verdict.partition(":")[0]
                topic.show(f"{where}: {variant} against the rung before, speed-up", evidence.value, "ratio", ">=", 0.95)
    claims = [f for f in found if f.recipe == "claims"]
    held = [f for f in claims if f.verdict.startswith("held")]
    topic.show(f"{where}: claims of stages that held", len(held), "", "==", len(claims))
    top = of(run, "tensor-core")
    topic.show(f"{where}: tensor-core against cuBLAS", top.number("ratio_to_cublas"), "ratio", ">=", 0.55)
    topic.show(f"{where}: tensor-core of the mma.sync rate", top.number("share_of_mma_rate"), "ratio", ">=", 0.75)
    return run, claims


def against(first: Record, second: Record) -> float | None:
    """Cold time of the second over that of the first: above 1, the first is faster."""
    mine, other = first.number("time_cold"), second.number("time_cold")
    return None if not mine or not other else other / mine


def pairs(topic: Topic) -> list[Run]:
    """Single figures: persistent, f32 SIMT, Triton."""
    beside = ("--variant", "cuda/tensor-core,cuda/persistent", "--counters", "none")
    short = topic.dgw(
        "profile", *beside, "--shape", "4096x4096x4096,4096x4096x1024", "--against", "cublas", "--json"
    ).run
    for shape, bar in (("4096x4096x4096", 1.0), ("4096x4096x1024", 1.05)):
        records = [r for r in short.records if r.case.problem.shape == shape]
        found = {r.case.variant: r for r in records}
        ratio = against(found["cuda/persistent"], found["cuda/tensor-core"])
        topic.show(f"persistent against tensor-core at {shape}", ratio, "ratio", ">=", bar)
    best = max((r.number("ratio_to_cublas") or 0.0 for r in short.records), default=0.0)
    topic.show("persistent or tensor-core against cuBLAS, best of both shapes (aim)", best, "ratio", ">=", 0.60)
    simt = topic.dgw(
        "profile", "--variant", "cuda/double-buffered", "--shape", "4096x4096x4096", "--dtype", "f32", "--against",
        "cublas", "--counters", "none", "--json",
    ).run  # fmt: skip
    ratio = of(simt, "double-buffered").number("ratio_to_cublas")
    topic.show("f32 double-buffered at 4096^3 nn against cuBLAS", ratio, "ratio", ">=", 0.75)
    triton = topic.dgw(
        "profile", "--variant", "triton/persistent", "--shape", "4096x4096x4096,8192x8192x8192", "--against", "cublas",
        "--counters", "none", "--json",
    ).run  # fmt: skip
    for record in (r for r in triton.records if r.case.variant == "triton/persistent"):
        ratio = record.number("ratio_to_cublas")
        topic.show(f"Triton persistent against cuBLAS at {record.case.problem.shape}", ratio, "ratio", ">=", 0.95)
    return [short, simt, triton]


def fused(topic: Topic) -> Run:
    """One kernel against the sequence of torch operations and against torch.compile, with the bytes of each."""
    done = topic.dgw(
        "profile", "--variant", "cuda/fused-epilogue", "--shape", "4096x4096x4096,8192x1024x1024", *FUSED, "--against",
        "unfused,torch-compile", "--counters", "quick", "--json", limit_s=240,
    )  # fmt: skip
    run = done.run
    for shape, bar in (("4096x4096x4096", 1.0), ("8192x1024x1024", 1.4)):
        found = {r.case.variant: r for r in run.records if r.case.problem.shape == shape}
        own, unfused = found["cuda/fused-epilogue"], found.get("baselines/unfused")
        what = f"bias + GELU + per-row s8 at {shape}: fused"
        topic.show(f"{what} against the unfused sequence", own.number("ratio_to_unfused"), "ratio", ">=", bar)
        topic.show(f"{what} against torch.compile", own.number("ratio_to_torch-compile"), "ratio", ">=", 1.0)
        mine, theirs = own.number("dram_bytes"), unfused.number("dram_bytes") if unfused else None
        share = mine / theirs if mine and theirs else None
        topic.show(f"{what}, DRAM bytes of the unfused sequence's", share, "ratio", "<=", 1.0)
    return run


def correct(topic: Topic) -> dict[str, Any]:
    """The ragged suite for every stage, dtype and layout."""
    done = topic.dgw(
        "check", "--family", "cuda", "--suite", "ragged", "--dtype", "f16,bf16,f32,tf32", "--layout", "nn,nt,tn,tt",
        "--no-store", "--json", limit_s=420,
    )  # fmt: skip
    run = done.run
    asked = len(run.records) - outcomes(run.records).get("refused", 0)
    passed = outcomes(run.records).get("ok", 0)
    topic.show("ragged suite: cases that ran (stage x dtype x layout x shape)", asked, "", ">=", 10000)
    topic.show("ragged suite: cases that passed", passed, "", "==", asked)
    return verdicts(run)


def sanitized(topic: Topic) -> Run:
    """Every stage under the four tools."""
    done = topic.dgw(
        "check", "--family", "cuda", "--shape", "127x255x96,256x256x128", "--sanitize",
        "memcheck,racecheck,initcheck,synccheck", "--no-store", "--json",
    )  # fmt: skip
    run = done.run
    for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
        clean = sum(record.number(f"{tool}_errors") == 0 for record in run.records)
        topic.show(f"{tool}: cases without a finding", clean, "", "==", len(run.records))
    return run


def spills(topic: Topic, runs: Sequence[Run]) -> None:
    """Spills of the default configs."""
    own = [r for run in runs for r in run.records if r.case.variant.startswith("cuda/")]
    spilled = sum((r.number("spill_store_bytes") or 0) + (r.number("spill_load_bytes") or 0) for r in own)
    topic.show("bytes spilled by default configs", spilled, "B", "==", 0)


def main() -> None:
    """Measure, compute every verdict, write the file."""
    topic = Topic("ladder")
    half, claims = rungs(topic, "f16", "4096x4096x4096")
    brain, more = rungs(topic, "bf16", "4096x4096x4096")
    singles = pairs(topic)
    epilogue = fused(topic)
    clean = sanitized(topic)
    spills(topic, [half, brain, *singles, epilogue])
    checks = correct(topic)
    rest = {f"run{number}": thin(run, KEPT) for number, run in enumerate([brain, *singles, epilogue, clean])}
    topic.write(thin(half, KEPT), claims=[*claims, *more], checks=checks, **rest)


if __name__ == "__main__":
    main()
