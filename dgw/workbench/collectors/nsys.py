"""Nsight Systems: its command line, its files, and what it says when there is no timeline.

nsys exits 0 even when it could not turn what it collected (`.qdstrm`) into a report, because the importer that does so
is a part of its own that is often missing. So the test of success is the file.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dgw.errors import ChildFault, DgwError, Missing, ReportError
from dgw.workbench.tools import importer_of

EXPORT_S = 300.0
PLAIN = "no option but those of every release"
"""A manual that names no newer option: for an nsys that refused one although its own manual names it."""
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class NsysProblem:
    """Why there is no timeline. `missing`: a part of the tool, or a permission, is not on this machine."""

    kind: str
    cause: str
    cure: str
    missing: bool = False
    detail: str = ""

    def error(self) -> DgwError:
        """The problem as an error with its exit code."""
        if self.missing:
            return Missing(self.cause, self.cure)
        return (ReportError if self.kind.startswith("report") else ChildFault)(self.cause, self.cure)


def profile_command(tool: Path | str, report: Path | str, *, extra: Sequence[str] = (), manual: str = "") -> list[str]:
    """The argv prefix that runs a child under nsys and writes `report`, to which .nsys-rep and .sqlite are added.

    Only CUDA and NVTX are traced, kernels inside CUDA graphs one by one; the CPU is not sampled (that writes
    gigabytes), and the environment of the child is not kept. Options that not every release has are given only when
    `manual`, what `nsys profile --help` prints, names them (or is empty): stored files are scrubbed either way.
    """
    newer = ("--cpuctxsw=none", "--cuda-graph-trace=node", "--discard-environment=true")
    return [
        str(tool),
        "profile",
        *("--trace=cuda,nvtx", "--sample=none"),
        *(option for option in newer if not manual or option.partition("=")[0] in manual),
        *("--export=sqlite", "--force-overwrite=true"),
        *extra,
        *("--output", str(report)),
    ]


def manual_of(tool: Path | str) -> str:
    """What `nsys profile --help` prints, whatever its exit code; empty when that is no list of options."""
    try:
        done = subprocess.run(
            [str(tool), "profile", "--help"], capture_output=True, text=True, errors="replace", timeout=30, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    said = done.stdout + done.stderr  # releases differ in where they print it, and in the exit code
    return said if "--trace" in said else ""


def export_command(tool: Path | str, report: Path | str, sqlite: Path | str) -> list[str]:
    """The argv that turns a .nsys-rep into SQLite."""
    return [str(tool), "export", "--type=sqlite", "--force-overwrite=true", "--output", str(sqlite), str(report)]


def nsys_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` for a child under nsys: C locale, no other profiler's injection, libraries told to leave CUPTI alone."""
    injected = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NV_COMPUTE_PROFILER_IN_PROCESS")
    kept = {name: value for name, value in env.items() if name not in injected and not name.startswith("LC_")}
    return {**kept, "LC_ALL": "C", "DG_NSYS_PROFILING": "1", "EP_USE_NVIDIA_TOOLS": "1"}


@dataclass(frozen=True)
class _Pattern:
    kind: str
    text: str
    cause: str
    cure: str
    missing: bool = False


_LIBRARY = re.compile(
    r"(?:error while loading shared libraries: )?(lib[\w.+-]+\.so[.\d]*): cannot open shared object file"
)
_PATTERNS = (
    _Pattern(
        "importer-missing",
        r"importer binary and its dependencies were not found|Unable to retrieve the importer version",
        "nsys collected a timeline but cannot read it: its importer is missing, or a library that the importer needs",
        "apt-get install libdw1 (libdw.so.1); if that does not help, install the package nsight-systems-cli, of which "
        "this nsys is only the collecting half",
        missing=True,
    ),
    _Pattern(
        "importer-failed",
        r"Importer error status|Importation failed|Import Failed",
        "nsys collected a timeline, and its importer failed on it",
        "try again with fewer cases, or install a newer nsight-systems-cli and point DGW_NSYS to it",
    ),
    _Pattern(
        "option",
        r"unrecogni[sz]ed option|Illegal --|is not a valid value|Invalid value",
        "this nsys does not know an option that dgw gives it",
        "install nsight-systems-cli 2023.2 or newer and point DGW_NSYS to it",
        missing=True,
    ),
    _Pattern(
        "session",
        r"session is already|Another (?:session|instance)|agent .* already running",
        "another nsys session is running on this machine",
        "end it (nsys sessions list; nsys stop) and try again",
    ),
    _Pattern(
        "cuda-not-traced",
        r"CUDA (?:profiling|tracing)[^\n]*(?:not|fail)|CUPTI_ERROR|multiple.subscribers|LibraryNotLoaded",
        "nsys could not trace CUDA: another CUPTI client holds it, a sandbox, or an nsys older than the driver",
        "stop the other profiler, or install the nsys of the driver's CUDA version",
        missing=True,
    ),
    _Pattern(
        "disk",
        r"No space left on device",
        "there is no space for the timeline",
        "free disk space, or set TMPDIR to a folder that has some",
    ),
)  # fmt: skip


