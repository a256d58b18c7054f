from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgw.workbench import counter_probe
from dgw.workbench.collectors.ncu import NcuProblem, recognise
from dgw.workbench.counter_probe import Completed, probe_counters, run_command
from dgw.workbench.doctor import Probe, Symptom, examine, main_job_possible
from dgw.workbench.gpu_state import GpuState, gpu_states
from dgw.workbench.tools import Places

H200 = GpuState(
    name="NVIDIA H200", capability="9.0", driver="580.159", cuda=(13, 0), clock_limit_hz=1.98e9, max_clock_hz=1.98e9
)
NSIGHT = "opt/nvidia/nsight-compute/2025.3.1"
STUB = Path(__file__).parents[1] / "data" / "stubs" / "ncu"
HEALTHY = (
    f"{NSIGHT}/ncu", f"{NSIGHT}/host/target-linux-x64/nsys", f"{NSIGHT}/host/linux-x64/QdstrmImporter",
    "usr/local/cuda/compute-sanitizer/compute-sanitizer", "usr/lib/x86_64-linux-gnu/libdw.so.1",
)  # fmt: skip


def _put(root: Path, path: str, text: str = "#!/bin/sh\n") -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def _run(argv: Sequence[str], env: Mapping[str, str] | None = None, seconds: float = 1.0) -> Completed:
    if argv[-1] == "--version":
        return Completed(0, "Version 2025.3.1.0 (build 1)")
    if argv[-1] == "--list-chips":
        return Completed(0, "ga100, ga102, ad102, gh100, gb100, gb202")
    return Completed(1)


@pytest.fixture
def healthy(tmp_path: Path) -> Probe:
    for path in HEALTHY:
        _put(tmp_path, path)
    _put(tmp_path, "proc/driver/nvidia/version", "NVRM version: 580.159")
    _put(tmp_path, "proc/driver/nvidia/params", "RmProfilingAdminOnly: 0\n")
    places = Places(root=tmp_path, env={}, packages=())
    return Probe(
        places=places,
        run=_run,
        release="6.8.0",
        gpus=lambda: [H200],
        counters=lambda tool: None,
        package=lambda name: "1.0",
    )


def _with_env(probe: Probe, **env: str) -> Probe:
    return replace(probe, places=replace(probe.places, env=env))


def _without(probe: Probe, path: str) -> Probe:
    (probe.places.root / path).unlink()
    return probe


def _with(probe: Probe, path: str, text: str) -> Probe:
    _put(probe.places.root, path, text)
    return probe


def _lacks(probe: Probe, *names: str) -> Probe:
    return replace(probe, package=lambda name: "" if name in names else "1.0")


def _gpu(probe: Probe, **fields: Any) -> Probe:
    return replace(probe, gpus=lambda: [replace(H200, **fields)])


def _answers(probe: Probe, option: str, answer: Completed) -> Probe:
    def run(argv: Sequence[str], env: Mapping[str, str] | None = None, seconds: float = 1.0) -> Completed:
        return answer if argv[-1] == option else _run(argv, env, seconds)

    return replace(probe, run=run)


def _denied(tool: Path) -> NcuProblem | None:
    return recognise("==ERROR== ERR_NVGPUCTRPERM")[0]


def _library(tool: Path) -> NcuProblem | None:
    return recognise("==ERROR== LibraryNotLoaded")[0]


def _counting_says(text: str) -> Callable[[Probe], Probe]:
    return lambda probe: replace(probe, counters=lambda tool: recognise(text)[0])


