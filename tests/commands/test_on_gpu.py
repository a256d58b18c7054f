"""What the commands make of a GPU, with a runner that plays one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.errors import Missing
from dgw.model import Environment, Measurement, Record
from dgw.toolchain.devices import device
from dgw.workbench import runner
from tests.commands.conftest import Dgw
from tests.reports.samples import GPU, full_record

SHAPE = ("--shape", "64x64x64")


@dataclass
class Gpu:
    name: str = "h200"
    broken: str = ""
    outcomes: dict[str, str] = field(default_factory=dict)
    lost: str = ""
    report: Path | None = None
    jobs: list[runner.Job] = field(default_factory=list)
    setup: runner.Session | None = None

    def probe(self, child_argv: Sequence[str], **more: Any) -> tuple[Environment, Any]:
        if self.broken:
            raise Missing(f"no GPU can be used: {self.broken}", "dgw doctor, or --engine emulator")
        return GPU, device(self.name)

    def run(
        self, jobs: Sequence[runner.Job], setup: runner.Session, keep: Callable[[Record], None], progress: Any
    ) -> list[Record]:
        self.jobs, self.setup = list(jobs), setup
        for job in jobs:
            outcome: Any = self.outcomes.get(job.case.variant, "ok")
            record = full_record(case=job.case, outcome=outcome, reason="" if outcome == "ok" else "on purpose",
                                 resume_key=f"key of {job.case.key}")  # fmt: skip
            keep(msgspec.structs.replace(record, measurements=record.measurements[:2]))
            artifacts = ()
            if self.report is not None and setup.keep_artifact is not None:
                artifacts = (setup.keep_artifact(self.report, "ncu-rep", "counters-1.ncu-rep"),)
            if self.lost:
                absent = Measurement(metric="dram_bytes", collector="ncu", absent=self.lost)
                record = msgspec.structs.replace(record, measurements=(*record.measurements[:2], absent))
            keep(msgspec.structs.replace(record, artifacts=artifacts))
        return []


@pytest.fixture
def gpu(dgw: Dgw, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    fake = Gpu()
    monkeypatch.setattr("dgw.commands.session.gpu_is_here", lambda: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: object())
    monkeypatch.setattr("dgw.workbench.probing.probe", fake.probe)
    monkeypatch.setattr(runner, "run", fake.run)
    return fake


def test_variants_are_timed_beside_cublas_without_being_asked(dgw: Dgw, gpu: Gpu) -> None:
    ended = dgw("profile", "-v", "naive,swizzled", *SHAPE)
    assert ended.code == 0, ended.err
    assert [job.case.variant for job in gpu.jobs] == ["cuda/naive", "cuda/swizzled", "baselines/cublas"]
    assert [[case.variant for case in job.against] for job in gpu.jobs] == [["baselines/cublas"]] * 2 + [[]]
    assert gpu.jobs[0].lanes == {"check", "time", "counters"}
    assert "Time was not measured" not in ended.out


def test_every_baseline_that_is_named_is_timed_beside(dgw: Dgw, gpu: Gpu) -> None:
    fused = ("--bias", "--activation", "gelu", "--quantise", "row", "--out", "s8", "--zero-point", "-3")
    dgw("profile", "-v", "cuda/fused-epilogue", *SHAPE, *fused, "--against", "unfused,torch-compile")
    beside = {job.case.variant: [case.variant for case in job.against] for job in gpu.jobs}
    assert beside["cuda/fused-epilogue"] == ["baselines/unfused", "baselines/torch-compile"]
    assert beside["baselines/unfused"] == ["baselines/torch-compile"]
    assert {job.case.problem.d.zero_point for job in gpu.jobs} == {-3}


def test_no_baseline_is_timed_when_none_is_wanted(dgw: Dgw, gpu: Gpu) -> None:
    dgw("profile", "-v", "naive", *SHAPE, "--against", "none", "--counters", "none")
    assert [job.case.variant for job in gpu.jobs] == ["cuda/naive"]
    assert gpu.jobs[0].lanes == {"check", "time"}


def test_each_layout_is_timed_beside_its_own_baseline(dgw: Dgw, gpu: Gpu) -> None:
    dgw("profile", "-v", "naive", *SHAPE, "--layout", "nn,tt")
    assert all(job.case.problem == case.problem for job in gpu.jobs for case in job.against)
    assert len(gpu.jobs) == 4


def test_check_on_a_gpu_takes_no_time_and_no_counters(dgw: Dgw, gpu: Gpu) -> None:
    dgw("check", "-v", "naive", *SHAPE)
    assert gpu.jobs[0].lanes == {"check"}


def test_a_record_that_is_completed_later_is_one_row_and_one_stored_record(dgw: Dgw, gpu: Gpu) -> None:
    ended = dgw("profile", "-v", "naive", *SHAPE, "--against", "none")
    assert ended.out.count("registers per thread") == 1
    assert "128" in dgw("report", "last").out


def test_the_children_know_the_users_own_kernels(dgw: Dgw, gpu: Gpu, tmp_path: Path) -> None:
    import dgw.kernels.cuda.s01_naive as naive

    text = Path(naive.__file__).read_text().replace('"cuda/naive"', '"mine/fast"')
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "fast.py").write_text(text)
    dgw("profile", "--kernels", "mine", *SHAPE)
    assert gpu.setup is not None
    assert list(gpu.setup.child_argv)[-3:] == ["child", "--extra", str(tmp_path / "mine")]


def test_a_gpu_that_cannot_be_used_falls_back_to_the_emulator_and_says_why(
    dgw: Dgw, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.broken = "the driver is too old"
    monkeypatch.setattr("dgw.commands.session._on_cpu", lambda *_: None)
    ended = dgw("profile", "-v", "naive", *SHAPE)
    assert "warning: no GPU can be used: the driver is too old" in ended.err
    assert gpu.jobs == []


def test_a_demanded_gpu_that_cannot_be_used_is_exit_code_6(dgw: Dgw, gpu: Gpu) -> None:
    gpu.broken = "the driver is too old"
    ended = dgw("profile", "-v", "naive", *SHAPE, "--engine", "gpu")
    assert ended.code == 6
    assert ended.error_is_two_lines(), ended.err


def test_another_device_than_the_one_that_is_here_is_refused(dgw: Dgw, gpu: Gpu) -> None:
    ended = dgw("profile", "-v", "naive", *SHAPE, "--device", "a100")
    assert ended.code == 2
    assert "the GPU here is h200, not a100" in ended.err


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("the driver allows only administrators to read GPU performance counters; run as root", 6),
        ("Nsight Compute (ncu) was not found", 6),
        ("ncu ran, but no kernel was launched inside a range of the NVTX domain dgw; check", 5),
        ("the report of ncu is damaged: it ends early; measure these cases again", 5),
    ],
)
def test_lost_counters_are_an_error_and_lose_no_result(dgw: Dgw, gpu: Gpu, reason: str, code: int) -> None:
    gpu.lost = reason
    ended = dgw("profile", "-v", "naive", *SHAPE)
    assert ended.code == code
    assert f"error: {reason.partition(';')[0]}" in ended.err
    assert "  try: " in ended.err
    assert "time cold" in ended.out
    assert len(msgspec.json.decode(dgw("report", "last", "--json").out)["records"]) == 2


def test_the_report_of_the_profiler_is_kept_and_its_place_is_printed(dgw: Dgw, gpu: Gpu, tmp_path: Path) -> None:
    gpu.report = tmp_path / "counters.ncu-rep"
    gpu.report.write_bytes(b"report")
    ended = dgw("profile", "-v", "naive", *SHAPE)
    (line,) = [line for line in ended.err.splitlines() if "ncu-ui" in line]
    assert Path(line.rpartition(" ")[2]).read_bytes() == b"report"


def test_a_case_of_every_kind_of_fault_is_a_row_beside_the_good_ones(dgw: Dgw, gpu: Gpu) -> None:
    gpu.outcomes |= {"cuda/naive": "timed-out", "cuda/tiled": "wrong"}
    ended = dgw("profile", "-v", "naive,tiled,swizzled", *SHAPE)
    assert ended.code == 1
    assert all(word in ended.out for word in ("timed-out", "wrong", "ok"))


def test_the_hidden_command_serves_a_job_and_passes_its_status_on(
    dgw: Dgw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []

    def serve(variants: Any, job: Path, fifo: Path) -> int:
        served.extend((set(variants), job, fifo))
        return 13

    monkeypatch.setattr("dgw.workbench.child.serve", serve)
    ended = dgw("child", "job.json", "answers")
    assert ended.code == 13
    assert "cuda/swizzled" in served[0]
    assert served[1:] == [Path("job.json"), Path("answers")]


def test_a_real_child_that_sees_no_gpu_says_so(dgw: Dgw, monkeypatch: pytest.MonkeyPatch) -> None:
    from dgw.commands.options import Ask
    from dgw.commands.session import child_argv

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(Missing, match="no GPU can be used"):
        runner.probe(child_argv(Ask()))
