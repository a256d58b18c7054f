"""The Hopper family on a GPU: speed and counters beside cuBLAS, model shapes, selector, epilogue, each choice."""

from __future__ import annotations

import itertools
import math
from statistics import median
from typing import Any

from ladder import FULL, claims, spills
from parts import Part, measure, ratio
from topic import Topic, thin

from dgw.commands.request import configs
from dgw.kernels.hopper import selector
from dgw.kernels.loader import load
from dgw.model import Record, Run, gemm
from dgw.reports.tables import config_text
from dgw.toolchain.devices import device
from dgw.workbench.sweep import race

PERSISTENT = "hopper/persistent"
CUBE, LARGE = "4096x4096x4096", "8192x8192x8192"
NK = (
    "6144x4096", "4096x4096", "28672x4096", "4096x14336", "10240x8192", "8192x8192", "57344x8192", "8192x28672",
    "4608x3584", "3584x3584", "37888x3584", "3584x18944", "2112x7168", "24576x1536", "32768x512", "7168x16384",
    "4096x7168", "7168x2048",
)  # fmt: skip
KEPT = (
    "time_cold", "time_hot", "tflops", "ratio_to_cublas", "tensor_pipe_util", "tensor_pipe_util_active", "l2_hit_rate",
    "dram_bytes", "elapsed_cycles", "conflict_ratio_st", "stall_barrier", "stall_long_scoreboard", "stall_gmma",
    "registers_per_thread", "shared_mem_per_block", "spill_store_bytes", "energy", "power", "sm_clock",
)  # fmt: skip
TURNS, TOGETHER = "BM=128,BN=128,PINGPONG=1", "BM=128,BN=256,PINGPONG=0"
ABLATION = (
    ("warpgroups in turn, tile 128x128, 6 slots", TURNS),
    ("2 slots", f"{TURNS},STAGES=2"),
    ("4 slots", f"{TURNS},STAGES=4"),
    ("registers moved to the sums", f"{TURNS},SETMAXNREG=1"),
    ("clusters of 2 that share B", f"{TURNS},CLUSTER_M=2"),
    ("clusters of 2 that share A", f"{TURNS},CLUSTER_N=2"),
    ("tiles in rows", f"{TURNS},GROUP_M=1"),
    ("groups of 8 rows of tiles", f"{TURNS},GROUP_M=8"),
    ("tile 64x256, 4 slots", "BM=64,BN=256,STAGES=4,PINGPONG=1"),
    ("warpgroups together, tile 128x256, 4 slots", TOGETHER),
    ("together, 2 slots", f"{TOGETHER},STAGES=2"),
    ("together, registers moved to the sums", f"{TOGETHER},SETMAXNREG=1"),
    ("together, clusters of 2 that share B", f"{TOGETHER},CLUSTER_M=2"),
    ("together, tile 256x128", "BM=256,BN=128,PINGPONG=0"),
    ("together, tile 128x192", "BM=128,BN=192,PINGPONG=0"),
    ("together, tile 128x128, 6 slots", "BM=128,BN=128,STAGES=6,PINGPONG=0"),
)

SELECTED = ("BM", "BN", "STAGES", "CLUSTER_M", "CLUSTER_N", "SPLIT", "GROUP_M", "PINGPONG")
"""What the selector chooses, in the order of a row of timings."""


def timed(topic: Topic, *arguments: str, limit_s: float = 240.0) -> Run:
    """Times of the persistent kernel beside cuBLAS, without counters."""
    return topic.dgw(
        "profile", "--variant", PERSISTENT, "--against", "cublas", "--counters", "none", "--json", *arguments,
        limit_s=limit_s,
    ).run  # fmt: skip


def own(run: Run, variant: str = PERSISTENT) -> list[Record]:
    """The records of one variant, in the order asked for."""
    return [record for record in run.records if record.case.variant == variant]


def speed(topic: Topic) -> dict[str, Any]:
    """f16 and bf16, nt and nn, 4096^3 and 8192^3."""
    run = timed(topic, "--dtype", "f16,bf16", "--layout", "nt,nn", "--shape", f"{CUBE},{LARGE}")
    for record in own(run):
        problem = record.case.problem
        where = f"persistent against cuBLAS, {problem.a.dtype} {problem.layout} {problem.shape}"
        ratio(topic, where, record.get("ratio_to_cublas"), 1.0)
    best = max((r.number("ratio_to_cublas") or 0.0 for r in own(run) if r.case.problem.shape == CUBE), default=0.0)
    topic.show("persistent against cuBLAS at 4096^3, best of both types and layouts (aim)", best, "ratio", ">=", 1.05)
    return {"run": thin(run, KEPT)}


def pipe(topic: Topic) -> dict[str, Any]:
    """The tensor pipe under ncu, beside cuBLAS, and the claims from rung to rung."""
    done = topic.dgw(
        "compare", "--family", "hopper", "--shape", CUBE, "--layout", "nt", "--against", "cublas", "--json", limit_s=200
    )
    run = done.run
    mine = own(run)[0].number("tensor_pipe_util")
    theirs = own(run, "baselines/cublas")[0].number("tensor_pipe_util")
    difference = mine - theirs if mine is not None and theirs is not None else None
    topic.show("tensor pipe active at 4096^3, persistent less cuBLAS", difference, "ratio", ">=", 0.0)
    topic.show("tensor pipe active at 4096^3 (aim)", mine, "ratio", ">=", 0.92)
    spills(topic, f"{CUBE} f16 nt", run, "hopper")
    return {"run": thin(run, (*KEPT, *FULL)), "claims": claims(topic, f"{CUBE} f16 nt", done)}


