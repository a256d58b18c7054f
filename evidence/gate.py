"""The time gate on a GPU: clean gates pass, planted slowdowns do not, and what the machine's noise is.

`make evidence TOPIC=gate` measures everything; `python evidence/gate.py clean` the gates of a kernel against itself,
`... planted` the slowdowns, which are the parts `constant`, `work`, `unfused` and `swizzle`.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from parts import measure
from topic import ROOT, Done, Topic

from dgw.commands.gate_lock import GRACE_S
from dgw.commands.session import commit
from dgw.errors import Exit
from dgw.model import Case, Measurement, Record, Run
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.rounds import PairRounds
from dgw.workbench.gate.selftest import noise, pair_matrix, resample
from dgw.workbench.gate.verdict import GateCase, GateReport, decode, exit_code
from dgw.workbench.gpu_state import gpu_states
from dgw.workbench.store import open_store
from dgw.workbench.store.gates import kept

sys.path.insert(0, str(ROOT))

from tests.slowdowns import SLOWDOWNS, Slowdown, write
from tests.workbench.gate.simulated import H200

GATES = 5
BATCHES = 2
"""So many gates in one command, and so many commands: what one of them has measured is kept when the next one fails."""
RESAMPLES = 2000
KERNEL = ("--suite", "seeds", "-v", "cuda/tensor-core")
PLANTED = ("constant", "work", "unfused", "swizzle")
SURE = 1.5
"""A slowdown of so many times the minimum detectable effect has to be called regressed."""
WHOLE_S, LEAST_S = 540.0, 60.0
"""All A/A gates together get so many seconds; with fewer than LEAST_S left no further batch is begun."""


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
        id=report.id, created=report.created, command=report.command, version=report.dgw, commit=commit(),
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
    reports, tally, around_s = aa_gates(topic)
    failed = sum(int(exit_code(report)) == 1 for report in reports)
    topic.show("A/A gates over the seeds suite, identical code timed", len(reports), "", ">=", GATES * BATCHES)
    topic.show("A/A gates that failed", failed, "", "==", 0)
    unsure = sum(int(exit_code(report)) == 3 for report in reports)
    topic.show("A/A gates that were inconclusive", unsure, "", "<=", GATES * BATCHES // 5)
    policy = GatePolicy()
    quiet = [report for report in reports if all(case.pairs <= policy.screen_pairs for case in report.cases)]
    longest = max((report.seconds for report in quiet if report.seconds is not None), default=None)
    whole = longest + around_s if longest is not None and around_s is not None else None
    claim = "one gate of the seeds suite without flagged shapes, start of the command included, longest"
    topic.show(claim, whole, "s", "<=", 45)
    pairs = pairs_of(topic, "self-test")
    keys = [case.key for case in reports[0].cases if case.ratio is not None]
    labels = {case.key: case.label for case in reports[0].cases}
    values = pair_matrix(pairs, keys, policy)
    claim = "pairs of processes of these gates in which every shape was timed"
    topic.show(claim, values.shape[1], "", ">=", GATES * BATCHES * policy.screen_pairs)
    found = resample(values, policy, RESAMPLES)
    topic.show("gates resampled from these pairs with the sides exchanged at random", found.count, "", ">=", 1000)
    topic.show("resampled gates that failed", found.failed / found.count, "ratio", "<=", 0.01)
    seen = {labels[key]: noise(pairs, key, policy) for key in keys}
    judge_noise(topic, {label: vars(one) for label, one in seen.items()})
    return {
        "run": as_run(reports[0]), "gates": [summary(report) for report in reports], "tally": tally,
        "pair_values": {labels[key]: row.tolist() for key, row in zip(keys, values, strict=True)},
        "resampled": {"count": found.count, "by_case": found.by_case, "by_mean": found.by_mean},
        "noise": {label: vars(one) for label, one in seen.items()},
    }  # fmt: skip


def judge_noise(topic: Topic, seen: Mapping[str, Mapping[str, float]]) -> None:
    """The noise of each case; the bars are what the simulations in CI assume."""
    for label, one in seen.items():
        topic.show(f"{label}: standard deviation of a turn", one["sigma"] / math.sqrt(2), "ratio", "<=", H200.sigma)
        topic.show(
            f"{label}: between pairs of processes, beyond that", one["sigma_process"], "ratio", "<=", H200.process
        )
        topic.show(f"{label}: drift within a pair, 95 of 100 pairs", one["drift"], "ratio", "<=", H200.drift)


def aa_gates(topic: Topic) -> tuple[list[GateReport], Any, float | None]:
    """The reports of all gates that ended, the tally in the store, and the seconds that a command takes around its
    gates, at the most. Of a batch that did not end the gates that did; raises SystemExit or TimeoutExpired where there
    is none."""
    reports: list[GateReport] = []
    tally, around_s = None, None
    began = time.monotonic()
    for batch in range(BATCHES):
        seed = ("--gate-seed", str(batch * GATES))
        limit_s = WHOLE_S - (time.monotonic() - began)
        if reports and limit_s < LEAST_S:
            sys.stderr.write(f"no time is left for batch {batch} of A/A gates\n")
            break
        try:
            done = topic.dgw(
                "gate", "--self-test", str(GATES), *KERNEL, *seed, *shared(topic), "--json", limit_s=limit_s
            )  # fmt: skip
            content = answered(done)
        except (subprocess.TimeoutExpired, SystemExit) as error:
            reports += ended(topic, reports)
            if not reports:
                raise
            sys.stderr.write(f"batch {batch} of A/A gates did not end: {error}\n")
            break
        found = msgspec.convert(content["gates"], type=list[GateReport])
        around_s = max(around_s or 0.0, done.seconds - sum(report.seconds or 0.0 for report in found))
        reports += found
        tally = content["tally"]
    return reports, tally, around_s


def ended(topic: Topic, known: Sequence[GateReport]) -> list[GateReport]:
    """The A/A gates in the store that were not interrupted, beside those that are known."""
    seen = {report.id for report in known}
    rows = kept(open_store(str(topic.folder / "dgw.db")), "self-test")
    found = [decode(row.body.encode(), "the store") for row in rows if row.id not in seen]
    return [report for report in found if not report.interrupted]


def answered(done: Done) -> Any:
    """The JSON that a command printed. Raises SystemExit with what it said instead."""
    try:
        return json.loads(done.out)
    except ValueError:
        raise SystemExit(f"no answer (exit {done.code}): {done.err[-300:]}") from None


def shared(topic: Topic) -> tuple[str, ...]:
    """What has to be typed where others compute on this GPU: then a row says that it does not hold.

    What was measured before may take a moment to leave the GPU.
    """
    claim = "processes of others on the GPU"
    if not any(row["claim"] == claim for row in topic.shows):
        end = time.monotonic() + GRACE_S
        while (others := sum(state.processes for state in gpu_states()[:1])) and time.monotonic() < end:
            time.sleep(0.2)
        topic.show(claim, others, "", "==", 0)
    (row,) = (row for row in topic.shows if row["claim"] == claim)
    return () if row["holds"] else ("--allow-shared",)


# -- planted slowdowns


def constant(topic: Topic) -> dict[str, Any]:
    """Which counters repeat exactly over ten repeats of the seeds suite."""
    found = answered(topic.dgw("gate", "--calibrate", *KERNEL, *shared(topic), "--json"))
    topic.show("repeats of the calibration of counters", found["repeats"], "", ">=", 10)
    topic.show("counters that are constant over them", len(found["constant"]), "", ">=", 1)
    return {"constant_counters": found}


def planted(topic: Topic, *names: str) -> dict[str, Any]:
    """One gate over slowdowns that have their options in common, each judged by its own cases."""
    slowdowns = {name: SLOWDOWNS[name] for name in names}
    first = slowdowns[names[0]]
    done = gate(topic, names, first)
    report = decode(json.dumps(answered(done)).encode(), "the gate")
    for name, slowdown in slowdowns.items():
        judge(topic, name, slowdown, report)
    wanted = expected(done.code, Exit.WRONG, Exit.INCONCLUSIVE, any(map(sure, report.cases)))
    topic.show(f"exit code of the gate over {', '.join(names)}", done.code, "", "==", int(wanted))
    if "--suite" in first.options:
        topic.show("one gate of the seeds suite with flagged shapes", done.seconds, "s", "<=", 110)
    return {"run": as_run(report), "gate": summary(report)}


def gate(topic: Topic, names: Sequence[str], first: Slowdown) -> Done:
    """One gate, run where head's kernels lie."""
    base, head = topic.folder / "base", topic.folder / "head"
    for folder, which in ((base, "base"), (head, "head")):
        if not folder.exists():
            write(folder / "planted", which)
    shape = ("--shape", first.shape) if first.shape else ()
    variants = ",".join(f"planted/{name}" for name in names)
    return topic.dgw(
        "gate", "--kernels", "planted", "--base-tree", "../base", "-v", variants, *shape, *first.options,
        *shared(topic), "--json", folder=head,
    )  # fmt: skip


