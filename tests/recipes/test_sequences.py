from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from dgw.kernels.loader import load
from dgw.model import Case, Measurement, Record, Run, Step, gemm
from dgw.recipes.sequence import Request, Rung, Start, faster, metrics, walk
from dgw.recipes.sequences import SEQUENCES
from dgw.toolchain.devices import device
from dgw.workbench.metrics import resolve
from tests.recipes.making import TILES, record

H200 = device("h200")
PROBLEM = gemm(4096, 4096, 4096)
ROOT = Path(__file__).resolve().parents[2]
TOPICS = ("ladder", "first-profile")
NAMES = ("naive", "tiled", "swizzled", "tensor-core", "persistent")
RUNGS = tuple(Rung(f"cuda/{name}", 1, place + 1, TILES, "cuda") for place, name in enumerate(NAMES))
CONFLICTS = {"smem_wavefronts_actual": 1.2e9, "smem_wavefronts_ideal": 2e8, "conflict_ratio_ld": 0.9}
SIMT = {"tensor_inst": 0, "tensor_pipe_util": 0.0, "ldgsts_inst": 0, "smem_wavefronts_sass_ld": 1e9}
LADDER = {
    "cuda/naive": {**SIMT, "global_requests_ld": 4e9, "smem_wavefronts_actual": 0, "smem_wavefronts_ideal": 0,
                   "fma_pipe_util": 0.3, "elapsed_cycles": 5e7, "time_cold": 26e-3, "issued": 2e10},
    "cuda/tiled": {**SIMT, **CONFLICTS, "fma_pipe_util": 0.4, "elapsed_cycles": 1.2e7, "time_cold": 6e-3,
                   "issued": 3e9},
    "cuda/swizzled": {**SIMT, "fma_pipe_util": 0.8, "elapsed_cycles": 7e6, "time_cold": 4e-3, "issued": 2.9e9},
    "cuda/tensor-core": {"time_cold": 270e-6},
    "cuda/persistent": {"time_cold": 265e-6},
}  # fmt: skip


def start(variant: str = "cuda/naive", **fields: object) -> Start:
    case = Case(problem=PROBLEM, variant=variant, config=TILES)
    return Start(**{"case": case, "device": H200, "engine": "gpu", "rungs": RUNGS, **fields})  # type: ignore[arg-type]


def scripted(numbers: dict[str, dict[str, float]]) -> Callable[[Request], Sequence[Record]]:
    """Answers every request from a table of numbers by variant; a walk sees the same record for the same case."""

    def fulfil(asked: Request) -> list[Record]:
        found = []
        for case in asked.cases:
            made = record(dict(numbers.get(case.variant, {})), variant=case.variant)
            found.append(msgspec.structs.replace(made, case=case))
        return found

    return fulfil


def walked(name: str, begin: Start, fulfil: Callable[[Request], Sequence[Record]]) -> list[Step]:
    shown: list[Step] = []
    steps = walk(SEQUENCES[name](begin), fulfil, shown.append)
    assert shown == steps
    return steps


def test_quick_says_of_a_good_kernel_first_that_nothing_serious_was_found_and_what_it_cannot_tell() -> None:
    waves = {"tensor_pipe_util": 0.97, "sm_active_cycles": 480_000, "l2_hit_rate": None}
    (step,) = walked("quick", start("mine/kernel"), scripted({"mine/kernel": waves}))
    assert [f.confidence for f in step.findings if f.cost is not None] == ["low"]
    assert step.seen[0].startswith("nothing serious found: no cause that can be told costs 5 % of the time or more")
    assert step.seen[0].endswith("; cannot be told here: l2-locality")
    assert (step.decision, step.why) == ("stop", "nothing serious found")


