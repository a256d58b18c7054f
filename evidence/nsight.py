"""Counters for many cases in one process, a drill of faults under ncu, timelines against samples, planted defects.

Each part can be measured alone: `python evidence/nsight.py quick drill`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from parts import Part, measure
from topic import ROOT, Topic, thin

from dgw.model import Record, Run

HUNDRED = (
    "--variant",
    "cuda/tiled,cuda/swizzled,cuda/double-buffered,cuda/tensor-core",
    "--against",
    "none",
    "--no-time",
)
SIZES = ",".join(f"{m}x{n}x256" for m in (256, 384, 512, 640, 768) for n in (256, 384, 512, 640, 768))
FAULTS = {
    "illegal-address": "crashed", "never-ends": "timed-out", "misaligned": "crashed",
    "too-much-memory": "out-of-memory", "launches-three": "ok", "launches-nothing": "wrong",
}  # fmt: skip
GOOD_SHAPES = ",".join(f"{m}x{n}x128" for m in (128, 256) for n in (128, 192, 256, 320, 384, 448, 512, 576))
FAULTY_SHAPE = "320x320x128"
DECLARATION = """
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
spec = spec_from_file_location("cheat", "{cheat}")
module = module_from_spec(spec)
spec.loader.exec_module(module)
def refuses(problem, config, device):
    return None if problem.shape == "{shape}" else "fails at {shape} only"
