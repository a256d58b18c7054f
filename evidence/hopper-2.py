"""The Hopper family is right: ragged and random problems, how far its sums are cut off, repeats bit for bit, memcheck,
and no cliff off alignment."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from parts import Part, measure
from topic import Topic, outcomes, sample, thin

from dgw.kernels.loader import load
from dgw.model import Record, gemm
from dgw.operands import bounds
from dgw.toolchain.build import build
from dgw.toolchain.devices import device

LAYOUTS = ("nn", "nt", "tn", "tt")
BATCHES, IN_BATCH, LARGEST = 25, 400, 1500
TILES = (
    "BM=128,BN=256,CLUSTER_M=2", "BM=128,BN=128,STAGES=6,CLUSTER_M=1,CLUSTER_N=2", "BM=64,BN=64,STAGES=8,CLUSTER_M=1",
    "BM=256,BN=128,CLUSTER_M=1", "BM=128,BN=80,CLUSTER_M=1", "BM=128,BN=128,STAGES=6,CLUSTER_M=1,PINGPONG=1",
)  # fmt: skip
EPILOGUES = (
    (), ("--bias",), ("--bias", "--activation", "gelu-tanh"), ("--bias", "--activation", "relu", "--residual"),
    ("--beta", "0.5", "--alpha", "1.25"), ("--activation", "silu", "--out", "f32"),
    ("--bias", "--activation", "gelu", "--quantise", "row", "--out", "s8"),
)  # fmt: skip
PERSISTENT, MMA, CUBLAS = "hopper/persistent", "cuda/tensor-core", "baselines/cublas"
SQUARE, DEPTHS = 2048, (256, 1024, 4096, 16384)
"""As many tiles of 128x256 as SMs, nearly: nobody gains by splitting k, which would cut off shorter sums."""
LONG, MANY_TILES, SHORT = ("gelu", "gelu-tanh", "silu"), ("4096x4096", "4200x5128"), (64, 128, 192, 1024)
TURNS = "BM=128,BN=128,PINGPONG=1"
REPEATED, REPEATS = (4096, 4000, 1024), 1000
EDGES = ("127x255x95", "127x255x96", "256x512x128")  # the first copies A and B to where the copy engine reaches them
WAYS = ("COPY_AHEAD=0", "COPY_AHEAD=1")
COPIED = ("1301x1301x1301", "1501x1501x1501", "2047x2047x2047", "4095x4095x1001", "4095x4095x4095")
ALIGNED = ((1000, 1001), (2048, 2047), (4096, 4095))


def passed(topic: Topic, what: str, records: list[Record], least: int) -> list[str]:
    """Rows for the cases that ran and that passed; what failed, in words."""
    count = outcomes(records)
    asked = len(records) - count.get("refused", 0)
    topic.show(f"{what}: cases that ran", asked, "", ">=", least)
    topic.show(f"{what}: cases that passed", count.get("ok", 0), "", "==", asked)
    failed = [record for record in records if record.outcome not in ("ok", "refused")]
    return [f"{r.case.variant} {r.case.problem.shape} {r.case.problem.layout}: {r.reason}"[:300] for r in failed[:20]]


def ragged(topic: Topic, dtype: str) -> dict[str, Any]:
    """The ragged suite for every stage and layout of one type."""
    run = topic.dgw(
        "check", "--family", "hopper", "--suite", "ragged", "--dtype", dtype, "--layout", ",".join(LAYOUTS),
        "--no-store", "--json", limit_s=300,
    ).run  # fmt: skip
    failed = passed(topic, f"ragged suite, {dtype}, four layouts, 4 stages", list(run.records), 3600)
    return {"sample": sample(run), "failed": failed}


def draws(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Epilogue, tile and options of each batch: sizes, types, layouts and leading dimensions from a fixed seed.

    Both lists are gone through in turn, and their lengths share no factor: no pair comes twice in 42 batches, so each
    epilogue meets three or four tiles and each tile four or five epilogues.
    """
    rng = random.Random(20)
    for batch in range(BATCHES):
        file = folder / f"random-{batch}.csv"
        rows = [
            ",".join(
                (*(str(rng.randint(1, LARGEST)) for _ in range(3)), rng.choice(("f16", "bf16")), rng.choice(LAYOUTS))
            )
            for _ in range(IN_BATCH)
        ]
        file.write_text("m,n,k,dtype,layout\n" + "\n".join(rows) + "\n")
        widths = [part for name in ("--lda", "--ldb", "--ldd") for part in (name, str(LARGEST + rng.randint(0, 64)))]
        tile, epilogue = TILES[batch % len(TILES)], EPILOGUES[batch % len(EPILOGUES)]
        yield " ".join(epilogue), tile, ["--shapes", str(file), "--config", tile, *widths, *epilogue]


