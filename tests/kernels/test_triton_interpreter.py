"""Every Triton stage in Triton's interpreter, against the references and bounds that judge a GPU.

The interpreter multiplies bf16 as integers, so bf16 is left to the emulator (test_triton_machine_code.py).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dgw.kernels.loader import load
from dgw.model import Config, Device, Epilogue, Operand, Problem, Variant, gemm
from dgw.operands.shapes import covering_shapes
from dgw.toolchain.devices import device
from tests.kernels.interpreted import run

STAGES = [variant for variant in load().values() if variant.family == "triton"]
FUSED = [variant for variant in STAGES if variant.name in ("fused-epilogue", "persistent")]
SMALL: Config = {"BM": 32, "BN": 32, "BK": 16, "WARPS": 4}
SHAPES = [*covering_shapes((1, 15, 32, 33)), (64, 64, 64), (70, 65, 17)]
LAYOUTS = ("nn", "nt", "tn", "tt")
A100, H200 = device("a100"), device("h200")  # through pointers, and through tensor descriptors
replace = msgspec.structs.replace
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NaN and overflow are part of some data sets


def ident(value: Any) -> str:
    return value.id.partition("/")[2] if isinstance(value, Variant) else str(value)


def judged(variant: Variant, problem: Problem, target: Device = A100, **config: int) -> None:
    check = run(variant, problem, variant.defaults() | SMALL | config, target)
    assert check.passed, (problem.shape, check.detail)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", STAGES, ids=ident)
def test_every_shape_is_right_in_every_layout(variant: Variant, layout: str) -> None:
    for m, n, k in SHAPES:
        judged(variant, gemm(m, n, k, "f16", layout))


@pytest.mark.parametrize("variant", STAGES, ids=ident)
def test_wide_operands_and_wide_outputs_are_right(variant: Variant) -> None:
    wide = "f32" if "f32" in variant.dtypes else "tf32"
    for layout in LAYOUTS:
        judged(variant, gemm(33, 50, 40, wide, layout))
    judged(variant, gemm(33, 50, 40, out="f32"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensor_descriptors_are_right_where_rows_are_aligned(layout: str) -> None:
    (persistent,) = (variant for variant in STAGES if variant.name == "persistent")
    for m, n, k in [(64, 64, 64), (40, 72, 24), (8, 8, 8), (136, 104, 56)]:
        for subtiles in (1, 2):
            judged(persistent, gemm(m, n, k, "f16", layout), H200, SUBTILES=subtiles)


@pytest.mark.parametrize("variant", STAGES, ids=ident)
def test_offsets_and_leading_dimensions_are_respected(variant: Variant) -> None:
    for offset, extra in ((0, 3), (1, 0), (8, 8), (3, 5)):
        problem = gemm(37, 50, 33)
        strided = {
            name: replace(problem.operands()[name], offset=offset, ld=problem.leading_dimension(name) + extra)
            for name in ("a", "b", "d")
        }
        judged(variant, replace(problem, **strided), H200)


@pytest.mark.parametrize("variant", STAGES, ids=ident)
def test_alpha_beta_and_c_are_applied(variant: Variant) -> None:
    c = Operand(dtype="f32", ld=60, offset=2)
    judged(variant, gemm(37, 50, 33, alpha=0.5, beta=-2.0, c=c))
    judged(variant, gemm(37, 50, 33, alpha=3.0, c=c))  # beta 0: C is not read


@pytest.mark.parametrize(
    "data",
    [
        "integer",
        "naninf",
        *(pytest.param(o, marks=pytest.mark.slow) for o in ("one-hot", "outliers", "overflow", "uniform")),
    ],
)
@pytest.mark.parametrize("variant", STAGES, ids=ident)
def test_every_data_set_is_right(variant: Variant, data: str) -> None:
    judged(variant, gemm(65, 40, 35, data=data))


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu-tanh", "silu"])
@pytest.mark.parametrize("variant", FUSED, ids=ident)
def test_every_epilogue_is_right(variant: Variant, activation: Any) -> None:
    plain = gemm(37, 50, 33, alpha=0.5, epilogue=Epilogue(activation=activation))
    bias, residual = Operand(dtype="f16"), Operand(dtype="f32", ld=64)
    judged(variant, plain)
    judged(variant, replace(plain, bias=bias), H200)
    judged(variant, replace(plain, bias=bias, residual=residual, beta=2.0, c=Operand(dtype="f16")), H200)


@pytest.mark.parametrize("group", [1, 2, 8])
def test_every_tile_is_taken_once_whatever_the_group(group: int) -> None:
    for variant in STAGES:
        if "GROUP_M" in variant.defaults():
            judged(variant, gemm(33 * 5, 32 * 3, 16, data="integer", out="f32"), GROUP_M=group)


@pytest.mark.parametrize("k", [1, 16, 17, 31, 32, 48, 64, 80])
def test_odd_and_even_numbers_of_k_tiles_are_right_when_programs_take_several_tiles(k: int) -> None:
    (persistent,) = (variant for variant in STAGES if variant.name == "persistent")
    few = replace(A100, sms=3)
    judged(persistent, gemm(100, 130, k), few)
    judged(persistent, gemm(100, 130, k), replace(H200, sms=2))
