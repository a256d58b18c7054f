"""The time gate on a GPU: clean gates pass, planted slowdowns do not, and what the machine's noise is.

`make evidence TOPIC=gate` measures both parts; `python evidence/gate.py clean` and `... planted` one of them.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from parts import measure
from topic import ROOT, Done, Topic

from dgw.model import Case, Measurement, Record, Run
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.rounds import PairRounds
from dgw.workbench.gate.selftest import noise, pair_matrix, resample
from dgw.workbench.gate.verdict import GateCase, GateReport, decode, exit_code
from dgw.workbench.store import open_store
from dgw.workbench.store.gates import kept

sys.path.insert(0, str(ROOT))

from tests.slowdowns import SLOWDOWNS, Slowdown, write

GATES = 10
RESAMPLES = 2000
VARIANT = "cuda/tensor-core"
SURE = 1.5
"""A slowdown of so many times the minimum detectable effect has to be called regressed."""


def as_run(report: GateReport) -> Run:
    """The cases of a gate as records, with the time of head."""
    records = []
    for case in report.cases:
        if case.problem is None or case.time_head is None:
            continue
        time_head = Measurement(
            metric="time_cold", value=case.time_head, unit="s", collector="gate", protocol=report.protocol
        )
        made = Case(problem=case.problem, variant=case.variant, config=case.config)
        records.append(
            Record(case=made, outcome="ok", environment=report.environment, measurements=(time_head,))
        )  # fmt: skip
    return Run(
        id=report.id, created=report.created, command=report.command, version=report.dgw, commit=report.head.commit,
        records=tuple(records),
    )  # fmt: skip


def summary(report: GateReport) -> dict[str, Any]:
    """What is kept of a gate: its cases without problems, its mean, its length."""
    cases = [msgspec.structs.replace(case, problem=None) for case in report.cases]
    return {
        "id": report.id, "created": report.created, "exit": int(exit_code(report)), "seconds": report.seconds,
        "policy": report.policy, "cases": msgspec.to_builtins(cases), "notes": report.notes,
        "mean": msgspec.to_builtins(report.geometric_mean), "sentinels": len(report.sentinels),
    }  # fmt: skip


def pairs_of(topic: Topic, kind: Any) -> list[PairRounds]:
    """All pairs that gates of a kind left in the store."""
    rows = kept(open_store(str(topic.folder / "dgw.db")), kind)
    return [pair for row in rows for pair in msgspec.json.decode(row.data, type=list[PairRounds])]


# -- clean gates


def clean(topic: Topic) -> dict[str, Any]:
    """A/A gates over the seeds suite, resamples of their pairs, and the noise that they show."""
    done = topic.dgw("gate", "--self-test", str(GATES), "--suite", "seeds", "-v", VARIANT, "--json")
    content = json.loads(done.out)
    reports = msgspec.convert(content["gates"], type=list[GateReport])
    failed = sum(int(exit_code(report)) == 1 for report in reports)
    topic.show("A/A gates over the seeds suite, identical code timed", len(reports), "", ">=", GATES)
    topic.show("A/A gates that failed", failed, "", "==", 0)
    unsure = sum(int(exit_code(report)) == 3 for report in reports)
    topic.show("A/A gates that were inconclusive", unsure, "", "<=", GATES // 5)
    quick = [report.seconds for report in reports if all(case.pairs <= 4 for case in report.cases) and report.seconds]
    topic.show("one gate of the seeds suite without flagged shapes, longest", max(quick, default=None), "s", "<=", 45)
    pairs, policy = pairs_of(topic, "self-test"), GatePolicy()
    keys = [case.key for case in reports[0].cases]
    labels = {case.key: case.label for case in reports[0].cases}
    values = pair_matrix(pairs, keys, policy)
    topic.show("pairs of processes of these gates in which every shape was timed", values.shape[1], "", ">=", 40)
    found = resample(values, policy, RESAMPLES)
    topic.show("gates resampled from these pairs with the sides exchanged at random", found.count, "", ">=", 1000)
    topic.show("resampled gates that failed", found.failed / found.count, "ratio", "<=", 0.01)
    seen = {labels[key]: noise(pairs, key, policy) for key in keys}
    for label, one in seen.items():
        topic.show(f"{label}: standard deviation of a turn", one.sigma / math.sqrt(2), "ratio", "<=", 0.01)
        topic.show(f"{label}: between processes, beyond that", one.sigma_process / math.sqrt(2), "ratio", "<=", 0.002)
        topic.show(f"{label}: drift within a pair, 95 of 100 pairs", one.drift, "ratio", "<=", 0.03)
    return {
        "run": as_run(reports[0]), "gates": [summary(report) for report in reports], "tally": content["tally"],
        "pair_values": {labels[key]: row.tolist() for key, row in zip(keys, values, strict=True)},
        "resampled": {"count": found.count, "by_case": found.by_case, "by_mean": found.by_mean},
        "noise": {label: vars(one) for label, one in seen.items()},
    }  # fmt: skip


# -- planted slowdowns


def planted(topic: Topic) -> dict[str, Any]:
    """Every planted slowdown against its good kernel, after a calibration of the counters."""
    base, head = topic.folder / "base", topic.folder / "head"
    for folder, which in ((base, "base"), (head, "head")):
        write(folder / "planted", which)
    constant = calibrated(topic)
    reports: dict[str, GateReport] = {}
    for name, slowdown in SLOWDOWNS.items():
        began = time.monotonic()
        done = gate(topic, head, name, slowdown)
        report = decode(done.out.encode(), name)
        reports[name] = report
        judge(topic, name, slowdown, report, done.code)
        if slowdown.options[:1] == ("--suite",):
            seconds = time.monotonic() - began
            topic.show("one gate of the seeds suite with flagged shapes", seconds, "s", "<=", 110)
    return {
        "run": as_run(next(iter(reports.values()))), "constant_counters": constant,
        "gates": {name: summary(report) for name, report in reports.items()},
    }  # fmt: skip


def calibrated(topic: Topic) -> Mapping[str, Any]:
    """Which counters repeat exactly over ten repeats of the seeds suite."""
    done = topic.dgw("gate", "--calibrate", "--suite", "seeds", "-v", VARIANT, "--json")
    try:
        found: Mapping[str, Any] = json.loads(done.out)
    except ValueError:
        topic.show("counters calibrated", done.err[-200:], "", "==", "yes")
        return {}
    topic.show("repeats of the calibration of counters", found["repeats"], "", ">=", 10)
    topic.show("counters that are constant over them", len(found["constant"]), "", ">=", 1)
    return found


def gate(topic: Topic, head: Path, name: str, slowdown: Slowdown) -> Done:
    """One gate, run where head's kernels lie."""
    where = slowdown.options or ()
    shape = ("--shape", slowdown.shape) if slowdown.shape else ()
    return topic.dgw(
        "gate", "--kernels", "planted", "--base-tree", "../base", "-v", f"planted/{name}", *shape, *where, "--json",
        folder=head,
    )  # fmt: skip