def chance(topic: Topic) -> dict[str, Any]:
    """Random sizes, layouts, types and leading dimensions, with every epilogue and several tiles for each."""
    records: list[Record] = []
    run, wrong = None, Counter[str]()
    for epilogue, tile, options in draws(topic.folder):
        run = topic.dgw("check", "--variant", PERSISTENT, *options, "--no-store", "--json").run
        records += run.records
        wrong[f"{epilogue or 'no epilogue'}; {tile}"] += sum(r.outcome not in ("ok", "refused") for r in run.records)
    assert run is not None
    failed = passed(topic, "random problems of 1..1500, types, layouts, strides, tiles, epilogues", records, 10000)
    by_epilogue = Counter[str]()
    for name, count in wrong.items():
        by_epilogue[name.partition(";")[0]] += count
    return {
        "sample": sample(run), "failed": failed, "failed by epilogue": dict(by_epilogue),
        "failed by epilogue and tile": dict(wrong),
    }  # fmt: skip


def overlaps(topic: Topic) -> dict[str, Any]:
    """Epilogues while others multiply the next tile: k shorter than that takes and longer, edges and none."""
    records: list[Record] = []
    run = None
    shapes = ",".join(f"{size}x{depth}" for size in MANY_TILES for depth in SHORT)
    for activation in LONG:
        run = topic.dgw(
            "check", "--variant", PERSISTENT, "--bias", "--activation", activation, "--dtype", "f16,bf16",
            "--layout", ",".join(LAYOUTS), "--shape", shapes, "--config", TURNS, "--no-store",
            "--json",
        ).run  # fmt: skip
        records += run.records
    assert run is not None
    asked = len(LONG) * 2 * len(LAYOUTS) * len(MANY_TILES) * len(SHORT)
    failed = passed(topic, "epilogues of many tiles, short k and long", records, asked)
    return {"sample": sample(run), "failed": failed}


def truncation(topic: Topic) -> dict[str, Any]:
    """How far the sums of the tensor cores are cut off, ours beside cuBLAS's: relative Frobenius errors of D in f32."""
    run = topic.dgw(
        "check", "--variant", f"{PERSISTENT},{MMA},{CUBLAS}", "--config", "SPLIT=1",
        "--shape", ",".join(f"{SQUARE}x{SQUARE}x{depth}" for depth in DEPTHS), "--dtype", "f16,bf16",
        "--layout", "nt", "--out", "f32", "--no-store", "--json",
    ).run  # fmt: skip
    known = {
        (r.case.variant, r.case.problem.a.dtype, r.case.problem.k): r.check.relative_error if r.check else None
        for r in run.records
    }
    for dtype in ("f16", "bf16"):
        for depth in DEPTHS:
            where = f"{dtype} nt {SQUARE}x{SQUARE}x{depth} into f32"
            ours, mma, base = (known.get((name, dtype, depth)) for name in (PERSISTENT, MMA, CUBLAS))
            topic.figure(f"{where}: relative error of cuBLAS", base, "ratio")
            topic.show(
                f"{where}: persistent's over cuBLAS's", ours / base if ours and base else None, "ratio", "<=", 1.05
            )
            topic.figure(f"{where}: cuda/tensor-core's over cuBLAS's", mma / base if mma and base else None, "ratio")
            limit = bounds.relative_limit(gemm(SQUARE, SQUARE, depth, dtype, "nt", out="f32"))
            largest = max(ours, mma, base) / limit if ours and mma and base else None
            topic.show(f"{where}: the largest of the three over the limit", largest, "ratio", "<=", 1.0)
    return {"run": thin(run)}


