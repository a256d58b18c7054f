"""Messages survive the pipe, and whatever else is on it does no harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dgw.model import Case, Check, Environment, Launch, Measurement, Plan, Pointer, Source, gemm
from dgw.toolchain.devices import device
from dgw.workbench.protocol import (
    Begin,
    Bye,
    ChildJob,
    Done,
    Garbled,
    Group,
    Hello,
    Member,
    Message,
    Policy,
    Speaker,
    Unavailable,
    decode,
    encode,
    read_job,
    write_job,
)  # fmt: skip

MESSAGES: list[Message] = [
    Hello(pid=5, environment=Environment(device="h200"), device=device("h200")),
    Unavailable(reason="no driver"),
    Begin(key="00", phase="check"),
    Done(key="00", outcome="wrong", reason="x", check=Check(passed=False, compared=4, error=None), flags=("f",)),
    Done(key="01", outcome="ok", measurements=(Measurement(metric="m", value=1.5, collector="c", samples=(1.0,)),)),
    Bye(context_lost=True),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_is_one_line_and_comes_back_the_same(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


@pytest.mark.parametrize("line", [b"", b"hello", b"{}", b'{"type": "done"}', b"\xff\xfe", b'{"type": "new", "x": 1}'])
def test_a_line_that_is_no_message_is_garbled_and_no_exception(line: bytes) -> None:
    assert isinstance(decode(line), Garbled)


def test_a_job_survives_its_file(tmp_path: Path) -> None:
    launch = Launch(
        source=Source(path="a.cu"), entry="a", grid=(1, 1, 1), block=(1, 1, 1), arguments=(Pointer(operand="a"),)
    )
    member = Member(case=Case(problem=gemm(1, 2, 3), variant="t/a"), plan=Plan(steps=(launch,)), cubins=("x.cubin",))
    job = ChildJob(kind="measure", groups=(Group(members=(member,), lanes=("check", "time")),), policy=Policy(turns=3))
    write_job(tmp_path / "job.json", job)
    assert read_job(tmp_path / "job.json") == job


def test_the_speaker_writes_complete_lines(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    speaker = Speaker(fifo)
    for message in MESSAGES:
        speaker.say(message)
    speaker.close()
    assert [decode(line) for line in os.read(reader, 65536).splitlines()] == MESSAGES
    os.close(reader)


def test_a_child_whose_runner_is_gone_ends_instead_of_waiting_for_a_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="No such device"):
        Speaker(tmp_path / "fifo", patience_s=0.0)