Change = Callable[[Probe], Probe]
SYMPTOMS: dict[str, tuple[Change, str, str, str]] = {
    "no GPU": (
        lambda p: replace(_without(p, "proc/driver/nvidia/version"), gpus=list), "error", "no NVIDIA GPU", "import",
    ),
    "no visible GPU": (lambda p: replace(p, gpus=list), "error", "no GPU is visible", "CUDA_VISIBLE_DEVICES"),
    "no NVML": (lambda p: replace(_lacks(p, "nvidia-ml-py"), gpus=list), "error", "NVML cannot", "pip install"),
    "gVisor by log": (
        lambda p: _answers(replace(p, release="4.4.0"), "dmesg", Completed(0, "Starting gVisor...")),
        "error", "gVisor", "a machine",
    ),
    "gVisor by version": (lambda p: _with(p, "proc/version", "Linux gVisor"), "error", "gVisor", "without gVisor"),
    "WSL": (lambda p: replace(p, release="5.15-microsoft-standard"), "note", "WSL", "Control Panel"),
    "MIG": (lambda p: _gpu(p, mig=True), "warning", "MIG mode", "without MIG"),
    "other processes": (lambda p: _gpu(p, processes=2), "warning", "2 other process", "Wait"),
    "throttled": (lambda p: _gpu(p, throttle=("GpuIdle", "HwSlowdown")), "warning", "HwSlowdown", "cooling"),
    "slow clocks": (lambda p: _gpu(p, clock_limit_hz=1.2e9), "note", "1200 MHz", "nvidia-smi -rac"),
    "stub libraries": (
        lambda p: _with_env(p, LD_LIBRARY_PATH="/a:/usr/local/cuda/lib64/stubs"), "error", "stub", "Remove",
    ),
    "no ncu": (lambda p: _without(p, f"{NSIGHT}/ncu"), "error", "ncu is not on PATH", "DGW_NCU"),
    "broken ncu": (lambda p: _answers(p, "--version", Completed(127)), "error", "does not run", "again"),
    "no reader": (lambda p: _lacks(p, "ncu-report"), "error", "Reports cannot be read", "[ncu]"),
    "old driver": (lambda p: _gpu(p, cuda=(12, 8), driver="570.1"), "warning", "CUDA 13.0", "newer driver"),
    "unknown chip": (
        lambda p: _answers(p, "--list-chips", Completed(0, "ga100, ga102")), "error", "gh100", "newer ncu",
    ),
    "no permission": (lambda p: replace(p, counters=_denied), "error", "administrators", "CAP_SYS_ADMIN"),
    "library not loaded": (lambda p: replace(p, counters=_library), "error", "cannot talk to the driver", "ncu of"),
    "held counters": (
        _counting_says("==ERROR== Profiling failed because a driver resource was unavailable."),
        "error", "Another profiler holds the counters", "dcgmi profile --pause",
    ),
    "kernel not prepared": (
        _counting_says("==ERROR== Failed to prepare kernel for profiling"),
        "error", "patch the kernel", "fewer metrics",
    ),
    "refused driver": (
        _counting_says("==ERROR== Cuda driver is not compatible with Nsight Compute"),
        "error", "does not fit", "DGW_NCU",
    ),
    "skipped device": (_counting_says("Skipping device 0: unsupported GPU"), "error", "does not know the GPU", "chips"),
    "counters of an instance": (
        _counting_says("==WARNING== Failed to access the following 2 metrics. When profiling on a MIG instance, ..."),
        "warning", "MIG instance has no access", "--counters exact",
    ),
    "locked by another ncu": (
        _counting_says("==ERROR== Failed to open lock file /tmp/nsight-compute-lock."),
        "error", "Another ncu", "TMPDIR",
    ),
    "nothing profiled": (_counting_says("==WARNING== No kernels were profiled."), "error", "NVTX", "calling thread"),
    "admin only": (
        lambda p: _with(p, "proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n"),
        "note", "RmProfilingAdminOnly", "root",
    ),
    "no compiler": (lambda p: _lacks(p, "nvidia-cuda-nvrtc"), "error", "compile kernels", "pip install"),
    "no disassembler": (lambda p: _lacks(p, "nvidia-cuda-nvdisasm"), "error", "machine code", "pip install"),
    "no triton": (lambda p: _lacks(p, "triton"), "warning", "Triton ladder", "[gpu]"),
    "no NVML beside a GPU": (lambda p: _lacks(p, "nvidia-ml-py"), "warning", "clocks, power and energy", "[gpu]"),
    "no torch": (lambda p: _lacks(p, "torch"), "warning", "cuBLAS", "[gpu]"),
    "no nsys": (lambda p: _without(p, f"{NSIGHT}/host/target-linux-x64/nsys"), "note", "nsys is not", "DGW_NSYS"),
    "no importer": (
        lambda p: _without(p, f"{NSIGHT}/host/linux-x64/QdstrmImporter"),
        "warning", "target-only", "nsight-systems-cli",
    ),
    "no libdw": (lambda p: _without(p, "usr/lib/x86_64-linux-gnu/libdw.so.1"), "warning", "libdw.so.1", "libdw1"),
    "no sanitizer": (lambda p: _without(p, HEALTHY[3]), "note", "compute-sanitizer", "pip install"),
    "injected profiler": (
        lambda p: _with_env(p, CUDA_INJECTION64_PATH="/x.so"), "warning", "another profiler", "unset",
    ),
    "injected ranges": (
        lambda p: _with_env(p, NVTX_INJECTION64_PATH="/x.so"), "warning", "NVTX_INJECTION64_PATH", "unset",
    ),
    "preloaded stub": (
        lambda p: _with_env(p, LD_PRELOAD="/usr/local/cuda/lib64/stubs/libcuda.so"), "error", "LD_PRELOAD", "Remove",
    ),
    "lock of the ncu of CUDA 13": (
        lambda p: replace(_with(p, "tmp/nsight_compute/lock.GPU-1", ""), user=4242), "note", "another user", "TMPDIR",
    ),
    "DCGM": (lambda p: _with(p, "proc/77/comm", "nv-hostengine\n"), "note", "DCGM", "--pause"),
    "foreign lock": (
        lambda p: replace(_with(p, "tmp/nsight-compute-lock", ""), user=4242), "note", "another user", "TMPDIR",
    ),
}  # fmt: skip


