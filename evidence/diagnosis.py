"""Planted bottlenecks on a GPU: does the first finding name the planted cause, are good kernels left alone, and how
much of the time between a good kernel and its defective copy do the counters account for? And the seven steps.

`python evidence/diagnosis.py [plants|judged|seven-step]`. The part `plants` writes its run, thinned, to
tests/data/bottlenecks.json.gz, which the tests read too; `judged` applies the recipes to that file, without a GPU.
"""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import parts
from topic import ROOT, Topic, thin

from dgw.kernels.loader import load
from dgw.model import Record, Run, Step

sys.path.insert(0, str(ROOT))

from tests.bottlenecks.plants import FAMILY, GOOD, PLANTED, PLANTS, Plant

COUNTERS = "std,memory,exact,alu_pipe_util,tensor_inst,wgmma_inst,stall_samples,sm_frequency"
KEPT = ("time_cold", "time_hot", "elapsed_cycles", "tflops", "sm_clock", "power")
BEST = "hopper/persistent"
CUBE = ("--shape", "4096x4096x4096", "--dtype", "f16")
DATA = Path("tests") / "data" / "bottlenecks.json.gz"
ONE_LINE = "from tests.bottlenecks.plants import declare\n\nVARIANT = declare({name!r}, {shapes!r})\n"


def shapes() -> dict[str, list[str]]:
    """Where each kernel is measured: at its own shape, and a good one at those of its copies of the same problem."""
    found = {name: [plant.shape] for name, plant in PLANTS.items()}
    for plant in PLANTED.values():
        if plant.good and plant.shape not in found[plant.good] and alike(plant, PLANTS[plant.good]):
            found[plant.good].append(plant.shape)
    return found


def alike(plant: Plant, good: Plant) -> bool:
    """Whether two kernels compute the same but for the shape."""
    return (plant.dtype, plant.layout, plant.epilogue) == (good.dtype, good.layout, good.epilogue)


def groups() -> dict[tuple[str, str, bool], list[str]]:
    """Kernels by dtype, layout and epilogue: what one command line can ask for."""
    found: dict[tuple[str, str, bool], list[str]] = {}
    for name, plant in PLANTS.items():
        found.setdefault((plant.dtype, plant.layout, plant.epilogue), []).append(name)
    return found


def measure_plants(topic: Topic) -> Run:
    """Every kernel, with its time and counters."""
    folder, where = topic.folder / "kernels", shapes()
    folder.mkdir()
    for name in PLANTS:
        (folder / f"{name.replace('-', '_')}.py").write_text(ONE_LINE.format(name=name, shapes=where[name]))
    runs = []
    started = time.monotonic()
    for (dtype, layout, epilogue), names in groups().items():
        sizes = list(dict.fromkeys(shape for name in names for shape in where[name]))
        more = ("--bias", "--activation", "gelu") if epilogue else ()
        done = topic.dgw(
            "profile", "--kernels", str(folder), "--variant", ",".join(f"{FAMILY}/{name}" for name in names), "--shape",
            ",".join(sizes), "--dtype", dtype, "--layout", layout, *more, "--counters", COUNTERS, "--against", "none",
            "--json",
        )  # fmt: skip
        runs.append(done.run)
    topic.show("planted and good kernels, timed and counted, all commands", time.monotonic() - started, "s", "<=", 150)
    records = tuple(record for run in runs for record in run.records if record.outcome != "refused")
    return msgspec.structs.replace(runs[0], records=records)


def judged(topic: Topic) -> dict[str, Any]:
    """What the recipes say of the stored records; needs no GPU."""
    from tests.bottlenecks.judging import attributed, first_named, high_on_good

    run = msgspec.json.decode(gzip.decompress((parts.ROOT / DATA).read_bytes()), type=Run)
    named = first_named(run.records)
    for name, found in named.items():
        topic.show(f"first finding on {name}", found, "", "==", PLANTED[name].recipe)
    hit = sum(found == PLANTED[name].recipe for name, found in named.items())
    topic.show("planted kernels whose first finding names the cause", hit, "", ">=", -(-len(PLANTED) * 22 // 24))
    topic.show("planted kernels", len(PLANTED), "", ">=", 24)
    topic.show("findings of high confidence on good kernels", len(high_on_good(run.records)), "", "==", 0)
    topic.show("good kernels", len(GOOD), "", ">=", 6)
    shares = attributed(run.records)
    enough = sum(share >= 0.7 for share in shares.values())
    topic.show("pairs whose difference is accounted for by 70 % or more", enough, "", ">=", 20)
    return {"findings": said(run), "accounted": shares}


def thinned(run: Run) -> Run:
    """Without samples, artifacts, and what no recipe reads."""
    return msgspec.structs.replace(run, records=tuple(_thinned(record) for record in run.records))


def _thinned(record: Record) -> Record:
    several = record.plan is not None and len(record.plan.launches) > 1
    lines = _top_lines(record)
    kept = tuple(
        msgspec.structs.replace(m, samples=(), absent=m.absent[:80])
        for m in record.measurements
        if m.scope == "case"
        or m.scope.startswith("opcode ")
        or (
            several
            and m.scope.startswith("kernel ")
            and m.metric in ("elapsed_cycles", "dram_bytes", "duration_under_ncu")
        )
        or (m.metric, m.scope) in lines
    )
    return msgspec.structs.replace(record, measurements=kept, artifacts=(), resume_key="")


def _top_lines(record: Record, most: int = 12) -> set[tuple[str, str]]:
    by_metric: dict[str, list[tuple[float, str]]] = {}
    for m in record.measurements:
        if m.scope.startswith("line ") and isinstance(m.value, int | float):
            by_metric.setdefault(m.metric, []).append((float(m.value), m.scope))
    return {(metric, scope) for metric, found in by_metric.items() for _, scope in sorted(found)[-most:]}


def write(run: Run, folder: Path) -> None:
    """The run as the tests read it."""
    target = parts.ROOT / DATA
    text = msgspec.json.encode(run).decode().replace(f"{folder}/", "")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text.encode(), mtime=0))


