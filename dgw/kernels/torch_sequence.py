"""What follows a product, as PyTorch operations: the steps of the unfused baseline, and one expression to compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from dgw.kernels import declaring
from dgw.model import Config, Device, Problem
from dgw.operands import dtypes, quantisation

INPUTS = ("f16", "bf16", "f32", "tf32")
OUTPUTS = ("f16", "bf16", "f32", "s8", "e4m3")
TORCH_DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "tf32": "float32", "s8": "int8", "e4m3": "float8_e4m3fn",
}  # fmt: skip
ROUNDINGS = 4  # product, bias, activation and residual are each rounded to A's type before D is
APPROXIMATION = {"gelu": "none", "gelu-tanh": "tanh"}
Step = Callable[[Any, Any], None]  # reads the first tensor, writes the second


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why torch cannot compute `problem` step by step."""
    quantised = problem.epilogue.quantise != "none"
    plain = declaring.refuses_problem(
        _without_zero_point(problem), INPUTS, OUTPUTS if quantised else OUTPUTS[:3]
    )  # fmt: skip
    if plain:
        return plain
    if quantised and problem.d.dtype not in ("s8", "e4m3"):
        return f"a quantised D is s8 or e4m3, not {problem.d.dtype}"
    stored = "f32" if problem.a.dtype == "tf32" else problem.a.dtype
    if "c" in problem.operands() and problem.operands()["c"].dtype != stored:
        return f"torch.addmm of {problem.a.dtype} adds a C of {stored}, not of {problem.operands()['c'].dtype}"
    for name in ("bias", "residual"):
        if name in problem.operands() and problem.operands()[name].dtype in ("s8", "e4m3"):
            return f"{name} cannot be {problem.operands()[name].dtype}"
    return None


def _without_zero_point(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, d=msgspec.structs.replace(problem.d, zero_point=0))


def tensor(buffer: Any) -> Any:
    """A torch view of `buffer`, logical rows by columns with its strides: no copy."""
    import torch

    return torch.as_tensor(buffer, device="cuda").view(getattr(torch, TORCH_DTYPES[buffer.dtype]))


def tensors(problem: Problem, buffers: Mapping[str, Any]) -> dict[str, Any]:
    """The operands that exist as tensors, and `scale` (f32, rows x 1 or 1 x 1) where D is quantised."""
    import torch

    found = {name: tensor(buffers[name]) for name in problem.operands()}
    factors = quantisation.scale_values(problem, "d")
    if factors is not None:
        found["scale"] = torch.from_numpy(factors).to(found["d"].device)
    return found


def use_full_sums(problem: Problem) -> None:
    """f32 sums in cuBLAS, and tf32 products only where the problem says so."""
    import torch

    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = problem.a.dtype == "tf32"
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False


def product(problem: Problem, t: Mapping[str, Any], out: Any) -> None:
    """out = alpha A B + beta C by one call of cuBLAS."""
    import torch

    if problem.alpha == 1.0 and problem.beta == 0.0:
        torch.mm(t["a"], t["b"], out=out)
    else:
        c = t["c"] if problem.beta != 0.0 else out
        torch.addmm(c, t["a"], t["b"], beta=problem.beta, alpha=problem.alpha, out=out)


def steps(problem: Problem, t: Mapping[str, Any]) -> list[Step]:
    """The operations on a tensor of A's type that follow the product; each reads and writes memory."""
    import torch

    aten, found = torch.ops.aten, []
    kind = problem.epilogue.activation
    if "bias" in t:
        found.append(lambda x, out: torch.add(x, t["bias"], out=out))
    if kind == "relu":
        found.append(lambda x, out: aten.clamp_min.out(x, 0, out=out))
    elif kind in APPROXIMATION:
        found.append(lambda x, out: aten.gelu.out(x, approximate=APPROXIMATION[kind], out=out))
    elif kind == "silu":
        found.append(lambda x, out: aten.silu.out(x, out=out))
    if "residual" in t:
        found.append(lambda x, out: torch.add(x, t["residual"], out=out))
    return found


def limits(problem: Problem) -> tuple[float, float]:
    """The smallest and the largest value of a quantised D's type."""
    return dtypes.smallest(problem.d.dtype), dtypes.largest(problem.d.dtype)


def expression(problem: Problem, t: Mapping[str, Any]) -> Any:
    """D as one expression of torch operations, in D's type, for a compiler to fuse."""
    import torch
    from torch.nn import functional

    x = torch.mm(t["a"], t["b"])
    x = x if problem.alpha == 1.0 else x * problem.alpha
    x = x if problem.beta == 0.0 else x + problem.beta * t["c"]
    x = x + t["bias"] if "bias" in t else x
    kind = problem.epilogue.activation
    if kind in APPROXIMATION:
        x = functional.gelu(x, approximate=APPROXIMATION[kind])
    elif kind != "none":
        x = torch.relu(x) if kind == "relu" else functional.silu(x)
    x = x + t["residual"] if "residual" in t else x
    if "scale" in t:
        x = x / t["scale"] + problem.d.zero_point
        x = (torch.round(x) if problem.d.dtype == "s8" else x).clamp(*limits(problem))
    return x.to(t["d"].dtype)