def judge(topic: Topic, name: str, slowdown: Slowdown, report: GateReport, code: int) -> None:
    """Caught where it is large enough for this gate, never passed, and explained by the right counter."""
    cases = [case for case in report.cases if case.status != "refused"]
    topic.show(f"{slowdown.what}: exit code of the gate, never 0", code, "", ">", 0)
    for case in cases:
        wanted = expected(case)
        where = f"{slowdown.what}, {case.label}"
        effect = case.ratio.value - 1 if case.ratio else None
        topic.show(f"{where}: slowdown", effect, "ratio", ">", 0.0)
        topic.show(f"{where}: minimum detectable effect", case.mde, "ratio", ">", 0.0)
        topic.show(f"{where}: status", case.status, "", "==", wanted)
    worst = max(cases, key=lambda case: case.ratio.value if case.ratio else 0.0, default=None)
    changed = {change.metric for change in worst.changed} if worst else set()
    named = [metric for metric in slowdown.explained_by if metric in changed]
    claim = f"{slowdown.what}: counters that changed and explain it ({', '.join(slowdown.explained_by)})"
    topic.show(claim, len(named), "", ">=", 1)
    sentences: Sequence[str] = worst.explanation if worst else ()
    if worst is not None and worst.status == "regressed":
        topic.show(f"{slowdown.what}: sentences of explanation", len(sentences), "", ">=", 1)


def expected(case: GateCase) -> str:
    """Regressed where the effect is sure to be seen, or a counter alone fails it; else it has to be left open."""
    if any(change.worse for change in case.changed):
        return "regressed"
    if case.ratio is None or case.mde is None:
        return "regressed"
    if case.ratio.value - 1 >= SURE * case.mde:
        return "regressed"
    return case.status if case.status in ("regressed", "inconclusive") else "inconclusive"


if __name__ == "__main__":
    sys.exit(measure("gate", {"clean": clean, "planted": planted}))
