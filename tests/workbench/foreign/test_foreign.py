from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import pytest

from dgw.errors import Missing, NotComparable, ReportError, UsageError
from dgw.model import Case, Record, gemm, unknown_problem
from dgw.workbench.foreign import Imported, read_foreign
from dgw.workbench.foreign.naming import LONGEST, base_name
from tests.workbench.collectors import stub_tools
from tests.workbench.collectors.ncu_fakes import report_writer

DEVICE = {"device__attribute_display_name": "NVIDIA H200", "device__attribute_multiprocessor_count": 132,
          "device__attribute_compute_capability_major": 9, "device__attribute_compute_capability_minor": 0}  # fmt: skip
LAUNCH = {f"launch__{what}_dim_{axis}": size for what, size in (("grid", 4), ("block", 2)) for axis in "xyz"}
RAW = """==PROF== Connected to process 1
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"dram__bytes.sum","launch__registers_per_thread","smsp__inst_executed.sum"
"","","","","","","","","","","","{unit}","register/thread","inst"
"0","1","python","127.0.0.1","void gemm<float, 4>(const float *, int)","1","7","(128, 1, 1)","(4, 2, 1)","0","9.0",\
"{bytes}","168","1,234,567"
"1","1","python","127.0.0.1","fill(float *)","1","7","(128, 1, 1)","(4, 2, 1)","0","9.0","n/a","16","12"
"""
DETAILS = """"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",\
"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","1","python","127.0.0.1","void gemm<float, 4>(const float *, int)","1","7","(128, 1, 1)","(4, 2, 1)","0","9.0",\
"Launch Statistics","Registers Per Thread","register/thread","168"
"0","1","python","127.0.0.1","void gemm<float, 4>(const float *, int)","1","7","(128, 1, 1)","(4, 2, 1)","0","9.0",\
"Instruction Statistics","Executed Instructions","inst","1,234,567"
"""


def report(path: Path, *keys: str) -> Path:
    """A report with a kernel in each range named; an empty name is outside of any."""
    writer = report_writer()
    values = {**DEVICE, **LAUNCH, "dram__bytes.sum": 4096, "launch__registers_per_thread": 168}
    path.write_bytes(writer.report([writer.Kernel(key, "gemm", values) for key in keys]))
    return path


def by_variant(found: Imported) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in found.records:
        groups.setdefault(record.case.variant, []).append(record)
    return groups


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void gemm<float, 4>(const float *, int)", "gemm"),
        ("cutlass::Kernel2<cutlass::Gemm<int>>(cutlass::Params)", "cutlass::Kernel2"),
        ("(anonymous namespace)::copy(int)", "anonymous::copy"),
        ("nvjet_sm90_hsh_256x128", "nvjet_sm90_hsh_256x128"),
        ("", "unnamed"),
    ],
)
def test_a_kernel_is_called_by_its_base_name(name: str, short: str) -> None:
    assert base_name(name) == short
    assert len(base_name("k" * 500)) == LONGEST


def test_every_launch_of_a_report_is_a_case_of_an_unknown_problem(tmp_path: Path) -> None:
    found = read_foreign(report(tmp_path / "x.ncu-rep", "", ""), tmp_path)
    (records,) = by_variant(found).values()
    assert [record.case.config["LAUNCH"] for record in records] == [0, 1]
    assert records[0].case.variant == "foreign/gemm"
    assert records[0].case.config["GRID"] == "4x4x4"
    assert len({record.case.key for record in records}) == 2
    assert records[0].case.problem == unknown_problem()
    assert (records[0].number("dram_bytes"), records[0].number("registers_per_thread")) == (4096, 168)
    assert not [one for one in records[0].measurements if one.absent]
    assert {one.protocol for one in records[0].measurements} == {"ncu-foreign/1"}
    environment = records[0].environment
    assert (environment.device, environment.arch, environment.engine) == ("h200", "sm_90a", "gpu")
    assert (found.kind, found.damage) == ("ncu-rep", "")


def test_kernels_of_one_dgw_range_are_the_case_that_is_known_by_its_key(tmp_path: Path) -> None:
    case = Case(problem=gemm(64, 64, 64), variant="cuda/naive")

    def lookup(keys: Iterable[str]) -> Mapping[str, Case]:
        return {key: case for key in keys if key == case.key}

    found = read_foreign(report(tmp_path / "x.ncu-rep", case.key, case.key, ""), tmp_path, lookup=lookup)
    known, other = found.records
    assert known.case == case
    assert known.number("dram_bytes") == 8192  # two kernels add up
    assert known.number("dram_bytes", "kernel 1") == 4096
    assert other.case.variant == "foreign/gemm"


def test_a_problem_that_the_caller_knows_makes_comparable_cases(tmp_path: Path) -> None:
    problem = gemm(4096, 4096, 4096)
    found = read_foreign(report(tmp_path / "x.ncu-rep", ""), tmp_path, problem)
    assert found.records[0].case.problem == problem


def test_a_report_that_was_cut_short_gives_what_is_whole_and_says_so(tmp_path: Path) -> None:
    path = report(tmp_path / "x.ncu-rep", "", "", "")
    path.write_bytes(path.read_bytes()[:-40])
    found = read_foreign(path, tmp_path)
    assert len(found.records) == 2
    assert "cut short" in found.damage