def test_quick_goes_on_with_the_costliest_cause_and_its_advice() -> None:
    (step,) = walked("quick", start("mine/kernel"), scripted({"mine/kernel": LADDER["cuda/tiled"]}))
    assert step.decision == "go on"
    assert step.why == f"begin with {step.findings[0].recipe}: {step.findings[0].next_step}"
    assert not any("nothing serious" in sentence for sentence in step.seen)


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_step_says_go_on_or_stop_and_why_and_the_last_is_the_end(name: str) -> None:
    steps = walked(name, start(), scripted(LADDER))
    assert all(step.title and step.why and step.variant for step in steps)
    assert all(step.seen or step.evidence or step.findings for step in steps)
    assert [step.decision for step in steps[:-1]] == ["go on"] * (len(steps) - 1)


def test_the_seven_steps_walk_from_naive_up_to_the_fastest_stage() -> None:
    steps = walked("seven-step", start(), scripted(LADDER))
    hands = list(dict.fromkeys(step.variant for step in steps))
    assert hands == ["cuda/naive", "cuda/tiled", "cuda/swizzled", "cuda/tensor-core", "cuda/persistent"]
    assert steps[0].title == "1 baseline"
    assert steps[-1].title == "7 validation"
    assert any("98.1 times as fast as cuda/naive" in sentence for sentence in steps[-1].seen)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_on_what_an_h200_measured_the_seven_steps_go_up_only_and_end_near_the_best_stage(dtype: str) -> None:
    """The stored ladder answers, with the counters that the walk would ask for beyond it from the first profile, and
    the loads of naive as they are: two for each multiply-add."""
    runs = [json.loads((ROOT / "docs" / "h200" / f"{name}.json").read_text())["run"] for name in TOPICS]
    ladder, more = (msgspec.convert(run, type=Run).records for run in runs)
    loads = Measurement(metric="global_requests_ld", value=2 * PROBLEM.flops / 64, collector="ncu")
    extra = {r.case.variant: r.measurements for r in more if r.case.problem.a.dtype == dtype}
    known: dict[str, Record] = {}
    for one in (r for r in ladder if r.case.problem.a.dtype == dtype):
        found = [m for m in extra.get(one.case.variant, ()) if one.get(m.metric) is None]
        found += [loads] if found and one.case.variant == "cuda/naive" else []
        known[one.case.variant] = msgspec.structs.replace(one, measurements=(*one.measurements, *found))

    def fulfil(asked: Request) -> list[Record]:
        return [msgspec.structs.replace(known[case.variant], case=case) for case in asked.cases]

    stages = sorted((v for v in load().values() if v.family == "cuda" and v.stage), key=lambda v: v.stage or 0)
    problem = known["cuda/naive"].case.problem
    rungs = tuple(Rung(v.id, v.version, v.stage or 0, v.config_for(problem, H200), "cuda") for v in stages)
    first = Case(problem=problem, variant="cuda/naive", version=stages[0].version, config=rungs[0].config)
    steps = walked("seven-step", start(case=first, rungs=rungs, space=stages[0].space), fulfil)
    hands = list(dict.fromkeys(step.variant for step in steps))
    order = [rung.variant for rung in rungs]
    assert [order.index(name) for name in hands] == sorted(order.index(name) for name in hands)
    assert steps[-1].title == "7 validation"
    times = {name: known[name].number("time_cold") or 0.0 for name in order}
    assert times[hands[-1]] <= 1.05 * min(times.values())
    if dtype == "f16":
        assert {"cuda/tiled", "cuda/swizzled", "cuda/tensor-core"} <= set(hands)


def test_a_stage_that_is_not_faster_is_not_taken() -> None:
    slow = {**LADDER, "cuda/persistent": {"time_cold": 275e-6}}
    assert walked("seven-step", start(), scripted(slow))[-1].variant == "cuda/tensor-core"


