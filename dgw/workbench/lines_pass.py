"""What the emulator counts by source line, beside the stalls that a profiler samples there: a pass without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dgw.errors import DgwError
from dgw.model import Device, Measurement
from dgw.toolchain.build import Recent
from dgw.toolchain.cache import CompileCache
from dgw.workbench.passes import Found, Target, Workplace


class LinesPass:
    """Emulates each case that has a plan and keeps its figures by line. `cache` is the folder of compiled kernels."""

    lane = "lines"

    def __init__(self, cache: Path, device: Device) -> None:
        self._cache, self._device = cache, device

    def run(self, targets: Sequence[Target], place: Workplace, on_found: Callable[[Found], None]) -> None:
        """One case after another; what the emulator cannot execute gets a flag and costs nothing else."""
        recent = Recent(CompileCache(self._cache))
        for target in targets:
            key = target.member.case.key
            if target.member.plan is None or target.record.outcome != "ok":
                continue
            try:
                on_found(Found(key, self._lines(target, recent)))
            except DgwError as error:
                on_found(Found(key, flags=(f"no emulated figures by line: {error.message}",)))

    def _lines(self, target: Target, recent: Recent) -> tuple[Measurement, ...]:
        from dgw.workbench.collectors.emulator import emulate
        from dgw.workbench.prepare import prepare

        prepared = prepare(target.member.case, target.variant, self._device, recent)
        if prepared.plan is None:
            return ()
        builds = prepared.builds
        found = emulate(
            target.member.case, prepared.plan, lambda source: builds[source].ptx,
            lambda source: builds[source].cubin, self._device, keep=self._cache / "sass",
        )  # fmt: skip
        return tuple(m for m in found.measurements if m.scope.startswith("line "))
