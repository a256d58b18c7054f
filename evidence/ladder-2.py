"""The ladder is right and clean: ragged shapes on every stage, type and layout, sanitizers, every architecture."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from parts import measure
from topic import Topic, outcomes, sample, thin

from dgw.model import Record

STAGES = ("naive", "tiled", "swizzled", "double-buffered", "tensor-core", "fused-epilogue", "persistent")
LAYOUTS = "nn,nt,tn,tt"
DTYPES = ("f16", "bf16", "f32", "tf32")
DEVICES = {"a100": "sm_80", "a10": "sm_86", "l4": "sm_89", "h200": "sm_90a", "b200": "sm_100a"}
SMALL_SHARED = ("sm_86", "sm_89")  # three stages of the default tile do not fit there
TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")


def summary(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Thousands of checked cases as one row for each stage, type and layout; every case that failed is named."""
    rows: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    worst: dict[tuple[str, str, str], float] = defaultdict(float)
    failed: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for record in records:
        problem, check = record.case.problem, record.check
        key = (record.case.variant, problem.a.dtype, problem.layout)
        rows[key][record.outcome] += 1
        share = check.error / check.bound if check and check.error and check.bound else 0.0
        worst[key] = max(worst[key], share)
        if record.outcome not in ("ok", "refused"):
            failed[key].append(f"{problem.shape} {problem.data}: {record.outcome}: {record.reason}"[:300])
    return [
        {"variant": variant, "dtype": dtype, "layout": layout, "outcomes": dict(rows[key]),
         "worst error of bound": round(worst[key], 3), "failed": failed[key][:20]}
        for key in rows
        for variant, dtype, layout in [key]
    ]  # fmt: skip


def ragged(topic: Topic, dtype: str) -> dict[str, Any]:
    """The ragged suite for every stage and layout of one type; `refused` are the types that a stage does not take."""
    done = topic.dgw(
        "check", "--family", "cuda", "--suite", "ragged", "--dtype", dtype, "--layout", LAYOUTS, "--no-store",
        "--json", limit_s=420,
    )  # fmt: skip
    records = done.run.records
    taken = {r.case.variant for r in records if r.outcome != "refused"}
    count = outcomes(records)
    asked = len(records) - count.get("refused", 0)
    where = f"ragged suite, {dtype}, four layouts, {len(taken)} stages"
    topic.show(f"{where}: cases that ran", asked, "", ">=", 900 * len(taken))
    topic.show(f"{where}: cases that passed", count.get("ok", 0), "", "==", asked)
    refusals = {r.reason for r in records if r.outcome == "refused" and "not " + dtype not in r.reason}
    topic.show(f"{where}: refusals for another reason than the type", len(refusals), "", "==", 0)
    checks = {"command": list(done.run.command), "seconds": done.seconds, "rows": summary(records)}
    return {"checks": checks, "sample": sample(done.run)}


def more(topic: Topic) -> dict[str, Any]:
    """Data sets that see what N(0,1) does not, strided operands, C, and quantised outputs, on chosen shapes."""
    shapes, rows, last = "127x255x96,129x257x513,1793x1791x192", [], None
    sets = ("uniform", "integer", "one-hot", "outliers", "naninf", "overflow")
    asked = [("--data", name, "--dtype", "f16,bf16", "--layout", LAYOUTS) for name in sets]
    asked += [("--beta", "0.5", "--alpha", "1.25", "--dtype", "f16,f32,tf32", "--lda", "1800", "--ldb", "1800",
               "--ldd", "1803")]  # fmt: skip
    for options in asked:
        run = topic.dgw("check", "--family", "cuda", "--shape", shapes, *options, "--no-store", "--json").run
        rows.append((" ".join(options), run.records))
        last = run
    for out, per in (("s8", "row"), ("s8", "tensor"), ("e4m3", "row"), ("e4m3", "tensor")):
        options = ("--out", out, "--quantise", per, "--bias", "--residual", "--activation", "silu")
        names = ("--variant", "cuda/fused-epilogue,cuda/persistent")
        run = topic.dgw("check", *names, "--shape", shapes, *options, "--no-store", "--json").run
        rows.append((" ".join(options), run.records))
    for options_text, records in rows:
        count = outcomes(records)
        ran = len(records) - count.get("refused", 0)
        topic.show(f"{options_text}: cases that passed", count.get("ok", 0), "", "==", max(ran, 1))
    kept = {"checks": [{"options": text, "rows": summary(records)} for text, records in rows]}
    return kept | ({"sample": sample(last)} if last is not None else {})


def sanitizers(topic: Topic) -> dict[str, Any]:
    """Every stage under the four tools; all of them synchronise with barriers only."""
    run = topic.dgw(
        "check", "--family", "cuda", "--shape", "127x255x96,256x256x128", "--sanitize", ",".join(TOOLS), "--no-store",
        "--json",
    ).run  # fmt: skip
    for tool in TOOLS:
        clean = sum(record.number(f"{tool}_errors") == 0 for record in run.records)
        topic.show(f"{tool}: cases of {len(STAGES)} stages without a finding", clean, "", "==", 2 * len(STAGES))
    return {"run": thin(run, tuple(f"{tool}_errors" for tool in TOOLS))}


def architectures(topic: Topic) -> dict[str, Any]:
    """Every stage compiles for every architecture, without spills; nothing runs."""
    found: dict[str, Any] = {}
    kept = ("registers_per_thread", "shared_mem_per_block", "spill_store_bytes", "spill_load_bytes")
    for device, arch in DEVICES.items():
        fits = ("--config", "STAGES=2") if arch in SMALL_SHARED else ()
        run = topic.dgw(
            "compare", "--family", "cuda", "--shape", "4096x4096x4096", "--engine", "static", "--device", device,
            "--counters", "none", "--no-store", "--json", *fits,
        ).run  # fmt: skip
        compiled = sum(record.outcome == "ok" for record in run.records)
        spilled = [r.number(name) for r in run.records for name in ("spill_store_bytes", "spill_load_bytes")]
        topic.show(f"{arch}: stages that compile", compiled, "", "==", len(STAGES))
        total = None if None in spilled else sum(value or 0 for value in spilled)
        topic.show(f"{arch}: bytes spilled by them", total, "B", "==", 0)
        found[arch] = thin(run, kept)
    return {"run": found.pop("sm_90a"), **found}


PARTS = {
    **{dtype: (lambda topic, dtype=dtype: ragged(topic, dtype)) for dtype in DTYPES},
    "more": more,
    "sanitizers": sanitizers,
    "architectures": architectures,
}


if __name__ == "__main__":
    sys.exit(measure("ladder-2", PARTS))
