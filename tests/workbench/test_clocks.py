"""Clocks are locked by a guardian, which unlocks them however its user ends. NVML is a module that writes a diary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from dgw.errors import Missing, UsageError
from dgw.workbench.clocks import hold, locked, try_lock
from dgw.workbench.slots import Slot

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


def test_whoever_holds_a_gpu_with_its_clock_holds_both_and_gives_both_back(
    diary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DGW_LOCKS", str(tmp_path / "locks"))
    gpus = [Slot("GPU-1", "h200"), Slot("GPU-2", "h200")]
    with hold(gpus, 1500) as first, hold(gpus, 1980) as second:
        assert [first.slot.uuid, second.slot.uuid] == ["GPU-1", "GPU-2"]
        assert diary.read_text().splitlines() == ["lock GPU-1 1500 1500", "lock GPU-2 1980 1980"]
        with pytest.raises(KeyboardInterrupt), hold(gpus, stopped=lambda: True):
            pytest.fail("both are held")
    assert diary.read_text().splitlines()[2:] == ["reset GPU-2", "reset GPU-1"]
    with hold(gpus):
        assert len(diary.read_text().splitlines()) == 4


def test_no_clock_is_touched_of_a_gpu_that_is_turned_down(
    diary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DGW_LOCKS", str(tmp_path / "locks"))

    def look(slot: Slot) -> None:
        raise Missing(f"others compute on {slot.uuid}", "another GPU")

    with pytest.raises(Missing, match="others compute on GPU-1"), hold([Slot("GPU-1")], 1500, look=look):
        pytest.fail("it was turned down")
    assert not diary.exists()


def test_whether_a_clock_may_be_locked_is_tried_on_a_gpu_that_nobody_measures_on(
    diary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DGW_LOCKS", str(tmp_path / "locks"))
    gpus = [Slot("GPU-1", "h200"), Slot("GPU-2", "h200")]
    with hold(gpus):
        try_lock(gpus, 1500)
        assert diary.read_text().splitlines() == ["lock GPU-2 1500 1500", "reset GPU-2"]
        monkeypatch.setenv("FORBIDDEN", "1")
        said: list[str] = []
        try_lock(gpus[:1], 1500, said.append)  # nothing is known of it, so nothing is wrong yet
        assert said == []  # and nobody waits
    with pytest.raises(Missing, match="Insufficient Permissions"):
        try_lock(gpus, 1500)
    with hold(gpus[:1]) as held:
        assert held.slot.uuid == "GPU-1"
    assert len(diary.read_text().splitlines()) == 2


def test_a_sweep_that_is_killed_with_kill_9_leaves_no_clock_locked(
    diary: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Path(__file__).parent / "sweep"
    played = [sys.executable, str(folder / "dgw_with_fake_gpu.py"), "0.5", str(tmp_path / "journal"), "-", "2"]
    asked = ["--kernel", str(folder / "many.cu"), "--shape", "64x64x64,64x64x128", "--space", "X=1..5,Y=1"]
    places = {"DGW_LOCKS": str(tmp_path / "locks"), "DGW_CACHE": str(tmp_path_factory.getbasetemp() / "sweep-cache")}
    killed = subprocess.Popen(
        [*played, "sweep", *asked, "--lock-clocks", "1500"], cwd=tmp_path, env={**os.environ, **places},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    tried = ["lock GPU-0 1500 1500", "reset GPU-0"]
    wait_for(diary, *tried, "lock GPU-0 1500 1500", "lock GPU-1 1500 1500")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    wait_for(diary, *tried, "reset GPU-0", "reset GPU-1")


def wait_for(diary: Path, *lines: str) -> None:
    """Wait until all of these lines stand in the diary, each as often as here."""
    end = time.monotonic() + 30
    while not (diary.exists() and Counter(lines) <= Counter(diary.read_text().splitlines())):
        assert time.monotonic() < end, f"{lines} were not noted"
        time.sleep(0.01)


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
    warnings: list[str] = []
    with pytest.raises(Missing, match="Insufficient Permissions"), locked("GPU-1", 1500, warnings.append):
        pytest.fail("nothing is locked here")
    assert not diary.exists()
    assert warnings == []  # what was never locked cannot be left locked
    with pytest.raises(UsageError), locked("GPU-1", 0):
        pytest.fail("no clock is 0")
