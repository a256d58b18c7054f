"""cuBLAS on f16 and bf16 with a D of f32, for evidence/hopper-2.py: what its tensor cores make of the same operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dgw.kernels import declaring
from dgw.kernels.baselines.cublas import tensor
from dgw.model import Config, Device, Problem, Variant

INPUTS = ("f16", "bf16")


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Only the plain product of f16 or bf16 into f32."""
    found = declaring.refuses_problem(problem, INPUTS, ("f32",)) or declaring.refuses_epilogue(problem)
    return found or ("alpha 1 and beta 0 only" if (problem.alpha, problem.beta) != (1.0, 0.0) else None)


def bind(problem: Problem, config: Config, buffers: Mapping[str, Any]) -> Callable[[], None]:
    """A callable that enqueues one GEMM on torch's current stream; torch takes `out_dtype` on CUDA only."""
    import torch

    a, b, d = (tensor(buffers[name]) for name in ("a", "b", "d"))
    return lambda: torch.mm(a, b, out_dtype=torch.float32, out=d)


VARIANT = Variant(
    id="evidence/cublas-f32",
    version=1,
    idea="the vendor's library, D in the type of the sums",
    dtypes=INPUTS,
    refuses=refuses,
    bind=bind,
    needs=("torch",),
    synchronises="unknown",
)
