from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dgw.errors import Exit, Missing, ReportError
from dgw.workbench.collectors import nsys, timeline, trace_events
from dgw.workbench.collectors.nsys_sqlite import read_sqlite, scrub
from dgw.workbench.tools import Places, find_tool
from tests.workbench.collectors import stub_tools
from tests.workbench.collectors.stub_tools import KEY, torch_trace, values

FILE = stub_tools.nsys_file()


def built(**options: Any) -> Any:
    """Two kernels of 10 and 20 us and a copy of 4 KB in the range of a case, then the same kernels in a graph."""
    builder = FILE.Builder(**options)
    builder.range("", [("fill(float *)", 5)])
    builder.range(KEY, [("gemm<int, 4>(float *)", 10), ("reduce(float *)", 20)], [4096], gap_us=3)
    builder.range(f"{KEY}/replay", [("gemm<int, 4>(float *)", 10), ("reduce(float *)", 20)] * 4, graph=True)
    return builder


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
    argv = nsys.profile_command("nsys", "out", manual="")
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


def test_options_that_a_release_does_not_name_are_not_given_to_it() -> None:
    argv = nsys.profile_command("nsys", "out", manual="--trace= --sample= --cpuctxsw= --export= --output=")
    assert "--cpuctxsw=none" in argv
    assert not any(word.startswith(("--discard-environment", "--cuda-graph-trace")) for word in argv)
    assert "--sample=none" in argv


def test_a_tool_that_prints_no_manual_gets_every_option() -> None:
    assert nsys.manual_of("/nowhere/nsys") == ""
    assert nsys.manual_of("/bin/true") == ""
