"""What keeps this machine from a complete profile: one sentence of cause and one of cure each. Nothing is ever changed.

Every check takes a :class:`Probe` and yields symptoms; the probe holds all that is looked at (files, environment,
commands, NVML), so each symptom can be produced in a test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dgw.workbench.collectors.ncu import NcuProblem
from dgw.workbench.counter_probe import Run, probe_counters, run_command
from dgw.workbench.environment import package_version
from dgw.workbench.gpu_state import GpuState, gpu_states
from dgw.workbench.tools import Places, find_tool, importer_of, parse_version, report_reader_folder

Severity = Literal["error", "warning", "note"]

CUDA_OF_NCU: Mapping[tuple[int, int], tuple[int, int]] = {
    (2022, 4): (12, 0), (2023, 1): (12, 1), (2023, 2): (12, 2), (2023, 3): (12, 3), (2024, 1): (12, 4),
    (2024, 2): (12, 5), (2024, 3): (12, 6), (2025, 1): (12, 8), (2025, 2): (12, 9), (2025, 3): (13, 0),
    (2025, 4): (13, 1),
}  # fmt: skip
"""The CUDA release that each ncu came with; an ncu newer than the driver's CUDA may refuse the driver."""

CHIPS: Mapping[str, str] = {
    "8.0": "ga100", "8.6": "ga102", "8.9": "ad102", "9.0": "gh100", "10.0": "gb100", "12.0": "gb202",
}  # fmt: skip
_CAP_SYS_ADMIN = 21


@dataclass(frozen=True)
class Symptom:
    """One thing that is wrong or missing. `error`: `dgw profile` cannot run completely here."""

    area: str
    severity: Severity
    cause: str
    cure: str


