from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.commands import session
from dgw.errors import ChildFault
from dgw.model import Run
from tests.commands.conftest import Dgw, Engine

SHAPE = ("--shape", "64x64x64")


def test_profile_runs_every_variant_and_keeps_the_run(dgw: Dgw, engine: Engine) -> None:
    ended = dgw("profile", "--variant", "naive,tiled", "--variant", "swizzled", *SHAPE)
    assert ended.code == 0
    assert [case.variant for case in engine.seen] == ["cuda/naive", "cuda/tiled", "cuda/swizzled"]
    assert all(name in ended.out for name in ("cuda/naive", "cuda/tiled", "cuda/swizzled"))
    assert "is kept: dgw report" in ended.err
    listed = dgw("runs")
    assert "profile --variant naive,tiled --variant swizzled --shape 64x64x64" in " ".join(listed.out.split())


def test_without_a_gpu_the_report_says_that_time_was_not_measured(dgw: Dgw, engine: Engine) -> None:
    ended = dgw("profile", "--variant", "swizzled", *SHAPE)
    assert "Time was not measured because there is no GPU." in ended.out


def test_an_engine_that_was_asked_for_is_the_reason_where_a_gpu_exists(
    dgw: Dgw, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dgw.commands.session.gpu_is_here", lambda: True)
    ended = dgw("profile", "--variant", "swizzled", *SHAPE, "--engine", "emulator")
    assert "Time was not measured because the engine is emulator." in ended.out


def test_shapes_types_and_layouts_are_multiplied(dgw: Dgw, engine: Engine) -> None:
    dgw("profile", "-v", "tiled", "-s", "8x8x8,16x8x8", "-t", "f16,f32", "-l", "nn,tt")
    problems = {(case.problem.shape, case.problem.a.dtype, case.problem.layout) for case in engine.seen}
    assert len(problems) == len(engine.seen) == 8


def test_the_problem_is_what_was_typed(dgw: Dgw, engine: Engine) -> None:
    dgw("profile", "-v", "tiled", "-s", "3x8x16x4", "--alpha", "2", "--beta", "0.5", "--ldd", "20", "--data", "integer",
        "--seed", "7", "--out", "f32")  # fmt: skip
    (case,) = engine.seen
    problem = case.problem
    assert (problem.op, problem.batch, problem.m, problem.n, problem.k) == ("batched", 3, 8, 16, 4)
    assert (problem.alpha, problem.beta, problem.data, problem.seed) == (2.0, 0.5, "integer", 7)
    assert problem.c is not None
    assert (problem.c.dtype, problem.d.dtype, problem.c.ld, problem.d.ld) == ("f32", "f32", 20, 20)


def test_several_configs_give_a_case_each_and_defaults_fill_the_rest(dgw: Dgw, engine: Engine) -> None:
    dgw("profile", "-v", "swizzled", *SHAPE, "-c", "BM=64,BN=64", "-c", "BM=32")
    first, second = (case.config for case in engine.seen)
    assert (first["BM"], first["BN"], second["BM"], second["BN"]) == (64, 64, 32, 128)
    assert first["BK"] == second["BK"]


def test_a_tunable_that_one_of_several_variants_lacks_is_left_to_the_others(dgw: Dgw, engine: Engine) -> None:
    ended = dgw("profile", "-v", "naive,swizzled", *SHAPE, "-c", "GRANULARITY=4")
    assert ended.code == 0
    assert [case.config.get("GRANULARITY") for case in engine.seen] == [None, 4]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [("ok", 0), ("wrong", 1), ("compile-failed", 5), ("launch-failed", 5), ("timed-out", 5), ("crashed", 5),
     ("out-of-memory", 5)],
)  # fmt: skip
def test_every_outcome_has_its_exit_code(dgw: Dgw, engine: Engine, outcome: str, code: int) -> None:
    engine.outcomes["cuda/tiled"] = outcome
    ended = dgw("profile", "-v", "tiled,swizzled", *SHAPE)
    assert ended.code == code
    assert outcome in ended.out
    if code:
        assert f"warning: cuda/tiled at 64x64x64: {outcome}" in ended.err
        assert "  try: dgw" in ended.err


