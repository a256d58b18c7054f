"""`dgw sweep` on GPUs that children play, and in the emulator."""

from __future__ import annotations

import errno
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dgw.commands import session, sweep_local
from dgw.model import Record, Run
from dgw.workbench import slots
from dgw.workbench.store import Store
from dgw.workbench.sweep import race
from tests.commands.conftest import Dgw, Ended

FOLDER = Path(__file__).parents[1] / "workbench" / "sweep"
SMALL = ("--space", "X=0..2,Y=1..4")


class Gpus:
    """Fake GPUs; `journal` notes each case that a child begins as GPU, policy and key."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "journal"
        self.broken, self.count = "", 1

    def argv(self, ask: object) -> list[str]:
        return [sys.executable, str(FOLDER / "fake_gpu.py"), "0", str(self.journal), self.broken]

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.journal.read_text().splitlines()] if self.journal.exists() else []

    def begun(self, policy: str) -> list[str]:
        return [key for _, name, key in self.lines if name == policy]


@pytest.fixture
def gpus(dgw: Dgw, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    fake = Gpus(tmp_path)
    monkeypatch.setenv("DGW_CACHE", str(tmp_path_factory.getbasetemp() / "sweep-cache"))
    monkeypatch.setenv("DGW_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(session, "gpu_is_here", lambda: True)
    monkeypatch.setattr(session, "child_argv", fake.argv)
    monkeypatch.setattr(sweep_local, "child_argv", fake.argv)
    monkeypatch.setattr(slots, "visible", lambda *_, **__: [slots.Slot(f"GPU-{n}", "fake") for n in range(fake.count)])
    return fake


@pytest.fixture
def sweep(dgw: Dgw) -> Callable[..., Ended]:
    def call(*arguments: str) -> Ended:
        return dgw("sweep", "--kernel", str(FOLDER / "many.cu"), "--shape", "64x64x64", *arguments)

    return call


Sweep = Callable[..., Ended]


def records(ended: Ended) -> tuple[Record, ...]:
    return msgspec.json.decode(ended.out, type=Run).records


def test_every_config_is_screened_once_and_the_best_race(gpus: Gpus, sweep: Sweep) -> None:
    ended = sweep("--json")
    assert ended.code == 0, ended.err
    found = records(ended)
    assert len(found) == 70
    assert sum(record.outcome == "refused" for record in found) == 10
    assert len(gpus.begun("screen")) == len(set(gpus.begun("screen"))) == 60
    verdicts = [race.verdict(record) for record in found]
    assert verdicts.count("best") == 1
    assert sum(bool(verdict) for verdict in verdicts) == len(gpus.begun("final"))
    best = next(record for record in found if race.verdict(record) == "best")
    assert best.get("time_cold").protocol == "cold-graph/1"  # type: ignore[union-attr]
    screened = [race.screened(record) for record in found if record.outcome == "ok"]
    assert race.screened(best) == pytest.approx(min(s for s in screened if s is not None), rel=0.01)


def test_the_report_names_the_best_the_default_and_what_cannot_run(gpus: Gpus, sweep: Sweep) -> None:
    ended = sweep(*SMALL)
    assert "12 configs: 8 ok, 4 refused" in ended.out
    assert "(default)" in ended.out
    assert "4 x refused: X=0 leaves nothing to do" in ended.out
    assert "The default config takes" in ended.out
    assert "race/1" in ended.out
    assert "is kept: dgw report" in ended.err


def test_a_wrong_config_is_a_row_that_is_not_timed_and_has_no_place(gpus: Gpus, sweep: Sweep) -> None:
    gpus.broken = "Y=2=wrong"
    ended = sweep(*SMALL, "--json")
    assert ended.code == 1
    wrong = [record for record in records(ended) if record.outcome == "wrong"]
    assert len(wrong) == 2
    assert all(record.number("time_cold") is None and not race.verdict(record) for record in wrong)


def test_a_child_that_dies_again_and_again_costs_its_own_cases(gpus: Gpus, sweep: Sweep) -> None:
    gpus.broken = "dies"
    ended = sweep(*SMALL, "--json")
    assert ended.code == 5
    outcomes = [record.outcome for record in records(ended)]
    assert len(outcomes) == 12
    assert outcomes.count("crashed") >= 2
    assert outcomes.count("ok") >= 4


def test_the_same_command_again_measures_nothing_and_tells_the_same(gpus: Gpus, sweep: Sweep) -> None:
    first = records(sweep(*SMALL, "--json"))
    lines = gpus.lines
    again = sweep(*SMALL, "--json")
    assert gpus.lines == lines
    assert "8 of 8 cases are finished and taken over from run" in again.err
    assert {r.case.key: r for r in records(again)} == {r.case.key: r for r in first}


def test_a_command_that_overlaps_takes_over_only_when_asked_to_resume(gpus: Gpus, sweep: Sweep) -> None:
    sweep(*SMALL)
    before = len(gpus.begun("screen"))
    sweep("--space", "X=1..2,Y=1..5")
    assert len(gpus.begun("screen")) == before + 10
    sweep("--space", "X=1..3,Y=1..5", "--resume")
    assert len(gpus.begun("screen")) == before + 10 + 5


def test_fresh_measures_everything_anew(gpus: Gpus, sweep: Sweep) -> None:
    sweep(*SMALL)
    sweep(*SMALL, "--fresh")
    assert len(gpus.begun("screen")) == 16


def test_an_edited_kernel_is_measured_again(gpus: Gpus, dgw: Dgw, tmp_path: Path) -> None:
    for name in ("many.py", "many.cu"):
        (tmp_path / name).write_text((FOLDER / name).read_text())
    command = ("sweep", "--kernel", "many.cu", "--shape", "64x64x64", *SMALL)
    dgw(*command)
    (tmp_path / "many.cu").write_text('extern "C" __global__ void nothing() { __trap(); }\n')
    ended = dgw(*command)
    assert "taken over" not in ended.err
    assert len(gpus.begun("screen")) == 16


def test_records_of_another_driver_are_not_taken_over(gpus: Gpus, sweep: Sweep, monkeypatch: Any) -> None:
    sweep(*SMALL)
    usable = session.machine

    def newer(ask: Any) -> Any:
        where = usable(ask)
        environment = msgspec.structs.replace(where.environment, driver="999.1")
        return SimpleNamespace(**{**vars(where), "environment": environment})

    monkeypatch.setattr(session, "machine", newer)
    assert "taken over" not in sweep(*SMALL).err


def test_configs_that_execute_the_same_are_measured_once(gpus: Gpus, dgw: Dgw, tmp_path: Path) -> None:
    text = (FOLDER / "many.py").read_text().replace('10 * int(config["Y"]) + ', "")
    (tmp_path / "many.py").write_text(text)
    (tmp_path / "many.cu").write_text((FOLDER / "many.cu").read_text())
    ended = dgw("sweep", "--kernel", "many.cu", "--shape", "64x64x64", *SMALL, "--json")
    assert len(gpus.begun("screen")) == 2
    found = [record for record in records(ended) if record.outcome == "ok"]
    assert len(found) == 8
    assert sum("the same machine code and launch" in flag for r in found for flag in r.flags) == 6


def test_two_gpus_share_one_problem_and_its_race_is_on_one_of_them(gpus: Gpus, sweep: Sweep) -> None:
    gpus.count = 2
    ended = sweep("--json")
    assert ended.code == 0, ended.err
    assert len(set(gpus.begun("screen"))) == len(gpus.begun("screen")) == 60
    assert {gpu for gpu, policy, _ in gpus.lines if policy == "screen"} == {"GPU-0", "GPU-1"}
    assert len({gpu for gpu, policy, _ in gpus.lines if policy == "final"}) == 1
    alone = sweep("--json", "--gpus", "0", "--fresh")
    best = [[r.case.key for r in records(e) if race.verdict(r) == "best"] for e in (ended, alone)]
    assert best[0] == best[1]


def test_only_the_gpus_that_are_named_are_used(gpus: Gpus, sweep: Sweep) -> None:
    gpus.count = 3
    sweep(*SMALL, "--gpus", "2")
    assert {gpu for gpu, _, _ in gpus.lines} == {"GPU-2"}
    assert sweep(*SMALL, "--gpus", "7").error_is_two_lines()


def interrupt_at_the_third_record(
    monkeypatch: pytest.MonkeyPatch, by: signal.Signals = signal.SIGINT
) -> Callable[[Store, str, Record], None]:
    """Ctrl-C, or another signal, once three records are kept; gives what keeps a record without it."""
    put, count = Store.put, 0

    def interrupted(self: Store, run: str, record: Record) -> None:
        nonlocal count
        put(self, run, record)
        count += 1
        if count == 3:
            signal.raise_signal(by)

    monkeypatch.setattr(Store, "put", interrupted)
    return put


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_a_scheduler_ends_it_with_a_summary_and_the_command_that_goes_on(
    gpus: Gpus, sweep: Sweep, monkeypatch: pytest.MonkeyPatch, by: signal.Signals
) -> None:
    put = interrupt_at_the_third_record(monkeypatch, by)
    ended = sweep(*SMALL)
    assert ended.code == 130
    assert "error: interrupted: 7 of 12 cases are finished, 0 of them failed" in ended.err
    assert f"--shape 64x64x64 --space {SMALL[1]} --resume" in ended.err
    monkeypatch.setattr(Store, "put", put)
    done = len(gpus.begun("screen"))
    assert "3 of 8 cases are finished" in sweep(*SMALL).err
    assert len(gpus.begun("screen")) == done + 5


def test_a_full_disk_is_one_clear_error_and_loses_nothing(
    gpus: Gpus, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    from dgw.workbench.store import store as module

    write, count = module._write, 0

    def full(connection: Any, run: str, record: Record) -> None:
        nonlocal count
        count += 1
        if count > 6:
            raise sqlite3.OperationalError("database or disk is full")
        write(connection, run, record)

    monkeypatch.setattr(module, "_write", full)
    ended = sweep(*SMALL)
    assert ended.error_is_two_lines(), ended.err
    assert "no space left for the store" in ended.err
    monkeypatch.setattr(module, "_write", write)
    assert "2 of 8 cases are finished" in sweep(*SMALL).err


def test_a_disk_that_cannot_take_a_file_is_one_clear_error(
    gpus: Gpus, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dgw.workbench import children

    def full(path: Path, job: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "job.json")

    monkeypatch.setattr(children, "write_job", full)
    monkeypatch.setattr("dgw.workbench.probing.probe", lambda *_, **__: (SimpleNamespace(driver="1"), session.machine))
    monkeypatch.setattr(session, "machine", _machine)
    ended = sweep(*SMALL)
    assert ended.error_is_two_lines(), ended.err
    assert "No space left on device" in ended.err


def _machine(ask: object) -> session.Machine:
    from dgw.toolchain.devices import device
    from tests.reports.samples import GPU

    return session.Machine("gpu", device("h200"), environment=GPU)


def test_a_gpu_that_falls_off_ends_the_sweep_with_what_is_finished(
    gpus: Gpus, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "machine", _machine)
    gpus.broken = "no-gpu"
    ended = sweep(*SMALL)
    assert ended.code == 6
    assert "no GPU can be used: CUDA_ERROR_NO_DEVICE" in ended.err
    gpus.broken = ""
    assert sweep(*SMALL).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--space", "Z=1"), ("--space", "X=99"), ("--space", "64"), ("--space", "X="), ("--fix", "X=1,2"),
        ("--count", "some"), ("--config", "X=1", "--space", "Y=1"), ("--counters", "nonsense"),
    ],
)  # fmt: skip
def test_nonsense_is_an_error_of_two_lines(gpus: Gpus, sweep: Sweep, arguments: tuple[str, ...]) -> None:
    ended = sweep(*arguments)
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err


def test_a_space_of_which_nothing_can_run_says_why(gpus: Gpus, sweep: Sweep) -> None:
    ended = sweep("--space", "X=0")
    assert ended.code == 2
    assert "nothing ran: own/many refuses 64x64x64 f16: X=0 leaves nothing to do" in ended.err


def test_configs_that_are_typed_are_the_whole_sweep(gpus: Gpus, sweep: Sweep) -> None:
    found = records(sweep("-c", "X=2,Y=3", "-c", "X=4", "--json"))
    assert [(r.case.config["X"], r.case.config["Y"]) for r in found] == [(2, 3), (4, 1)]


def test_fixed_tunables_stand_still_and_default_means_all_others(gpus: Gpus, sweep: Sweep) -> None:
    found = records(sweep("--space", "Y=2,3", "--fix", "default", "--json"))
    assert [r.case.config for r in found] == [{"X": 1, "Y": 2}, {"X": 1, "Y": 3}]
    found = records(sweep("--space", "Y=2..4", "--fix", "X=6", "--json"))
    assert sorted(r.case.config["Y"] for r in found) == [2, 3, 4]
    assert {r.case.config["X"] for r in found} == {6}


def test_without_a_gpu_configs_run_in_the_emulator_and_nobody_wins(dgw: Dgw) -> None:
    ended = dgw("sweep", "-v", "tiled", "-s", "32x32x32", "--space", "BM=64,128", "--fix", "default")
    assert ended.code == 0, ended.err
    assert "2 configs: 2 ok" in ended.out
    assert "there is no winner" in ended.out


@pytest.mark.parametrize(
    "wrong",
    [
        ("--space", "Z=1"),
        ("--space", "X=99"),
        ("--space", "nonsense"),
        ("--fix", "X=1,2"),
        ("--fix", "Q=1"),
        ("--fix", "X=99"),
    ],
)
def test_what_a_space_cannot_be_is_said_with_a_command_that_can_be_typed(
    dgw: Dgw, gpus: Gpus, sweep: Sweep, wrong: tuple[str, str]
) -> None:
    ended = sweep(*wrong)
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err
    command = shlex.split(ended.err.rpartition("try: dgw ")[2])
    assert dgw(*command, "--engine", "static").code == 0


def test_a_sample_of_none_is_refused(sweep: Sweep) -> None:
    ended = sweep("--sample", "0")
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err


@pytest.mark.parametrize("wrong", [("--x", "BQ"), ("--facet", "BQ"), ("--x", "BM", "--y", "BM"), ("--space", "BM=7")])
def test_what_a_map_cannot_have_is_said_with_a_command_that_can_be_typed(dgw: Dgw, wrong: tuple[str, ...]) -> None:
    ended = dgw("heatmap", "-v", "tiled", "-s", "32x32x32", *wrong)
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err
    command = shlex.split(ended.err.rpartition("try: dgw ")[2])
    ended = dgw(*command, "--engine", "static", "--metric", "registers", "--sample", "2")
    assert ended.code in (0, 4), ended.err
