from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dgw.errors import Exit, Missing, ReportError
from dgw.model import Measurement
from dgw.workbench.collectors import nsys, timeline, trace_events
from dgw.workbench.collectors.nsys_sqlite import read_sqlite, scrub
from dgw.workbench.device import timeline as child_side
from dgw.workbench.passes import Found
from dgw.workbench.timeline_pass import CHUNK, TimelinePass
from dgw.workbench.tools import Places, find_tool
from tests.workbench.collectors import stub_tools
from tests.workbench.collectors.stub_tools import Children, target

FILE = stub_tools.nsys_file()
KEY = "0123456789abcdef"


def built(**options: Any) -> Any:
    """Two kernels of 10 and 20 us and a copy of 4 KB in the range of a case, then the same kernels in a graph."""
    builder = FILE.Builder(**options)
    builder.range("", [("fill(float *)", 5)])
    builder.range(KEY, [("gemm<int, 4>(float *)", 10), ("reduce(float *)", 20)], [4096], gap_us=3)
    builder.range(f"{KEY}/replay", [("gemm<int, 4>(float *)", 10), ("reduce(float *)", 20)] * 4, graph=True)
    return builder


def values(found: Iterator[Measurement] | tuple[Measurement, ...], scope: str = "case") -> dict[str, Any]:
    return {one.metric: one.value for one in found if one.scope == scope}


@pytest.mark.parametrize("schema", FILE.SCHEMAS)
@pytest.mark.parametrize("registered", [False, True], ids=["text", "textId"])
def test_a_case_has_the_same_figures_in_every_schema(tmp_path: Path, schema: str, registered: bool) -> None:
    read = read_sqlite(built(schema=schema, registered=registered).write(tmp_path / "x.sqlite"))
    assert schema in read.version
    found = timeline.measurements(read, KEY, 1)
    figures = values(found)
    assert (figures["timeline_launches"], figures["timeline_kernels"], figures["copies"]) == (2, 2, 1)
    assert figures["copy_bytes"] == 4096
    assert figures["kernel_time"] == pytest.approx(30e-6)
    assert figures["gap_time"] == figures["longest_gap"] == pytest.approx(3e-6)
    assert figures["launch_api_time"] == pytest.approx(4e-6)
    assert figures["api_time"] == pytest.approx(7e-6)  # two launches, a copy, a wait
    assert figures["kernel_duration"] == pytest.approx(30e-6)
    assert figures["range_overlap"] == pytest.approx(31e-6 / figures["range_time"])
    assert values(found, "kernel 1")["kernel_name"] == "reduce(float *)"
    assert values(found, "kernel 1")["kernel_duration"] == pytest.approx(20e-6)
    assert {one.collector for one in found} == {"nsys"}
    assert (read.gpu.name, read.gpu.compute, read.gpu.sms) == ("NVIDIA H200", (9, 0), 132)


def test_kernels_of_a_graph_belong_to_the_range_that_launched_it(tmp_path: Path) -> None:
    read = read_sqlite(built().write(tmp_path / "x.sqlite"))
    (part,) = timeline.parts(read, f"{KEY}/replay")
    assert len(part.kernels) == 8
    assert [call.name for call in part.launch_calls] == ["cuGraphLaunch"]
    found = timeline.durations([part], 4, "nsys", "p", "replayed_kernel_duration")
    assert found.value == pytest.approx(30e-6)
    assert len(found.samples) == 4


def test_kernels_that_do_not_divide_into_the_launches_give_no_duration(tmp_path: Path) -> None:
    read = read_sqlite(built().write(tmp_path / "x.sqlite"))
    found = timeline.durations(timeline.parts(read, f"{KEY}/replay"), 3, "nsys", "p")
    assert (found.value, found.absent) == (None, "8 kernels were recorded for 3 launches")


def test_a_kernel_belongs_to_the_range_of_its_launch_and_not_to_the_one_it_runs_in(tmp_path: Path) -> None:
    builder = FILE.Builder()
    builder.range("first", [("late", 10)])
    name, start, end = builder.ranges.pop()
    builder.ranges += [(name, start, builder.calls[0][2]), ("second", builder.kernels[0][1], end)]
    read = read_sqlite(builder.write(tmp_path / "x.sqlite"))
    assert [len(timeline.parts(read, name)[0].kernels) for name in ("first", "second")] == [1, 0]


def test_without_calls_a_range_that_waits_has_what_ran_in_it(tmp_path: Path) -> None:
    read = read_sqlite(built(absent=("CUPTI_ACTIVITY_KIND_RUNTIME",)).write(tmp_path / "x.sqlite"))
    assert values(timeline.measurements(read, KEY, 1, waits=True))["timeline_kernels"] == 2
    assert timeline.measurements(read, KEY, 1)[0].absent == "no kernel was launched inside the range of this case"


