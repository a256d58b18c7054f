"""kill -9 at random moments of a sweep: in the end every case is there exactly once, whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dgw.model import Record
from dgw.workbench.store import open_store
from dgw.workbench.sweep import race

HERE = Path(__file__).parent


@contextmanager
def sweeping(folder: Path, cache: Path, gpus: int) -> Iterator[subprocess.Popen[bytes]]:
    """The sweep of sixty cases as a process of its own; each case takes a little while."""
    paths = os.pathsep.join([str(HERE.parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ, "DGW_STORE": str(folder / "dgw.db"), "DGW_CACHE": str(cache), "DGW_LOCKS": str(folder),
        "PYTHONPATH": paths,
    }  # fmt: skip
    fake = [str(HERE / "dgw_with_fake_gpu.py"), "0.002", str(folder / "journal"), "-", str(gpus)]
    command = ("sweep", "--kernel", str(HERE / "many.cu"), "--shape", "64x64x64")
    process = subprocess.Popen(
        [sys.executable, *fake, *command], cwd=folder, env=environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def kill_after(folder: Path, process: subprocess.Popen[bytes], cases: int, whom: str) -> None:
    """kill -9 to the parent, its children or both once so many more cases have begun (or the sweep has ended)."""
    journal = folder / "journal"
    begun = journal.stat().st_size if journal.exists() else 0
    while process.poll() is None:
        if journal.exists() and journal.stat().st_size >= begun + cases * 20:
            break
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()] \
        if process.poll() is None else []  # fmt: skip
    for pid in [*(children if whom != "parent" else ()), *([process.pid] if whom != "child" else ())]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def assert_whole(record: Record) -> None:
    assert record.outcome in ("ok", "refused", "crashed"), record.reason
    if record.outcome == "ok":
        assert record.check is not None
        assert race.screened(record) is not None
        assert record.resume_key


def finish(folder: Path, cache: Path, gpus: int) -> None:
    with sweeping(folder, cache, gpus) as process:
        _, told = process.communicate()
    assert process.returncode == 0, told.decode()
    runs = open_store(str(folder / "dgw.db"))
    last = runs.run("last").records
    assert len(last) == len({record.case.key for record in last}) == 70
    assert sum(record.outcome == "ok" for record in last) == 60
    assert [race.verdict(record) for record in last].count("best") == 1
    for one in runs.runs():
        records = runs.run(one.id).records
        assert len({record.case.key for record in records}) == len(records)
        for record in records:
            assert_whole(record)


def killed_again_and_again(folder: Path, cache: Path, times: int, seed: int, gpus: int = 1) -> int:
    """How many cases were begun in all."""
    chance = random.Random(seed)
    for _ in range(times):
        with sweeping(folder, cache, gpus) as process:
            kill_after(folder, process, chance.randrange(0, 12), chance.choice(("parent", "child", "both")))
            if process.poll() is None and chance.random() < 0.5:
                process.kill()
    finish(folder, cache, gpus)
    return sum(b" screen " in line for line in (folder / "journal").read_bytes().splitlines())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "sweep-cache"


def test_after_kills_at_random_every_case_is_there_once_and_few_were_begun_twice(tmp_path: Path, cache: Path) -> None:
    kills = 3
    begun = killed_again_and_again(tmp_path, cache, kills, 1)
    assert begun <= 60 + 2 * kills  # a child and then its parent, each while a case was in flight


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_after_a_hundred_kills_every_case_is_there_once(tmp_path: Path, cache: Path) -> None:
    killed_again_and_again(tmp_path, cache, 100, 2)


@pytest.mark.slow
def test_after_kills_of_a_sweep_on_two_gpus_every_case_is_there_once(tmp_path: Path, cache: Path) -> None:
    killed_again_and_again(tmp_path, cache, 20, 3, gpus=2)


@pytest.mark.parametrize("gpus", [1, 2])
def test_ctrl_c_ends_a_process_with_130_and_the_command_that_goes_on(tmp_path: Path, cache: Path, gpus: int) -> None:
    with sweeping(tmp_path, cache, gpus) as process:
        journal = tmp_path / "journal"
        while process.poll() is None and not (journal.exists() and journal.stat().st_size > 100):
            continue
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    text = told.decode()
    assert process.returncode == 130, text
    assert "error: interrupted: " in text
    assert "of 70 cases are finished" in text
    assert "--shape 64x64x64 --resume" in text
    assert "Traceback" not in text
    if gpus == 1:
        finish(tmp_path, cache, gpus)
