"""What the emulator counts against what ncu counts at SASS level, case by case, and its bound against measured time.

The stages `double-buffered` (a ring of cp.async) and `tensor-core` (ldmatrix, mma) stand beside the three SIMT stages.
A counter is compared where the emulator's figure has the tier `exact`. What stays out is named in the file: of SIMT
stages the instructions of the tensor pipe, where ptxas makes constants (HFMA2.MMA) that PTX does not have; their matrix
instructions are compared by opcode all the same. Outputs are compared through the reference: both engines pass the
element-wise bound, so that they differ by at most twice the bound; on integer data with f32 output both must equal the
reference bit for bit. The emulator's commands run beside those of the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from topic import Done, Topic, outcomes, thin

from dgw.model import Measurement, Record, Run

STAGES = "cuda/naive,cuda/tiled,cuda/swizzled,cuda/double-buffered,cuda/tensor-core"
LADDER = STAGES + ",cuda/fused-epilogue,cuda/persistent"
SHAPES = "512x512x512,1024x1024x512,127x255x96"
COUNTERS = (
    "smem_wavefronts_sass_ld", "smem_wavefronts_sass_st", "smem_wavefronts_sass_ldsm", "smem_wavefronts_sass_stsm",
    "smem_wavefronts_sass_ldgsts", "smem_wavefronts_sass_atom", "smem_wavefronts_actual", "smem_wavefronts_ideal",
    "smem_bank_conflicts_ldsm", "smem_bank_conflicts_ldgsts", "conflict_ratio_ld", "conflict_ratio_st",
    "smem_requests_ld", "smem_requests_st", "ldsm_inst", "ldgsts_inst", "global_requests_ld", "global_requests_st",
    "global_sectors_ld", "global_sectors_st", "global_inst_ld", "global_inst_st", "mma_inst", "tensor_inst",
)  # fmt: skip
ALWAYS = ("mma_inst", "global_sectors_ld", "global_sectors_st", "global_requests_st", "smem_wavefronts_actual")
"""Exact on both engines for every case, or something is wrong."""
PROFILE = ("profile", "--variant", LADDER, "--shape", SHAPES, "--no-store", "--json")
CHECK = (
    "check", "--variant", LADDER, "--shape", "127x255x96,256x128x160", "--dtype", "f16,bf16", "--full-grid",
    "--no-store", "--json",
)  # fmt: skip
CLAIMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("N(0,1) data: outputs of both engines within the bound (so within twice the bound of each other)", ()),
    ("integer data, f32 output: outputs of both engines equal the exact result bit for bit",
     ("--data", "integer", "--out", "f32")),
)  # fmt: skip


def counted(record: Record, collector: str) -> dict[str, Measurement]:
    """The measurements of one collector for the whole case, by metric."""
    return {m.metric: m for m in record.measurements if m.collector == collector and m.scope == "case"}


def compare(silicon: Record, emulated: Record) -> dict[str, Any]:
    """One row of the table: how many counters were compared, which differ, and which are not exact here."""
    there, here = counted(silicon, "ncu"), counted(emulated, "emulator")
    both = [
        name
        for name in COUNTERS
        if name in there and name in here and None not in (there[name].value, here[name].value)
    ]
    exact = [name for name in both if here[name].tier == "exact"]
    times = [t for name in ("time_hot", "time_cold") if (t := silicon.number(name)) is not None]
    return {
        "variant": silicon.case.variant,
        "shape": silicon.case.problem.shape,
        "compared": len(exact),
        "differing": {n: [there[n].value, here[n].value] for n in exact if there[n].value != here[n].value},
        "not_exact": {n: [there[n].value, here[n].value] for n in both if n not in exact},
        "missing": [name for name in ALWAYS if name not in exact],
        "emulated": next((m.protocol for m in here.values() if m.protocol), ""),
        "bound_s": emulated.number("bound_time", collector="emulator"),
        "time_s": min(times, default=None),
    }


def judge(topic: Topic, silicon: Run, emulated: Run) -> list[dict[str, Any]]:
    """The rows of the table, and what is claimed of them."""
    by_key = {record.case.key: record for record in emulated.records}
    rows = [compare(record, by_key[record.case.key]) for record in silicon.records if record.case.key in by_key]
    topic.show("cases measured on both engines", len(rows), "", "==", len(LADDER.split(",")) * len(SHAPES.split(",")))
    compared = sum(row["compared"] for row in rows)
    topic.show("counters compared: those that the emulator calls exact", compared, "", ">=", 20 * len(rows))
    topic.show("of them those that differ from ncu's", sum(len(row["differing"]) for row in rows), "", "==", 0)
    lacking = sorted({name for row in rows for name in row["missing"]})
    topic.show(
        "counters that ought to be exact for every case and are not", " ".join(lacking) or "none", "", "==", "none"
    )
    left_out = sorted({name for row in rows for name in row["not_exact"]})
    topic.show("counters left out somewhere because machine code and PTX differ", " ".join(left_out) or "none", "",
               "==", "tensor_inst" if left_out else "none")  # fmt: skip
    timed = [row for row in rows if row["bound_s"] and row["time_s"]]
    topic.show("cases with a bound and a measured time", len(timed), "", "==", len(rows))
    worst = max((row["bound_s"] / row["time_s"] for row in timed), default=None)
    topic.show("largest ratio of the emulator's bound to the measured time", worst, "ratio", "<=", 1.0)
    return rows


def main() -> None:
    """Measure both, compare, write."""
    topic = Topic("emulator-vs-ncu")
    with ThreadPoolExecutor(max_workers=3) as beside:

        def emulate(command: Sequence[str]) -> Future[Done]:
            return beside.submit(topic.dgw, *command, "--engine", "emulator")

        counting, *checking = [emulate(PROFILE), *(emulate((*CHECK, *options)) for _, options in CLAIMS)]
        silicon = topic.dgw(*PROFILE, "--against", "none", "--counters", "exact,tensor_inst").run
        checks = [topic.dgw(*CHECK, *options, "--engine", "gpu").run for _, options in CLAIMS]
        emulated = counting.result().run
        rows = judge(topic, silicon, emulated)
        for (claim, _), on_gpu, there in zip(CLAIMS, checks, checking, strict=True):
            runs = (on_gpu, there.result().run)
            asked = sum(outcomes(on_gpu.records).values())
            passed = min(outcomes(run.records).get("ok", 0) for run in runs)
            topic.show(claim, passed, "", "==", asked)
    kept = ("time_cold", "time_hot", "bound_time", *COUNTERS)
    topic.write(thin(silicon, kept), emulated=thin(emulated, kept), rows=rows)


if __name__ == "__main__":
    main()