@pytest.mark.parametrize(
    ("table", "why"),
    [("CUPTI_ACTIVITY_KIND_KERNEL", "holds no kernel"), ("NVTX_EVENTS", "NVTX was not traced")],
)
def test_a_missing_table_is_an_absence_with_its_reason(tmp_path: Path, table: str, why: str) -> None:
    read = read_sqlite(built(absent=(table,)).write(tmp_path / "x.sqlite"))
    found = timeline.measurements(read, KEY, 1)
    assert all(one.value is None and why in one.absent for one in found)
    assert len(found) == len(timeline.METRICS) + 1


@pytest.mark.parametrize("table", ["StringIds", "TARGET_INFO_GPU", "CUPTI_ACTIVITY_KIND_MEMCPY", "META_DATA_EXPORT"])
def test_any_other_table_may_be_missing_too(tmp_path: Path, table: str) -> None:
    read = read_sqlite(built(absent=(table,)).write(tmp_path / "x.sqlite"))
    assert values(timeline.measurements(read, KEY, 1))["timeline_kernels"] == 2


def test_ranges_of_other_domains_are_not_cases(tmp_path: Path) -> None:
    read = read_sqlite(built().write(tmp_path / "x.sqlite"))
    assert read.named("library") == []
    assert [one.domain for one in read.ranges if one.name == "library"] == ["CCCL"]


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0 and then nothing", b"no database at all, but long" * 40])
def test_a_file_that_is_no_export_is_a_report_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    with pytest.raises(ReportError, match=r"x\.sqlite"):
        read_sqlite(path)
    with pytest.raises(ReportError, match="there is no"):
        read_sqlite(tmp_path / "y.sqlite")


@pytest.mark.parametrize("schema", FILE.SCHEMAS)
def test_scrubbing_leaves_the_figures_and_nothing_that_tells_who_made_them(tmp_path: Path, schema: str) -> None:
    path = built(schema=schema).write(tmp_path / "x.sqlite")
    before = timeline.measurements(read_sqlite(path), KEY, 1)
    scrub(path)
    content = path.read_bytes()
    for secret in (b"hunter2", b"ada", b"GPU-1234", b"secret-model"):
        assert secret not in content
    assert timeline.measurements(read_sqlite(path), KEY, 1) == before


def test_a_trace_for_perfetto_has_every_event_on_a_row_of_its_own_kind(tmp_path: Path) -> None:
    read = read_sqlite(built().write(tmp_path / "x.sqlite"))
    trace = json.loads(trace_events.write_trace(read, tmp_path / "t.json").read_text())
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["cat"] for event in events} == {"kernel", "gpu_memcpy", "cuda_api", "nvtx"}
    gemm = next(event for event in events if event["name"].startswith("gemm"))
    assert gemm["dur"] == 10.0
    assert gemm["args"]["grid"] == [4, 2, 1]
    assert min(event["ts"] for event in events) == 0
    assert {event["pid"] for event in events if event["cat"] in ("kernel", "gpu_memcpy")} == {2}
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert {"host", "NVIDIA H200", "stream 7"} <= names


