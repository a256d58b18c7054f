"""What the emulator counts against what ncu counts at SASS level, case by case, and its bound against measured time.

The stages `double-buffered` (a ring of cp.async) and `tensor-core` (ldmatrix, mma) stand beside the three SIMT stages.
Outputs are compared through the reference: both engines pass the element-wise bound, so that they differ by at most
twice the bound; on integer data with f32 output both must equal the reference bit for bit.
"""

from __future__ import annotations

from typing import Any

from topic import Topic, outcomes, thin

from dgw.model import Measurement, Record, Run

STAGES = "cuda/naive,cuda/tiled,cuda/swizzled,cuda/double-buffered,cuda/tensor-core"
LADDER = STAGES + ",cuda/fused-epilogue,cuda/persistent"
SHAPES = "512x512x512,1024x1024x512,127x255x96"
COUNTERS = (
    "smem_wavefronts_sass_ld", "smem_wavefronts_sass_st", "smem_wavefronts_sass_ldsm", "smem_wavefronts_sass_stsm",
    "smem_wavefronts_sass_ldgsts", "smem_wavefronts_sass_atom", "smem_wavefronts_actual", "smem_wavefronts_ideal",
    "smem_bank_conflicts_ldsm", "smem_bank_conflicts_ldgsts", "conflict_ratio_ld", "conflict_ratio_st",
    "smem_requests_ld", "smem_requests_st", "ldsm_inst", "ldgsts_inst", "global_requests_ld", "global_requests_st",
    "global_sectors_ld", "global_sectors_st", "global_inst_ld", "global_inst_st", "tensor_inst", "ffma_thread_inst",
)  # fmt: skip


def counted(record: Record, collector: str) -> dict[str, Measurement]:
    """The measurements of one collector for the whole case, by metric."""
    return {m.metric: m for m in record.measurements if m.collector == collector and m.scope == "case"}


def compare(silicon: Record, emulated: Record) -> dict[str, Any]:
    """One row of the table: how many counters both have, which differ, and whether the audit was clean."""
    there, here = counted(silicon, "ncu"), counted(emulated, "emulator")
    both = [name for name in COUNTERS if name in there and name in here]
    known = [name for name in both if there[name].value is not None and here[name].value is not None]
    differing = {name: [there[name].value, here[name].value] for name in known if there[name].value != here[name].value}
    bound, time = emulated.number("bound_time", collector="emulator"), silicon.number("time_hot")
    cold = silicon.number("time_cold")
    return {
        "variant": silicon.case.variant,
        "shape": silicon.case.problem.shape,
        "dtype": silicon.case.problem.a.dtype,
        "compared": len(known),
        "differing": differing,
        "tier": here["smem_wavefronts_actual"].tier if "smem_wavefronts_actual" in here else "",
        "protocol": next((m.protocol for m in here.values() if m.protocol), ""),
        "bound_s": bound,
        "time_s": min(t for t in (time, cold) if t is not None) if time or cold else None,
    }


def main() -> None:
    """Measure both, compare, write."""
    topic = Topic("emulator-vs-ncu")
    case = ("--variant", LADDER, "--shape", SHAPES)
    silicon = topic.dgw(
        "profile", *case, "--against", "none", "--counters", "exact,tensor_inst", "--no-store", "--json"
    ).run  # fmt: skip
    emulated = topic.dgw("profile", *case, "--engine", "emulator", "--no-store", "--json").run
    by_key = {record.case.key: record for record in emulated.records}
    rows = [compare(record, by_key[record.case.key]) for record in silicon.records if record.case.key in by_key]
    clean = [row for row in rows if row["tier"] == "exact"]
    topic.show("cases measured on both engines", len(rows), "", ">=", 21)
    topic.show("cases whose audit of PTX against SASS is clean", len(clean), "", "==", len(rows))
    topic.show("counters compared in them", sum(row["compared"] for row in clean), "", ">=", 21 * 15)
    topic.show(
        "counters that differ from ncu's where the audit is clean", sum(len(r["differing"]) for r in clean), "", "==", 0
    )
    timed = [row for row in rows if row["bound_s"] and row["time_s"]]
    worst = max((row["bound_s"] / row["time_s"] for row in timed), default=None)
    topic.show("cases with a bound and a measured time", len(timed), "", "==", len(rows))
    topic.show("largest ratio of the emulator's bound to the measured time", worst, "ratio", "<=", 1.0)
    outputs(topic)
    kept = ("time_cold", "time_hot", "bound_time", *COUNTERS)
    topic.write(thin(silicon, kept), emulated=thin(emulated, kept), rows=rows)


def outputs(topic: Topic) -> None:
    """Both engines on the same data, judged element by element."""
    for claim, options in (
        ("N(0,1) data: outputs of both engines within the bound (so within twice the bound of each other)", ()),
        ("integer data, f32 output: outputs of both engines equal the exact result bit for bit",
         ("--data", "integer", "--out", "f32")),
    ):  # fmt: skip
        command = ("check", "--variant", LADDER, "--shape", "127x255x96,256x128x160", "--dtype", "f16,bf16", *options)
        runs: list[Run] = [
            topic.dgw(*command, "--engine", engine, "--full-grid", "--no-store", "--json").run
            for engine in ("gpu", "emulator")
        ]
        asked = sum(outcomes(runs[0].records).values())
        passed = min(outcomes(run.records).get("ok", 0) for run in runs)
        topic.show(claim, passed, "", "==", asked)


if __name__ == "__main__":
    main()