def test_a_healthy_machine_has_no_symptom(healthy: Probe) -> None:
    assert examine(healthy) == []


@pytest.mark.parametrize("name", SYMPTOMS)
def test_each_symptom_is_found_with_its_cause_and_its_cure(healthy: Probe, name: str) -> None:
    change, severity, cause, cure = SYMPTOMS[name]
    found = [symptom for symptom in examine(change(healthy)) if cause in symptom.cause]
    assert len(found) == 1, examine(healthy)
    assert found[0].severity == severity
    assert cure in found[0].cure
    for sentence in (found[0].cause, found[0].cure):
        assert sentence[0] == sentence[0].upper() or sentence.startswith(
            ("ncu", "nsys", "pip", "unset", "dgw", "compute")
        )
        assert sentence.endswith(".")


def test_only_errors_keep_the_main_job_from_running(healthy: Probe) -> None:
    assert main_job_possible(examine(healthy))
    assert main_job_possible(examine(_gpu(healthy, mig=True, processes=3)))
    assert not main_job_possible(examine(replace(healthy, counters=_denied)))


def test_errors_come_first(healthy: Probe) -> None:
    found = examine(replace(_gpu(healthy, mig=True), counters=_denied))
    assert [symptom.severity for symptom in found] == ["error", "warning"]


def test_an_administrator_is_not_told_about_a_restriction_that_does_not_concern_him(healthy: Probe) -> None:
    _with(healthy, "proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n")
    assert examine(_with(healthy, "proc/self/status", "CapEff:\t000001ffffffffff\n")) == []


def test_without_a_gpu_no_kernel_is_profiled(healthy: Probe) -> None:
    def never(tool: Path) -> NcuProblem | None:
        raise AssertionError("a kernel was profiled")

    examine(replace(healthy, gpus=list, counters=never))


