"""A child that takes turns, on a driver made of host memory: what it answers, and what ends it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgw.model import Case, Launch, Plan, Pointer, Problem, Source, gemm
from dgw.workbench import child, turns
from dgw.workbench.children import open_requests
from dgw.workbench.protocol import (
    Begin,
    Bye,
    ChildJob,
    Done,
    Hello,
    Member,
    Message,
    Policy,
    Ready,
    Turned,
    decode,
    write_job,
)
from tests.workbench.fake_cuda import FakeCuda
from tests.workbench.test_child import KERNELS, variant

PROBLEM = gemm(33, 41, 29, "f16")
OTHER = gemm(16, 16, 16, "f16")
Talk = Callable[..., list[Message]]


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    cubin = tmp_path / "any.cubin"
    cubin.write_bytes(b"code")

    def run(*requests: turns.Request, free: int = 1 << 30) -> list[Message]:
        """All answers to these requests, hello and goodbye included; the server ends with them."""
        cuda = FakeCuda(PROBLEM, KERNELS, free)
        cuda.seconds = {"correct": 2e-5}
        code = dict.fromkeys(("fill", "reference", "compare"), str(cubin))
        write_job(tmp_path / "job.json", ChildJob(kind="turns", policy=Policy(replay_s=1e-3), device_code=code))
        fifo, ours = tmp_path / "answers", open_requests(tmp_path)
        os.mkfifo(fifo)
        variants = {f"t/{name}": variant(name) for name in KERNELS}
        heard: list[bytes] = []
        reader = threading.Thread(target=lambda: heard.append(fifo.read_bytes()))
        reader.start()
        for request in requests:
            os.write(ours, turns.encode(request))
        os.write(ours, turns.encode(turns.Leave()))
        child.serve(variants, tmp_path / "job.json", fifo, api=cuda, nvml=SimpleNamespace(nvmlInit=lambda: 1 / 0))
        reader.join(10)
        os.close(ours)
        return [decode(line) for line in heard[0].splitlines()]

    return run


def member(name: str, problem: Problem = PROBLEM, variant_name: str = "") -> Member:
    arguments = (Pointer(operand="a"), Pointer(operand="b"), Pointer(operand="d"))
    launch = Launch(source=Source(path="x.cu"), entry=name, grid=(1, 1, 1), block=(32, 1, 1), arguments=arguments)
    case = Case(problem=problem, variant=f"t/{variant_name or name}")
    return Member(case=case, plan=Plan(steps=(launch,)), cubins=("any.cubin",))


def prepare(name: str, kernel: str, tmp_path: Path, **more: Any) -> turns.Prepare:
    found = member(kernel, **{key: more.pop(key) for key in ("problem", "variant_name") if key in more})
    placed = Member(case=found.case, plan=found.plan, cubins=(str(tmp_path / "any.cubin"),))
    return turns.Prepare(name=name, member=placed, **more)


def test_a_turn_is_one_replay_and_gives_the_seconds_of_one_launch(talk: Talk, tmp_path: Path) -> None:
    answers = talk(prepare("x", "correct", tmp_path), turns.Turn(name="x"), turns.Release(name="x"))
    hello, begin, ready, turned, done, bye = answers
    assert isinstance(hello, Hello)
    assert isinstance(begin, Begin)
    assert isinstance(ready, Ready)
    assert ready.sets > 1
    assert ready.launches % ready.sets == 0
    assert isinstance(turned, Turned)
    assert turned.seconds == pytest.approx(2e-5)
    assert isinstance(done, Done)
    assert done.outcome == "ok"
    assert isinstance(bye, Bye)


def test_both_sides_can_be_given_the_same_number_of_launches(talk: Talk, tmp_path: Path) -> None:
    ready = talk(prepare("x", "correct", tmp_path, launches=7))[2]
    assert isinstance(ready, Ready)
    assert ready.launches == 7


def test_outputs_are_checked_when_asked_and_a_wrong_one_is_said(talk: Talk, tmp_path: Path) -> None:
    names = ("correct", "off_by_one_product")
    requests: list[turns.Request] = []
    for name in names:
        requests += [prepare(name, name, tmp_path), turns.Turn(name=name), turns.Release(name=name, check=True)]
    done = {answer.key: answer for answer in talk(*requests) if isinstance(answer, Done)}
    assert done["correct"].outcome == "ok"
    assert done["correct"].check is not None
    assert done["off_by_one_product"].outcome == "wrong"
    assert done["off_by_one_product"].reason.startswith("after timing: ")


def test_a_member_whose_variant_this_side_lacks_runs_by_its_plan(talk: Talk, tmp_path: Path) -> None:
    answers = talk(prepare("x", "correct", tmp_path, variant_name="unheard-of"), turns.Turn(name="x"))
    assert isinstance(answers[3], Turned)


def test_a_context_that_breaks_ends_the_child_after_it_said_which_case_did_it(talk: Talk, tmp_path: Path) -> None:
    answers = talk(
        prepare("x", "breaks_the_context", tmp_path), turns.Turn(name="x"), prepare("y", "correct", tmp_path)
    )
    assert [type(answer) for answer in answers] == [Hello, Begin, Done, Bye]
    assert isinstance(answers[2], Done)
    assert (answers[2].key, answers[2].outcome) == ("x", "crashed")
    assert isinstance(answers[3], Bye)
    assert answers[3].context_lost


def test_what_does_not_fit_costs_itself_only(talk: Talk, tmp_path: Path) -> None:
    large = gemm(4096, 4096, 4096, "f16")
    answers = talk(prepare("x", "correct", tmp_path, problem=large), prepare("y", "correct", tmp_path), free=1 << 20)
    failed = [answer for answer in answers if isinstance(answer, Done)]
    assert [(answer.key, answer.outcome) for answer in failed] == [("x", "out-of-memory")]
    assert any(isinstance(answer, Ready) and answer.name == "y" for answer in answers)


def test_another_problem_takes_the_place_of_the_one_before(talk: Talk, tmp_path: Path) -> None:
    answers = talk(
        prepare("x", "nothing", tmp_path), prepare("y", "nothing", tmp_path, problem=OTHER), turns.Turn(name="y"),
        turns.Turn(name="x"),
    )  # fmt: skip
    assert any(isinstance(answer, Turned) and answer.name == "y" for answer in answers)
    last = answers[-2]
    assert isinstance(last, Done)
    assert (last.key, last.outcome) == ("x", "launch-failed")
