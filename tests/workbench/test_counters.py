from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dgw.workbench.collectors.ncu import Instance, KernelCounters
from dgw.workbench.counters import NcuLane

STUB = Path(__file__).parents[1] / "data" / "stubs" / "ncu"
KEY = "0123456789abcdef"


def harvested(lane: NcuLane, folder: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], object]:
    """Run a program under the stub that behaves like ncu in this situation, and read what it left."""
    kernels = folder / "kernels"
    kernels.write_text(KEY + "\n")
    monkeypatch.setenv("STUB_NCU", mode)
    monkeypatch.setenv("STUB_NCU_KERNELS", str(kernels))
    report = folder / f"{mode}.ncu-rep"
    command = [*lane.command(report), sys.executable, "-c", "pass"]
    environment = lane.environment(os.environ, folder)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return command, lane.harvest(report, done.stdout + done.stderr, done.returncode)


def test_without_permission_instruction_counts_are_asked_for_and_the_rest_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = NcuLane(STUB, "std", "sm_90a")
    _, first = harvested(lane, tmp_path, "permission", monkeypatch)
    assert first.retry
    command, second = harvested(lane, tmp_path, "ok", monkeypatch)
    assert not any("dram__bytes" in word for word in command)
    assert any("launch__registers_per_thread" in word for word in command)
    assert not second.retry
    assert list(second.kernels) == [KEY]
    found = {m.metric: m for m in lane.measurements(second.kernels[KEY], "") if m.scope == "case"}
    assert "only administrators" in found["dram_bytes"].absent
    assert found["registers_per_thread"].value is not None


def test_a_second_refusal_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = NcuLane(STUB, "quick", "sm_90a")
    harvested(lane, tmp_path, "permission", monkeypatch)
    _, again = harvested(lane, tmp_path, "permission", monkeypatch)
    assert again.fatal
    assert not again.retry


def test_samples_by_source_line_are_kept_where_they_are_asked_for() -> None:
    parts = {"smsp__pcsamp_warps_issue_stalled_barrier": (Instance("BAR", "g.cu:7", 30.0),)}
    kernel = KernelCounters("k", "gemm", {}, {}, parts)
    lane = NcuLane(STUB, "quick,lines", "sm_90a")
    assert any("group:smsp__pcsamp_warp_stall_reasons" in word for word in lane.command(Path("x.ncu-rep")))
    found = {(m.scope, m.metric): m.value for m in lane.measurements([kernel], "")}
    assert found["line g.cu:7", "stall_samples"] == 30
    assert found["line g.cu:7", "stall_reason"] == "barrier"
    assert not any(m.scope.startswith("line") for m in NcuLane(STUB, "quick", "sm_90a").measurements([kernel], ""))


def test_a_truncated_report_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = harvested(NcuLane(STUB, "quick", "sm_90a"), tmp_path, "truncated", monkeypatch)
    assert "truncated" in found.reason or "cut" in found.reason


def test_the_lane_knows_the_release_of_its_tool() -> None:
    assert NcuLane(STUB, "quick", "sm_90a").version == "2025.3.1.0"
    assert NcuLane(Path("/nowhere/ncu"), "quick", "sm_90a").version == ""