VARIANT = replace(module.VARIANT, id="drill/{name}", root=Path("{cheat}").parent, refuses=refuses)
"""
EXACT = ("smem_wavefronts_sass_ld", "smem_wavefronts_sass_st", "smem_requests_ld", "smem_requests_st")
HARDWARE = ("achieved_occupancy", "l2_hit_rate")
KEPT = (*EXACT, *HARDWARE, "dram_bytes", "conflict_ratio_ld", "replay_agreement", "replay_time")


def hundred(topic: Topic, counters: str, bar_s: float) -> dict[str, Run]:
    """A hundred cases with a set of counters in one command."""
    done = topic.dgw("profile", *HUNDRED, "--shape", SIZES, "--counters", counters, "--no-store", "--json")
    run = done.run
    counted = sum(r.outcome == "ok" and r.number("achieved_occupancy") is not None for r in run.records)
    topic.show(f"cases with `{counters}` counters from one command", counted, "", "==", 100)
    topic.show(f"100 cases with `{counters}` counters, whole command", done.seconds, "s", "<=", bar_s)
    return {"run": thin(run, KEPT)}


def drill(topic: Topic) -> dict[str, Run]:
    """Thirty-four good cases, alone and then among six faults."""
    good = ("--variant", "cuda/tiled,cuda/swizzled", "--dtype", "f32", "--shape", f"{GOOD_SHAPES},{FAULTY_SHAPE}")
    rest = (
        "--counters",
        "exact,achieved_occupancy,l2_hit_rate",
        "--against",
        "none",
        "--no-time",
        "--no-store",
        "--json",
    )
    clean = topic.dgw("profile", *good, *rest).run
    faulty = ",".join(f"drill/{name}" for name in FAULTS)
    mixed_variants = ("--variant", f"cuda/tiled,{faulty},cuda/swizzled", "--kernels", str(drill_folder(topic)))
    shapes = ("--dtype", "f32", "--shape", f"{GOOD_SHAPES},{FAULTY_SHAPE}")
    done = topic.dgw("profile", *mixed_variants, *shapes, "--deadline", "5", *rest, limit_s=420)
    mixed = done.run
    by_key = {record.case.key: record for record in mixed.records}
    pairs = [(record, by_key[record.case.key]) for record in clean.records]
    complete = sum(other.outcome == "ok" and other.number("achieved_occupancy") is not None for _, other in pairs)
    topic.show("fault drill: good cases complete", complete, "", "==", 34)
    differing = sum(one.number(m) != other.number(m) for one, other in pairs for m in EXACT)
    topic.show("fault drill: instruction-exact counters that differ from a clean run's", differing, "", "==", 0)
    worst = max((apart(one, other, m) for one, other in pairs for m in HARDWARE), default=None)
    topic.show("fault drill: largest relative difference of a hardware counter", worst, "ratio", "<=", 0.25)
    for name, outcome in FAULTS.items():
        seen = {r.outcome for r in mixed.records if r.case.variant == f"drill/{name}"} - {"refused"}
        topic.show(f"fault drill: outcomes of {name}", " ".join(sorted(seen)), "", "==", outcome)
    ran = [r for r in mixed.records if r.outcome != "refused"]
    topic.show("fault drill: cases that ran", len(ran), "", "==", 34 + len(FAULTS))
    three = [r for r in ran if r.case.variant == "drill/launches-three"]
    flagged = sum(any(flag.startswith("kernels:") for flag in r.flags) for r in three)
    topic.show("fault drill: rows of launches-three that say how many kernels were seen", flagged, "", "==", len(three))
    return {"run": thin(mixed, KEPT), "clean": thin(clean, KEPT)}


def drill_folder(topic: Topic) -> Path:
    """A folder of declarations: the cheats, each for one shape only, so that each fails once."""
    folder = topic.folder / "drill"
    folder.mkdir()
    for name in FAULTS:
        cheat = ROOT / "tests" / "cheats" / f"{name.replace('-', '_')}.py"
        (folder / f"{name.replace('-', '_')}.py").write_text(
            DECLARATION.format(cheat=cheat, name=name, shape=FAULTY_SHAPE)
        )
    return folder


def apart(one: Record, other: Record, metric: str) -> float:
    """Relative difference of a metric between two records of a case; infinite when one lacks it."""
    first, second = one.number(metric), other.number(metric)
    if first is None or second is None:
        return float("inf")
    return abs(first - second) / max(abs(first), 1e-12)


def timelines(topic: Topic) -> dict[str, Run]:
    """Kernel durations by nsys against event times of the same replays, of launches above 100 us."""
    run = topic.dgw(
        "profile", "--variant", "cuda/swizzled,cuda/tensor-core", "--shape", "4096x4096x4096", "--against", "none",
        "--counters", "none", "--no-time", "--timeline", "--no-store", "--json",
    ).run  # fmt: skip
    for record in run.records:
        name = f"{record.case.variant} at 4096^3"
        found = record.get("replay_agreement")
        why = record.reason or "; ".join(record.flags) or "the record has no replays"
        if found is None or not isinstance(found.value, float):
            topic.show(f"{name}: nsys durations against samples", found.absent if found else why, "ratio", "<=", 0.03)
            continue
        topic.show(f"{name}: recorded by", found.collector, "", "==", "nsys")
        topic.show(f"{name}: a launch, by events", record.number("replay_time"), "s", ">", 100e-6)
        topic.show(f"{name}: nsys durations against samples", abs(found.value - 1), "ratio", "<=", 0.03)
    return {"run": thin(run, KEPT)}


def planted(topic: Topic) -> dict[str, Run]:
    """A race and an overrun, each named with its line; both tools at the same time, on kernels of microseconds."""
    wanted = (
        ("planted", "planted/shared-race", "racecheck", "shared_race.cu:"),
        ("cheats", "cheats/out-of-bounds", "memcheck", "out_of_bounds.cu:"),
    )
    with ThreadPoolExecutor(max_workers=2) as both:
        started = [
            both.submit(
                topic.dgw, "check", "--kernels", str(ROOT / "tests" / folder), "--variant", variant, "--dtype", "f32",
                "--shape", "64x64x64", "--sanitize", tool, "--no-store", "--json",
            )
            for folder, variant, tool, _ in wanted
        ]  # fmt: skip
        finished = [one.result() for one in started]
    runs: dict[str, Run] = {}
    for (_, variant, tool, line), done in zip(wanted, finished, strict=True):
        run = done.run
        where = [defect.place for record in run.records for defect in record.defects]
        named = next((place for place in where if line in place), "")
        topic.show(f"{tool} finds the planted defect of {variant} and names its line", bool(named) * 1, "", "==", 1)
        topic.show(f"{tool} on {variant}: exit code", done.code, "", "==", 1)
        runs[tool] = thin(run)
    return runs


PARTS: dict[str, Part] = {
    "quick": lambda topic: hundred(topic, "quick", 25),
    "std": lambda topic: hundred(topic, "std", 60),
    "timelines": timelines,
    "planted": planted,
    "drill": drill,
}

if __name__ == "__main__":
    raise SystemExit(measure("nsight", PARTS))