@dataclass(frozen=True)
class Probe:
    """All that is looked at, every part replaceable. `counters` profiles a trivial kernel with the ncu it is given."""

    places: Places = field(default_factory=Places)
    run: Run = run_command
    release: str = field(default_factory=lambda: os.uname().release)
    user: int = field(default_factory=os.getuid)
    gpus: Callable[[], list[GpuState]] = gpu_states
    counters: Callable[[Path], NcuProblem | None] = probe_counters
    package: Callable[[str], str] = package_version

    def text(self, path: str) -> str:
        """The content of a file below the root; empty when it cannot be read."""
        try:
            return (self.places.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def version(self, tool: Path) -> str:
        """What the tool says its version is; empty when it does not run."""
        done = self.run([str(tool), "--version"], None, 10.0)
        return parse_version(done.stdout + done.stderr) if done.returncode == 0 else ""


def examine(probe: Probe | None = None) -> list[Symptom]:
    """Every symptom of this machine, errors first; empty when `dgw profile` can run completely.

    Only looks: profiles one empty kernel where a GPU and ncu exist, and changes no setting.
    """
    probe = probe or Probe()
    gpus = probe.gpus()
    checks: tuple[Callable[[Probe, list[GpuState]], Iterable[Symptom]], ...] = (
        check_sandbox, check_gpu, check_gpu_state, check_library_path, check_ncu, check_counters, check_packages,
        check_nsys, check_sanitizer, check_injection, check_lock_files,
    )  # fmt: skip
    found = [symptom for check in checks for symptom in check(probe, gpus)]
    return sorted(found, key=lambda symptom: ("error", "warning", "note").index(symptom.severity))


def main_job_possible(symptoms: Iterable[Symptom]) -> bool:
    """Whether `dgw profile` can run completely: time, counters, everything. If not, the exit code is 6."""
    return not any(symptom.severity == "error" for symptom in symptoms)


def is_gvisor(probe: Probe) -> bool:
    """Whether this is a gVisor sandbox, which has no counters: its kernel calls itself 4.4.0, its log names it."""
    if "gvisor" in (probe.release + probe.text("proc/version")).lower():
        return True
    if not probe.release.startswith("4.4.0"):
        return False
    log = probe.run(["dmesg"], None, 5.0)
    return log.returncode != 0 or "gvisor" in log.stdout.lower()


def check_sandbox(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """GVisor and WSL."""
    if is_gvisor(probe):
        cause = "This is a gVisor sandbox: the profiling library cannot talk to the driver (LibraryNotLoaded)."
        yield Symptom("machine", "error", cause, "Use a machine or a container runtime without gVisor.")
    elif "microsoft" in probe.release.lower():
        cause = "This is WSL: the Windows driver decides whether counters may be read."
        cure = "Allow them in the NVIDIA Control Panel, under Developer, Manage GPU Performance Counters."
        yield Symptom("machine", "note", cause, cure)


def check_gpu(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """A GPU and its driver."""
    if gpus:
        return
    if probe.text("proc/driver/nvidia/version"):
        if not probe.package("nvidia-ml-py"):
            cause = "An NVIDIA driver is loaded, but NVML cannot be asked: nvidia-ml-py is not installed."
            yield Symptom("GPU", "error", cause, "pip install 'deepgemm-workbench[gpu]'.")
            return
        cause = "An NVIDIA driver is loaded, but no GPU is visible."
        cure = "Check CUDA_VISIBLE_DEVICES, and start the container with --gpus all."
        yield Symptom("GPU", "error", cause, cure)
        return
    cause = "There is no NVIDIA GPU or no driver, so neither time nor counters can be measured."
    cure = "Run on a GPU machine and `dgw import` its records; the static and emulator lanes work here."
    yield Symptom("GPU", "error", cause, cure)


def check_gpu_state(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """MIG, other processes, clocks held down."""
    for gpu in gpus:
        if gpu.mig:
            cause = f"GPU {gpu.index} is in MIG mode: counters of L2, DRAM and clocks are not accessible."
            yield Symptom("GPU", "warning", cause, "Measure on a GPU without MIG, or choose --counters exact.")
        if gpu.processes:
            cause = f"{gpu.processes} other process(es) use GPU {gpu.index}: times and counters include their work."
            yield Symptom("GPU", "warning", cause, "Wait until they end, or choose a free GPU by CUDA_VISIBLE_DEVICES.")
        held = [reason for reason in gpu.throttle if reason not in ("GpuIdle", "ApplicationsClocksSetting")]
        if held:
            cause = f"The clocks of GPU {gpu.index} are held down at the moment: {', '.join(held)}."
            yield Symptom("GPU", "warning", cause, "Check cooling and the power limit, and let the GPU rest.")
        if gpu.clock_limit_hz and gpu.max_clock_hz and gpu.clock_limit_hz < 0.98 * gpu.max_clock_hz:
            limit, most = gpu.clock_limit_hz / 1e6, gpu.max_clock_hz / 1e6
            cause = f"Application clocks hold GPU {gpu.index} at {limit:.0f} MHz, its maximum is {most:.0f} MHz."
            yield Symptom("GPU", "note", cause, "If that is not wanted: nvidia-smi -rac (dgw leaves clocks alone).")


def check_library_path(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """The toolkit's stub libraries on the run-time search path."""
    for variable in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        if any("/stubs" in entry for entry in probe.places.env.get(variable, "").split(":")):
            cause = f"{variable} leads to the stub of libcuda, which cannot run anything."
            yield Symptom("environment", "error", cause, f"Remove the stubs folder from {variable}.")


def check_ncu(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """Ncu and its reader: there, running, not newer than the driver, and aware of the GPU."""
    tool = find_tool("ncu", probe.places)
    if tool is None:
        cause = "ncu is not on PATH, in a CUDA folder or in an Nsight Compute folder: there will be no counters."
        severity: Severity = "error" if gpus else "note"
        yield Symptom("ncu", severity, cause, "Install nsight-compute of the driver's CUDA, or set DGW_NCU to it.")
        return
    version = probe.version(tool)
    if not version:
        yield Symptom("ncu", "error", f"{tool} does not run.", "Install nsight-compute again, or set DGW_NCU.")
        return
    if not probe.package("ncu-report") and report_reader_folder(tool, probe.places) is None:
        cause = "Reports cannot be read well: neither the package ncu-report nor a copy beside ncu is there."
        yield Symptom("ncu", "error", cause, "pip install 'deepgemm-workbench[ncu]'.")
    yield from _ncu_fits(probe, tool, version, gpus)


def _ncu_fits(probe: Probe, tool: Path, version: str, gpus: list[GpuState]) -> Iterator[Symptom]:
    year, release = (int(part) for part in version.split(".")[:2])
    needs = CUDA_OF_NCU.get((year, release))
    for gpu in gpus[:1]:
        if needs and gpu.cuda and needs > gpu.cuda:
            cause = (
                f"ncu {version} came with CUDA {needs[0]}.{needs[1]}, and driver {gpu.driver} supports "
                f"{gpu.cuda[0]}.{gpu.cuda[1]}: it may refuse the driver."
            )
            yield Symptom("ncu", "warning", cause, "Install the ncu of the driver's CUDA version, or a newer driver.")
        chip = CHIPS.get(gpu.capability)
        known = probe.run([str(tool), "--list-chips"], None, 10.0)
        if chip and known.returncode == 0 and known.stdout.strip() and chip not in known.stdout.lower():
            cause = f"ncu {version} does not know the chip {chip} of {gpu.name}."
            yield Symptom("ncu", "error", cause, "Install a newer ncu.")


def check_counters(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """Permission to read counters: what the driver says, then what profiling a trivial kernel says."""
    tool = find_tool("ncu", probe.places)
    if tool is None or not gpus or is_gvisor(probe):
        return
    problem = probe.counters(tool)
    if problem is not None:
        cause = problem.cause[0].upper() + problem.cause[1:] + "."
        cure = problem.cure[0].upper() + problem.cure[1:] + "."
        yield Symptom("counters", "error" if problem.fatal else "warning", cause, cure)
        return
    if "RmProfilingAdminOnly: 1" in probe.text("proc/driver/nvidia/params") and not _is_admin(probe):
        cause = "The driver is set to let only administrators read counters (RmProfilingAdminOnly: 1)."
        cure = "It worked now; if it fails later, set NVreg_RestrictProfilingToAdminUsers=0 or run as root."
        yield Symptom("counters", "note", cause, cure)


def _is_admin(probe: Probe) -> bool:
    for line in probe.text("proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def check_packages(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """Python packages: the compiler, the disassembler, and what the GPU lanes import."""
    disassembler = probe.package("nvidia-cuda-nvdisasm") or find_tool("nvdisasm", probe.places)
    for package, why, there in (
        ("nvidia-cuda-nvrtc", "compile kernels", probe.package("nvidia-cuda-nvrtc")),
        ("nvidia-cuda-nvdisasm", "read machine code", disassembler),
    ):
        if not there:
            cause = f"The package {package} is not installed: dgw cannot {why}."
            yield Symptom("packages", "error", cause, f"pip install {package}.")
    if not gpus:
        return
    wanted = (("torch", "compare with cuBLAS"), ("nvidia-ml-py", "read clocks, power and energy"))
    for package, why in (*wanted, ("triton", "run the Triton ladder")):
        if not probe.package(package):
            cause = f"The package {package} is not installed: dgw cannot {why}."
            yield Symptom("packages", "warning", cause, "pip install 'deepgemm-workbench[gpu]'.")


def check_nsys(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """Nsys, the importer that makes its report, and the library that the importer needs."""
    tool = find_tool("nsys", probe.places)
    if tool is None:
        if gpus:
            cause = "nsys is not on PATH nor in an Nsight Compute folder: no timelines (torch.profiler stands in)."
            yield Symptom("nsys", "note", cause, "Install nsight-systems-cli, or set DGW_NSYS to it.")
        return
    if importer_of(tool) is None:
        cause = "This nsys is a target-only install: without QdstrmImporter it leaves a .qdstrm and exits 0."
        yield Symptom("nsys", "warning", cause, "Install nsight-systems-cli, or import the .qdstrm elsewhere.")
    elif not _library(probe, "libdw.so.1"):
        cause = "The importer of nsys needs libdw.so.1, which is missing: it would leave a .qdstrm and exit 0."
        yield Symptom("nsys", "warning", cause, "Install libdw1 (Debian, Ubuntu) or elfutils-libs (Red Hat).")


def _library(probe: Probe, name: str) -> bool:
    folders = ("usr/lib", "usr/lib64", "lib", "lib64", "usr/lib/*-linux-gnu", "lib/*-linux-gnu", "usr/local/lib")
    if any(probe.places.glob(f"{folder}/{name}*") for folder in folders):
        return True
    return any(
        (Path(entry) / name).exists() for entry in probe.places.env.get("LD_LIBRARY_PATH", "").split(":") if entry
    )


def check_sanitizer(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """compute-sanitizer."""
    if gpus and find_tool("compute-sanitizer", probe.places) is None:
        cause = "compute-sanitizer was not found: `dgw check --sanitize` cannot run."
        yield Symptom("sanitizer", "note", cause, "pip install nvidia-cuda-sanitizer-api, or install the CUDA toolkit.")


def check_injection(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """Other profilers: injected by the environment, or a DCGM engine that holds the counters."""
    for variable in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        if probe.places.env.get(variable):
            cause = f"{variable} is set: another profiler enters every CUDA program."
            yield Symptom("environment", "warning", cause, f"unset {variable}.")
    for name in probe.places.glob("proc/[0-9]*/comm"):
        if gpus and probe.text(str(name.relative_to(probe.places.root))).strip() == "nv-hostengine":
            cause = "DCGM (nv-hostengine) is running and may hold the counters."
            cure = "If ncu reports an unavailable driver resource: dcgmi profile --pause, and --resume afterwards."
            yield Symptom("counters", "note", cause, cure)
            return


def check_lock_files(probe: Probe, gpus: list[GpuState]) -> Iterator[Symptom]:
    """Lock files that ncu leaves in TMPDIR; dgw is not stopped by them, a plain ncu is."""
    folder = probe.places.env.get("TMPDIR", "/tmp").strip("/")
    patterns = ("nsight-compute-lock*", "nsight_compute/lock.*", "nsight-compute/lock*")
    locks = [path for pattern in patterns for path in probe.places.glob(f"{folder}/{pattern}")]
    foreign = [path for path in locks if path.stat().st_uid != probe.user]
    if foreign:
        cause = f"A lock file of ncu belongs to another user ({foreign[0].name}): another ncu runs, or one died."
        yield Symptom(
            "ncu", "note", cause, "dgw uses a TMPDIR of its own; for ncu by hand set TMPDIR or ask its owner."
        )
