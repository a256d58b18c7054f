from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dgw.kernels.baselines import cublas
from dgw.model import Epilogue, Operand, Problem, gemm
from dgw.toolchain.devices import device

replace = msgspec.structs.replace


class Tensor:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def view(self, dtype: str) -> Tensor:
        return Tensor(dtype)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    seen: list[tuple[Any, ...]] = []
    matmul = SimpleNamespace()

    def mm(a: Tensor, b: Tensor, out: Tensor, out_dtype: str = "") -> None:
        seen.append(("mm into", out_dtype, out.dtype) if out_dtype else ("mm", a.dtype, out.dtype, matmul.allow_tf32))

    torch = SimpleNamespace(
        float16="float16",
        bfloat16="bfloat16",
        float32="float32",
        as_tensor=lambda buffer, device: Tensor("raw"),
        mm=mm,
        addmm=lambda c, a, b, beta, alpha, out: seen.append(("addmm", alpha, beta, c is out)),
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=matmul)),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    return seen


def call(problem: Problem) -> None:
    buffers = {name: SimpleNamespace(dtype=operand.dtype) for name, operand in problem.operands().items()}
    cublas.bind(problem, {}, buffers)()


def test_a_plain_product_is_one_mm_in_the_inputs_dtype(calls: list[tuple[Any, ...]]) -> None:
    call(gemm(8, 8, 8, "bf16"))
    call(gemm(8, 8, 8, "tf32"))
    call(gemm(8, 8, 8, "f32"))
    assert calls == [
        ("mm", "bfloat16", "bfloat16", False),
        ("mm", "float32", "float32", True),
        ("mm", "float32", "float32", False),
    ]


def test_a_d_of_the_type_of_the_sums_is_asked_of_mm(calls: list[tuple[Any, ...]]) -> None:
    call(gemm(8, 8, 8, "bf16", out="f32"))
    assert calls == [("mm into", "float32", "float32")]
    assert cublas.refuses(gemm(8, 8, 8, out="f32"), {}, device("h200")) is None
    assert "alpha 1" in str(cublas.refuses(gemm(8, 8, 8, out="f32", alpha=2.0), {}, device("h200")))


def test_alpha_and_beta_go_through_addmm_and_an_absent_c_is_multiplied_by_zero(calls: list[tuple[Any, ...]]) -> None:
    call(gemm(8, 8, 8, alpha=2.0))
    call(gemm(8, 8, 8, alpha=2.0, beta=0.5, c=Operand(dtype="f16")))
    assert calls == [("addmm", 2.0, 0.0, True), ("addmm", 2.0, 0.5, False)]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "tf32"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_every_dtype_and_layout_is_accepted(dtype: str, layout: str) -> None:
    assert cublas.refuses(gemm(8, 8, 8, dtype, layout), {}, device("h200")) is None


def test_another_output_dtype_or_an_epilogue_is_refused_with_the_reason() -> None:
    assert "writes f16" in str(cublas.refuses(gemm(8, 8, 8, out="bf16"), {}, device("h200")))
    gelu = gemm(8, 8, 8, epilogue=Epilogue(activation="gelu"))
    assert "epilogue" in str(cublas.refuses(gelu, {}, device("h200")))
    assert "s8" in str(cublas.refuses(gemm(8, 8, 8, "s8"), {}, device("h200")))
    assert "c cannot" in str(
        cublas.refuses(replace(gemm(8, 8, 8), beta=1.0, c=Operand(dtype="f32")), {}, device("h200"))
    )
