"""Sweeps and maps on one GPU: how long they take, that they lose nothing, and BK 32 or 64 on this GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from topic import Done, Topic, thin

from dgw.model import Record, Run
from dgw.reports.heatmap import Axes, grid
from dgw.reports.tables import config_text
from dgw.workbench.sweep import race

VARIANT = "cuda/tensor-core"
SHAPE = "2048x2048x2048"
FORTY_EIGHT = ("--variant", VARIANT, "--shape", SHAPE, "--sample", "48")
TWO_HUNDRED = ("--variant", VARIANT, "--shape", SHAPE, "--sample", "256", "--seed", "1")
QUESTION = (
    "--variant", VARIANT, "--shape", "4096x4096x4096", "--x", "BN", "--y", "BK", "--space", "BK=16..128 BN=32..256",
    "--fix", "GROUP_M=8,SPREAD=2",
)  # fmt: skip
MAPPED = ("conflicts", "registers", "bound")
SMALL = (
    "--variant", VARIANT, "--shape", "512x512x512", "--x", "BN", "--y", "BM", "--facet", "BK,STAGES",
    "--space", "BM=64,128 BN=64,128 BK=32,64 STAGES=2,3", "--engine", "emulator", "--metric", ",".join(MAPPED),
)  # fmt: skip
KEPT = ("time_cold", "time_hot", "tflops", race.VERDICT, "ratio_to_best", "registers_per_thread", "conflict_ratio_ld")


def timed(records: Sequence[Record]) -> int:
    """Records that were checked and have a time."""
    passed = [r for r in records if r.outcome == "ok" and r.check is not None and r.check.passed]
    return sum(race.screened(record) is not None for record in passed)


def forty_eight(topic: Topic) -> tuple[Run, Run]:
    """48 configs cold, again with --resume, and their counters."""
    first = topic.dgw("sweep", *FORTY_EIGHT, "--json")
    run = first.run
    topic.show("configs of tensor-core at 2048^3 that were checked and timed", timed(run.records), "", "==", 48)
    topic.show("48 configs at 2048^3, cold compile cache, whole command", first.seconds, "s", "<=", 12)
    raced = [race.verdict(record) for record in run.records]
    topic.show("winners of that sweep", raced.count("best"), "", "==", 1)
    again = topic.dgw("sweep", *FORTY_EIGHT, "--resume", "--json")
    topic.show("the same with --resume, whole command", again.seconds, "s", "<=", 3)
    same = sum(one == other for one, other in zip(by_key(run), by_key(again.run), strict=True))
    topic.show("records that the second run took over unchanged", same, "", "==", 48)
    counted = topic.dgw("sweep", *FORTY_EIGHT, "--counters", "quick", "--count", "all", "--resume", "--json")
    have = sum(any(m.collector == "ncu" and m.value is not None for m in r.measurements) for r in counted.run.records)
    topic.show("of the 48, those with `quick` counters afterwards", have, "", "==", 48)
    topic.show("`quick` counters for the 48, beyond the run before", more(counted, again), "s", "<=", 15)
    return run, counted.run


def by_key(run: Run) -> list[Record]:
    """The records in the order of their keys."""
    return sorted(run.records, key=lambda record: record.case.key)


def more(one: Done, than: Done) -> float:
    """Seconds that one command took beyond another."""
    return one.seconds - than.seconds


def two_hundred(topic: Topic) -> Run:
    """256 configs of another problem of the same shape (other data)."""
    done = topic.dgw("sweep", *TWO_HUNDRED, "--json")
    topic.show("of 256 configs, those checked and timed", timed(done.run.records), "", "==", 256)
    topic.show("256 configs at 2048^3, whole command", done.seconds, "s", "<=", 60)
    return done.run


def question(topic: Topic) -> tuple[Run, Run, dict[str, str]]:
    """BK 16..128 against BN 32..256, each cell the best over the other tunables; then the best of BK 32 and of 64."""
    run = topic.dgw("heatmap", *QUESTION, "--metric", "tflops", "--json").run
    made = grid(run.records, "tflops", Axes("BN", "BK"))
    told = sum(bool(square.text or square.reason) for square in made.squares)
    topic.show("cells of BK 16..128 x BN 32..256 with a value or a reason", told, "", "==", 16)
    best = {depth: fastest(run.records, depth) for depth in (32, 64)}
    configs = {depth: config_text(record.case.config) for depth, record in best.items()}
    typed = [part for text in configs.values() for part in ("--config", text)]
    pair = topic.dgw(
        "profile", "--variant", VARIANT, "--shape", "4096x4096x4096", *typed, "--against", "none", "--counters", "none",
        "--json",
    ).run  # fmt: skip
    times = {int(record.case.config["BK"]): record.get("time_cold") for record in pair.records}
    slow, fast = times.get(32), times.get(64)
    ratio = pessimistic = None
    if slow is not None and fast is not None and slow.value and fast.value and slow.low and fast.high:
        ratio, pessimistic = float(slow.value) / float(fast.value), slow.low / fast.high
    topic.figure("BK 64 against BK 32 at 4096^3, each with its best other tunables: speed-up", ratio, "ratio")
    topic.show("the same, pessimistic ends of both intervals", pessimistic, "ratio", ">", 1.0)
    winner = next((record for record in run.records if race.verdict(record) == "best"), None)
    depth = None if winner is None else float(winner.case.config["BK"])
    topic.figure("BK of the winner of the whole map", depth, "")
    answer = {f"best at BK={depth}": text for depth, text in configs.items()}
    return run, pair, answer


def fastest(records: Sequence[Record], depth: int) -> Record:
    """The fastest of the screening with this BK."""
    able = [r for r in records if r.case.config["BK"] == depth and r.outcome == "ok" and race.screened(r) is not None]
    return min(able, key=lambda record: race.screened(record) or float("inf"))


def without_a_gpu(topic: Topic) -> Run:
    """Sixteen cells in the emulator on two cores."""
    with two_cores():
        done = topic.dgw("heatmap", *SMALL, "--json")
    maps = [grid(done.run.records, name, Axes("BN", "BM", ("BK", "STAGES"))) for name in MAPPED]
    mapped = min(sum(square.value is not None for square in made.squares) for made in maps)
    topic.show("without a GPU: cells mapped by conflicts, registers and bound", mapped, "", "==", 16)
    topic.show("without a GPU: those 16 cells at 512^3 on two cores", done.seconds, "s", "<=", 20)
    return done.run


@contextmanager
def two_cores() -> Iterator[None]:
    """What is started inside runs on two cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def main() -> None:
    """Measure, compute every verdict, write the file; `make docs` draws the pictures from it."""
    topic = Topic("heatmap")
    cold, counted = forty_eight(topic)
    large = two_hundred(topic)
    asked, pair, answer = question(topic)
    small = without_a_gpu(topic)
    runs = {"counted": counted, "large": large, "pair": pair, "small": small}
    more_kept = ("achieved_occupancy", "bound_time", *KEPT)
    topic.write(
        thin(asked, KEPT),
        cold=thin(cold, KEPT),
        answer=answer,
        **{name: thin(run, more_kept) for name, run in runs.items()},
    )


if __name__ == "__main__":
    main()
