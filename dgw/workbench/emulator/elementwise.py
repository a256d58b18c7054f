"""Operations that compute each lane on its own: how they are decoded and bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dgw.workbench.emulator.group import BOOL, F16, F32, F64, I16, I32, I64, U16, U32, U64, Group
from dgw.workbench.emulator.operation import Builder, Operation, Thunk, destination, expect, malformed, source
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import Immediate

Dtype = np.dtype[Any]
U8, I8 = np.dtype(np.uint8), np.dtype(np.int8)

# NumPy types of PTX types that have one; bf16 values are handled as bits.
NUMPY: dict[str, Dtype] = {
    "pred": BOOL, "b8": U8, "u8": U8, "s8": I8, "b16": U16, "u16": U16, "s16": I16, "f16": F16, "bf16": U16,
    "b32": U32, "u32": U32, "s32": I32, "f32": F32, "f16x2": U32, "bf16x2": U32, "b64": U64, "u64": U64, "s64": I64,
    "f64": F64, "b128": np.dtype(np.complex128), "tf32": U32, "u16x2": U32, "s16x2": U32,
}  # fmt: skip
INTEGERS = frozenset({"u16", "s16", "u32", "s32", "u64", "s64"})
FLOATS = frozenset({"f16", "bf16", "f16x2", "bf16x2", "f32", "f64"})


def elementwise(
    instruction: Instruction,
    function: Callable[..., Any],
    inputs: Sequence[Dtype],
    output: Dtype,
    detail: Any = None,
) -> Operation:
    """`d = function(a, b, ...)` where the operands are d, a, b, ... of the given types."""
    operands = expect(instruction, len(inputs) + 1)
    writes = (destination(instruction, operands[0], _bits(output)),)
    reads = tuple(source(instruction, o, _bits(t)) for o, t in zip(operands[1:], inputs, strict=True))
    return Operation(instruction, writes, reads, binder(function, inputs, output), detail)


def _bits(dtype: Dtype) -> int:
    return 1 if dtype == BOOL else dtype.itemsize * 8


def binder(function: Callable[..., Any], inputs: Sequence[Dtype], output: Dtype) -> Builder:
    """The builder of `elementwise`."""

    def build(group: Group) -> Thunk:
        sources = [group.source(position, dtype) for position, dtype in enumerate(inputs)]
        return group.apply(function, sources, group.target(0, output))

    return build


def immediate(instruction: Instruction, position: int) -> int:
    """The integer literal at operand `position`."""
    operand = instruction.operands[position] if position < len(instruction.operands) else None
    if not isinstance(operand, Immediate) or operand.float_bits:
        raise malformed(instruction, f"operand {position + 1} must be an integer literal")
    return operand.value
