"""Baseline unfused: what a fused kernel replaces, one torch operation for each step, each through global memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dgw.kernels import torch_sequence
from dgw.model import Config, Problem, Variant


def bind(problem: Problem, config: Config, buffers: Mapping[str, Any]) -> Callable[[], None]:
    """A callable that enqueues product, bias, activation, residual, scale, round, clamp and store, as far as needed.

    All results go to D or to two tensors made here, so that it allocates nothing after its first call, which lets torch
    create its cuBLAS handle and workspace.
    """
    import torch

    t = torch_sequence.tensors(problem, buffers)
    d, shape = t["d"], (problem.m, problem.n)
    following = torch_sequence.steps(problem, t)
    quantised = "scale" in t
    direct = not quantised and d.dtype == t["a"].dtype  # the last step may write D itself
    between = d if direct and not following else torch.empty(shape, dtype=t["a"].dtype, device=d.device)
    scaled = torch.empty(shape, dtype=torch.float32, device=d.device) if quantised else None

    def call() -> None:
        torch_sequence.use_full_sums(problem)
        torch_sequence.product(problem, t, between)
        for number, step in enumerate(following):
            step(between, d if direct and number == len(following) - 1 else between)
        if scaled is not None:
            torch.div(between, t["scale"], out=scaled)
            if problem.d.zero_point:
                scaled.add_(problem.d.zero_point)
            if problem.d.dtype == "s8":
                torch.round(scaled, out=scaled)
            torch.clamp(scaled, *torch_sequence.limits(problem), out=scaled)
        if not direct:
            d.copy_(between if scaled is None else scaled)

    return call


VARIANT = Variant(
    id="baselines/unfused",
    version=1,
    idea="the product by cuBLAS, then bias, activation, residual and quantisation as operations of their own",
    dtypes=torch_sequence.INPUTS,
    refuses=torch_sequence.refuses,
    bind=bind,
    needs=("torch",),
    notes=(
        "Results between the steps are rounded to A's type, as code written step by step does; the check allows that "
        "much. Division by the scale, rounding and clamping work on f32, which is what torch promotes to."
    ),
    roundings=torch_sequence.ROUNDINGS,
    synchronises="unknown",
)