def repeats(topic: Topic) -> dict[str, Any]:
    """The persistent kernel again and again on the same operands: the bits of D."""
    from dgw.workbench import prepare
    from dgw.workbench.device.arena import Arena
    from dgw.workbench.device.context import Gpu
    from dgw.workbench.device.driver import Driver
    from dgw.workbench.device.inputs import Inputs
    from dgw.workbench.device.launch import Kernels, Workspaces, bind_plan

    target, variant, problem = device("h200"), load()[PERSISTENT], gemm(*REPEATED, layout="nt")
    assert variant.plan is not None
    plan = variant.plan(problem, variant.config_for(problem, target), target)
    files = []
    for number, launch in enumerate(plan.launches):
        files.append(topic.folder / f"repeated-{number}.cubin")
        files[-1].write_bytes(build(launch.source, variant.root, variant.includes, target.arch).cubin)
    code = {}
    for name, cubin in prepare.device_code(target.arch, None).items():
        code[name] = str(topic.folder / f"{name}.cubin")
        Path(code[name]).write_bytes(cubin)
    gpu = Gpu(Driver())
    try:
        kernels = Kernels(gpu)
        arena = Arena(gpu, kernels, Inputs(gpu, kernels, code["fill"]), code, problem)
        buffers, scratch = arena.sets[0], Workspaces(gpu, plan.workspaces)
        launch_all = bind_plan(gpu, kernels, problem, plan, list(map(str, files)), buffers, scratch)
        seen = set()
        for _ in range(REPEATS):
            buffers.poison("d")
            launch_all()
            gpu.synchronise()
            seen.add(sha256(gpu.download(buffers.address("d"), problem.m * problem.n * 2)).hexdigest())
        verdict = arena.check()
    finally:  # else this process would count as one that computes beside what is timed later
        gpu.driver.call("cuDevicePrimaryCtxRelease", gpu.device)
    tiles = -(-problem.m // int(plan.tile[0])) * -(-problem.n // int(plan.tile[1])) if plan.tile else 0
    topic.show("persistent repeated: tiles of D over CTAs", tiles / plan.launches[-1].grid[0], "ratio", ">", 1.0)
    topic.show(f"persistent repeated {REPEATS} times: different results", len(seen), "", "==", 1)
    topic.show("persistent repeated: the last result", verdict.detail or "right", "", "==", "right")
    return {"shape": problem.shape, "grid": plan.launches[-1].grid}


def memcheck(topic: Topic) -> dict[str, Any]:
    """memcheck on every stage, on shapes with edges."""
    run = topic.dgw(
        "check", "--family", "hopper", "--shape", ",".join(EDGES), "--layout", "nt", "--sanitize", "memcheck",
        "--no-store", "--json",
    ).run  # fmt: skip
    clean = sum(record.outcome == "ok" and record.number("memcheck_errors") == 0 for record in run.records)
    topic.show("memcheck: cases of 4 stages without a finding", clean, "", "==", 4 * len(EDGES))
    return {"run": thin(run, ("memcheck_errors",))}


def cliff(topic: Topic) -> dict[str, Any]:
    """Sizes that the copy engine cannot step through against their aligned neighbours, in every layout, and cuBLAS.

    Each is timed alone, not in turn with a kernel that takes much less or much more power: both would have its clock.
    But the device is as warm as what came before has made it: so neighbours follow one another.
    """
    alike = ("--against", "none", "--counters", "none", "--layout", ",".join(LAYOUTS), "--json")
    runs, own = [], dict[tuple[str, int], float | None]()
    for pair in ALIGNED:
        runs.append(topic.dgw("profile", "--variant", PERSISTENT, "--shape", ",".join(map(cube, pair)), *alike).run)
        own |= {(r.case.problem.layout, r.case.problem.m): r.number("time_cold") for r in runs[-1].records}
    base = topic.dgw("profile", "--variant", CUBLAS, "--shape", ",".join(cube(far) for _, far in ALIGNED), *alike).run
    others = {(r.case.problem.layout, r.case.problem.m): r.number("time_cold") for r in base.records}
    for layout, (one, other) in itertools.product(LAYOUTS, ALIGNED):
        near, far, blas = own.get((layout, one)), own.get((layout, other)), others.get((layout, other))
        ratio = far / near if near and far else None
        topic.show(f"persistent at {other}^3 over {one}^3, {layout}: time", ratio, "ratio", "<=", 1.25)
        topic.figure(
            f"persistent at {other}^3, {layout}: speed-up on cuBLAS", blas / far if blas and far else None, "ratio"
        )
    return {
        "runs": [thin(run, ("time_cold", "time_hot", "tflops")) for run in runs],
        "cublas": thin(base, ("time_cold", "tflops")), "ways": both_ways(topic, alike[:-3]),
    }  # fmt: skip


def cube(size: int) -> str:
    """A shape of three equal sizes."""
    return f"{size}x{size}x{size}"


def both_ways(topic: Topic, alike: tuple[str, ...]) -> list[dict[str, Any]]:
    """Copies before the kernel that multiplies, and by that kernel ahead of what it multiplies."""
    runs = []
    for way in WAYS:
        asked = ("--shape", ",".join(COPIED), *alike, "--layout", "nt", "--config", way, "--json")
        runs.append(topic.dgw("profile", "--variant", PERSISTENT, *asked).run)
        for record in runs[-1].records:
            shape = record.case.problem.shape
            topic.figure(f"persistent at {shape}, nt, {way}: time", record.number("time_cold"), "s")
    return [thin(run, ("time_cold",)) for run in runs]


PARTS: dict[str, Part] = {
    "f16": lambda topic: ragged(topic, "f16"),
    "bf16": lambda topic: ragged(topic, "bf16"),
    "random": chance,
    "overlaps": overlaps,
    "truncation": truncation,
    "repeats": repeats,
    "memcheck": memcheck,
    "cliff": cliff,
}

if __name__ == "__main__":
    raise SystemExit(measure("hopper-2", PARTS))
