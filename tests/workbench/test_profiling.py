"""The counter pass against scripted children: when each starts, when it gets the GPU, what is tried again."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dgw.model import Case, Measurement, gemm
from dgw.workbench.children import End
from dgw.workbench.counters import CHUNK, Harvest
from dgw.workbench.profiling import Counted, CounterPass, Running
from dgw.workbench.protocol import Begin, Bye, ChildJob, Done, Member, Message

FINE = End("exited", 0, True, False, "")
DEAD = End("exited", -11, False, False, "")


def members(count: int) -> list[Member]:
    return [Member(case=Case(problem=gemm(8 * n, 64, 64), variant="t/good"), plan=None) for n in range(1, count + 1)]


def has_turn(job: ChildJob) -> bool:
    """Whether a child with this job would go on now."""
    with open(job.turn) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


class Stage:
    """Plays profiler and children, and keeps what happened in `events`. A child dies at the cases in `dies`."""

    version = "1"

    def __init__(self, dies: set[str] | None = None) -> None:
        self.dies = dies or set()
        self.events: list[str] = []
        self.jobs: list[ChildJob] = []
        self.done: list[set[str]] = []
        self.harvests: list[Harvest] = []
        self.at_bye: Callable[[int], None] = lambda number: None

    def command(self, report: Path) -> list[str]:
        return ["profiler", report.name]

    def environment(self, env: Any, scratch: Path) -> dict[str, str]:
        return {}

    def start(self, job: ChildJob, prefix: Sequence[str]) -> Running:
        number = len(self.jobs) + 1
        self.jobs.append(job)
        self.done.append(set())
        self.events.append(f"start {number}")
        return Running(lambda hear: self._play(number, hear), lambda: self.events.append(f"stop {number}"))

    def _play(self, number: int, hear: Callable[[Message], None]) -> End:
        job = self.jobs[number - 1]
        assert has_turn(job), "a child is heard before it may touch the GPU"
        self.events.append(f"gpu {number}")
        if "before the first word" in self.dies:
            self.events.append(f"dead {number}")
            return DEAD
        for member in (member for group in job.groups for member in group.members):
            others = [other for other in self.jobs[number:] if has_turn(other)]
            assert not others, "two children have the GPU"
            hear(Begin(key=member.case.key, phase="profile"))
            if member.case.key in self.dies:
                self.events.append(f"dead {number}")
                return DEAD
            self.done[number - 1].add(member.case.key)
            hear(Done(key=member.case.key, outcome="ok"))
        hear(Bye())
        self.at_bye(number)
        self.events.append(f"end {number}")
        return FINE

    def harvest(self, report: Path, output: str, status: int | None) -> Harvest:
        number = int(report.stem.rpartition("-")[2])
        self.events.append(f"read {number}")
        if self.harvests:
            return self.harvests.pop(0)
        return Harvest({key: ["kernel"] for key in self.done[number - 1]})

    def measurements(self, kernels: Sequence[Any], reason: str) -> tuple[Measurement, ...]:
        return (Measurement(metric="x", value=1 if kernels else None, absent=reason, collector="ncu"),)


def profile(stage: Stage, count: int, folder: Path) -> dict[str, Counted]:
    found: dict[str, Counted] = {}
    CounterPass(stage, stage.start, folder, {}, 10.0).run(members(count), lambda c: found.update({c.key: c}))
    return found


def test_the_next_child_starts_while_one_has_the_gpu_and_its_report_is_read_while_the_next_has_it(
    tmp_path: Path,
) -> None:
    stage = Stage()
    given: list[list[bool]] = []
    stage.at_bye = lambda number: given.append([has_turn(job) for job in stage.jobs])
    found = profile(stage, 2 * CHUNK + 3, tmp_path)
    assert stage.events == [
        "start 1", "gpu 1", "start 2", "end 1", "read 1", "gpu 2", "start 3", "end 2", "read 2", "gpu 3", "end 3",
        "read 3",
    ]  # fmt: skip
    assert given == [[True] * 2, [True] * 3, [True] * 3]  # at its last word, before its report
    assert [sum(len(group.members) for group in job.groups) for job in stage.jobs] == [CHUNK, CHUNK, 3]
    assert len(found) == 2 * CHUNK + 3
    assert all(one.measurements[0].value == 1 for one in found.values())


def test_after_a_crash_the_chunk_ahead_goes_on_and_the_rest_of_the_broken_one_follows(tmp_path: Path) -> None:
    everyone = members(2 * CHUNK)
    stage = Stage(dies={everyone[10].case.key})
    found = profile(stage, 2 * CHUNK, tmp_path)
    assert [event for event in stage.events if event.startswith(("gpu", "dead"))] == [
        "gpu 1",
        "dead 1",
        "gpu 2",
        "gpu 3",
    ]
    assert [member for group in stage.jobs[2].groups for member in group.members] == everyone[11:CHUNK]
    lost = [key for key, one in found.items() if one.measurements[0].value is None]
    assert lost == [everyone[10].case.key]
    assert "under the profiler: killed by SIGSEGV" in found[lost[0]].measurements[0].absent
    assert len(found) == 2 * CHUNK


def test_a_child_ahead_that_would_ask_for_too_much_is_stopped_and_started_anew(tmp_path: Path) -> None:
    stage = Stage()
    stage.harvests = [Harvest({}, "no permission", retry=True)]
    found = profile(stage, CHUNK + 5, tmp_path)
    assert stage.events[:6] == ["start 1", "gpu 1", "start 2", "end 1", "read 1", "stop 2"]
    assert [sum(len(group.members) for group in job.groups) for job in stage.jobs] == [CHUNK, 5, CHUNK, 5]
    assert "gpu 2" not in stage.events
    assert all(one.measurements[0].value == 1 for one in found.values())
    assert len(found) == CHUNK + 5


def test_a_final_refusal_stops_the_child_ahead_and_every_case_has_the_reason(tmp_path: Path) -> None:
    stage = Stage()
    stage.harvests = [Harvest({}, "no counters here", fatal=True)]
    found = profile(stage, CHUNK + 5, tmp_path)
    assert stage.events == ["start 1", "gpu 1", "start 2", "end 1", "read 1", "stop 2"]
    assert {one.measurements[0].absent for one in found.values()} == {"no counters here"}
    assert len(found) == CHUNK + 5


def test_a_profiler_that_never_says_a_word_has_the_machine_for_itself(tmp_path: Path) -> None:
    stage = Stage()
    stage.dies = {"before the first word"}
    found = profile(stage, CHUNK + 5, tmp_path)
    assert stage.events[:4] == ["start 1", "gpu 1", "dead 1", "read 1"]
    assert all(one.measurements[0].value is None for one in found.values())


def test_an_interrupt_leaves_no_child_behind(tmp_path: Path) -> None:
    stage = Stage()

    def interrupt(counted: Counted) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CounterPass(stage, stage.start, tmp_path, {}, 10.0).run(members(CHUNK + 1), interrupt)
    assert stage.events[-1] == "stop 2"
