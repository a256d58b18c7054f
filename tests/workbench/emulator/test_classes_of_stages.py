"""CTA classes of real kernels: scaled figures equal those of the whole grid."""

from __future__ import annotations

import pytest

from dgw.model import Operand, Problem, gemm
from dgw.workbench.collectors.emulator import emulate
from dgw.workbench.emulator import launching
from tests.workbench.emulator.stages import STAGES, machine_for, planned

PROBLEMS = {
    "aligned": gemm(512, 384, 32),
    "ragged": gemm(300, 392, 40),
    "odd": gemm(259, 261, 33, layout="nt"),
    "padded": Problem(
        m=256, n=264, k=24, a=Operand(dtype="f16", ld=27), b=Operand(dtype="f16"), d=Operand(dtype="f16", ld=265)
    ),
}
CHOSEN = ("cuda/tiled", "cuda/swizzled", "cuda/tensor-core", "cuda/persistent")


def figures(found) -> dict[str, object]:
    """All but the bound and the number of CTAs that were run, which is what sampling saves."""
    counted = [m for m in found.measurements if m.scope == "case" and not m.metric.startswith("bound")]
    return {m.metric: m.value for m in counted if m.metric != "emulated_ctas"}


@pytest.mark.parametrize("shape", sorted(PROBLEMS))
@pytest.mark.parametrize("stage", CHOSEN)
def test_one_cta_of_each_class_gives_the_figures_of_the_whole_grid(
    stage: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "WHOLE_GRID_FLOPS", 0)
    machine = machine_for(STAGES[stage], [PROBLEMS[shape]])
    assert machine is not None
    case, plan, ptx_of = planned(stage, PROBLEMS[shape], machine)
    sampled = emulate(case, plan, ptx_of, None, machine)
    whole = emulate(case, plan, ptx_of, None, machine, full_grid=True)
    assert whole.check.passed, whole.check.detail
    assert sampled.check.passed, sampled.check.detail
    assert figures(sampled) == figures(whole)
    assert sampled.by_line == whole.by_line
    if stage != "cuda/persistent":
        assert "classes=" in sampled.protocol
        assert sampled.check.compared < whole.check.compared
