"""The first profile: naive, tiled and swizzled beside cuBLAS, their correctness, their counters, and what faults do."""

from __future__ import annotations

import csv
import io
import subprocess
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

from topic import ROOT, Topic, of, outcomes, thin, verdicts

from dgw.model import Record, Run
from dgw.operands.shapes import covering_shapes
from dgw.workbench.metrics import METRICS, counter_name
from dgw.workbench.store import open_store

STAGES = ("naive", "tiled", "swizzled")
SIZES = (1, 7, 16, 17, 63, 64, 65, 127, 128, 129, 255, 257)
SHAPE = "4096x4096x4096"
CARD = (
    "time_cold", "time_hot", "tflops", "ratio_to_cublas", "achieved_occupancy", "theoretical_occupancy",
    "registers_per_thread", "conflict_ratio_ld", "conflict_ratio_st", "conflict_ratio_hw_ld", "conflict_ratio_hw_st",
    "tensor_pipe_util", "dram_bytes", "dram_bandwidth", "l2_hit_rate", "energy",
)  # fmt: skip
DRILL = {
    "out-of-bounds": "wrong", "illegal-address": "crashed", "never-ends": "timed-out", "drops-last-k": "wrong",
    "too-much-shared": "launch-failed", "does-not-compile": "compile-failed",
}  # fmt: skip


def card(topic: Topic) -> Run:
    """The card's own command from a cold cache, and what its table must hold."""
    done = topic.dgw("profile", "--variant", ",".join(STAGES), "--shape", SHAPE, "--against", "cublas", "--json")
    run = done.run
    topic.show("profile of three stages beside cuBLAS at 4096^3, cold cache", done.seconds, "s", "<=", 60)
    missing = [f"{name} {metric}" for name in STAGES for metric in CARD if absent(of(run, name), metric)]
    topic.show("figures of the card that are absent without a reason of the kernel's own", len(missing), "", "==", 0)
    stalls = min(
        sum(m.metric.startswith("stall_") and m.value is not None for m in r.measurements) for r in run.records
    )
    topic.show("stall reasons known for every case", stalls, "", ">=", 3)
    return run


def known_stalls(record: Record) -> list[str]:
    """The stall reasons that have a share."""
    return [m.metric for m in record.measurements if m.metric.startswith("stall_") and m.value is not None]


def absent(record: Record, metric: str) -> bool:
    """Whether a figure is missing. A kernel without shared memory has no conflicts to show."""
    found = record.get(metric)
    no_shared = record.number("shared_mem_per_block") == 0 and metric.startswith("conflict_ratio")
    return (found is None or found.value is None) and not no_shared


def ladder(topic: Topic, run: Run) -> None:
    """What the second and third rung say of each other."""
    tiled, swizzled = of(run, "tiled"), of(run, "swizzled")
    topic.show("swizzled: excess share of load wavefronts", swizzled.number("conflict_ratio_ld"), "ratio", "==", 0.0)
    topic.show("tiled: excess share of load wavefronts", tiled.number("conflict_ratio_ld"), "ratio", ">=", 0.30)
    done = topic.dgw("profile", "--variant", "tiled", "--shape", SHAPE, "--engine", "emulator", "--json", "--no-store")
    predicted, found = of(done.run, "tiled").number("conflict_ratio_ld"), tiled.number("conflict_ratio_ld")
    off = None if predicted is None or found is None else abs(predicted - found)
    topic.show("tiled: distance of that share from what its layout predicts (emulated)", off, "ratio", "<=", 1e-6)
    command = ("profile", "--variant", "tiled,swizzled", "--shape", SHAPE, "--against", "none")
    counted = topic.dgw(*command, "--counters", "inst_per_opcode", "--no-store", "--json").run
    for opcode in ("FFMA", "LDS"):
        counts = [instructions(of(counted, name), opcode) for name in ("tiled", "swizzled")]
        apart = abs(counts[0] - counts[1]) if all(counts) else None
        topic.show(f"tiled and swizzled: difference of executed {opcode} instructions", apart, "", "==", 0)
    topic.show("tiled and swizzled: equal widths of shared accesses", widths("tiled"), "", "==", widths("swizzled"))
    slow, fast = tiled.get("time_cold"), swizzled.get("time_cold")
    if slow is None or fast is None or slow.low is None or fast.high is None:
        topic.show("swizzled against tiled: speed-up, pessimistic ends of both intervals", None, "ratio", ">", 1.0)
        return
    topic.show(
        "swizzled against tiled: speed-up, pessimistic ends of both intervals", slow.low / fast.high, "ratio", ">", 1.0
    )