def test_what_is_tried_is_timed_in_turn_with_the_kernel_in_hand_and_only_what_goes_on_is_counted() -> None:
    asked: list[Request] = []

    def fulfil(one: Request) -> Sequence[Record]:
        asked.append(one)
        return scripted(LADDER)(one)

    walked("seven-step", start(), fulfil)
    tried = [one for one in asked if one.again]
    counted = [one.cases[0].variant for one in asked if one.metrics]
    assert all(one.lanes == {"check", "time"} and len(one.cases) > 1 for one in tried)
    assert tried[0].cases[0].variant == "cuda/naive"
    assert counted == ["cuda/naive", "cuda/tiled", "cuda/swizzled", "cuda/tensor-core", "cuda/persistent"]
    assert [one.lanes for one in asked if one.metrics][1:] == [frozenset({"counters"})] * 4
    assert [case.variant for case in tried[-1].cases] == ["cuda/persistent", "cuda/naive"]


def test_a_gpu_that_is_faster_at_times_changes_nothing() -> None:
    close = {**LADDER, "cuda/persistent": {"time_cold": 273e-6}}
    groups: list[int] = []

    def fulfil(one: Request) -> Sequence[Record]:
        groups.append(len(groups))
        state = 0.8 if len(groups) % 2 else 1.2
        drifting = {n: {**v, "time_cold": v["time_cold"] * state} for n, v in close.items()}
        return scripted(drifting)(one)

    assert walked("seven-step", start(), fulfil)[-1].variant == "cuda/tensor-core"


def test_a_walk_stays_in_its_ladder_and_shows_the_top_of_another_beside_its_end() -> None:
    other = Rung("hopper/persistent", 1, 4, TILES, "hopper")
    numbers = {**LADDER, "hopper/persistent": {"time_cold": 185e-6}}
    last = walked("seven-step", start(beside=(other,)), scripted(numbers))[-1]
    assert last.variant == "cuda/persistent"
    assert "another ladder goes further: hopper/persistent takes 185 us cold, 1.43 times as fast" in last.seen
    slower = {**LADDER, "hopper/persistent": {"time_cold": 300e-6}}
    last = walked("seven-step", start(beside=(other,)), scripted(slower))[-1]
    assert "the top of another ladder, hopper/persistent, is not faster: 300 us cold" in last.seen


def test_a_users_kernel_stays_the_users_and_sees_the_stages_beside_it() -> None:
    mine = {**LADDER, "mine/kernel": LADDER["cuda/tiled"]}
    steps = walked("seven-step", start("mine/kernel", own=True), scripted(mine))
    assert {step.variant for step in steps} == {"mine/kernel"}
    assert any("a stage of the ladder is faster" in step.why for step in steps)


def test_a_wrong_baseline_ends_the_seven_steps() -> None:
    def wrong(asked: Request) -> list[Record]:
        return [
            msgspec.structs.replace(record(), case=case, outcome="wrong", reason="d[0, 0] is 1") for case in asked.cases
        ]

    (step,) = walked("seven-step", start(), wrong)
    assert step.decision == "stop"
    assert "--sequence precision" in step.why


@pytest.mark.parametrize(
    ("fails", "title"),
    [
        (lambda case: case.problem.data == "one-hot", "1 index formulas"),
        (lambda case: (case.problem.m, case.problem.n) == (128, 128), "2 synchronisation"),
        (lambda case: case.problem.shape == "127x255x96", "3 edges"),
        (lambda case: case.problem.k == 4096, "4 accumulator"),
        (lambda case: case.problem.k == 3 * 64 and case.problem.m == 64, "5 odd and even k tiles"),
    ],
)
def test_precision_stops_at_the_step_that_fails_and_names_the_reason(fails: Callable[[Case], bool], title: str) -> None:
    def fulfil(asked: Request) -> list[Record]:
        assert asked.lanes == frozenset({"check"})
        return [
            msgspec.structs.replace(record(), case=case, outcome="wrong" if fails(case) else "ok", reason="")
            for case in asked.cases
        ]

    steps = walked("precision", start("cuda/tiled"), fulfil)
    assert (steps[-1].title, steps[-1].decision) == (title, "stop")
    assert len(walked("precision", start("cuda/tiled"), scripted({}))) == 5