def plants(topic: Topic) -> dict[str, Any]:
    """The benchmark on a GPU; its run is put where the tests, and the part `judged`, find it."""
    run = thinned(measure_plants(topic))
    write(run, topic.folder)
    right = sum(record.outcome == "ok" for record in run.records)
    topic.show("cases with a right result", right, "", "==", len(run.records))
    return {"run": thin(run, KEPT)}


def said(run: Run) -> dict[str, list[str]]:
    """What is found on every kernel, for the document."""
    from dgw.recipes.diagnosis import diagnose

    return {
        f"{r.case.variant} {r.case.problem.shape}": [
            f"{f.recipe} {f.confidence}: {f.verdict}" for f in diagnose(r, unknown=False)
        ]
        for r in run.records
    }


def seven_step(topic: Topic) -> dict[str, Any]:
    """The seven steps from naive upwards, and how far their end is from the best stage of the same ladder, with all of
    them timed in turn; what another ladder reaches stands beside it."""
    done = topic.dgw("diagnose", "--sequence", "seven-step", "--variant", "naive", *CUBE, "--json")
    (walked,) = done.printed["walks"]
    steps = walked["steps"]
    if not steps:
        raise SystemExit(f"the walk has no step (exit {done.code}):\n{done.err[-2000:]}")
    first, last = steps[0]["variant"], steps[-1]
    topic.show("last of the seven steps", last["title"], "", "==", "7 validation")
    family = first.partition("/")[0]
    ladder = [name for name, variant in load().items() if variant.family == family and variant.stage is not None]
    beside = topic.dgw("profile", "--variant", ",".join([*ladder, BEST]), *CUBE, "--counters", "none",
                       "--against", "none", "--json").run  # fmt: skip
    times = {r.case.variant: time for r in beside.records if (time := r.number("time_cold")) is not None}
    end = next((r.case.variant for r in beside.records if _is_end(r, last)), "")
    best = min((name for name in ladder if name in times), key=lambda name: times[name], default="")
    over = times[end] / times[best] if end in times and best else None
    topic.show(f"seven steps from {first} end at {last['variant']}: its time over that of the best stage of the "
               f"ladder, {best}", over, "ratio", "<=", 1.05)  # fmt: skip
    further = times[end] / times[BEST] if end in times and BEST in times else None
    topic.figure(f"{BEST}, the top of another ladder, beside the end of the walk, speed-up", further, "x")
    rungs = list(dict.fromkeys(step["variant"] for step in steps if step.get("variant")))
    topic.show("rungs that the seven steps went up", len(rungs) - 1, "", ">=", 2)
    strangers = sum(not name.startswith(f"{family}/") for name in rungs)
    topic.show("kernels of another ladder that the walk went on with", strangers, "", "==", 0)
    topic.show("seven steps: the whole walk", done.seconds, "s", "<=", 240)
    return {"run": thin(beside, KEPT), "walk": walked, "transcript": transcript(steps)}


def _is_end(record: Record, last: Mapping[str, Any]) -> bool:
    """Whether the record is of the kernel that the walk ended with, with the same tunables."""
    return record.case.variant == last["variant"] and record.case.config == last.get("config", {})


def transcript(steps: list[dict[str, Any]]) -> str:
    """The walk as the terminal shows it."""
    from dgw.reports.steps import step

    return "\n".join(step(one) for one in msgspec.convert(steps, list[Step]))


PARTS = {"plants": plants, "judged": judged, "seven-step": seven_step}


if __name__ == "__main__":
    sys.exit(parts.measure("diagnosis", PARTS))