def instructions(record: Record, opcode: str) -> int:
    """Warp instructions of a base opcode, as ncu counted them."""
    return sum(
        int(float(m.value))
        for m in record.measurements
        if m.metric == "inst_per_opcode" and m.scope.split(".")[0] == f"opcode {opcode}" and m.value is not None
    )


def widths(stage: str) -> str:
    """Shared-memory instructions in the machine code of a stage (default config, 4096^3), with widths in bits."""
    from dgw.kernels.loader import load
    from dgw.model import gemm
    from dgw.toolchain.build import build
    from dgw.toolchain.devices import device
    from dgw.toolchain.sass import disassemble, memory_instructions

    variant, gpu = load()[f"cuda/{stage}"], device("h200")
    assert variant.plan is not None
    launch = variant.plan(gemm(4096, 4096, 4096), variant.defaults(), gpu).launches[0]
    cubin = build(launch.source, variant.root, variant.includes, gpu.arch, None).cubin
    shared = [i for i in memory_instructions(disassemble(cubin, launch.entry)) if i.kind in ("LDS", "STS")]
    counts = Counter(f"{i.kind}.{8 * i.width}" for i in shared)
    return " ".join(f"{kind} x{count}" for kind, count in sorted(counts.items()))


def against_raw_page(topic: Topic, run: Run) -> None:
    """Every stored counter against what ncu prints of the same report, and the compiler's registers against ncu's."""
    store = open_store(str(topic.folder / "dgw.db"))
    record = of(run, "swizzled")
    report = next(artifact for artifact in record.artifacts if artifact.kind == "ncu-rep")
    path = store.artifacts.path(report)
    page = raw_page(path)
    found = [
        (f"{one.case.variant} {metric}", stored, page[one.case.key][metric])
        for one in run.records
        for metric, stored in hardware(one)
        if metric in page.get(one.case.key, {})
    ]
    differing = [name for name, stored, printed in found if not same(stored, printed)]
    topic.show("counters compared with `ncu --page raw` of the same report", len(found), "", ">=", 100)
    topic.show("stored counters that are not the printed ones, to the last digit printed", len(differing), "", "==", 0)
    apart = 0
    for name in STAGES:
        static = of(run, name).number("registers_per_thread", collector="static")
        counted = of(run, name).number("registers_per_thread", collector="ncu")
        apart += static != counted or static is None
    topic.show("stages whose static registers differ from ncu's", apart, "", "==", 0)


def same(stored: float, printed: str) -> bool:
    """Whether a number, rounded to the digits that ncu prints, is what it prints."""
    digits = len(printed.partition(".")[2])
    return abs(stored - float(printed)) <= 0.5000001 * 10.0**-digits + 1e-12 * abs(stored)


def hardware(record: Record) -> list[tuple[str, float]]:
    """(ncu's name, value in ncu's base unit) of every hardware counter of the case's kernel."""
    found = []
    for m in record.measurements:
        metric = METRICS.get(m.metric)
        if m.collector != "ncu" or m.scope != "kernel 0" or metric is None or not isinstance(m.value, int | float):
            continue
        name = counter_name(metric, record.environment.arch)
        if isinstance(name, str):
            found.append((name, m.value * 100 if name.endswith((".pct", "_pct")) or ".pct_of" in name else m.value))
    return found