def geometric(values: list[float]) -> float | None:
    """The geometric mean; None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def models(topic: Topic) -> dict[str, Any]:
    """The 36 shapes of suite llm with M 128 and 4096, and two of suite seeds."""
    shapes = [f"{m}x{nk}" for m in (128, 4096) for nk in NK]
    small = ("2048x2048x2048", "1024x1024x4096")
    run = timed(topic, "--layout", "nt", "--shape", ",".join([*shapes, *small]), limit_s=300)
    found = {record.case.problem.shape: record.number("ratio_to_cublas") for record in own(run)}
    known = [value for shape in shapes if (value := found.get(shape)) is not None]
    topic.show("suite llm, M 128 and 4096: shapes timed", len(known), "", "==", len(shapes))
    topic.show("suite llm, M 128 and 4096: geometric mean against cuBLAS", geometric(known), "ratio", ">=", 1.0)
    topic.show("suite llm, M 128 and 4096: slowest shape against cuBLAS", min(known, default=None), "ratio", ">=", 0.9)
    for record in own(run):
        if record.case.problem.shape in small:
            where = f"persistent against cuBLAS at {record.case.problem.shape}"
            ratio(topic, where, record.get("ratio_to_cublas"), 0.95)
    return {"run": thin(run, KEPT)}


def epilogue(topic: Topic) -> dict[str, Any]:
    """Bias and activation over the plain kernel, three times in turn."""
    times: dict[str, list[float]] = {}
    runs = []
    for turn, activation in itertools.product(range(3), ("", "gelu-tanh", "gelu")):
        asked = ("--bias", "--activation", activation) if activation else ()
        run = topic.dgw(
            "profile", "--variant", PERSISTENT, "--against", "none", "--counters", "none", "--layout", "nt", "--shape",
            CUBE, *asked, "--no-store", "--json",
        ).run  # fmt: skip
        times.setdefault(activation, []).append(own(run)[0].number("time_cold") or math.nan)
        runs += [run] if turn == 0 else []
    for activation, bar in (("gelu-tanh", 0.03), ("gelu", 0.08)):
        pairs = [fused / plain for fused, plain in zip(times[activation], times[""], strict=True)]
        topic.show(f"bias and {activation} over the plain kernel at 4096^3", median(pairs) - 1, "ratio", "<=", bar)
    return {"run": thin(runs[0], KEPT), "times": times}


def ablation(topic: Topic) -> dict[str, Any]:
    """What each choice of the persistent kernel gives at 4096^3, with its counters."""
    asked = [part for _, config in ABLATION for part in ("--config", config)]
    run = topic.dgw(
        "profile", "--variant", PERSISTENT, "--against", "cublas", "--layout", "nt", "--shape", CUBE, "--counters",
        "tensor_pipe_util,l2_hit_rate,elapsed_cycles,dram_bytes", *asked, "--json", limit_s=240,
    ).run  # fmt: skip
    records = own(run)
    topic.show("choices measured one by one", sum(r.outcome == "ok" for r in records), "", "==", len(ABLATION))
    return {"run": thin(run, KEPT), "choices": named(records)}


def named(records: list[Record]) -> dict[str, str]:
    """Which choice each record is, by case key, in the order of ABLATION."""
    variant, problem, target = load()[PERSISTENT], records[0].case.problem, device("h200")
    found = {}
    for what, text in ABLATION:
        full = variant.config_for(problem, target, configs([text])[0])
        found |= {r.case.key: what for r in records if r.case.config == full and r.case.key not in found}
    return found


def regret(topic: Topic) -> dict[str, Any]:
    """The selector's choice against every candidate of its space, screened in one sweep a shape.

    `timings` holds all of them, for a new fit of the selector's constants (evidence/selector-fit.py).
    """
    shapes = [f"128x{nk}" for nk in ("4096x4096", "28672x4096", "8192x8192", "3584x3584", "2112x7168", "7168x16384")]
    shapes += ["4096x4096x7168", "4096x2112x7168", "2048x2048x2048", "1024x1024x4096"]
    found: dict[str, float] = {}
    timings: dict[str, Any] = {}
    variant = load()[PERSISTENT]
    for shape in shapes:
        problem = gemm(*map(int, shape.split("x")), layout="nt")
        target = device("h200")
        space = [variant.config_for(problem, target, config) for config in selector.candidates(problem, {}, target)]
        asked = [part for config in space for part in ("--config", config_text(config))]
        run = topic.dgw("sweep", "--variant", PERSISTENT, "--shape", shape, "--layout", "nt", *asked, "--json").run
        times = {config_text(r.case.config): t for r in own(run) if (t := race.screened(r)) is not None}
        timings[shape] = [
            [*(config[name] for name in SELECTED), times[config_text(config)]]
            for config in space if config_text(config) in times
        ]  # fmt: skip
        mine = times.get(config_text(variant.config_for(problem, target)))
        if mine is not None:
            found[shape] = mine / min(times.values())
    topic.show("selector against every candidate: shapes", len(found), "", "==", len(shapes))
    topic.show(
        "selector against the best candidate, geometric mean", geometric(list(found.values())), "ratio", "<=", 1.03
    )
    topic.show(
        "selector against the best candidate, worst shape", max(found.values(), default=None), "ratio", "<=", 1.10
    )
    return {"run": thin(run, KEPT), "ratios": found, "tunables": SELECTED, "timings": timings}


PARTS: dict[str, Part] = {
    "speed": speed, "pipe": pipe, "models": models, "epilogue": epilogue, "ablation": ablation, "regret": regret,
}  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(measure("hopper", PARTS))