def recognise(log: str) -> NsysProblem | None:
    """The problem that the output of nsys tells of, or None."""
    library = _LIBRARY.search(log)
    for pattern in _PATTERNS:
        found = re.search(pattern.text, log, re.IGNORECASE)
        if not found:
            continue
        problem = NsysProblem(pattern.kind, pattern.cause, pattern.cure, pattern.missing, found.group(0))
        return _without_library(problem, library[1]) if library and pattern.kind.startswith("importer") else problem
    if library:
        return _without_library(NsysProblem("importer-missing", "", "", True), library[1])
    return None


def _without_library(problem: NsysProblem, library: str) -> NsysProblem:
    package = {"libdw.so.1": "libdw1 (libdw1t64 on Ubuntu 24.04 and newer)"}.get(library, f"what holds {library}")
    return replace(
        problem, kind="importer-missing", missing=True, detail=library,
        cause=f"nsys collected a timeline but cannot read it: its importer needs {library}, which is not installed",
        cure=f"apt-get install {package}",
    )  # fmt: skip


def diagnose(report: Path, log: str, status: int | None, tool: Path | None = None) -> NsysProblem | None:
    """Why there is no SQLite beside `report` (its path without suffix), whatever the exit status; None when there is.

    `tool` lets it look whether the installation has an importer at all.
    """
    sqlite = report.with_name(f"{report.name}.sqlite")
    if sqlite.is_file() and sqlite.stat().st_size:
        return None
    known = recognise(log)
    if known is not None and known.kind != "importer-missing":
        return known
    if report.with_name(f"{report.name}.qdstrm").is_file() or known is not None:
        return _unread(known or recognise("importer binary and its dependencies were not found"), tool)
    if report.with_name(f"{report.name}.nsys-rep").is_file():
        return NsysProblem(
            "report-not-exported", "nsys wrote a report and no SQLite of it", "nsys export --type sqlite"
        )
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
    said = f": {last[:200]}" if last else ""
    return NsysProblem("report-missing", f"nsys ended with status {status} and left no timeline{said}", "dgw doctor")


def _unread(problem: NsysProblem | None, tool: Path | None) -> NsysProblem | None:
    """The missing importer, told apart: no importer at all, or one that lacks a library."""
    if problem is None or tool is None or problem.detail.startswith("lib"):
        return problem
    if importer_of(tool) is None and "nsight-compute" in str(tool.resolve()).lower():
        return replace(
            problem,
            cause="nsys collected a timeline but cannot read it: it came with Nsight Compute and has no importer",
            cure="install the package nsight-systems-cli, or point DGW_NSYS to a full nsys",
        )
    return problem


def run_command(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a short command of nsys and keep all that it prints."""
    try:
        return subprocess.run(
            list(argv), capture_output=True, text=True, errors="replace", timeout=EXPORT_S, check=False
        )
    except OSError as error:
        raise Missing(f"nsys cannot be started: {error.strerror}", "dgw doctor") from error
    except subprocess.TimeoutExpired as error:
        raise ChildFault(f"nsys export took more than {EXPORT_S:g} s", "dgw doctor") from error


def export(tool: Path, report: Path, folder: Path, run: Run = run_command) -> Path:
    """The SQLite of a .nsys-rep, written into `folder`. Raises what :class:`NsysProblem` says."""
    target = folder / f"{report.stem}.sqlite"
    done = run(export_command(tool, report, target))
    if target.is_file() and target.stat().st_size:
        return target
    problem = diagnose(folder / report.stem, f"{done.stdout}\n{done.stderr}", done.returncode, tool)
    assert problem is not None
    raise problem.error()