def raw_page(report: Path) -> dict[str, dict[str, str]]:
    """NVTX range name -> metric -> number as printed, from the raw page in base units."""
    from dgw.workbench.tools import find_tool

    options = ("--page", "raw", "--csv", "--print-units", "base", "--print-fp")
    command = [str(find_tool("ncu")), "-i", str(report), *options]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = list(csv.reader(io.StringIO(text[text.index('"ID"') :])))
    header, found = rows[0], {}
    for row in rows[2:]:
        cells = dict(zip(header, row, strict=False))
        name = next((v for k, v in cells.items() if "dgw" in k and "Push/Pop" in k and v), "") or " ".join(row[:14])
        key = next((key for key in (word.strip('":') for word in name.replace(":", " ").split()) if len(key) == 16), "")
        found[key] = {k: v.replace(",", "") for k, v in cells.items() if number(v)}
    return found


def number(text: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True


def durations(topic: Topic) -> Run:
    """Samples against the durations that CUPTI records of the same replays."""
    done = topic.dgw(
        "profile", "--variant", "swizzled", "--shape", "1024x1024x1024", "--against", "cublas", "--counters", "none",
        "--verify-time", "--json",
    )  # fmt: skip
    run = done.run
    record = of(run, "swizzled")
    sampled, recorded = record.number("time_cold"), record.number("kernel_duration")
    off = None if sampled is None or recorded is None else abs(sampled / recorded - 1)
    topic.show("swizzled 1024^3: a launch, by the time lane's samples", sampled, "s", ">=", 100e-6)
    topic.show("its distance from CUPTI's durations of the same replays", off, "ratio", "<=", 0.03)
    topic.show("power of the board meanwhile", record.number("power"), "W", "<=", 650)
    return run


def correctness(topic: Topic) -> dict[str, Any]:
    """Every stage, dtype and layout on a pairwise covering set of awkward sizes."""
    shapes = covering_shapes(SIZES)
    path = topic.folder / "shapes.csv"
    path.write_text("m,n,k\n" + "".join(f"{m},{n},{k}\n" for m, n, k in shapes))
    done = topic.dgw(
        "check", "--variant", ",".join(STAGES), "--shapes", str(path), "--dtype", "f16,bf16,f32", "--layout",
        "nn,nt,tn,tt", "--no-store", "--json",
    )  # fmt: skip
    run = done.run
    asked = len(shapes) * len(list(product(STAGES, range(3), range(4))))
    topic.show("triples of sizes, every pair of sizes among them", len(shapes), "", ">=", 60)
    topic.show(
        "checks of stage x dtype x layout x triple that passed", outcomes(run.records).get("ok", 0), "", "==", asked
    )
    large = topic.dgw("check", "--variant", ",".join(STAGES), "--shape", "65600x16x32768", "--no-store", "--json").run
    passed = outcomes(large.records).get("ok", 0)
    topic.show("stages that pass with 2,149,580,800 elements in A", passed, "", "==", len(STAGES))
    return verdicts(run)


def drill(topic: Topic) -> Run:
    """Good kernels among bad ones in one run."""
    names = ["naive", *list(DRILL)[:3], "tiled", *list(DRILL)[3:], "swizzled"]
    done = topic.dgw(
        "profile", "--kernels", str(ROOT / "tests" / "cheats"), "--variant", ",".join(names), "--shape",
        "512x512x512", "--dtype", "f32", "--against", "none", "--counters", "quick", "--deadline", "8", "--json",
    )  # fmt: skip
    run = done.run
    for name, outcome in DRILL.items():
        topic.show(f"fault drill: outcome of {name}", of(run, name).outcome, "", "==", outcome)
    complete = sum(
        of(run, name).outcome == "ok"
        and of(run, name).number("time_hot") is not None
        and of(run, name).number("achieved_occupancy") is not None
        for name in STAGES
    )
    topic.show("fault drill: good stages complete, timed and counted, in the same run", complete, "", "==", len(STAGES))
    topic.show("fault drill: exit code", done.code, "", "==", 1)
    topic.show("fault drill: the whole run", done.seconds, "s", "<=", 90)
    return run


def main() -> None:
    """Measure, compute every verdict, write the file."""
    topic = Topic("first-profile")
    run = card(topic)
    ladder(topic, run)
    against_raw_page(topic, run)
    more = {"durations": thin(durations(topic), ("time_cold", "kernel_duration", "power")), "drill": thin(drill(topic))}
    checks = correctness(topic)
    topic.write(run, **more, checks=checks)


if __name__ == "__main__":
    main()
