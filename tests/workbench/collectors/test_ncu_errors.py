from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from dgw.errors import Exit, ReportError, UsageError
from dgw.workbench.collectors import ncu
from dgw.workbench.collectors.ncu import NcuProblem, diagnose, ncu_command, ncu_environment, recognise
from dgw.workbench.collectors.ncu_command import LONGEST_ARGUMENT
from dgw.workbench.metrics import resolve

MESSAGES = {
    "permission": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
    "Counters on the target device 0. For instructions on enabling permissions see https://developer.nvidia.com/ERR",
    "library-not-loaded": "==ERROR== LibraryNotLoaded",
    "resource": "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like "
    "DCGM) is concurrently collecting profiling data.",
    "lock": "==WARNING== Waiting on lock file /tmp/nsight_compute/lock.GPU-1234",
    "stub-driver": "==ERROR== The application failed to connect to the CUDA driver (stub libcuda.so was loaded)",
    "driver-mismatch": "==ERROR== Cuda driver is not compatible with Nsight Compute",
    "unsupported-gpu": "==WARNING== Skipping device 0: unsupported GPU",
    "mig-clocks": "==ERROR== Cannot lock GPU clock frequencies on MIG devices",
    "mig-metrics": "==WARNING== Failed to access the following 2 metrics. When profiling on a MIG instance, ...",
    "unknown-metric": r"==ERROR== Failed to find metric regex:^sm__no_such_thing(\.|$)",
    "uncollectable": "==WARNING== Unable to access the following 6 metrics: dram__bytes.sum, lts__t_bytes.sum.",
    "preparation": "==ERROR== Failed to prepare kernel for profiling",
    "nothing-profiled": "==WARNING== No kernels were profiled.",
    "application": "==ERROR== The application returned an error code (1).",
}
STUB = Path(__file__).parents[2] / "data" / "stubs" / "ncu"


@pytest.mark.parametrize(("kind", "text"), MESSAGES.items())
def test_every_known_message_has_one_cause_and_one_cure(kind: str, text: str) -> None:
    for written in (text, text.upper()):
        problem = recognise(f"==PROF== Connected\n{written}\n")[0]
        assert problem.kind == kind
        assert problem.cause
        assert "\n" not in problem.cause
        assert problem.cure
        assert problem.error().exit_code in (Exit.MISSING, Exit.FAULT)


def test_an_unknown_error_on_the_device_is_a_failed_preparation() -> None:
    assert recognise("==ERROR== Unknown Error on device 0.")[0].kind == "preparation"


def test_a_second_client_of_cupti_is_another_profiler() -> None:
    text = "function cuptiSubscribe failed with error CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"
    assert recognise(text)[0].kind == "resource"


def test_the_decisive_message_comes_before_the_ones_every_failure_ends_with() -> None:
    log = "\n".join(MESSAGES[kind] for kind in ("application", "nothing-profiled", "permission"))
    assert recognise(log)[0].kind == "permission"


def test_an_unknown_metric_is_named() -> None:
    assert "sm__no_such_thing" in recognise(MESSAGES["unknown-metric"])[0].cause


def test_metrics_that_cannot_be_collected_are_listed() -> None:
    assert ncu.absent_names(MESSAGES["uncollectable"]) == ["dram__bytes.sum", "lts__t_bytes.sum"]


def test_a_good_log_names_no_problem() -> None:
    assert recognise('==PROF== Profiling "gemm" - 0: 0%....50%....100% - 2 passes\n==PROF== Report: x.ncu-rep') == []
    assert diagnose("==PROF== ok", 0, kernels=3) is None


def test_exit_code_zero_without_kernels_is_no_success() -> None:
    problem = diagnose("==PROF== Disconnected", 0, kernels=0)
    assert problem is not None
    assert problem.kind == "nothing-profiled"


def test_the_exit_code_of_the_program_is_told_apart_from_a_failed_profile() -> None:
    problem = diagnose("", 3, kernels=2)
    assert problem is not None
    assert (problem.kind, problem.fatal) == ("application", False)
    assert "exit code 3" in problem.cause


def test_a_killed_or_crashed_program_without_report_is_said_to_be_that() -> None:
    for code, word in ((9, "killed"), (11, "crashed"), (-9, "killed"), (1, "no report")):
        problem = diagnose("", code, kernels=0, report_exists=False)
        assert problem is not None
        assert word in problem.cause


def test_an_unfamiliar_error_is_quoted() -> None:
    problem = diagnose("==ERROR== Something new happened", 0, kernels=1)
    assert problem is not None
    assert "Something new happened" in problem.cause
    lost = diagnose("==ERROR== Something new happened", 1, kernels=0, report_exists=False)
    assert lost is not None
    assert "Something new happened" in lost.cause


def test_a_failure_of_one_kernel_does_not_take_the_others_away() -> None:
    problem = diagnose(MESSAGES["preparation"], 0, kernels=24)
    assert problem is not None
    assert not problem.fatal


