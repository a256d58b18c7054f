"""Baseline cublas: torch.mm and torch.addmm, which call cuBLAS, writing into the given buffers without a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dgw.kernels import declaring
from dgw.model import Config, Device, Problem, Variant

INPUTS = ("f16", "bf16", "f32", "tf32")
TORCH_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "tf32": "float32"}


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why torch cannot compute `problem` with one cuBLAS call and no allocation."""
    found = declaring.refuses_problem(problem, INPUTS, ("f16", "bf16", "f32")) or declaring.refuses_epilogue(problem)
    if found:
        return found
    if widens(problem):
        plain = (problem.alpha, problem.beta) == (1.0, 0.0)
        return None if plain else f"torch.mm of {problem.a.dtype} into f32 takes alpha 1 and beta 0 only"
    stored = "f32" if problem.a.dtype == "tf32" else problem.a.dtype
    for name, operand in problem.operands().items():
        if name not in ("a", "b") and operand.dtype != stored:
            return f"torch.mm of {problem.a.dtype} writes {stored}, so {name} cannot be {operand.dtype}"
    return None


def widens(problem: Problem) -> bool:
    """Whether D has the type of the sums and A has not: torch.mm with an `out_dtype`, which it takes on CUDA only."""
    return problem.a.dtype in ("f16", "bf16") and problem.d.dtype == "f32"


def tensor(buffer: Any) -> Any:
    """A torch view of `buffer`, logical rows by columns with its strides: no copy."""
    import torch

    raw = torch.as_tensor(buffer, device="cuda")
    return raw.view(getattr(torch, TORCH_DTYPES[buffer.dtype]))


def bind(problem: Problem, config: Config, buffers: Mapping[str, Any]) -> Callable[[], None]:
    """A callable that enqueues one GEMM on torch's current stream, accumulating in f32.

    After its first call, which lets torch create its cuBLAS handle and workspace, it allocates nothing.
    """
    import torch

    a, b, d = (tensor(buffers[name]) for name in ("a", "b", "d"))
    alpha, beta = problem.alpha, problem.beta
    c = tensor(buffers["c"]) if beta != 0.0 else d
    matmul = torch.backends.cuda.matmul
    tf32 = problem.a.dtype == "tf32"
    if widens(problem):
        return lambda: torch.mm(a, b, out_dtype=torch.float32, out=d)

    def call() -> None:
        matmul.allow_tf32 = tf32
        matmul.allow_fp16_reduced_precision_reduction = False
        matmul.allow_bf16_reduced_precision_reduction = False
        if alpha == 1.0 and beta == 0.0:
            torch.mm(a, b, out=d)
        else:
            torch.addmm(c, a, b, beta=beta, alpha=alpha, out=d)

    return call


VARIANT = Variant(
    id="baselines/cublas",
    version=1,
    idea="the vendor's library, called through torch",
    dtypes=INPUTS,
    refuses=refuses,
    bind=bind,
    needs=("torch",),
    notes="Reduced-precision reductions are switched off, so that split-k sums stay in f32. beta != 0 copies C to D.",
    synchronises="unknown",
)
