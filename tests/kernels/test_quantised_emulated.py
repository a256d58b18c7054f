"""The stages that quantise, on the CPU: every scale, both types, words that pair rows and pieces that do not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dgw.model import Case, Epilogue, Operand, Problem, Source, Variant, gemm
from dgw.toolchain.build import build
from dgw.toolchain.devices import device
from dgw.workbench.collectors.emulator import emulate
from tests.kernels.ladder import STAGES

replace = msgspec.structs.replace
H200 = device("h200")
FUSED = [variant for variant in STAGES if variant.name in ("fused-epilogue", "persistent")]


def quantised(out: str, scale: str, shape: tuple[int, int, int], activation: str = "gelu", **more: Operand) -> Problem:
    epilogue = msgspec.convert({"activation": activation, "quantise": scale}, Epilogue)
    return replace(gemm(*shape, out=out, epilogue=epilogue), **more)


EVEN, RAGGED = (136, 264, 72), (67, 133, 45)
PROBLEMS = {
    "s8 per tensor": quantised("s8", "tensor", EVEN),
    "s8 per row, zero point, bias": quantised(
        "s8", "row", EVEN, bias=Operand(dtype="f16"), d=Operand(dtype="s8", zero_point=3)
    ),
    "s8 per row, ragged, bias and residual": quantised(
        "s8", "row", RAGGED, bias=Operand(dtype="f16"), residual=Operand(dtype="f16")
    ),
    "s8 per tensor, ragged, bias": quantised("s8", "tensor", RAGGED, "relu", bias=Operand(dtype="bf16")),
    "e4m3 per row, bias": quantised("e4m3", "row", EVEN, "silu", bias=Operand(dtype="f32")),
    "e4m3 per tensor, residual": quantised("e4m3", "tensor", RAGGED, "none", residual=Operand(dtype="f16")),
}


QUICK = {("persistent", "s8 per row, zero point, bias"), ("fused-epilogue", "e4m3 per row, bias")}
"""A row scale with each of the two ways to a word; the others belong to make test-full."""


def cases() -> list[Any]:
    return [
        pytest.param(variant, name, id=f"{variant.name}-{name}", marks=() if quick else pytest.mark.slow)
        for variant in FUSED
        for name in sorted(PROBLEMS)
        for quick in [(variant.name, name) in QUICK]
    ]


@pytest.mark.parametrize(("variant", "name"), cases())
def test_a_quantised_output_is_right_and_its_machine_code_spills_nothing(variant: Variant, name: str) -> None:
    problem, config = PROBLEMS[name], variant.defaults()
    assert variant.refuses(problem, config, H200) is None
    assert variant.plan is not None
    plan = variant.plan(problem, config, H200)
    (launch,) = plan.launches
    built = build(launch.source, variant.root, variant.includes, H200.arch)

    def ptx(source: Source) -> str:
        return built.ptx

    case = Case(problem=problem, variant=variant.id, config=config)
    found = emulate(case, plan, ptx, lambda source: built.cubin, H200, full_grid=True)
    assert found.check.passed, found.check.detail
    assert found.check.compared == problem.m * problem.n
    assert found.findings == ()
    assert all(audit.clean for audit in found.audits), found.audits
    used = built.resources(launch.entry)
    assert (used.spill_store_bytes, used.spill_load_bytes) == (0, 0)