def test_the_command_leaves_clocks_alone_and_ignores_configuration_files(tmp_path: Path) -> None:
    command = ncu_command(Path("/opt/ncu"), ["a__b.sum", "c__d.sum"], tmp_path / "r.ncu-rep")
    pairs = dict(pairwise(command))
    assert command[0] == "/opt/ncu"
    assert pairs["--clock-control"] == "none"
    assert pairs["--config-file"] == "off"
    assert pairs["--nvtx-include"] == "regex:dgw@.+/"
    assert pairs["--metrics"] == "a__b.sum,c__d.sum"
    assert pairs["--target-processes"] == "all"
    assert pairs["--log-file"] == str(tmp_path / "r.log")
    assert "--nvtx" in command
    assert command[-2:] == ["-o", str(tmp_path / "r.ncu-rep")]


def test_a_metric_list_that_no_argument_can_hold_goes_through_a_response_file(tmp_path: Path) -> None:
    names = [f"metric__{number}.sum" for number in range(LONGEST_ARGUMENT // 10)]
    command = ncu_command("ncu", names, tmp_path / "r.ncu-rep")
    response = next(word for word in command if word.startswith("@"))
    assert Path(response[1:]).read_text().startswith("--metrics metric__0.sum,")
    assert max(len(word) for word in command) < LONGEST_ARGUMENT


def test_asking_ncu_for_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        ncu_command("ncu", [], tmp_path / "r.ncu-rep")


def test_the_environment_is_private_and_free_of_other_profilers(tmp_path: Path) -> None:
    env = {"LC_NUMERIC": "de_DE", "CUDA_INJECTION64_PATH": "/x.so", "HOME": "/home/x", "TMPDIR": "/tmp"}
    made = ncu_environment(env, tmp_path / "scratch")
    assert made["LC_ALL"] == "C"
    assert made["TMPDIR"] == str(tmp_path / "scratch")
    assert (tmp_path / "scratch").is_dir()
    assert made["DG_NSYS_PROFILING"] == "1"
    assert made["HOME"] == "/home/x"
    assert not {"LC_NUMERIC", "CUDA_INJECTION64_PATH"} & set(made)


def _drill(mode: str, folder: Path, keys: str = "case1 case2 case3", program: str = "pass") -> tuple[int, str, Path]:
    """Runs the stub as the runner would and returns exit code, log and report."""
    (folder / "kernels").write_text(keys)
    report = folder / "r.ncu-rep"
    env = ncu_environment({**os.environ, "STUB_NCU": mode, "STUB_NCU_KERNELS": str(folder / "kernels")}, folder / "tmp")
    command = ncu_command(STUB, ["gpc__cycles_elapsed.max", "dram__bytes.sum", "sm__cycles_active.avg"], report)
    done = subprocess.run(
        [*command, sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, (folder / "r.log").read_text() + done.stderr, report


def _outcome(mode: str, folder: Path, **options: str) -> tuple[NcuProblem | None, dict[str, list[ncu.KernelCounters]]]:
    code, log, report = _drill(mode, folder, **options)
    damage = ncu.damage(report) if report.exists() else ""
    try:
        kernels = ncu.read_report(report) if report.exists() else {}
    except ReportError:
        kernels = {}
    return diagnose(log, code, kernels=len(kernels), damage=damage, report_exists=report.exists()), kernels


@pytest.mark.parametrize(
    ("mode", "kind", "code"),
    [
        ("permission", "permission", Exit.MISSING),
        ("library", "library-not-loaded", Exit.MISSING),
        ("mismatch", "driver-mismatch", Exit.MISSING),
        ("resource", "resource", Exit.FAULT),
        ("lock", "lock", Exit.FAULT),
        ("nothing", "nothing-profiled", Exit.FAULT),
        ("killed", "report-killed", Exit.FAULT),
        ("empty", "report-damaged", Exit.FAULT),
        ("misspelt", "unknown-metric", Exit.FAULT),
    ],
)
def test_drill_every_way_that_ncu_fails_is_one_problem_with_its_exit_code(
    tmp_path: Path, mode: str, kind: str, code: Exit
) -> None:
    problem, kernels = _outcome(mode, tmp_path)
    assert kernels == {}
    assert problem is not None
    assert problem.kind == kind
    assert problem.error().exit_code == code
    assert problem.error().hint


def test_drill_a_truncated_report_keeps_what_it_holds(tmp_path: Path) -> None:
    problem, kernels = _outcome("truncated", tmp_path)
    assert problem is not None
    assert problem.kind == "report-damaged"
    assert 0 < len(kernels) < 3


def test_drill_a_good_run_has_every_case_and_no_problem(tmp_path: Path) -> None:
    problem, kernels = _outcome("ok", tmp_path)
    assert problem is None
    assert list(kernels) == ["case1", "case2", "case3"]


def test_drill_a_program_that_fails_keeps_its_counters_and_its_exit_code(tmp_path: Path) -> None:
    problem, kernels = _outcome("ok", tmp_path, program="raise SystemExit(7)")
    assert problem is not None
    assert "exit code 7" in problem.cause
    assert not problem.fatal
    assert len(kernels) == 3


def test_drill_a_metric_that_ncu_cannot_collect_is_absent_and_the_rest_is_there(
    tmp_path: Path,
) -> None:
    problem, kernels = _outcome("missing-metrics", tmp_path)
    assert problem is None
    found = {m.metric: m for m in ncu.measurements(kernels["case1"], resolve("dram_bytes,elapsed_cycles"), "sm_90")}
    assert found["elapsed_cycles"].value == 12
    assert "did not collect dram__bytes.sum" in found["dram_bytes"].absent
