"""Every stage computes the right thing: ragged, padded and misaligned operands, executed on the CPU."""

from __future__ import annotations

import msgspec
import pytest

from dgw.model import Case, Operand, Problem, Source, Variant, gemm
from dgw.toolchain.devices import device
from dgw.workbench.collectors.emulator import Emulation, emulate
from tests.kernels.ladder import STAGES
from tests.workbench.emulator.stages import stage_ptx

replace = msgspec.structs.replace
H200 = device("h200")


def emulated(variant: Variant, problem: Problem, **tunables: int) -> Emulation:
    config = variant.defaults() | tunables
    assert variant.refuses(problem, config, H200) is None
    assert variant.plan is not None

    def ptx(source: Source) -> str:
        return stage_ptx(variant.id, source, H200.arch)

    case = Case(problem=problem, variant=variant.id, config=config)
    return emulate(case, variant.plan(problem, config, H200), ptx, None, H200, full_grid=True)


@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.id)
def test_a_ragged_problem_with_padding_alpha_and_beta_is_right(variant: Variant) -> None:
    problem = gemm(67, 129, 45, "bf16", "tn", alpha=0.5, beta=2.0)
    problem = replace(
        problem,
        a=replace(problem.a, ld=72, offset=8),
        b=replace(problem.b, ld=131, offset=1),
        c=Operand(dtype="f32", ld=132),
        d=replace(problem.d, ld=136, offset=2),
    )
    found = emulated(variant, problem)
    assert found.check.passed, found.check.detail
    assert found.findings == ()


@pytest.mark.parametrize("variant", [v for v in STAGES if v.name != "naive"], ids=lambda v: v.id)
def test_the_emulator_counts_the_conflicts_that_the_declaration_claims(variant: Variant) -> None:
    found = emulated(variant, gemm(128, 128, 64))
    ratio = next(m.value for m in found.measurements if m.metric == "conflict_ratio_ld" and m.scope == "case")
    assert ratio == pytest.approx(28 / 34 if variant.name == "tiled" else 0.0)


TENSOR = [variant for variant in STAGES if "SPREAD" in variant.defaults()]


@pytest.mark.parametrize("stages", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4))])
@pytest.mark.parametrize("spread", [4, pytest.param(3, marks=pytest.mark.slow)])
def test_copies_spread_over_all_steps_of_a_tile_are_waited_for(spread: int, stages: int) -> None:
    """Seven k tiles, inside the matrix and across its edges: a copy that is not waited for reads as poison."""
    small = {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "SPREAD": spread, "STAGES": stages}
    variant = next(v for v in TENSOR if v.name == "persistent")
    found = emulated(variant, gemm(128, 72, 440), **small)
    assert found.check.passed, found.check.detail
    assert found.findings == ()