def test_failures_do_not_stop_good_cases_and_wrong_outranks_crashed(dgw: Dgw, engine: Engine) -> None:
    engine.outcomes |= {"cuda/naive": "crashed", "cuda/tiled": "wrong"}
    ended = dgw("profile", "-v", "naive,tiled,swizzled", *SHAPE)
    assert ended.code == 1
    assert len(engine.seen) == 3


def test_json_is_a_run_on_standard_output_and_nothing_else(dgw: Dgw, engine: Engine) -> None:
    ended = dgw("profile", "-v", "swizzled", *SHAPE, "--json")
    run = msgspec.json.decode(ended.out, type=Run)
    assert [record.outcome for record in run.records] == ["ok"]
    assert json.loads(ended.out)["schema"] == "dgw.run/1"


def test_no_store_keeps_nothing(dgw: Dgw, engine: Engine, tmp_path: Path) -> None:
    ended = dgw("profile", "-v", "swizzled", *SHAPE, "--no-store")
    assert ended.code == 0
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(dgw: Dgw, engine: Engine) -> None:
    engine.outcomes["cuda/swizzled"] = KeyboardInterrupt()
    ended = dgw("profile", "-v", "naive,tiled,swizzled", *SHAPE)
    assert ended.code == 130
    assert "cuda/tiled" in ended.out
    assert "error: interrupted: 2 of 3 cases are finished" in ended.err
    assert "  try: dgw profile -v naive,tiled,swizzled --shape 64x64x64 --resume" in ended.err
    kept = dgw("report", "last", "--json")
    assert len(msgspec.json.decode(kept.out, type=Run).records) == 2


def test_ctrl_c_before_anything_is_finished_still_ends_in_two_lines(dgw: Dgw, engine: Engine) -> None:
    engine.outcomes["cuda/swizzled"] = KeyboardInterrupt()
    ended = dgw("profile", "-v", "swizzled", *SHAPE, "--no-store")
    assert ended.code == 130
    assert ended.error_is_two_lines(), ended.err


def test_an_engine_that_fails_as_a_whole_keeps_the_finished_records(dgw: Dgw, engine: Engine) -> None:
    engine.outcomes["cuda/tiled"] = ChildFault("the child does not start", "dgw doctor")
    ended = dgw("profile", "-v", "naive,tiled", *SHAPE)
    assert ended.code == 5
    assert "error: the child does not start" in ended.err
    assert "cuda/naive" in dgw("report", "last").out


def test_compare_sorts_as_a_ladder_whatever_the_order_typed(dgw: Dgw, engine: Engine) -> None:
    ended = dgw("compare", "swizzled", "naive", "tiled", *SHAPE)
    heading = next(line for line in ended.out.splitlines() if "cuda/naive" in line)
    assert heading.split() == ["cuda/naive", "cuda/tiled", "cuda/swizzled"]


def test_compare_takes_a_whole_family(dgw: Dgw, engine: Engine) -> None:
    dgw("compare", "--family", "cuda", *SHAPE)
    assert [case.variant for case in engine.seen][:3] == ["cuda/naive", "cuda/tiled", "cuda/swizzled"]


def test_check_without_a_name_takes_every_stage_that_runs_here(dgw: Dgw, engine: Engine) -> None:
    ended = dgw("check")
    assert ended.code == 0
    assert {"cuda/naive", "cuda/tiled", "cuda/swizzled"} <= {case.variant for case in engine.seen}
    assert not any(case.variant.startswith("baselines/") for case in engine.seen)


def test_a_suite_brings_its_own_layouts(dgw: Dgw, engine: Engine) -> None:
    dgw("profile", "-v", "tiled", "--suite", "llm")
    assert {case.problem.layout for case in engine.seen} == {"nt"}
    assert len(engine.seen) == 4 * 18


def test_a_suite_gives_way_to_layouts_that_were_typed(dgw: Dgw, engine: Engine) -> None:
    dgw("profile", "-v", "tiled", "--suite", "seeds", "--layout", "tn")
    assert {case.problem.layout for case in engine.seen} == {"tn"}


