"""Clocks are locked by a guardian, which unlocks them however its user ends. NVML is a module that writes a diary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dgw.errors import Missing, UsageError
from dgw.workbench.clocks import locked

NVML = """
import os

def note(text):
    with open(os.environ["DIARY"], "a") as file:
        file.write(text + chr(10))

def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid): return uuid
def nvmlDeviceSetGpuLockedClocks(handle, low, high):
    if os.environ.get("FORBIDDEN"):
        raise OSError("Insufficient Permissions")
    note(f"lock {handle} {low} {high}")
def nvmlDeviceResetGpuLockedClocks(handle): note(f"reset {handle}")
"""
HOLDER = """
import sys
from dgw.workbench.clocks import locked
with locked("GPU-1", 1500):
    print("holds", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def diary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pynvml.py").write_text(NVML)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]))
    monkeypatch.setenv("DIARY", str(tmp_path / "diary"))
    return tmp_path / "diary"


def test_clocks_are_locked_inside_the_block_and_given_back_after_it(diary: Path) -> None:
    def fail_meanwhile() -> None:
        with locked("GPU-1", 1500):
            assert diary.read_text() == "lock GPU-1 1500 1500\n"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_meanwhile()
    assert diary.read_text().splitlines()[1:] == ["reset GPU-1"]


def test_clocks_are_given_back_after_kill_9(diary: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "holds\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    end = time.monotonic() + 30
    while "reset" not in diary.read_text() and time.monotonic() < end:
        os.sched_yield()
    assert diary.read_text().splitlines() == ["lock GPU-1 1500 1500", "reset GPU-1"]


def test_clocks_that_may_not_be_locked_are_missing_and_stay_as_they_were(
    diary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORBIDDEN", "1")
    with pytest.raises(Missing, match="Insufficient Permissions"), locked("GPU-1", 1500):
        pytest.fail("nothing is locked here")
    assert not diary.exists()
    with pytest.raises(UsageError), locked("GPU-1", 0):
        pytest.fail("no clock is 0")
