"""`--lock-clocks` of the commands that take times, on GPUs that are played and with a guardian that keeps a diary."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.commands import session
from dgw.errors import Missing
from dgw.model import Record
from dgw.workbench import clocks, runner, slots
from dgw.workbench.store import Store
from dgw.workbench.sweep import race
from tests.commands import test_diagnose_on_gpu
from tests.commands.conftest import Dgw, Engine
from tests.commands.test_on_gpu import SHAPE, Gpu, gpu
from tests.commands.test_sweep import (
    FOLDER,
    SMALL,
    Gpus,
    Sweep,
    _machine,
    gpus,
    interrupt_at_the_third_record,
    records,
    sweep,
)

__all__ = ["gpu", "gpus", "sweep"]
LOCK = ("--lock-clocks", "1500")


class Guardian:
    """In the place of the one that talks to NVML: who was locked at what, and which of them still are."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.held: list[str] = []
        self.tried: list[str] = []
        self.forbids = ""
        self.together = threading.Barrier(1)
        """How many clocks have to be locked at once before anything is measured."""

    def try_lock(self, gpus: Sequence[slots.Slot], megahertz: int, say: Callable[[str], None]) -> None:
        """Stands in for the lock of an instant, which is not among those that are held."""
        self.tried.append(gpus[0].uuid)
        self._may(megahertz)

    def _may(self, megahertz: int) -> None:
        if self.forbids:
            raise Missing(f"clocks cannot be locked at {megahertz} MHz: {self.forbids}", "without --lock-clocks")

    @contextlib.contextmanager
    def locked(self, uuid: str, megahertz: int, warn: Callable[[str], None]) -> Iterator[None]:
        self._may(megahertz)
        descriptor = slots._try(slots.Slot(uuid))
        assert descriptor is None, "the clocks of a GPU are locked by whoever holds it"
        self.asked.append((uuid, megahertz))
        self.held.append(uuid)
        try:
            self.together.wait(30)
            yield
        finally:
            self.held.remove(uuid)


