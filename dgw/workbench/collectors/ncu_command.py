"""The command line of Nsight Compute (ncu) around a child process, and the environment it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dgw.errors import UsageError

DOMAIN = "dgw"
"""The NVTX domain of the child's ranges; the name of a range is the key of its Case."""

PROTOCOL = "ncu-kernel-replay-cold/1"
"""Kernel replay, caches flushed before every pass, clocks left alone."""

LONGEST_ARGUMENT = 100_000
"""Bytes: Linux allows 131,072 in one argument; a longer metric list goes through a response file."""


def ncu_command(
    tool: Path | str,
    metric_names: Sequence[str],
    report: Path | str,
    *,
    log: Path | str | None = None,
    cache: str = "all",
    replay: str = "kernel",
    sections: Sequence[str] = (),
    extra: Sequence[str] = (),
) -> list[str]:
    """The argv prefix that runs a child under ncu and collects `metric_names` of the kernels in ranges of domain `dgw`.

    `report` is the .ncu-rep to write (the suffix is added when missing), `log` (default: beside the report) takes the
    messages of ncu, so that they never mix with the child's output. UsageError when nothing would be collected.
    """
    if not metric_names and not sections:
        raise UsageError("no counter to collect", "choose a counter set: --counters std")
    report = Path(report)
    log = Path(log) if log else report.with_suffix(".log")
    return [
        str(tool),
        *("--config-file", "off"),
        *("--target-processes", "all"),
        *("--nvtx", "--nvtx-include", f"regex:{DOMAIN}@.+/"),
        *("--replay-mode", replay),
        *("--cache-control", cache),
        *("--clock-control", "none"),
        *_metrics(metric_names, report),
        *(word for section in sections for word in ("--section", section)),
        *extra,
        *("--log-file", str(log)),
        *("-f", "-o", str(report)),
    ]


def _metrics(names: Sequence[str], report: Path) -> list[str]:
    if not names:
        return []
    listed = ",".join(names)
    if len(listed) <= LONGEST_ARGUMENT:
        return ["--metrics", listed]
    response = report.with_suffix(".metrics")
    response.write_text(f"--metrics {listed}\n", encoding="utf-8")
    return [f"@{response}"]


def ncu_environment(env: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """`env` for a child under ncu: C locale, a private TMPDIR (lock files of others cannot stop it), no other profiler.

    `scratch` is created. The last two variables tell DeepGEMM and DeepEP that a profiler is attached, so that they
    leave CUPTI alone; an injection library of another tool would take the counters.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    injected = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NV_COMPUTE_PROFILER_IN_PROCESS")
    kept = {name: value for name, value in env.items() if name not in injected and not name.startswith("LC_")}
    return {
        **kept,
        "LC_ALL": "C",
        "TMPDIR": str(scratch),
        "DG_NSYS_PROFILING": "1",
        "EP_USE_NVIDIA_TOOLS": "1",
    }


def page_command(tool: Path | str, report: Path | str, page: str = "raw") -> list[str]:
    """The argv that prints a report as CSV in base units, for the reader without `ncu_report`."""
    return [str(tool), "-i", str(report), "--csv", "--page", page, "--print-units", "base", "--print-fp"]
