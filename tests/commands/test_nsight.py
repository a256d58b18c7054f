"""`dgw import` of reports, `dgw profile --timeline`, `dgw check --sanitize`: the commands around the lanes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from dgw.model import Defect, Record
from dgw.reports.notes import defects
from dgw.reports.tables import build
from dgw.workbench.passes import Pass
from tests.commands import test_on_gpu
from tests.commands.conftest import Dgw
from tests.commands.test_on_gpu import SHAPE, Gpu
from tests.reports.samples import full_record
from tests.workbench.foreign.test_foreign import RAW, report, timeline

gpu = test_on_gpu.gpu


@pytest.mark.parametrize("name", ["x.ncu-rep", "x.csv", "x.sqlite"])
def test_a_report_becomes_a_run_that_can_be_shown(dgw: Dgw, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if path.suffix == ".ncu-rep":
        report(path, "", "")
    elif path.suffix == ".csv":
        path.write_text(RAW.format(unit="byte", bytes="1"))
    else:
        timeline(path)
    ended = dgw("import", str(path))
    assert ended.code == 0, ended.err
    assert "the report is kept" in ended.err
    run = ended.out.split()[1].rstrip(":")
    shown = dgw("report", run)
    assert shown.code == 0, shown.err
    assert "Kernels of an unknown problem" in shown.out
    assert "gemm" in shown.out
    listed = json.loads(dgw("report", run, "--json").out)
    assert listed["command"] == ["dgw", "import", name]
    assert str(tmp_path) not in json.dumps(listed)


def test_the_problem_can_be_said(dgw: Dgw, tmp_path: Path) -> None:
    path = report(tmp_path / "x.ncu-rep", "")
    ended = dgw("import", str(path), "--shape", "4096x4096x4096", "--layout", "nt", "--json")
    run = json.loads(ended.out)["run"]
    assert "4096x4096x4096, f16 -> f16, nt" in dgw("report", run).out


@pytest.mark.parametrize("name", ["nothing.ncu-rep", "nothing.json"])
def test_a_file_that_does_not_exist_is_two_lines(dgw: Dgw, name: str) -> None:
    ended = dgw("import", name)
    assert ended.code == 2
    assert ended.error_is_two_lines()


def test_a_timeline_without_a_gpu_is_a_warning_and_the_rest_goes_on(dgw: Dgw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgw.commands.without_gpu.CpuEngine.run", lambda self, cases, keep, progress: None)
    ended = dgw("profile", "-v", "naive", *SHAPE, "--timeline")
    assert ended.code == 0, ended.err
    assert "no timeline: " in ended.err


def test_a_sanitizer_without_a_gpu_ends_with_what_is_missing(dgw: Dgw) -> None:
    ended = dgw("check", "-v", "naive", *SHAPE, "--sanitize", "memcheck")
    assert ended.code == 6
    assert ended.error_is_two_lines()


def lanes(fake: Gpu) -> list[str]:
    assert fake.setup is not None
    found: list[Pass] = list(fake.setup.passes)
    return [one.lane for one in found]


def test_the_lanes_are_asked_of_the_runner(dgw: Dgw, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgw.workbench.tools.find_tool", lambda name: Path("/bin/true"))
    dgw("profile", "-v", "naive", *SHAPE, "--timeline")
    assert lanes(gpu) == ["timeline"]
    assert "timeline" in gpu.jobs[0].lanes
    dgw("profile", "-v", "naive", *SHAPE, "--by-line")
    assert lanes(gpu) == ["lines"]
    assert gpu.setup is not None
    assert gpu.setup.counters == "std,lines"
    dgw("profile", "-v", "naive", *SHAPE, "--by-line", "--counters", "none")
    assert gpu.setup.counters == "none"
    dgw("check", "-v", "naive", *SHAPE, "--sanitize", "racecheck,memcheck")
    assert lanes(gpu) == ["sanitize"]
    assert gpu.jobs[0].lanes == {"check", "sanitize"}
    dgw("check", "-v", "naive", *SHAPE)
    assert lanes(gpu) == []


def test_an_unknown_sanitizer_and_a_missing_tool_are_two_lines(
    dgw: Dgw, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dgw.workbench.tools.find_tool", lambda name: None)
    assert dgw("check", "-v", "naive", *SHAPE, "--sanitize", "bankcheck").code == 2
    ended = dgw("check", "-v", "naive", *SHAPE, "--sanitize", "memcheck")
    assert ended.code == 6
    assert "pip install nvidia-cuda-sanitizer-api" in ended.err
    ended = dgw("profile", "-v", "naive", *SHAPE, "--timeline")
    assert "torch.profiler takes the timeline" in ended.err


def test_defects_stand_below_the_table() -> None:
    defect = Defect(tool="memcheck", kind="Invalid __global__ write of size 4 bytes", kernel="gemm()", place="a.cu:12",
                    count=2, thread=(31, 0, 0), block=(1, 0, 0))  # fmt: skip
    record: Record = msgspec.structs.replace(full_record(), outcome="wrong", defects=(defect,))
    (line,) = defects(build([record])[0])
    assert line.endswith(
        "swizzled: memcheck: Invalid __global__ write of size 4 bytes at a.cu:12 in gemm(), 2 times, "
        "first by thread 31,0,0 of block 1,0,0"
    )
