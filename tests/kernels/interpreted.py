"""Runs the plan of a Triton stage in Triton's interpreter: the same arguments and constants, on arrays of the CPU.

Triton decides when it is imported whether its functions are interpreted. dgw itself never imports it: it compiles in a
process of its own, which does not inherit the choice made here.
"""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dgw.model import Check, Config, Device, Pointer, Problem, Scalar, Variant
from dgw.operands import dtypes, layouts
from dgw.operands.bounds import compare
from dgw.operands.references import block_inputs, reference
from dgw.workbench.binding import scalar_value

os.environ["TRITON_INTERPRET"] = "1"
TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "tf32": "float32"}
GUARD = 64  # elements before and after an operand that nothing may change


@lru_cache
def kernels(path: Path) -> ModuleType:
    """The kernel file, with its functions made for the interpreter."""
    import triton

    assert triton.knobs.runtime.interpret, "triton was imported before this module"
    spec = importlib.util.spec_from_file_location(f"interpreted_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Memory:
    """One operand in memory: NaN around and between its elements."""

    def __init__(self, problem: Problem, name: str, value: Any = None) -> None:
        import torch

        dtype, kind = problem.operands()[name].dtype, dtypes.numpy_dtype(problem.operands()[name].dtype)
        self.first = GUARD + problem.operands()[name].offset
        count = self.first + layouts.extent(problem, name) + GUARD
        room = np.empty(count * kind.itemsize + 256, np.uint8)
        start = -room.ctypes.data % 256  # operands start at multiples of 16 bytes, as on a GPU, plus their offset
        self.flat = room[start : start + count * kind.itemsize].view(kind)
        self.flat[...] = np.nan
        self.view = layouts.view(self.flat[self.first :], problem, name)
        if value is not None:
            self.view[...] = value
        bits = torch.from_numpy(self.flat.view(f"i{self.flat.itemsize}"))
        self.tensor = bits.view(getattr(torch, TORCH[dtype]))[self.first :]

    def untouched_outside(self) -> bool:
        """Whether everything but the operand's own elements is still NaN."""
        kept = self.flat.copy()
        inside = np.zeros(kept.shape, bool)
        np.lib.stride_tricks.as_strided(
            inside[self.first :], self.view.shape, tuple(s // kept.itemsize for s in self.view.strides)
        )[...] = True
        return bool(np.isnan(kept[~inside].astype(np.float32)).all())


def run(variant: Variant, problem: Problem, config: Config, device: Device) -> Check:
    """The verdict on D, computed by the interpreter as `variant` plans it for `device`."""
    assert variant.plan is not None
    assert variant.refuses(problem, config, device) is None
    (launch,) = variant.plan(problem, config, device).launches
    inputs = block_inputs(problem)
    memory = {name: Memory(problem, name, inputs.get(name)) for name in problem.operands()}
    arguments: list[Any] = []
    for argument in launch.arguments:
        if isinstance(argument, Pointer):
            arguments.append(memory.get(argument.operand, memory["d"]).tensor)
        else:
            assert isinstance(argument, Scalar)
            arguments.append(scalar_value(problem, argument))
    kernel = getattr(kernels(variant.root / launch.source.path), launch.entry)
    kernel[launch.grid](*arguments, **dict(launch.source.defines))
    assert all(operand.untouched_outside() for operand in memory.values())
    return compare(problem, np.ascontiguousarray(memory["d"].view), reference(problem, inputs))
