from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dgw.cli import run
from dgw.commands import session
from dgw.model import Case, Record
from tests.reports.samples import LAPTOP, full_record


@dataclass
class Ended:
    code: int
    out: str
    err: str

    def error_is_two_lines(self) -> bool:
        lines = self.err.strip().splitlines()
        return len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("  try: ")


Dgw = Callable[..., Ended]


@pytest.fixture
def dgw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dgw:
    """One command line, run in an empty folder of its own on a machine without a GPU."""
    monkeypatch.chdir(tmp_path)
    for name in ("DGW_STORE", "DGW_ARTIFACTS", "DGW_CACHE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(session, "gpu_is_here", lambda: False)

    def call(*arguments: str) -> Ended:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return call


@dataclass
class Engine:
    """Stands in for what runs cases: an outcome for each variant's name, and the cases it was given."""

    outcomes: dict[str, Any] = field(default_factory=dict)
    seen: list[Case] = field(default_factory=list)

    def run(self, owner: Any, cases: list[Case], keep: Callable[[Record], None], progress: Callable[..., None]) -> None:
        for done, case in enumerate(cases):
            progress(done, len(cases), case.variant)
            self.seen.append(case)
            scripted = self.outcomes.get(case.variant, "ok")
            if isinstance(scripted, BaseException):
                raise scripted
            reason = "" if scripted == "ok" else f"{case.variant} is {scripted} on purpose"
            changes: dict[str, Any] = {"case": case, "outcome": scripted, "reason": reason, "environment": LAPTOP}
            keep(full_record(**changes) if scripted == "ok" else full_record(**changes, measurements=(), check=None))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    fake = Engine()
    monkeypatch.setattr(session, "_on_cpu", fake.run)
    return fake
