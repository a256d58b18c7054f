"""What ncu says when it fails, as typed problems: one sentence of cause, one of cure.

ncu exits 0 when it profiled nothing, 9 when it killed a program whose profile failed, and otherwise with the program's
own code. So the test of success is: the report is there, it holds kernels, and the log has no error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dgw.errors import ChildFault, DgwError, Missing, ReportError


@dataclass(frozen=True)
class NcuProblem:
    """One thing that went wrong. `kind` is stable; `fatal` means that no counters came; `detail` quotes the message."""

    kind: str
    cause: str
    cure: str
    fatal: bool = True
    missing: bool = False  # a permission, a tool or a machine that can be profiled is missing: exit code 6
    detail: str = ""

    def error(self) -> DgwError:
        """The problem as an error with its exit code."""
        if self.missing:
            return Missing(self.cause, self.cure)
        kind = ReportError if self.kind.startswith("report") else ChildFault
        return kind(self.cause, self.cure)


@dataclass(frozen=True)
class _Pattern:
    kind: str
    text: str
    cause: str
    cure: str
    fatal: bool = True
    missing: bool = False


_PATTERNS = (
    _Pattern(
        "permission",
        r"ERR_NVGPUCTRPERM|does not have permission to access NVIDIA GPU Performance Counters",
        "the driver allows only administrators to read GPU performance counters",
        "run as root or with CAP_SYS_ADMIN (docker run --cap-add=SYS_ADMIN), or have the administrator set "
        "`options nvidia NVreg_RestrictProfilingToAdminUsers=0` and reload the driver; on WSL allow it in the NVIDIA "
        "Control Panel under Developer",
        missing=True,
    ),
    _Pattern(
        "library-not-loaded",
        r"LibraryNotLoaded",
        "the profiling library of ncu cannot talk to the driver: a gVisor sandbox, or an ncu older than driver or GPU",
        "in a gVisor sandbox use another machine; elsewhere install the ncu of the driver's CUDA version",
        missing=True,
    ),
    _Pattern(
        "resource",
        r"driver resource was unavailable|MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        "another profiler holds the counters: DCGM, another ncu or nsys, or a CUPTI session such as torch.profiler",
        "stop the other profiler, or run `dcgmi profile --pause` for the time of the measurement, and try again",
    ),
    _Pattern(
        "lock",
        r"lock file|nsight[-_]compute[-_/]lock",
        "another ncu profiles on this GPU, or a lock file of another user was left behind",
        "wait for the other ncu to end and try again; dgw sets a TMPDIR of its own, so a stale lock cannot be its own",
    ),
    _Pattern(
        "stub-driver",
        r"stub libcuda\.so|CUDA driver \(stub",
        "LD_LIBRARY_PATH leads to the stub of libcuda that the toolkit has for linking",
        "remove the `stubs` folder from LD_LIBRARY_PATH",
        missing=True,
    ),
    _Pattern(
        "driver-mismatch",
        r"Cuda driver is not compatible with Nsight Compute",
        "this ncu does not fit the installed driver",
        "install the ncu of the driver's CUDA version, or point DGW_NCU to it",
        missing=True,
    ),
    _Pattern(
        "unsupported-gpu",
        r"unsupported GPU|not supported on (?:this )?(?:chip|device)|is not supported by this version",
        "this ncu does not know the GPU",
        "compare `ncu --list-chips` with the GPU and install a newer ncu",
        missing=True,
    ),
    _Pattern(
        "mig-clocks",
        r"Cannot lock GPU clock frequencies on MIG",
        "the clocks of a MIG instance cannot be locked",
        "leave the clocks alone (--clock-control none, which dgw always passes)",
    ),
    _Pattern(
        "mig-metrics",
        r"Failed to access the following \d* ?metrics.*MIG|profiling on a MIG instance",
        "a MIG instance has no access to counters that the instances share (L2, DRAM, whole GPU)",
        "choose metrics of the SM (--counters exact), or measure on a GPU without MIG",
        fatal=False,
    ),
    _Pattern(
        "unknown-metric",
        r"Failed to find metric (?:regex:\^)?(?P<name>[\w.]+)",
        "ncu does not know a metric of the table on this GPU",
        "install a newer ncu, or leave the metric out of --counters",
    ),
    _Pattern(
        "uncollectable",
        r"Unable to access the following \d* ?metrics",
        "ncu knows some of the metrics but cannot collect them on this GPU",
        "they are reported as absent; nothing to do",
        fatal=False,
    ),
    _Pattern(
        "preparation",
        r"Failed to prepare kernel for profiling|Unknown Error on device",
        "ncu could not save memory or patch the kernel before replaying it",
        "try fewer metrics (--counters quick), smaller buffers, or a set without instruction-level counters",
    ),
    _Pattern(
        "nothing-profiled",
        r"No kernels were profiled",
        "ncu ran, but no kernel was launched inside a range of the NVTX domain dgw",
        "check that the variant launches its kernels in the calling thread and that `dgw check` passes for it",
    ),
    _Pattern(
        "application",
        r"application returned an error code \((?P<code>\d+)\)",
        "the program under ncu ended with an error",
        "run the same case without counters first: --counters none",
    ),
)  # fmt: skip
# Harmless alone: every profile that fails ends with it, so the cause is the other message.
_LAST = ("application", "nothing-profiled")


def recognise(text: str) -> list[NcuProblem]:
    """The problems that the messages of ncu name, the decisive one first; empty when none is known."""
    found = []
    for pattern in _PATTERNS:
        match = re.search(pattern.text, text, re.IGNORECASE)
        if match:
            line = next((line for line in text.splitlines() if match.group(0).splitlines()[0] in line), match.group(0))
            problem = NcuProblem(
                pattern.kind, pattern.cause, pattern.cure, pattern.fatal, pattern.missing, line.strip(" =")[:300]
            )
            found.append(_with_name(problem, match))
    return sorted(found, key=lambda problem: (not problem.fatal, problem.kind in _LAST))


def _with_name(problem: NcuProblem, match: re.Match[str]) -> NcuProblem:
    if problem.kind == "unknown-metric":
        return replace(problem, cause=f"ncu does not know the metric {match['name']} on this GPU")
    if problem.kind == "application":
        return replace(problem, cause=f"the program under ncu ended with exit code {match['code']}")
    return problem


def diagnose(
    log: str,
    returncode: int,
    *,
    kernels: int,
    damage: str = "",
    report_exists: bool = True,
) -> NcuProblem | None:
    """Why a run of ncu is not a success, or None when it is one.

    `log` is its log file and standard error together, `kernels` the number of kernels in the report, `damage` what
    :func:`~dgw.workbench.collectors.ncu_reader.damage` says of the file. The report decides, not the exit code.
    """
    problems = recognise(log)
    decisive = next((p for p in problems if p.fatal and p.kind not in _LAST), None)
    if decisive:
        return replace(decisive, fatal=kernels == 0)
    if damage:
        return _damaged(damage)
    if not report_exists:
        return next((p for p in problems if p.fatal), None) or _no_report(log, returncode)
    if kernels == 0:
        return next((p for p in problems if p.fatal), None) or _pattern("nothing-profiled")
    if returncode != 0:
        return _ended(returncode)
    if "==ERROR==" in log:
        line = next(line for line in log.splitlines() if "==ERROR==" in line)
        return NcuProblem(
            "unknown", f"ncu reported: {line.partition('==ERROR==')[2].strip()}", "see the log of ncu", False
        )
    return None


def _pattern(kind: str) -> NcuProblem:
    pattern = next(pattern for pattern in _PATTERNS if pattern.kind == kind)
    return NcuProblem(pattern.kind, pattern.cause, pattern.cure, pattern.fatal, pattern.missing)


def _damaged(damage: str) -> NcuProblem:
    return NcuProblem("report-damaged", f"the report of ncu is damaged: {damage}", "measure these cases again")


def _no_report(log: str, returncode: int) -> NcuProblem:
    if returncode in (-9, 137):
        return NcuProblem("report-killed", "ncu was killed before it wrote its report", "measure these cases again")
    if returncode in (9, 11):
        what = "was killed" if returncode == 9 else "crashed"
        return NcuProblem(
            "report-missing", f"the program under ncu {what} and no report was written", "run it with --counters none"
        )
    line = next((line for line in log.splitlines() if "==ERROR==" in line), "")
    said = f": {line.partition('==ERROR==')[2].strip()}" if line else f" (exit code {returncode})"
    return NcuProblem("report-missing", f"ncu wrote no report{said}", "run dgw doctor")


def _ended(returncode: int) -> NcuProblem:
    return NcuProblem(
        "application", f"the program under ncu ended with exit code {returncode}", "run it with --counters none", False
    )


def absent_names(log: str) -> Sequence[str]:
    """The metrics that ncu lists as not accessible on this GPU."""
    found: list[str] = []
    for match in re.finditer(r"(?:Unable to access|Failed to access) the following \d* ?metrics[^:]*:\s*(.+)", log):
        found += re.findall(r"\w+__\w+(?:\.\w+)*", match.group(1))
    return found


def error_of(reason: str) -> DgwError:
    """The error behind the reason why counters are absent (`cause; cure`): Missing, ReportError or ChildFault."""
    cause, _, cure = reason.partition("; ")
    known = next((pattern for pattern in _PATTERNS if pattern.cause == cause), None)
    if known is not None:
        return _pattern(known.kind).error()
    if cause.endswith("was not found"):
        return Missing(cause, cure or "dgw doctor")
    kind = ReportError if "report" in cause else ChildFault
    return kind(cause, cure or "run it with --counters none")
