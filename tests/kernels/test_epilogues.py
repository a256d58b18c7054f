from __future__ import annotations

import msgspec
import pytest

from dgw.kernels import tensor
from dgw.model import Epilogue, Operand, Pointer, Problem, Scalar, Variant, gemm
from dgw.toolchain.build import build
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device, device_for_arch
from tests.kernels.ladder import STAGES

replace = msgspec.structs.replace
FUSED = [variant for variant in STAGES if variant.name in ("fused-epilogue", "persistent")]
PLAIN = [variant for variant in STAGES if variant not in FUSED]


def fused(dtype: str = "s8", activation: str = "gelu", quantise: str = "row", **fields: object) -> Problem:
    epilogue = msgspec.convert({"activation": activation, "quantise": quantise}, Epilogue)
    vector = Operand(dtype="f16")
    problem = gemm(4096, 4096, 4096, out=dtype, epilogue=epilogue, bias=vector, residual=vector)
    return replace(problem, **fields)


@pytest.mark.parametrize("variant", FUSED, ids=lambda v: v.id)
def test_a_full_epilogue_spills_no_registers(variant: Variant, cache: CompileCache) -> None:
    target = device("h200")
    assert variant.plan is not None
    assert variant.refuses(fused(), variant.defaults(), target) is None
    (launch,) = variant.plan(fused(), variant.defaults(), target).launches
    result = build(launch.source, variant.root, variant.includes, target.arch, cache)
    used = result.resources(launch.entry)
    assert (used.spill_store_bytes, used.spill_load_bytes) == (0, 0)


@pytest.mark.parametrize("variant", PLAIN, ids=lambda v: v.id)
def test_stages_before_it_refuse_an_epilogue(variant: Variant) -> None:
    for problem in (fused("f16", quantise="none"), gemm(64, 64, 64, bias=Operand(dtype="f16"))):
        assert "epilogue" in str(variant.refuses(problem, variant.defaults(), device("h200")))


def test_a_quantised_output_needs_a_one_byte_type_and_the_reverse() -> None:
    for problem in (fused("f16"), fused("s8", quantise="none")):
        assert "does not go with" in str(tensor.refuses_epilogue(problem, device("h200")))


def test_e4m3_is_refused_before_sm_89_and_with_a_zero_point() -> None:
    assert "sm_89" in str(tensor.refuses_epilogue(fused("e4m3"), device_for_arch("sm_80")))
    assert tensor.refuses_epilogue(fused("e4m3"), device("l4")) is None
    shifted = fused(d=Operand(dtype="e4m3", zero_point=1))
    assert "zero point" in str(tensor.refuses_epilogue(shifted, device("h200")))


def test_the_scale_and_the_zero_point_are_arguments_and_the_rest_is_compiled_in() -> None:
    problem = fused(d=Operand(dtype="s8", zero_point=-3))
    arguments = tensor.fused_arguments(problem)
    assert Pointer(operand="d_scale") in arguments
    assert Scalar(name="zero_point", dtype="f32", value=-3.0) in arguments
    defines = tensor.fused_defines(problem, FUSED[0].defaults())
    assert (defines["ACTIVATION"], defines["QUANTISATION"]) == ("GELU", "SCALE_PER_ROW")
    assert (defines["USE_BIAS"], defines["USE_RESIDUAL"], defines["USE_C"]) == ("true", "true", "false")


def test_a_persistent_grid_has_at_most_one_block_per_tile() -> None:
    persistent = next(variant for variant in FUSED if variant.name == "persistent")
    target, defaults = device("h200"), persistent.defaults()
    assert persistent.plan is not None
    assert persistent.plan(gemm(64, 64, 64), defaults, target).launches[0].grid == (1, 1, 1)
    assert persistent.plan(gemm(8192, 8192, 64), defaults, target).launches[0].grid == (132, 1, 1)
