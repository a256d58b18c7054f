"""Stages of the Hopper family without a GPU: the emulator runs them, and what it cannot run is known as compiled."""

from __future__ import annotations

import json

import pytest

from dgw.toolchain.cache import CompileCache
from dgw.workbench.emulator.errors import EmulatorError
from tests.commands.conftest import Dgw

CASE = ("--variant", "hopper/persistent", "--shape", "256x256x256", "--no-store")


@pytest.fixture(autouse=True)
def compiled_once(dgw: Dgw, cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGW_CACHE", str(cache.folder))


@pytest.fixture
def unable(monkeypatch: pytest.MonkeyPatch) -> None:
    def emulate(*arguments: object, **options: object) -> None:
        raise EmulatorError("persistent: unknown instruction `tcgen05.mma`")

    monkeypatch.setattr("dgw.workbench.collectors.emulator.emulate", emulate)


def test_a_check_without_a_gpu_compares_every_element(dgw: Dgw) -> None:
    ended = dgw("check", "--family", "hopper", "--shape", "130x72x72", "--layout", "nt", "--no-store", "--json")
    assert ended.code == 0
    records = json.loads(ended.out)["records"]
    assert [(record["outcome"], record["check"]["compared"]) for record in records] == [("ok", 130 * 72)] * 4


def test_a_profile_counts_what_warps_do_and_says_what_nobody_measured(dgw: Dgw) -> None:
    ended = dgw("profile", *CASE)
    assert ended.code == 0
    assert "CTAs emulated" in ended.out
    assert "Time was not measured because there is no GPU" in ended.out


@pytest.mark.usefixtures("unable")
def test_a_profile_shows_what_was_compiled_says_what_was_not_and_ends_with_0(dgw: Dgw) -> None:
    ended = dgw("profile", *CASE)
    assert ended.code == 0
    assert "spill stores, B" in ended.out
    assert "not checked, not counted: the emulator cannot run it" in ended.out


@pytest.mark.usefixtures("unable")
def test_a_check_that_checked_nothing_wants_a_gpu_and_does_not_end_with_0(dgw: Dgw) -> None:
    ended = dgw("check", *CASE)
    assert (ended.code, ended.error_is_two_lines()) == (6, True)
    assert "try: the same on a machine with a GPU; here, dgw profile" in ended.err


@pytest.mark.usefixtures("unable")
def test_a_diagnosis_says_that_nothing_was_executed_and_what_cannot_be_told(dgw: Dgw) -> None:
    said = " ".join(dgw("diagnose", *CASE).out.split())
    assert "nothing was executed (the emulator cannot run it" in said
    assert "whether the result is right, and everything that is counted, takes a GPU" in said
    assert "producer-starved" in said


@pytest.mark.usefixtures("unable")
def test_the_seven_steps_claim_no_right_result_and_no_absence_of_conflicts(dgw: Dgw) -> None:
    said = " ".join(dgw("diagnose", "--sequence", "seven-step", *CASE).out.split())
    assert "its result was not checked" in said
    assert "cannot be told here: bank-conflicts => go on: nothing that is known here" in said
    assert "normal: not checked" in said
    assert "result is right" not in said.replace("whether the result is right", "")


def test_a_diagnosis_of_what_is_refused_says_why_and_does_not_end_with_0(dgw: Dgw) -> None:
    ended = dgw("diagnose", *CASE, "--dtype", "f32")
    assert ended.code == 2
    assert "error: nothing ran: hopper/persistent refuses 256x256x256 f32" in ended.err
    assert "it is not for this problem: hopper/persistent takes f16, bf16, not f32" in " ".join(ended.out.split())


@pytest.mark.parametrize("command", ["check", "profile"])
def test_a_refused_case_is_promised_no_lower_bound(dgw: Dgw, command: str) -> None:
    ended = dgw(command, *CASE, "--dtype", "f32")
    assert "refused" in ended.out
    assert "lower bound" not in ended.out.lower()


@pytest.mark.usefixtures("unable")
def test_lower_bounds_of_the_problem_alone_explain_no_difference(dgw: Dgw) -> None:
    ended = dgw("compare", "hopper/tensor-core", "hopper/persistent", *CASE[2:], "--explain")
    assert ended.code == 0
    assert "has no cycles to explain a difference with" in " ".join(ended.out.split())


def test_another_architecture_is_refused_without_promising_newer_ones(dgw: Dgw) -> None:
    assert "runs on sm_90a, not on sm_100" in dgw("profile", *CASE, "--device", "b200").out
