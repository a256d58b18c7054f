"""The counter lane as the runner sees it: an argv prefix around the same child, and a report to read afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from dgw.model import Measurement

CHUNK = 25  # cases in one report: the unit of durability of this lane


@dataclass(frozen=True)
class Harvest:
    """What a report holds: kernels by case key, and why there are fewer than hoped (empty: all is well)."""

    kernels: Mapping[str, Sequence[Any]]
    reason: str = ""
    fatal: bool = False  # every further attempt would fail alike (no permission, no counters on this machine)
    retry: bool = False  # the lane asks for less from now on: the same cases again


class CounterLane(Protocol):
    """A profiler."""

    @property
    def version(self) -> str:
        """Such as 2025.3.1.0; empty when it is not known."""

    def command(self, report: Path) -> list[str]:
        """The argv prefix that runs the child under the profiler and writes `report`."""

    def environment(self, env: Mapping[str, str], scratch: Path) -> dict[str, str]:
        """The child's environment."""

    def harvest(self, report: Path, output: str, status: int | None) -> Harvest:
        """Read the report; never raises for a damaged or missing one."""

    def measurements(self, kernels: Sequence[Any], reason: str) -> tuple[Measurement, ...]:
        """The numbers of one case, absent with `reason` where there are no kernels."""


class NcuLane:
    """Nsight Compute: `tool` is the program, `counters` a set or a list of metrics for `arch`.

    Where the driver keeps hardware counters from this user, it goes on with what needs no permission: counts of
    instructions in the machine code, and launch data (tier `sass`).
    """

    def __init__(self, tool: Path, counters: str, arch: str) -> None:
        """Raises UsageError for a metric that does not exist."""
        from dgw.workbench import metrics

        self._tool, self._arch = tool, arch
        self._metrics = metrics.resolve(counters, arch)
        self._forbidden = ""

    @cached_property
    def version(self) -> str:
        """The release of the program; asked when it is needed, because ncu takes a moment to say."""
        return _version(self._tool)

    def command(self, report: Path) -> list[str]:
        """ncu with kernel replay, filtered to ranges of domain dgw."""
        from dgw.workbench import metrics
        from dgw.workbench.collectors import ncu

        tier = "sass" if self._forbidden else ""
        return ncu.ncu_command(self._tool, metrics.counter_names(self._metrics, self._arch, tier), report)

    def environment(self, env: Mapping[str, str], scratch: Path) -> dict[str, str]:
        """C locale and a private TMPDIR."""
        from dgw.workbench.collectors import ncu

        return ncu.ncu_environment(env, scratch)

    def harvest(self, report: Path, output: str, status: int | None) -> Harvest:
        """The kernels of the report by range name, and ncu's own diagnosis."""
        from dgw.errors import DgwError
        from dgw.workbench.collectors import ncu

        log = report.with_suffix(".log")
        text = output + (log.read_text(encoding="utf-8", errors="replace") if log.is_file() else "")
        kernels: dict[str, list[Any]] = {}
        damage = ncu.damage(report) if report.is_file() else ""
        if report.is_file():
            try:
                kernels = dict(ncu.read_report(report))
            except DgwError as error:
                damage = error.message
        count = sum(len(found) for found in kernels.values())
        problem = ncu.diagnose(
            text, status or 0, kernels=count, damage=damage, report_exists=report.is_file()
        )  # fmt: skip
        if problem is None:
            return Harvest(kernels)
        reason = f"{problem.cause}; {problem.cure}"
        if problem.kind == "permission" and not self._forbidden:
            self._forbidden = reason
            return Harvest({}, reason, retry=True)
        return Harvest(kernels, reason, fatal=problem.missing)

    def measurements(self, kernels: Sequence[Any], reason: str) -> tuple[Measurement, ...]:
        """Per kernel and for the case, and by source line where stalls are sampled."""
        from dgw.workbench.collectors import ncu

        found = ncu.measurements(kernels, self._metrics, self._arch, reason=reason or self._forbidden)
        by_line = any(metric.key == "stall_samples" for metric in self._metrics)
        return (*found, *ncu.line_measurements(kernels)) if by_line else found


def _version(tool: Path) -> str:
    """What `tool --version` says, such as 2025.3.1.0; empty when it does not answer."""
    from dgw.workbench.tools import parse_version

    try:
        done = subprocess.run([str(tool), "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return parse_version(done.stdout)


class NoLane:
    """Stands in where the profiler is missing: every counter is absent with the reason."""

    def __init__(self, reason: str, counters: str, arch: str) -> None:
        from dgw.workbench import metrics

        self.reason = reason
        self._arch = arch
        self._metrics = metrics.resolve(counters, arch)

    def absences(self) -> tuple[Measurement, ...]:
        """All counters that were asked for, absent."""
        from dgw.workbench.collectors import ncu

        return ncu.measurements((), self._metrics, self._arch, reason=self.reason)