def torch_trace(path: Path, name: str = KEY, kernels: int = 2, correlated: bool = True) -> Path:
    """A trace as torch.profiler exports it: one range, its launches, its kernels."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": f"dgw@{name}", "pid": 1, "tid": 1, "ts": 100.0, "dur": 500.0},
        {"ph": "X", "cat": "gpu_user_annotation", "name": f"dgw@{name}", "pid": 0, "tid": 7, "ts": 130.0, "dur": 60.0},
        {"ph": "i", "name": "Iteration Start", "ts": 1},
    ]
    for number in range(kernels):
        begin = 110.0 + 5 * number
        call = {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernelEx", "pid": 1, "tid": 1, "ts": begin,
                "dur": 4.0, "args": {"correlation": number + 1 if correlated else 0}}  # fmt: skip
        begin = 150.0 + 20 * number
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": begin, "dur": 15.0,
                  "args": {"correlation": number + 1, "grid": [4, 2, 1], "block": [128, 1, 1], "stream": 7,
                           "registers per thread": 64, "shared memory": 2048}}  # fmt: skip
        events += [call, kernel]
    device = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))
    return path


@pytest.mark.parametrize("correlated", [True, False], ids=["by call", "by time"])
def test_torch_profiler_gives_the_same_figures_under_its_own_name(tmp_path: Path, correlated: bool) -> None:
    read = trace_events.read_torch_trace(torch_trace(tmp_path / "t.json", correlated=correlated))
    found = timeline.measurements(read, KEY, 2, waits=True)
    assert {one.collector for one in found} == {"torch-profiler"}
    figures = values(found)
    assert (figures["timeline_kernels"], figures["kernel_duration"]) == (2, pytest.approx(15e-6))
    assert figures["gap_time"] == pytest.approx(5e-6)
    assert {metric for metric, _ in timeline.METRICS} <= set(figures)


def test_a_trace_without_kernels_is_an_absence_and_not_zero_seconds(tmp_path: Path) -> None:
    read = trace_events.read_torch_trace(torch_trace(tmp_path / "t.json", kernels=0))
    found = timeline.measurements(read, KEY, 2, waits=True)
    assert all(one.value is None and "torch.profiler recorded no kernel" in one.absent for one in found)


def test_nsys_is_found_inside_a_nsight_compute_folder(tmp_path: Path) -> None:
    tool = tmp_path / "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert find_tool("nsys", Places(root=tmp_path, env={}, packages=())) == tool


def test_the_command_keeps_no_environment_and_samples_no_cpu() -> None:
    argv = nsys.profile_command("nsys", "out")
    assert {"--sample=none", "--cpuctxsw=none", "--discard-environment=true", "--cuda-graph-trace=node"} <= set(argv)
    assert "--trace=cuda,nvtx" in argv


LIBDW = "QdstrmImporter: error while loading shared libraries: libdw.so.1: cannot open shared object file: No such file"
IMPORTER = "Importer error status: The importer binary and its dependencies were not found."


@pytest.mark.parametrize(
    ("log", "kind", "cause", "cure", "code"),
    [
        (IMPORTER, "importer-missing", "its importer is missing", "libdw1", Exit.MISSING),
        (f"{LIBDW}\n{IMPORTER}", "importer-missing", "needs libdw.so.1", "apt-get install libdw1", Exit.MISSING),
        (LIBDW, "importer-missing", "needs libdw.so.1", "apt-get install libdw1", Exit.MISSING),
        (LIBDW.replace("libdw.so.1", "libxcb.so.1"), "importer-missing", "libxcb.so.1", "libxcb.so.1", Exit.MISSING),
        ("Importer error status: Importation failed.", "importer-failed", "failed on it", "DGW_NSYS", Exit.FAULT),
        ("unrecognised option '--foo'", "option", "does not know an option", "2023.2", Exit.MISSING),
        ("No space left on device", "disk", "no space", "TMPDIR", Exit.FAULT),
    ],
)
def test_every_known_message_has_a_cause_and_a_cure(log: str, kind: str, cause: str, cure: str, code: Exit) -> None:
    found = nsys.recognise(log)
    assert found is not None
    assert found.kind == kind
    assert cause in found.cause
    assert cure in found.cure
    assert found.error().exit_code == code


def test_only_a_qdstrm_is_a_missing_importer_even_without_a_message(tmp_path: Path) -> None:
    (tmp_path / "r.qdstrm").write_bytes(b"x")
    found = nsys.diagnose(tmp_path / "r", "", 0)
    assert found is not None
    assert found.kind == "importer-missing"
    inside = tmp_path / "nsight-compute" / "2025" / "host" / "target-linux-x64" / "nsys"
    inside.parent.mkdir(parents=True)
    inside.write_text("")
    found = nsys.diagnose(tmp_path / "r", IMPORTER, 0, inside)
    assert found is not None
    assert "came with Nsight Compute" in found.cause


def test_nothing_left_is_told_with_the_last_line(tmp_path: Path) -> None:
    found = nsys.diagnose(tmp_path / "r", "first\nlast words\n\n", 3)
    assert found is not None
    assert found.cause == "nsys ended with status 3 and left no timeline: last words"


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
        ("option", "does not know an option"),
    ],
)
def test_what_will_not_change_is_tried_once_and_every_case_says_why(tmp_path: Path, mode: str, words: str) -> None:
    children = Children(tmp_path, {"STUB_NSYS": mode})
    found = traced(children, CHUNK + 1)
    assert len(children.jobs) == 1
    assert len(found) == CHUNK + 1
    assert all(words in one.absent for record in found for one in record.measurements)


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


def test_an_export_that_fails_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_NSYS", "libdw")
    (tmp_path / "x.nsys-rep").write_bytes(b"rep")
    with pytest.raises(Missing, match=r"libdw\.so\.1"):
        nsys.export(stub_tools.NSYS, tmp_path / "x.nsys-rep", tmp_path)


def test_the_fixture_is_a_database(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(built(schema="3.1.7").write(tmp_path / "x.sqlite"))) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    assert {"EXPORT_META_DATA", "TARGET_INFO_CUDA_NULL_STREAM"} <= tables
    assert "META_DATA_CAPTURE" not in tables
