"""Baseline torch-compile: the unfused sequence as one expression, for torch.compile to fuse what it can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dgw.kernels import torch_sequence
from dgw.model import Config, Problem, Tunable, Variant


def bind(problem: Problem, config: Config, buffers: Mapping[str, Any]) -> Callable[[], None]:
    """A callable that runs the compiled expression and its store into D; compiled and run once before this returns.

    What it allocates comes from a memory pool of its own, so that a captured graph keeps its addresses to itself.
    """
    import torch

    t = torch_sequence.tensors(problem, buffers)
    names = tuple(t)

    def expression(*operands: Any) -> None:
        known = dict(zip(names, operands, strict=True))
        known["d"].copy_(torch_sequence.expression(problem, known))

    mode = None if config["MODE"] == "default" else str(config["MODE"])
    torch_sequence.use_full_sums(problem)
    compiled = torch.compile(expression, fullgraph=True, dynamic=False, mode=mode)
    operands, pool = tuple(t.values()), _pool(t["d"])

    def call() -> None:
        torch_sequence.use_full_sums(problem)
        with pool():
            compiled(*operands)

    call()
    return call


def _pool(d: Any) -> Callable[[], AbstractContextManager[Any]]:
    """Makes the context in which allocations come from a pool that nothing else uses."""
    import torch

    if d.device.type != "cuda":
        return nullcontext
    pool = torch.cuda.MemPool()
    return lambda: torch.cuda.use_mem_pool(pool)


VARIANT = Variant(
    id="baselines/torch-compile",
    version=1,
    idea="the same operations as unfused, compiled: what a compiler fuses without being told how",
    dtypes=torch_sequence.INPUTS,
    space=(
        Tunable(
            name="MODE",
            default="default",
            values=("default", "max-autotune-no-cudagraphs"),
            meaning="how long torch.compile searches; max-autotune takes minutes and may fuse into the product",
        ),
    ),
    refuses=torch_sequence.refuses,
    bind=bind,
    needs=("torch", "triton"),
    notes="In the default mode the product is cuBLAS and all that follows is one generated kernel.",
    roundings=torch_sequence.ROUNDINGS,
    synchronises="unknown",
)
