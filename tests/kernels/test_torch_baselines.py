"""The torch baselines on CPU tensors: the same operations, judged as the GPU's results are."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from dgw.kernels import torch_sequence
from dgw.kernels.baselines import torch_compile, unfused
from dgw.kernels.loader import load
from dgw.model import Epilogue, Operand, Problem, gemm
from dgw.operands import dtypes, layouts
from dgw.operands.bounds import compare
from dgw.operands.references import block_inputs, reference
from dgw.toolchain.devices import device

replace = msgspec.structs.replace
H200 = device("h200")
ACTIVATIONS = ("none", "relu", "gelu", "gelu-tanh", "silu")


def problem(dtype: str = "f16", layout: str = "nn", activation: str = "gelu", **fields: Any) -> Problem:
    full = gemm(37, 50, 64, dtype, layout, epilogue=Epilogue(activation=activation), **fields)  # type: ignore[arg-type]
    stored = Operand(dtype=full.d.dtype)
    return replace(full, bias=stored, residual=stored)


def quantised(dtype: str, per: str, zero_point: int = 0) -> Problem:
    epilogue = Epilogue(activation="gelu", quantise=per)  # type: ignore[arg-type]
    return replace(
        gemm(37, 50, 64, epilogue=epilogue, bias=Operand(dtype="f16")), d=Operand(dtype=dtype, zero_point=zero_point)
    )


def run(module: Any, case: Problem, monkeypatch: pytest.MonkeyPatch) -> Any:
    import torch

    inputs = block_inputs(case)
    flat = {
        name: np.zeros(layouts.extent(case, name), dtypes.numpy_dtype(o.dtype)) for name, o in case.operands().items()
    }
    for name, values in inputs.items():
        layouts.view(flat[name], case, name)[...] = values
    buffers = {}
    for name, array in flat.items():
        kind = getattr(torch, torch_sequence.TORCH_DTYPES[case.operands()[name].dtype])
        whole = torch.from_numpy(array.view(f"i{array.itemsize}")).view(kind)
        row, col = layouts.strides(case, name)
        buffers[name] = torch.as_strided(whole, case.logical_shape(name), (row, col))
    monkeypatch.setattr(torch_sequence, "tensor", lambda buffer: buffer)
    call = module.bind(case, module.VARIANT.defaults(), buffers)
    call()
    got = np.ascontiguousarray(layouts.view(flat["d"], case, "d"))
    return compare(case, got, reference(case, inputs), roundings=module.VARIANT.roundings)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_the_unfused_sequence_computes_what_the_problem_says(
    dtype: str, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for layout in ("nn", "nt", "tn", "tt"):
        check = run(unfused, problem(dtype, layout, activation), monkeypatch)
        assert check.passed, check.detail


@pytest.mark.parametrize("module", [unfused, torch_compile])
@pytest.mark.parametrize(
    "case",
    [
        gemm(37, 50, 64),
        gemm(37, 50, 64, out="f32"),
        gemm(37, 50, 64, alpha=0.5, beta=2.0, c=Operand(dtype="f16")),
        problem("bf16", out="f32"),
        quantised("s8", "row"),
        quantised("s8", "tensor", 3),
        quantised("e4m3", "row"),
        quantised("e4m3", "tensor"),
    ],
    ids=lambda case: f"{case.d.dtype}-{case.epilogue.quantise}-{case.beta:g}",
)
def test_every_kind_of_output_is_right(module: Any, case: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    assert module.VARIANT.refuses(case, module.VARIANT.defaults(), H200) is None
    check = run(module, case, monkeypatch)
    assert check.passed, check.detail


def test_the_allowance_for_intermediate_roundings_is_needed_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    case = problem("bf16")
    inputs = block_inputs(case)
    expected = reference(case, inputs)
    exact = dtypes.store(expected.value, "bf16")
    assert compare(case, exact, expected).passed
    shifted = dtypes.store(expected.value + 0.05 * np.abs(expected.value).max(), "bf16")
    assert not compare(case, shifted, expected, roundings=torch_sequence.ROUNDINGS).passed


def test_after_the_first_call_the_unfused_sequence_allocates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    made: list[str] = []
    case = replace(problem(), d=Operand(dtype="f32"))
    tensors = {name: torch.zeros(case.logical_shape(name), dtype=torch.float16) for name in case.operands()}
    tensors["d"] = tensors["d"].float()
    monkeypatch.setattr(torch_sequence, "tensor", lambda buffer: buffer)
    call = unfused.bind(case, {}, tensors)
    call()
    monkeypatch.setattr(torch, "empty", lambda *a, **k: made.append("empty"))
    outputs = {tensors["d"].data_ptr()}
    call()
    assert made == []
    assert tensors["d"].data_ptr() in outputs


@pytest.mark.parametrize("name", ["baselines/unfused", "baselines/torch-compile"])
def test_what_torch_cannot_do_is_refused_with_the_reason(name: str) -> None:
    variant = load()[name]
    defaults = variant.defaults()
    assert variant.refuses(gemm(8, 8, 8, "tf32"), defaults, H200) is None
    assert "s8" in str(variant.refuses(gemm(8, 8, 8, "s8"), defaults, H200))
    assert "s8" in str(variant.refuses(gemm(8, 8, 8, out="s8"), defaults, H200))
    assert "batch" in str(variant.refuses(gemm(8, 8, 8, batch=2), defaults, H200))
    other = replace(gemm(8, 8, 8), beta=1.0, c=Operand(dtype="f32"))
    assert "C of f16" in str(variant.refuses(other, defaults, H200))
    float_quantised = replace(gemm(8, 8, 8), epilogue=Epilogue(quantise="row"))
    assert "s8 or e4m3" in str(variant.refuses(float_quantised, defaults, H200))


def test_a_captured_graph_of_the_compiled_sequence_owns_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[str] = []

    class Pool:
        def __enter__(self) -> None:
            entered.append("in")

        def __exit__(self, *_: object) -> None:
            entered.append("out")

    cuda = SimpleNamespace(MemPool=lambda: "pool", use_mem_pool=lambda pool: Pool())
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    make = torch_compile._pool(SimpleNamespace(device=SimpleNamespace(type="cuda")))
    with make():
        assert entered == ["in"]
    assert entered == ["in", "out"]
