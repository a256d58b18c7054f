"""`dgw gate` on a played GPU: kernels of a folder of one's own, both sides planned in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.kernels.loader import load
from dgw.workbench.gate import checking, pairs, policy, sides
from dgw.workbench.gate.verdict import GateReport
from tests.workbench.gate.fake_lab import ENVIRONMENT, H200, Lab, PlayedChild

DECLARATION = """
from dgw.kernels.declaring import gemm_arguments, refuses_epilogue
from dgw.model import Launch, Plan, Source, Variant


def refuses(problem, config, device):
    return {refusal!r} or refuses_epilogue(problem)


def plan(problem, config, device):
    launch = Launch(source=Source(path="{name}.cu"), entry="{name}", grid=(1, 1, 1), block=(32, 1, 1),
                    arguments=gemm_arguments(problem))
    return Plan(steps=(launch,))


VARIANT = Variant(id="mine/{name}", version=1, idea="a test", dtypes=("f16", "f32"), refuses=refuses, plan=plan)
"""
KERNEL = """
extern "C" __global__ void {name}(const float* a, const float* b, const float* c, float* d, int m, int n, int k,
                                  long lda, long ldb, long ldc, long ldd, float alpha, float beta) {{ d[0] = {value}; }}
"""


def write_kernel(folder: Path, name: str, value: str = "1", refusal: str = "") -> Path:
    """A kernel and its declaration; another `value` is other machine code."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(DECLARATION.format(name=name, refusal=refusal))
    (folder / f"{name}.cu").write_text(KERNEL.format(name=name, value=value))
    return folder / f"{name}.cu"


def ask_here(side: sides.SideSetup, job: sides.SideJob, folder: Path) -> dict[str, sides.Entry]:
    """What the side's own process would answer, without starting it."""
    extras = [Path(one) for one, option in zip(side.selects[1:], side.selects, strict=False) if option == "--extra"]
    folder.mkdir(parents=True, exist_ok=True)
    question, answer = folder / "wanted.json", folder / "answer.json"
    question.write_bytes(msgspec.json.encode(job))
    sides.serve(load(tuple(extras)), question, answer)
    return {entry.key: entry for entry in msgspec.json.decode(answer.read_bytes(), type=tuple[sides.Entry, ...])}


def prepare_lab(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    """Put the played GPU in the place of everything that starts processes."""
    monkeypatch.setattr(PlayedChild, "lab", lab, raising=False)
    monkeypatch.setattr("dgw.commands.session.gpu_is_here", lambda: True)
    monkeypatch.setattr("dgw.workbench.probing.probe", lambda *_, **__: (ENVIRONMENT, H200))
    monkeypatch.setattr(sides, "ask", ask_here)
    monkeypatch.setattr(sides.SideSetup, "child_argv", property(lambda self: [self.name]))
    monkeypatch.setattr(pairs, "Child", PlayedChild)
    monkeypatch.setattr(checking, "Child", PlayedChild)
    monkeypatch.setattr("dgw.workbench.tools.find_tool", lambda name: None)
    quick = msgspec.structs.replace(policy.GatePolicy(), first_warm_up_s=0.0, warm_up_s=0.0)
    monkeypatch.setattr(policy, "PLANS", {"default": quick})
    monkeypatch.setattr("dgw.commands.gate_lock.hold_gpu", held)


@contextlib.contextmanager
def held(wait_s: float | None, lock_mhz: int = 0, allow_shared: bool = False) -> Iterator[dict[str, str]]:
    """A GPU that nobody else wants."""
    yield {}


def report_of(ended: Any) -> GateReport:
    """The report that a command with --json printed."""
    return msgspec.json.decode(ended.out, type=GateReport)
