"""GPUs as slots: which there are, and that two processes never have the same one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgw.errors import Missing, UsageError
from dgw.workbench import slots
from dgw.workbench.slots import Slot, chosen, hold, visible

NAMES = ("GPU-aa11", "GPU-bb22", "GPU-bb33")


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGW_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(slots, "POLL_S", 0.0)


def nvml() -> Any:
    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: len(NAMES),
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetUUID=lambda number: NAMES[number].encode(),
        nvmlDeviceGetName=lambda number: "NVIDIA H200",
        nvmlSystemGetDriverVersion=lambda: b"580.159",
    )


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        (None, NAMES),
        ("1,0", ("GPU-bb22", "GPU-aa11")),
        ("GPU-aa", ("GPU-aa11",)),
        ("GPU-bb", ()),
        ("GPU-bb33,1,1", ("GPU-bb33", "GPU-bb22")),
        ("0,-1,1", ("GPU-aa11",)),
        ("", ()),
        ("7", ()),
        ("MIG-5", ("MIG-5",)),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(variable: str | None, found: tuple[str, ...]) -> None:
    environment = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert tuple(slot.uuid for slot in visible(nvml(), environment)) == found


def test_the_driver_is_told_with_every_gpu() -> None:
    assert {slot.driver for slot in visible(nvml(), {})} == {"580.159"}


def test_without_nvml_nothing_is_said_to_be_there() -> None:
    def broken() -> None:
        raise OSError("no driver")

    assert visible(SimpleNamespace(nvmlInit=broken), {}) == []


def test_a_child_of_a_slot_sees_that_gpu_only() -> None:
    with hold([Slot("GPU-aa11")]) as held:
        assert held.environment == {"CUDA_VISIBLE_DEVICES": "GPU-aa11"}


def test_slots_are_chosen_by_number_or_by_the_start_of_their_uuid() -> None:
    here = visible(nvml(), {})
    assert [slot.uuid for slot in chosen(here, ["2", "GPU-a"])] == ["GPU-bb33", "GPU-aa11"]
    assert chosen(here, []) == here
    for name in ("9", "GPU-b", ""):
        with pytest.raises(UsageError, match="no GPU is named"):
            chosen(here, [name])


def test_a_gpu_that_is_held_is_passed_over_for_one_that_is_free() -> None:
    with hold([Slot("GPU-aa11")]), hold([Slot("GPU-aa11"), Slot("GPU-bb22")]) as second:
        assert second.slot.uuid == "GPU-bb22"
    with hold([Slot("GPU-aa11"), Slot("GPU-bb22")]) as third:
        assert third.slot.uuid == "GPU-aa11"


def test_who_waits_says_so_once_and_can_be_stopped() -> None:
    said: list[str] = []
    looks = iter((False, False, True))
    with (
        hold([Slot("GPU-aa11")]),
        pytest.raises(KeyboardInterrupt),
        hold([Slot("GPU-aa11")], said.append, lambda: next(looks)),
    ):
        raise AssertionError("nobody may get here")
    assert said == ["waiting: the GPU is being measured on by another dgw process"]


def test_who_does_not_wait_does_not_say_so() -> None:
    said: list[str] = []
    with (
        hold([Slot("GPU-aa11")]),
        pytest.raises(KeyboardInterrupt),
        hold([Slot("GPU-aa11")], said.append, lambda: True),
    ):
        raise AssertionError("nobody may get here")
    assert said == []


def test_a_child_that_outlives_its_parent_keeps_the_gpu_and_its_end_frees_it() -> None:
    with hold([Slot("GPU-aa11")]) as held:
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=held.keep_open
        )
    with pytest.raises(KeyboardInterrupt), hold([Slot("GPU-aa11")], stopped=lambda: True):
        raise AssertionError("nobody may get here")
    child.communicate(b"")
    with hold([Slot("GPU-aa11")]) as again:
        assert again.slot.uuid == "GPU-aa11"


def test_a_lock_that_cannot_be_made_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGW_LOCKS", "/proc/none")
    with pytest.raises(Missing, match="cannot open the lock") as caught, hold([Slot("GPU-aa11")]):
        raise AssertionError("nobody may get here")
    assert "DGW_LOCKS" in caught.value.hint


def test_lock_files_may_be_opened_by_every_user() -> None:
    with hold([Slot("GPU-aa11")]):
        assert os.stat(slots.lock_path(Slot("GPU-aa11"))).st_mode & 0o444 == 0o444