def test_a_suite_may_be_a_file_of_ones_own(dgw: Dgw, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('shapes = ["1x2x3"]\nlayouts = ["tt"]\n')
    dgw("profile", "-v", "tiled", "--suite", "mine.toml")
    assert [(case.problem.shape, case.problem.layout) for case in engine.seen] == [("1x2x3", "tt")]


def test_shapes_of_a_file_may_have_their_own_types_and_layouts(dgw: Dgw, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("batch,m,n,k,dtype,layout\n,1,2,3,bf16,nt\n2,4,5,6,,\n")
    dgw("profile", "-v", "tiled", "--shapes", "s.csv")
    found = [(c.problem.shape, c.problem.a.dtype, c.problem.layout) for c in engine.seen]
    assert found == [("1x2x3", "bf16", "nt"), ("2x4x5x6", "f16", "nn")]


@pytest.mark.parametrize("text", ["64x64x64\n# a comment\n8x8x8\n", "64,64,64\n8,8,8\n"])
def test_a_file_of_shapes_needs_no_heading(dgw: Dgw, engine: Engine, tmp_path: Path, text: str) -> None:
    (tmp_path / "s.txt").write_text(text)
    dgw("profile", "-v", "tiled", "--shapes", "s.txt")
    assert [case.problem.shape for case in engine.seen] == ["64x64x64", "8x8x8"]


def test_a_kernel_of_ones_own_needs_no_name(dgw: Dgw, engine: Engine, tmp_path: Path) -> None:
    import dgw.kernels.cuda.s01_naive as naive

    declaration = Path(naive.__file__).read_text().replace('"cuda/naive"', '"mine/fast"')
    (tmp_path / "fast.py").write_text(declaration)
    (tmp_path / "fast.cu").write_text("// empty\n")
    ended = dgw("profile", "--kernel", "fast.cu", *SHAPE)
    assert ended.code == 0, ended.err
    assert [case.variant for case in engine.seen] == ["mine/fast"]


def test_failures_of_one_variant_and_kind_are_one_warning(dgw: Dgw, engine: Engine) -> None:
    engine.outcomes["cuda/tiled"] = "crashed"
    ended = dgw("profile", "-v", "tiled", "--shape", "8x8x8,16x16x16,32x32x32")
    assert ended.err.count("warning: ") == 1
    assert ended.out.count("crashed") >= 3


def test_ctrl_c_before_a_run_begins_ends_in_two_lines(dgw: Dgw, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(ask: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dgw.commands.session.machine", interrupt)
    ended = dgw("profile", "-v", "swizzled", *SHAPE)
    assert ended.code == 130
    assert ended.error_is_two_lines(), ended.err


def test_a_default_that_is_typed_is_the_same_case(dgw: Dgw, engine: Engine) -> None:
    dgw("profile", "-v", "swizzled", *SHAPE)
    normal, none = "".join(["nor", "mal"]), "".join(["no", "ne"])  # as from a shell: not the objects in the code
    typed = ("--data", normal, "--activation", none, "--quantise", none)
    dgw("profile", "-v", "swizzled", *SHAPE, *typed)
    first, second = engine.seen
    assert first.key == second.key


def test_what_takes_long_says_so_where_there_is_no_terminal(
    dgw: Dgw, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the timer of the command, expiring when the test says so, however slow the machine is
    due = threading.Event()
    timers: list[threading.Timer] = []

    class Timer(threading.Timer):
        def __init__(self, interval: float, function: Callable[[], None]) -> None:
            super().__init__(interval, function)
            timers.append(self)

        def run(self) -> None:
            due.wait(60)
            self.function()

    def slowly(owner: Any, cases: list[Any], keep: Any, progress: Any) -> None:
        progress(0, len(cases), "")
        due.set()
        timers[0].join()
        engine.run(owner, cases, keep, progress)

    monkeypatch.setattr(threading, "Timer", Timer)
    monkeypatch.setattr(session, "_on_cpu", slowly)
    ended = dgw("check", "--variant", "tiled", "--shape", "8x8x8,16x16x16", "--json")
    first, last = [line for line in ended.err.splitlines() if line.startswith("check: ")]
    assert first == "check: 2 cases, 0 of them finished so far ..."
    assert last.startswith("check: ended after")
    assert json.loads(ended.out)


def test_what_is_quick_says_nothing_of_its_progress(dgw: Dgw, engine: Engine) -> None:
    assert "check: " not in dgw("check", "--variant", "tiled", "--shape", "8x8x8").err
