"""The timeline lane: chunks of cases behind a stub nsys, torch.profiler in its place, and what the child does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dgw.model import Measurement
from dgw.workbench.device import timeline as child_side
from dgw.workbench.passes import Found
from dgw.workbench.timeline_pass import CHUNK, TimelinePass
from tests.workbench.collectors import stub_tools
from tests.workbench.collectors.stub_tools import KEY, Children, target, torch_trace, values


def traced(children: Children, count: int = 2, tool: Path | None = stub_tools.NSYS) -> list[Found]:
    targets = [target(16 * (number + 1)) for number in range(count)]
    lines = [f"{one.member.case.key} gemm 10 10" for one in targets]
    lines += [f"{one.member.case.key}/replay gemm 10 4" for one in targets] * 3
    ranges = children.folder / "ranges"
    ranges.write_text("\n".join(line for line in lines if not children.dies or children.dies not in line))
    children.env["STUB_NSYS_RANGES"] = str(ranges)
    found: list[Found] = []
    TimelinePass(tool, {"PATH": "/usr/bin:/bin", "HOME": "/home/ada"}).run(targets, children.place(), found.append)
    return found


REPLAYS = (
    Measurement(metric="replay_launches", value=4, unit="count", collector="timing"),
    Measurement(metric="replay_time", value=10.2e-6, unit="s", collector="timing"),
)


def test_cases_get_their_figures_from_one_run_of_nsys(tmp_path: Path) -> None:
    children = Children(tmp_path, says=REPLAYS)
    first, second = traced(children)
    assert len(children.jobs) == 1
    assert (children.jobs[0].kind, children.jobs[0].trace) == ("timeline", "")
    figures = values(second.measurements)
    assert figures["timeline_kernels"] == 10
    assert figures["replayed_kernel_duration"] == pytest.approx(10e-6)
    assert figures["replay_agreement"] == pytest.approx(10 / 10.2)
    assert [kind for _, kind, _ in first.files] == ["sqlite", "trace.json"]
    assert b"hunter2" not in first.files[0][0].read_bytes()
    assert first.flags == ()


def test_many_cases_come_in_chunks(tmp_path: Path) -> None:
    children = Children(tmp_path)
    assert len(traced(children, CHUNK + 2)) == CHUNK + 2
    assert [len(job.groups) for job in children.jobs] == [CHUNK, 2]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("importer", "its importer is missing"),
        ("libdw", "needs libdw.so.1, which is not installed; apt-get install libdw1"),
    ],
)
def test_what_will_not_change_is_tried_once_and_every_case_says_why(tmp_path: Path, mode: str, words: str) -> None:
    children = Children(tmp_path, {"STUB_NSYS": mode})
    found = traced(children, CHUNK + 1)
    assert len(children.jobs) == 1
    assert len(found) == CHUNK + 1
    assert all(words in one.absent for record in found for one in record.measurements)


@pytest.mark.parametrize("manual", ["nowhere", "out", "err"])
def test_an_nsys_of_another_release_gets_no_option_that_it_does_not_know(tmp_path: Path, manual: str) -> None:
    children = Children(tmp_path, {"STUB_NSYS": "option"}, says=REPLAYS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STUB_NSYS_MANUAL", manual)
        found = traced(children)
    assert values(found[0].measurements)["timeline_kernels"] == 10
    assert len(children.jobs) == (2 if manual == "nowhere" else 1)  # without a manual it has to be tried
    assert not any(word.startswith("--discard-environment") for word in children.prefixes[-1])


def test_a_manual_instead_of_a_timeline_means_that_an_option_was_refused(tmp_path: Path) -> None:
    children = Children(tmp_path, {"STUB_NSYS": "usage"}, mute=True)
    found = traced(children)
    assert [any("--discard" in word for word in prefix) for prefix in children.prefixes] == [True, False]
    assert values(found[0].measurements)["timeline_kernels"] == 10


def test_an_nsys_that_refuses_every_option_is_tried_once_with_and_once_without_the_newer_ones(tmp_path: Path) -> None:
    children = Children(tmp_path, {"STUB_NSYS": "refuses"})
    found = traced(children, CHUNK + 1)
    assert len(children.jobs) == 2
    assert len(found) == CHUNK + 1
    assert all("does not know an option" in one.absent for record in found for one in record.measurements)


@pytest.mark.parametrize("mode", ["failed", "silent", "killed", "session"])
def test_what_may_change_is_tried_once_more(tmp_path: Path, mode: str) -> None:
    children = Children(tmp_path, {"STUB_NSYS": mode})
    found = traced(children)
    assert len(children.jobs) == 2
    assert len(found) == 2
    assert all(one.absent for record in found for one in record.measurements)


def test_a_report_that_was_not_exported_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children = Children(tmp_path, {"STUB_NSYS": "rep-only"})
    monkeypatch.setenv("STUB_NSYS_RANGES", str(tmp_path / "ranges"))
    assert values(traced(children)[0].measurements)["timeline_kernels"] == 10


def test_a_case_at_which_the_child_dies_costs_itself_only(tmp_path: Path) -> None:
    dying = target(16).member.case.key
    children = Children(tmp_path, dies=dying)
    found = {one.key: one for one in traced(children, 3)}
    assert "under the profiler: ended with status 1" in found[dying].measurements[0].absent
    assert all(values(one.measurements)["timeline_kernels"] == 10 for key, one in found.items() if key != dying)


def test_without_nsys_torch_profiler_gives_the_table_and_says_so(tmp_path: Path) -> None:
    children = Children(tmp_path)
    key = target(16).member.case.key
    children.act = lambda job, hear: torch_trace(Path(job.trace), key, kernels=10) and None
    (found,) = traced(children, 1, tool=None)
    assert children.prefixes == [[]]
    assert children.jobs[0].trace.endswith(".torch.json")
    assert found.flags == ("timeline: taken by torch.profiler, because nsys was not found",)
    assert values(found.measurements)["timeline_kernels"] == 10
    assert {one.collector for one in found.measurements} == {"torch-profiler"}
    assert [kind for _, kind, _ in found.files] == ["trace.json"]


class FakeProfiler:
    """Stands in for torch.profiler; keeps what was asked of it, in order."""

    class ProfilerActivity:
        CPU, CUDA = "cpu", "cuda"

    def __init__(self) -> None:
        self.log: list[str] = []

    @contextlib.contextmanager
    def profile(self, activities: list[str]) -> Iterator[FakeProfiler]:
        self.log.append(f"begin {'+'.join(activities)}")
        yield self
        self.log.append("end")

    @contextlib.contextmanager
    def record_function(self, name: str) -> Iterator[None]:
        self.log.append(name)
        yield

    def export_chrome_trace(self, path: str) -> None:
        self.log.append(f"export {Path(path).name}")


def test_the_first_session_of_torch_profiler_is_a_dummy(tmp_path: Path) -> None:
    fake = FakeProfiler()
    with child_side.marking(str(tmp_path / "t.json"), fake) as mark, mark("case"):
        fake.log.append("work")
    assert fake.log == ["begin cpu+cuda", "end", "begin cpu+cuda", "dgw@case", "work", "end", "export t.json"]


def test_a_case_is_launched_then_replayed_each_in_a_range_that_waits() -> None:
    log: list[str] = []

    class Gpu:
        def synchronise(self) -> None:
            log.append("wait")

        def elapsed(self, work: Any) -> float:
            work()
            return 40e-6

    class Graph:
        def launch(self) -> None:
            log.append("replay")

    class Competitor:
        key = KEY

        def run_once(self) -> None:
            log.append("warm up")

        def enqueue(self) -> None:
            log.append("launch")

        def prepare(self, sets: int, policy: Any) -> None:
            log.append("capture")

        def graph(self, cache: str) -> tuple[Graph, int]:
            return Graph(), 4

    @contextlib.contextmanager
    def mark(name: str) -> Iterator[None]:
        log.append(f"({name}")
        yield
        log.append(")")

    gpu, competitor, policy = Gpu(), Competitor(), None
    found = child_side.run_marked(gpu, competitor, mark, policy)  # type: ignore[arg-type]
    direct = ["warm up", f"({KEY}", *["launch"] * child_side.DIRECT, "wait", ")", "capture"]
    assert log == direct + [f"({KEY}/replay", "replay", ")"] * child_side.REPLAYS
    assert values(found) == {"replay_launches": 4, "replay_time": pytest.approx(10e-6)}
    assert len(found[1].samples) == child_side.REPLAYS