@pytest.mark.parametrize(
    ("text", "size"),
    [(RAW.format(unit="byte", bytes="148,000,000"), 148e6), (RAW.format(unit="Mbyte", bytes="148.0"), 148e6),
     (DETAILS, None)],
    ids=["raw, base units", "raw, scaled units", "details"],
)  # fmt: skip
def test_csv_of_ncu_gives_the_same_cases_with_or_without_base_units(
    tmp_path: Path, text: str, size: float | None
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    first = read_foreign(path, tmp_path).records[0]
    assert first.case.variant == "foreign/gemm"
    assert first.get("kernel_name", "kernel 0").value == "void gemm<float, 4>(const float *, int)"  # type: ignore[union-attr]
    assert first.number("registers_per_thread") == 168
    assert first.number("inst_executed") == 1234567
    assert first.number("dram_bytes") == size
    assert first.environment.device == ""  # csv does not name the GPU


def test_a_value_that_is_not_available_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(RAW.format(unit="byte", bytes="1"))
    fill = read_foreign(path, tmp_path).records[1]
    assert fill.get("dram_bytes") is None
    assert fill.number("registers_per_thread") == 16


def timeline(path: Path, **options: object) -> Path:
    builder = stub_tools.nsys_file().Builder(**options)
    builder.range("step", [("void gemm<int>(float *)", 10), ("void gemm<int>(float *)", 14), ("fill(int)", 2)], [4096])
    return Path(builder.write(path))


@pytest.mark.parametrize("schema", stub_tools.nsys_file().SCHEMAS)
def test_a_timeline_gives_the_whole_and_every_distinct_kernel(tmp_path: Path, schema: str) -> None:
    found = read_foreign(timeline(tmp_path / "x.sqlite", schema=schema), tmp_path)
    groups = by_variant(found)
    assert list(groups) == ["foreign/whole timeline", "foreign/gemm", "foreign/fill"]
    whole, gemms = groups["foreign/whole timeline"][0], groups["foreign/gemm"][0]
    assert (whole.number("timeline_kernels"), whole.number("copies")) == (3, 1)
    assert whole.get("kernel_duration") is None
    assert gemms.number("kernel_duration") == pytest.approx(12e-6)
    assert gemms.get("kernel_duration").samples == pytest.approx((10e-6, 14e-6))  # type: ignore[union-attr]
    assert (gemms.number("registers_per_thread"), gemms.number("shared_mem_per_block")) == (64, 3072)
    assert gemms.case.config == {"LAUNCH": 0, "GRID": "4x2x1", "BLOCK": "128x1x1"}
    assert gemms.environment.device == "h200"
    assert b"hunter2" not in found.keep.read_bytes()
    assert found.keep != tmp_path / "x.sqlite"


def test_a_timeline_without_kernels_is_one_record_that_says_so(tmp_path: Path) -> None:
    found = read_foreign(timeline(tmp_path / "x.sqlite", absent=("CUPTI_ACTIVITY_KIND_KERNEL",)), tmp_path)
    (record,) = found.records
    assert record.number("api_time") > 0  # type: ignore[operator]
    assert "holds no kernel" in record.get("kernel_time").absent  # type: ignore[union-attr]


def test_known_ranges_of_a_timeline_are_their_cases(tmp_path: Path) -> None:
    case = Case(problem=gemm(64, 64, 64), variant="cuda/naive")
    builder = stub_tools.nsys_file().Builder()
    builder.range(case.key, [("gemm", 10)])
    path = builder.write(tmp_path / "x.sqlite")
    found = read_foreign(path, tmp_path, lookup=lambda keys: {key: case for key in keys if key == case.key})
    assert found.records[1].case == case
    assert found.records[1].number("kernel_duration") == pytest.approx(10e-6)


def test_a_trace_of_torch_profiler_is_a_timeline_too(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1.0, "dur": 15.0, "tid": 7, "args": {"grid": [1, 1, 1]}}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"traceEvents": [kernel], "hostname": "ada-desktop"}))
    found = read_foreign(path, tmp_path)
    assert by_variant(found)["foreign/gemm"][0].number("kernel_duration") == pytest.approx(15e-6)
    assert b"ada" not in found.keep.read_bytes()


def test_a_nsys_report_needs_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.nsys-rep"
    path.write_bytes(b"rep")
    with pytest.raises(Missing, match="only be read by nsys"):
        read_foreign(path, tmp_path)
    ranges = tmp_path / "ranges"
    ranges.write_text("step gemm 10 2")
    monkeypatch.setenv("STUB_NSYS_RANGES", str(ranges))
    folder = tmp_path / "folder"
    folder.mkdir()
    assert len(read_foreign(path, folder, nsys=stub_tools.NSYS).records) == 2


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("x.ncu-rep", b"", ReportError),
        ("x.ncu-rep", b"no report", ReportError),
        ("x.csv", b"a,b\n1,2\n", UsageError),
        ("x.txt", b"some notes\n", UsageError),
        ("x.txt", b"==ERROR== The application returned an error code\n", ReportError),
        ("x.csv", b'"ID","Kernel Name","dram__bytes.sum"\n', ReportError),
        ("x.sqlite", b"no database, but long enough to be read as one" * 9, ReportError),
        ("x.json", b'{"traceEvents": 3', ReportError),
        ("x.qdstrm", b"x", UsageError),
        ("x.exe", b"MZ", UsageError),
    ],
)
def test_a_file_that_is_no_report_is_refused_with_its_name(
    tmp_path: Path, name: str, content: bytes, error: type[Exception]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(error, match=name.replace(".", r"\.")):
        read_foreign(path, tmp_path)


def test_an_unknown_problem_survives_json_and_gives_no_arithmetic() -> None:
    problem = unknown_problem()
    case = Case(problem=problem, variant="foreign/gemm")
    assert msgspec.json.decode(msgspec.json.encode(case), type=Case) == case
    assert (problem.known, problem.shape, problem.layout) == (False, "unknown", "")
    for compute in (lambda: problem.flops, lambda: problem.compulsory_bytes):
        with pytest.raises(NotComparable):
            compute()