def test_precision_takes_the_smallest_problems_of_whole_tiles_that_the_kernel_does_not_refuse() -> None:
    def whole(case: Case) -> bool:
        p = case.problem
        return not (p.m % 128 or p.n % 128 or p.k % 64)

    asked: list[str] = []

    def fulfil(one: Request) -> list[Record]:
        asked.append(" ".join(dict.fromkeys(case.problem.shape for case in one.cases)))
        refused = {"outcome": "refused", "reason": "whole tiles only"}
        return [msgspec.structs.replace(record(), case=c, **({} if whole(c) else refused)) for c in one.cases]

    case = Case(problem=PROBLEM, variant="mine/kernel")
    steps = walked("precision", start(case=case, accepts=whole), fulfil)
    assert asked[0] == "128x128x64"
    assert asked[1] == "256x256x256"
    assert asked[3] == "128x128x4096"
    assert asked[4].startswith("128x128x64 128x128x128 128x128x192")
    assert "none of these was executed" in steps[2].why
    assert [step.why.startswith("none of these") for step in steps].count(True) == 1


def test_conflicts_of_a_kernel_with_tensor_cores_are_cured_by_the_stage_that_has_them_too() -> None:
    mine = {"smem_wavefronts_actual": 2.0e8, "smem_bank_conflicts_ldsm": 1.5e8, "conflict_ratio_ld": 0.9,
            "elapsed_cycles": 2.5e6, "tensor_pipe_util": 0.2, "time_cold": 1e-3}  # fmt: skip
    steps = walked("seven-step", start("mine/kernel", own=True), scripted({**LADDER, "mine/kernel": mine}))
    conflicts = next(step for step in steps if step.title == "2 bank conflicts")
    assert [sentence.split(":")[0] for sentence in conflicts.seen] == ["cuda/tensor-core"]
    assert "dgw show cuda/tensor-core --source" in conflicts.findings[0].next_step
    assert "dgw show cuda/tensor-core --source" in conflicts.why


def test_precision_of_a_copy_that_is_not_waited_for_blames_no_index_formula() -> None:
    def pending(asked: Request) -> list[Record]:
        reason = "async-pending at k.cu:79: shared address 0x0 is read before the cp.async was waited for"
        return [msgspec.structs.replace(record(), case=c, outcome="wrong", reason=reason) for c in asked.cases]

    (step,) = walked("precision", start("cuda/tiled"), pending)
    assert step.why.startswith("a tile is read before it is there")


def test_precision_of_what_nothing_executes_says_so_at_every_step() -> None:
    def refused(asked: Request) -> list[Record]:
        return [
            msgspec.structs.replace(record(), case=case, outcome="refused", reason="the emulator cannot run it")
            for case in asked.cases
        ]

    steps = walked("precision", start("cuda/tiled"), refused)
    assert len(steps) == 5
    assert {step.why for step in steps} == {
        "none of these was executed, so this step says nothing: the emulator cannot run it"
    }  # fmt: skip


@pytest.mark.parametrize(("engine", "tools"), [("gpu", ("racecheck",)), ("emulator", ())])
def test_precision_asks_racecheck_on_a_gpu_only(engine: str, tools: tuple[str, ...]) -> None:
    asked: list[Request] = []

    def fulfil(one: Request) -> Sequence[Record]:
        asked.append(one)
        return scripted({})(one)

    walked("precision", start("cuda/tiled", engine=engine), fulfil)
    assert asked[1].sanitise == tools


def test_records_are_compared_in_the_same_figure_only() -> None:
    cold, hot = record({"time_cold": 2e-4}), record({"time_cold": None, "time_hot": 1e-4})
    assert not faster(hot, cold)
    assert faster(record({"time_cold": 1e-4}), cold)
    assert not faster(record({"time_cold": 1.99e-4}), cold)


def test_the_metrics_of_a_request_are_in_the_table() -> None:
    assert len(resolve(",".join(metrics()))) > 90
