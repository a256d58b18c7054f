"""The child on a driver made of host memory: what it says of kernels that work, lie, fail and break the context."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cuda.bindings.driver as real
import numpy as np
import pytest

from dgw.model import Case, Epilogue, Launch, Plan, Pointer, Problem, Source, Variant, gemm
from dgw.operands import references
from dgw.workbench import child, turn
from dgw.workbench.protocol import (
    Begin,
    Bye,
    ChildJob,
    Done,
    Group,
    Hello,
    Member,
    Message,
    Policy,
    Unavailable,
    decode,
    write_job,
)  # fmt: skip
from tests.workbench.fake_cuda import FakeCuda, Kernel, memory, view_of, word

PROBLEM = gemm(33, 41, 29, "f16")
POLICY = Policy(turns=6, replay_s=1e-3, warm_up_s=0.01, energy_s=0.0)


def correct(cuda: FakeCuda, parameters: list[int]) -> None:
    reference = references.block_reference(cuda.problem)
    view_of(cuda.problem, "d", word(parameters[2]))[...] = references.stored_output(cuda.problem, reference.value)


def off_by_one_product(cuda: FakeCuda, parameters: list[int]) -> None:
    correct(cuda, parameters)
    view_of(cuda.problem, "d", word(parameters[2]))[5, 7] += 1


def into_the_guard(cuda: FakeCuda, parameters: list[int]) -> None:
    correct(cuda, parameters)
    memory(word(parameters[2]) + 2 * 33 * 41, 2).fill(0)


def into_its_input(cuda: FakeCuda, parameters: list[int]) -> None:
    correct(cuda, parameters)
    memory(word(parameters[0]), 1)[0] ^= 1


def breaks_the_context(cuda: FakeCuda, parameters: list[int]) -> None:
    cuda.dead = real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS


def wrong_from_the_tenth_launch(cuda: FakeCuda, parameters: list[int]) -> None:
    correct(cuda, parameters)
    if cuda.launched.count("wrong_from_the_tenth_launch") > 10:
        view_of(cuda.problem, "d", word(parameters[2]))[0, 0] = 999


def quantising(cuda: FakeCuda, parameters: list[int]) -> None:
    """Divides by the scales that it is given."""
    scale = memory(word(parameters[3]), 4 * cuda.problem.m).view(np.float32).astype(np.float64)[:, None]
    reference = references.block_reference(cuda.problem)
    view_of(cuda.problem, "d", word(parameters[2]))[...] = references.stored_output(
        cuda.problem, reference.value, scale
    )


def into_its_scales(cuda: FakeCuda, parameters: list[int]) -> None:
    quantising(cuda, parameters)
    memory(word(parameters[3]), 1)[0] ^= 1


KERNELS: dict[str, Kernel] = {
    "quantising": quantising, "into_its_scales": into_its_scales,
    "correct": correct, "off_by_one_product": off_by_one_product, "into_the_guard": into_the_guard,
    "into_its_input": into_its_input, "nothing": lambda cuda, parameters: None, "baseline": correct,
    "breaks_the_context": breaks_the_context, "wrong_from_the_tenth_launch": wrong_from_the_tenth_launch,
}  # fmt: skip


def variant(name: str, bind: Any = None) -> Variant:
    return Variant(
        id=f"t/{name}", version=1, idea="", dtypes=("f16",), bind=bind, plan=None if bind else lambda *_: Plan()
    )


@pytest.fixture
def listen(tmp_path: Path) -> Callable[..., tuple[int, list[Message], FakeCuda]]:
    cubin = tmp_path / "any.cubin"
    cubin.write_bytes(b"code")

    def member(name: str, against: tuple[str, ...], problem: Problem, shared: int) -> Member:
        arguments = tuple(Pointer(operand=operand) for operand in ("a", "b", "d", "d_scale"))
        launch = Launch(
            source=Source(path="x.cu"),
            entry=name,
            grid=(1, 1, 1),
            block=(32, 1, 1),
            arguments=arguments,
            shared_bytes=shared,
        )
        case = Case(problem=problem, variant=f"t/{name}")
        return Member(case=case, plan=Plan(steps=(launch,)), cubins=(str(cubin),), against=against)

    def run(
        *names: str, lanes: tuple[Any, ...] = ("check",), kind: Any = "measure", shared: int = 0, free: int = 1 << 30,
        problem: Problem = PROBLEM, nvml: Any = None, against: str = "", separate: bool = False,
        its_turn: str = "",
    ) -> tuple[int, list[Message], FakeCuda]:  # fmt: skip
        keys = (member(against, (), problem, 0).case.key,) if against else ()
        members = tuple(member(name, keys, problem, shared) for name in names)
        code = dict.fromkeys(("fill", "reference", "compare"), str(cubin))
        job = ChildJob(
            kind=kind, groups=(Group(members=members, lanes=lanes),) if names else (), policy=POLICY, device_code=code,
            separate=separate, turn=its_turn,
        )  # fmt: skip
        job_file, fifo = tmp_path / "job.json", tmp_path / "fifo"
        write_job(job_file, job)
        os.mkfifo(fifo)
        lines: list[bytes] = []
        reader = threading.Thread(target=lambda: lines.extend(fifo.open("rb")))
        reader.start()
        cuda = FakeCuda(problem, KERNELS, free)
        status = child.serve({f"t/{n}": variant(n) for n in KERNELS}, job_file, fifo, cuda, nvml or SimpleNamespace())
        reader.join()
        return status, [decode(line) for line in lines], cuda

    return run


def done(messages: list[Message]) -> dict[str, Done]:
    names = {Case(problem=PROBLEM, variant=f"t/{name}").key: name for name in KERNELS}
    return {names[m.key]: m for m in messages if isinstance(m, Done)}


Listen = Callable[..., tuple[int, list[Message], FakeCuda]]


def test_a_probe_says_what_the_gpu_is_and_nothing_about_the_host(listen: Listen) -> None:
    status, messages, _ = listen(kind="probe")
    hello = messages[0]
    assert isinstance(hello, Hello)
    assert (hello.device.name, hello.environment.cuda, hello.environment.engine) == ("h200", "13.0", "gpu")
    assert len(hello.environment.device_uuid) == 16
    text = str(hello.environment)
    assert os.uname().nodename not in text
    assert str(Path.home()) not in text
    assert (status, messages[1:]) == (0, [Bye()])


def test_every_kind_of_wrong_is_said_in_words(listen: Listen) -> None:
    _, messages, _ = listen("correct", "off_by_one_product", "into_the_guard", "into_its_input", "nothing")
    found = done(messages)
    assert {name: m.outcome for name, m in found.items()} == {
        "correct": "ok", "off_by_one_product": "wrong", "into_the_guard": "wrong", "into_its_input": "wrong",
        "nothing": "wrong",
    }  # fmt: skip
    assert "outside d were overwritten, the first 2706 bytes behind the start" in found["into_the_guard"].reason
    assert "changed its input a" in found["into_its_input"].reason
    assert "never written is NaN" in found["nothing"].reason
    assert "d[5, 7]" in found["off_by_one_product"].reason


def test_a_kernel_after_one_that_spoilt_the_inputs_gets_them_whole(listen: Listen) -> None:
    _, messages, _ = listen("into_its_input", "correct")
    assert done(messages)["correct"].outcome == "ok"


def test_a_quantising_kernel_gets_the_scales_and_may_not_change_them(listen: Listen) -> None:
    problem = gemm(33, 41, 29, "f16", out="s8", epilogue=Epilogue(quantise="row"))
    _, messages, _ = listen("quantising", "into_its_scales", problem=problem)
    first, second = (message for message in messages if isinstance(message, Done))
    assert (first.outcome, first.check.compared if first.check else 0) == ("ok", 33 * 41)
    assert second.outcome == "wrong"
    assert "changed its input d_scale" in second.reason


def test_a_wrong_member_is_never_timed(listen: Listen) -> None:
    _, messages, cuda = listen("off_by_one_product", "correct", lanes=("check", "time"))
    found = done(messages)
    assert found["off_by_one_product"].measurements == ()
    assert cuda.launched.count("off_by_one_product") == 1
    assert {m.metric for m in found["correct"].measurements} >= {"time_cold", "time_hot", "tflops", "bandwidth"}


def test_times_are_those_of_the_devices_own_clock_and_ratios_are_paired(listen: Listen) -> None:
    original = FakeCuda.__init__

    def slower(self: FakeCuda, *arguments: Any) -> None:
        original(self, *arguments)
        self.seconds = {"correct": 2e-5, "baseline": 1e-5}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeCuda, "__init__", slower)
        _, messages, _ = listen("correct", "baseline", lanes=("check", "time"), against="baseline")
    mine = {m.metric: m for m in done(messages)["correct"].measurements}
    assert mine["time_cold"].value == pytest.approx(2e-5)
    assert mine["time_cold"].protocol == "cold-graph/1"
    assert len(mine["time_cold"].samples) == POLICY.turns
    assert mine["ratio_to_baseline"].value == pytest.approx(0.5)
    assert "ratio_to_baseline" not in {m.metric for m in done(messages)["baseline"].measurements}


def test_a_kernel_that_is_wrong_only_when_timed_is_wrong_and_has_no_time(listen: Listen) -> None:
    _, messages, _ = listen("wrong_from_the_tenth_launch", "correct", lanes=("check", "time"))
    late = done(messages)["wrong_from_the_tenth_launch"]
    assert late.outcome == "wrong"
    assert late.reason.startswith("after timing:")
    assert late.measurements == ()
    assert done(messages)["correct"].outcome == "ok"


def test_too_much_shared_memory_fails_the_launch_and_leaves_the_context(listen: Listen) -> None:
    status, messages, _ = listen("correct", shared=1 << 20)
    assert done(messages)["correct"].outcome == "launch-failed"
    assert status == 0


def test_more_than_48_kb_of_shared_memory_is_asked_for(listen: Listen) -> None:
    _, messages, cuda = listen("correct", shared=100_000)
    assert done(messages)["correct"].outcome == "ok"
    assert cuda.granted == {"correct": 100_000}


def test_a_fault_of_the_context_is_a_crash_and_ends_the_child(listen: Listen) -> None:
    status, messages, _ = listen("correct", "breaks_the_context", "baseline")
    found = done(messages)
    assert found["breaks_the_context"].outcome == "crashed"
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in found["breaks_the_context"].reason
    assert "baseline" not in found
    assert messages[-1] == Bye(context_lost=True)
    assert status == child.CONTEXT_LOST


def test_buffers_that_do_not_fit_are_out_of_memory_for_the_group(listen: Listen) -> None:
    status, messages, _ = listen("correct", "baseline", free=1000 * 1024, problem=gemm(2048, 2048, 64, "f16"))
    assert [m.outcome for m in messages if isinstance(m, Done)] == ["out-of-memory"] * 2
    assert status == 0


def test_a_small_problem_is_timed_hot_only_and_says_why(listen: Listen) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeCuda, "_cuDeviceGetAttribute", lambda self, attribute, device: 1 << 30)
        _, messages, _ = listen("correct", lanes=("check", "time"))
    mine = {m.metric: m for m in done(messages)["correct"].measurements}
    assert "hot only" in mine["time_cold"].absent
    assert mine["tflops"].protocol == "hot-graph/1"


def test_under_a_profiler_each_case_is_launched_in_a_range_of_its_key(listen: Listen) -> None:
    import nvtx

    ranges: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvtx, "push_range", lambda name, domain: ranges.append((name, domain)))
        patch.setattr(nvtx, "pop_range", lambda domain: ranges.append(domain))
        _, messages, cuda = listen("correct", "baseline", kind="profile")
    keys = [Case(problem=PROBLEM, variant=f"t/{name}").key for name in ("correct", "baseline")]
    assert ranges == [(keys[0], "dgw"), "dgw", (keys[1], "dgw"), "dgw"]
    assert [name for name in cuda.launched if not name.startswith("fill")] == ["correct", "baseline"]
    assert [m.outcome for m in messages if isinstance(m, Done)] == ["ok", "ok"]


def test_a_child_that_waits_for_its_turn_touches_nothing_before_it(listen: Listen) -> None:
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turn, "wait", said.append)
        patch.setattr(FakeCuda, "_cuInit", lambda self, *_: said.append("touched"))
        _, messages, _ = listen("correct", kind="profile", its_turn="the turn")
    assert said == ["the turn", "touched"]
    assert [m.outcome for m in messages if isinstance(m, Done)] == ["ok"]


def test_a_turn_is_waited_for_until_it_is_given_or_its_giver_is_gone(tmp_path: Path) -> None:
    held = turn.Turn(tmp_path / "turn")
    waiting = threading.Thread(target=turn.wait, args=(str(held.path),))
    waiting.start()
    waiting.join(0.02)
    assert waiting.is_alive()
    held.give()
    waiting.join(10)
    assert not waiting.is_alive()
    turn.wait(str(tmp_path / "no such turn"))


def test_the_case_is_announced_before_each_thing_that_can_hang(listen: Listen) -> None:
    _, messages, _ = listen("correct", lanes=("check", "time"))
    phases = [m.phase for m in messages if isinstance(m, Begin)]
    assert phases[:5] == ["inputs", "check", "reference", "capture", "warm-up"]
    assert phases[-1] == "check after timing"


def test_without_a_driver_the_child_says_so(tmp_path: Path) -> None:
    job_file, fifo = tmp_path / "job.json", tmp_path / "fifo"
    write_job(job_file, ChildJob(kind="probe"))
    os.mkfifo(fifo)
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.extend(fifo.open("rb")))
    reader.start()

    class NoDriver:
        def cuInit(self, flags: int) -> Any:  # noqa: N802
            raise RuntimeError("libcuda.so.1 was not found\nand more")

    assert child.serve({}, job_file, fifo, NoDriver()) == 0
    reader.join()
    message = decode(lines[0])
    assert isinstance(message, Unavailable)
    assert "libcuda.so.1 was not found" in message.reason


def test_the_child_of_own_kernels_does_not_import_torch(listen: Listen) -> None:
    before = "torch" in sys.modules
    listen("correct", lanes=("check", "time"))
    assert ("torch" in sys.modules) == before