def test_an_old_kernel_without_a_readable_log_counts_as_a_sandbox_only_at_its_version(healthy: Probe) -> None:
    assert "gVisor" in examine(replace(healthy, release="4.4.0"))[0].cause
    assert (
        examine(
            replace(
                healthy,
                release="4.4.0-generic",
                run=lambda *a: Completed(0, "Linux") if a[0] == ["dmesg"] else _run(*a),
            )
        )
        == []
    )


def test_symptoms_are_values_that_reports_can_show() -> None:
    assert Symptom("ncu", "error", "a.", "b.") == Symptom("ncu", "error", "a.", "b.")


def _stub_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> NcuProblem | None:
    (tmp_path / "kernels").write_text("doctor")
    monkeypatch.setenv("STUB_NCU", mode)
    monkeypatch.setenv("STUB_NCU_KERNELS", str(tmp_path / "kernels"))
    return probe_counters(STUB, program=(sys.executable, "-c", "pass"))


def test_the_probe_accepts_only_a_report_with_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _stub_program(tmp_path, monkeypatch, "ok") is None
    for mode, kind in (("permission", "permission"), ("nothing", "nothing-profiled"), ("killed", "report-killed")):
        problem = _stub_program(tmp_path, monkeypatch, mode)
        assert problem is not None
        assert problem.kind == kind


def test_a_program_that_fails_without_ncu_is_not_blamed_on_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_NCU", "nothing")
    monkeypatch.setenv("STUB_NCU_KERNELS", str(tmp_path / "none"))
    problem = probe_counters(STUB, program=(sys.executable, "-c", "raise SystemExit('no CUDA here')"))
    assert problem is not None
    assert "no CUDA here" in problem.cause


def test_an_ncu_that_cannot_be_started_is_one_problem(tmp_path: Path) -> None:
    problem = probe_counters(tmp_path / "absent", program=("true",))
    assert problem is not None
    assert problem.kind == "not-started"


def test_the_trivial_kernel_uses_the_interface_of_the_installed_cuda_core() -> None:
    import cuda.core

    compile(counter_probe.TRIVIAL, "trivial", "exec")
    for name in ("Device", "LaunchConfig", "Program", "ProgramOptions", "launch"):
        assert hasattr(cuda.core, name)
    assert 'domain="dgw"' in counter_probe.TRIVIAL


def test_a_command_that_hangs_is_given_up() -> None:
    assert run_command([sys.executable, "-c", "input()"], None, 10.0).returncode == 1
    assert run_command(["/no/such/tool"]).returncode is None


class _Nvml:
    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0
    NVMLError = RuntimeError
    nvmlClocksEventReasonHwSlowdown = 8  # noqa: N815

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers: dict[str, Any] = {
            "nvmlInit": None, "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": "gpu",
            "nvmlDeviceGetName": b"NVIDIA H200", "nvmlDeviceGetHandleByUUID": "gpu",
            "nvmlDeviceGetUUID": "GPU-1", "nvmlSystemGetDriverVersion": "580.159",
            "nvmlDeviceGetCudaComputeCapability": (9, 0), "nvmlSystemGetCudaDriverVersion": 13000,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=-1)], "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetCurrentClocksEventReasons": 8,
        }  # fmt: skip

        if name.startswith("nvmlClocks"):
            raise AttributeError(name)

        def answer(*arguments: Any) -> Any:
            if name not in answers:
                raise RuntimeError("not supported")
            return answers[name]

        return answer


def test_the_state_of_a_gpu_is_read_and_what_it_does_not_tell_is_unknown() -> None:
    (state,) = gpu_states(_Nvml())
    assert (state.name, state.capability, state.cuda, state.driver) == ("NVIDIA H200", "9.0", (13, 0), "580.159")
    assert state.processes == 1
    assert state.throttle == ("HwSlowdown",)
    assert state.max_clock_hz == 1.98e9
    assert state.clock_limit_hz is None
    assert not state.mig


def test_without_a_driver_there_are_no_gpus() -> None:
    class Broken:
        def nvmlInit(self) -> None:  # noqa: N802
            raise RuntimeError("driver not loaded")

    assert gpu_states(Broken()) == []