def judge(topic: Topic, name: str, slowdown: Slowdown, report: GateReport) -> None:
    """Caught where it is large enough for this gate, never passed, and explained by the right counter."""
    cases = [case for case in report.cases if case.variant == f"planted/{name}" and case.status != "refused"]
    alone = msgspec.structs.replace(report, cases=tuple(cases), geometric_mean=None)
    code = int(exit_code(alone))
    wanted = expected(code, Exit.WRONG, Exit.INCONCLUSIVE, any(map(sure, cases)))
    topic.show(f"{slowdown.what}: exit code for it alone, never 0", code, "", "==", int(wanted))
    for case in cases:
        where = f"{slowdown.what}, {case.label}"
        effect = case.ratio.value - 1 if case.ratio else None
        topic.figure(f"{where}: slowdown", effect, "ratio")
        topic.figure(f"{where}: minimum detectable effect", case.mde, "ratio")
        status = expected(case.status, "regressed", "inconclusive", sure(case))
        topic.show(f"{where}: status", case.status, "", "==", status)
    worst = max(cases, key=lambda case: case.ratio.value if case.ratio else 0.0, default=None)
    changed = {change.metric for change in worst.changed} if worst else set()
    named = [metric for metric in slowdown.explained_by if metric in changed]
    claim = f"{slowdown.what}: counters that changed and explain it ({', '.join(slowdown.explained_by)})"
    topic.show(claim, len(named), "", ">=", 1)
    sentences: Sequence[str] = worst.explanation if worst else ()
    if worst is not None and worst.status == "regressed":
        topic.show(f"{slowdown.what}: sentences of explanation", len(sentences), "", ">=", 1)


def sure(case: GateCase) -> bool:
    """Whether a gate has to see it: a slowdown of 1.5 times what this gate detects, or a counter that fails alone."""
    if any(change.worse for change in case.changed):
        return True
    return case.ratio is not None and case.mde is not None and case.ratio.value - 1 >= SURE * case.mde


def expected(found: Any, caught: Any, left_open: Any, seen: bool) -> Any:
    """What `found` has to be: caught where that is `seen` for sure, else one of the two, and never a pass."""
    return left_open if not seen and found != caught else caught


PARTS = {
    "clean": clean,
    "constant": constant,
    "work": lambda topic: planted(topic, "extra-2", "extra-5", "spilled"),
    "unfused": lambda topic: planted(topic, "unfused"),
    "swizzle": lambda topic: planted(topic, "dropped-swizzle"),
}


def chosen(typed: Sequence[str]) -> list[str]:
    """The parts that were typed; `planted` stands for all that have a slowdown."""
    return [part for name in typed for part in (PLANTED if name == "planted" else (name,))]


if __name__ == "__main__":
    sys.exit(measure("gate", PARTS, chosen(sys.argv[1:])))