@pytest.fixture
def guardian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guardian:
    fake = Guardian()
    monkeypatch.setenv("DGW_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(slots, "visible", lambda *_, **__: [slots.Slot("GPU-0", "fake"), slots.Slot("GPU-1", "fake")])
    monkeypatch.setattr(clocks, "locked", fake.locked)
    monkeypatch.setattr(clocks, "try_lock", fake.try_lock)
    return fake


@pytest.fixture
def policies(gpu: Gpu, guardian: Guardian, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of every policy with which the played runner ran, which takes the GPU as the real one does."""
    found: list[float] = []
    walked = test_diagnose_on_gpu.Gpu()

    def run(jobs: Any, setup: runner.Session, keep: Callable[[Record], None], progress: Any) -> list[Record]:
        found.append(setup.policy.locked_hz)
        with setup.gpu() as held:
            assert guardian.held == ([held.slot.uuid] if setup.policy.locked_hz else [])
            if gpu.broken:
                raise KeyboardInterrupt if gpu.broken == "Ctrl-C" else Missing("the GPU fell off", "dgw doctor")
            return (walked if jobs[0].case.problem.m > 64 else gpu).run(jobs, setup, keep, progress)

    monkeypatch.setattr(runner, "run", run)
    return found


COMMANDS = [
    ("profile", "-v", "naive", *SHAPE),
    ("compare", "naive", "tiled", *SHAPE),
    ("diagnose", "-v", "naive", "--shape", "4096x4096x4096"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_that_takes_times_holds_the_clock_of_its_gpu_meanwhile(
    dgw: Dgw, policies: list[float], guardian: Guardian, command: tuple[str, ...]
) -> None:
    ended = dgw(*command, *LOCK)
    assert ended.code == 0, ended.err
    assert set(policies) == {1.5e9}
    assert guardian.asked == [("GPU-0", 1500)] * len(policies)
    assert guardian.tried == ["GPU-0"]  # once, however often it measures
    assert guardian.held == []


def test_without_the_option_no_clock_is_touched(dgw: Dgw, policies: list[float], guardian: Guardian) -> None:
    assert dgw(*COMMANDS[0]).code == 0
    assert policies == [0.0]
    assert guardian.asked == []


@pytest.mark.parametrize(("broken", "code"), [("Ctrl-C", 130), ("fell off", 6)])
def test_the_clock_is_given_back_after_ctrl_c_and_after_an_error(
    dgw: Dgw,
    gpu: Gpu,
    policies: list[float],
    guardian: Guardian,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    code: int,
) -> None:
    monkeypatch.setattr("dgw.workbench.probing.probe", Gpu().probe)
    gpu.broken = broken
    assert dgw(*COMMANDS[0], *LOCK).code == code
    assert guardian.asked == [("GPU-0", 1500)]
    assert guardian.held == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_who_may_not_lock_clocks_gets_exit_code_6_before_anything_runs(
    dgw: Dgw, policies: list[float], guardian: Guardian, command: tuple[str, ...]
) -> None:
    guardian.forbids = "Insufficient Permissions"
    ended = dgw(*command, *LOCK)
    assert ended.code == 6
    assert "clocks cannot be locked at 1500 MHz: Insufficient Permissions" in ended.err
    assert ended.err.splitlines()[-1] == "  try: without --lock-clocks"
    assert dgw("runs", "--json").out.strip() == "[]"  # and none was begun
    assert policies == []
    assert guardian.tried == ["GPU-0"]


def test_who_may_not_lock_clocks_sweeps_nothing(
    gpus: Gpus, sweep: Sweep, guardian: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(*_: object) -> None:
        pytest.fail("it was compiled first")

    monkeypatch.setattr("dgw.workbench.sweep.compiling.prepare_all", compiled)
    guardian.forbids = "Insufficient Permissions"
    ended = sweep("--gpus", "1", *SMALL, *LOCK)
    assert (ended.code, ended.error_is_two_lines()) == (6, True), ended.err
    assert guardian.tried == ["GPU-1"]


CASE = ("-v", "naive", *SHAPE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("profile", *CASE, *LOCK, "--engine", "emulator"), "the engine emulator has no clock"),
        (("compare", *CASE, *LOCK, "--engine", "static"), "the engine static has no clock"),
        (("sweep", *CASE, *LOCK, "--engine", "dask://host:8786"), "the GPUs of a cluster are not locked"),
        (("heatmap", *CASE, *LOCK, "--engine", "dask://host:8786"), "the GPUs of a cluster are not locked"),
        (("profile", *CASE, *LOCK, "--no-time"), "--no-time takes none"),
        (("profile", *CASE, "--lock-clocks", "2500"), "the SM clock of h200 is at most 1980 MHz, not 2500"),
        (("heatmap", "--run", "last", *LOCK), "a stored run is only drawn"),
        (("diagnose", "--run", "last", *LOCK), "a stored run is only read"),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, tuple) else "",
)
def test_a_clock_that_cannot_be_locked_is_an_error_of_two_lines(
    dgw: Dgw, policies: list[float], arguments: tuple[str, ...], said: str
) -> None:
    ended = dgw(*arguments)
    assert ended.code == 2
    assert said in ended.err
    assert ended.error_is_two_lines(), ended.err
    assert policies == []


@pytest.mark.parametrize("command", ["profile", "compare", "sweep", "heatmap", "diagnose"])
def test_without_a_gpu_there_is_no_clock_to_lock(dgw: Dgw, command: str) -> None:
    ended = dgw(command, *CASE, *LOCK)
    assert ended.code == 2
    assert "there is no GPU here whose clock could be locked" in ended.err
    assert ended.error_is_two_lines(), ended.err


def test_a_gpu_that_cannot_be_used_is_not_replaced_by_the_emulator(dgw: Dgw, gpu: Gpu, guardian: Guardian) -> None:
    gpu.broken = "the driver is too old"
    ended = dgw(*COMMANDS[0], *LOCK)
    assert ended.code == 6
    assert ended.error_is_two_lines(), ended.err


def test_a_sweep_locks_every_gpu_that_it_holds_and_all_its_figures_say_so(
    gpus: Gpus, sweep: Sweep, guardian: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SM_CLOCK", "1.395e9")
    guardian.together = threading.Barrier(2)
    ended = sweep("--shape", "64x64x128", "--space", "X=1..5,Y=1", *LOCK, "--json")
    assert ended.code == 0, ended.err
    assert sorted(guardian.asked) == [("GPU-0", 1500), ("GPU-1", 1500)]
    assert guardian.held == []
    found = [record for record in records(ended) if record.outcome == "ok"]
    measured = [
        m for r in found for m in r.measurements if m.collector in ("timing", "sweep") and m.protocol != "nvml/1"
    ]
    assert {m.protocol.endswith(" at 1500 MHz") for m in measured} == {True}
    assert all(any("the SM clock was 1395 .. 1395 MHz" in flag for flag in record.flags) for record in found)
    raced = [record for record in found if race.verdict(record)]
    assert raced
    for record in raced:  # the screening and the race are flagged each
        assert sum("left the locked clock of" in flag for flag in record.flags) == 2
        assert "paired/1 cold-graph/1 at 1500 MHz" in {m.protocol for m in record.measurements}


def test_ctrl_c_in_a_sweep_gives_every_clock_back_and_the_command_that_goes_on_locks_again(
    gpus: Gpus, sweep: Sweep, guardian: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = interrupt_at_the_third_record(monkeypatch)
    ended = sweep("--gpus", "1", *SMALL, *LOCK)
    assert ended.code == 130
    assert "--lock-clocks 1500 --resume" in ended.err
    assert guardian.asked == [("GPU-1", 1500)]
    assert guardian.held == []
    monkeypatch.setattr(Store, "put", put)
    begun = len(gpus.begun("screen"))
    guardian.forbids = "Insufficient Permissions"
    ended = sweep("--gpus", "1", *SMALL, *LOCK, "--resume")
    assert (ended.code, len(gpus.begun("screen"))) == (6, begun), ended.err
    assert guardian.tried == ["GPU-1"] * 2
    guardian.forbids = ""
    assert sweep("--gpus", "1", *SMALL, *LOCK, "--resume").code == 0
    assert guardian.asked == [("GPU-1", 1500)] * 2
    assert guardian.tried == ["GPU-1"] * 3


def test_a_gpu_that_falls_off_a_sweep_gives_its_clock_back(
    gpus: Gpus, sweep: Sweep, guardian: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "machine", _machine)
    gpus.broken = "no-gpu"
    assert sweep(*SMALL, *LOCK).code == 6
    assert guardian.asked
    assert guardian.held == []


def test_locked_and_free_sweeps_take_over_their_own_times_only(
    gpus: Gpus, sweep: Sweep, guardian: Guardian, dgw: Dgw, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SM_CLOCK", "1.49e9")
    seconds = itertools.count()  # runs of one second would have no order
    monkeypatch.setattr(session, "stamp", lambda: (f"run-{(n := next(seconds)):02}", f"2027-01-01T00:00:{n:02}+00:00"))
    once = len(sweep(*SMALL, "--gpus", "0", "--json").out) and len(gpus.begun("screen"))
    locked = sweep(*SMALL, "--gpus", "0", *LOCK, "--resume", "--json")
    assert "taken over" not in locked.err
    assert len(gpus.begun("screen")) == 2 * once
    assert not any(flag.startswith("left") for record in records(locked) for flag in record.flags)
    for more in ((), LOCK):
        again = sweep(*SMALL, "--gpus", "0", *more, "--resume", "--json")
        assert f"{once} of {once} cases are finished and taken over" in again.err
        times = [time for r in records(again) if (time := r.get("time_cold")) is not None]
        assert {time.protocol.endswith("at 1500 MHz") for time in times} == {bool(more)}
    assert len(gpus.begun("screen")) == 2 * once
    assert guardian.tried == ["GPU-0"]  # nothing was left to measure the second time
    best = dgw("best", "64x64x64", "-o", ".dgw/tuned.json")
    assert "SM clock locked at 1500 MHz" in best.out
    assert "Protocols: cold-graph/1 at 1500 MHz" in best.out
    entry = msgspec.json.decode(Path(".dgw/tuned.json").read_bytes())["entries"][0]
    assert entry["protocol"] == "cold-graph/1 at 1500 MHz"
    kernel = str(FOLDER / "many.cu")
    told = dgw("profile", "--kernel", kernel, "--shape", "64x64x64", "--engine", "emulator").err
    assert "on h200, SM clock locked at 1500 MHz; --tuned none" in " ".join(told.split())


def test_a_map_is_swept_at_the_locked_clock(gpus: Gpus, dgw: Dgw, guardian: Guardian) -> None:
    kernel = str(FOLDER / "many.cu")
    ended = dgw("heatmap", "--kernel", kernel, "--shape", "64x64x64", "--x", "X", "--y", "Y",
                "--space", "X=1..2,Y=1..2", *LOCK)  # fmt: skip
    assert ended.code == 0, ended.err
    assert guardian.asked == [("GPU-0", 1500)]
    assert "screen/1 cold-graph/1 at 1500 MHz" in " ".join(ended.out.split())


@pytest.mark.slow
def test_the_evidence_of_locked_clocks_asks_only_for_what_the_commands_know(
    gpus: Gpus, dgw: Dgw, guardian: Guardian, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(test_diagnose_on_gpu.ROOT / "evidence"))
    topics, script = importlib.import_module("topic"), importlib.import_module("clocks")
    played = importlib.import_module("tests.workbench.sweep.many").VARIANT.id

    class Played(topics.Topic):  # type: ignore[name-defined, misc]
        def dgw(self, *arguments: str, **more: Any) -> Any:
            ended = dgw(*arguments)
            return topics.Done(ended.code, ended.out, ended.err, 1.0)

    monkeypatch.setenv("FAKE_SM_CLOCK", "1.2e9")
    kernel = ("--kernel", str(FOLDER / "many.cu"), "--shape", "64x64x64")
    monkeypatch.setattr(script, "PROFILE", ("profile", *kernel, "--against", "none", "--counters", "none"))
    monkeypatch.setattr(script, "SWEEP", ("sweep", *kernel[:2], "--shape", "64x64x128", *SMALL))
    monkeypatch.setattr(script, "of", lambda run, name: next(r for r in run.records if r.case.variant == played))
    monkeypatch.setattr(script, "Topic", lambda name: topic)
    monkeypatch.setattr(script, "sm_clock", lambda: 1.2e9)
    monkeypatch.setattr(topics, "ROOT", tmp_path)
    topic = Played("clocks", folder=tmp_path)
    script.main()
    for name in ("clocks", "topic"):
        sys.modules.pop(name, None)
    slower = "its cold time over that at the GPU's own clock"  # the played GPU is as fast at every clock
    assert {row["claim"] for row in topic.shows if not row["holds"]} <= {slower}
    assert len(topic.shows) == 14
    assert (tmp_path / "docs" / "h200" / "clocks.json").is_file()
