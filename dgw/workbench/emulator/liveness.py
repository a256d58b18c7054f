"""What is known of registers without running: live ranges, values that came from narrow floats, undefined registers."""

from __future__ import annotations

from collections.abc import Sequence

from dgw.workbench.emulator.cfg import Block
from dgw.workbench.emulator.operation import Operation
from dgw.workbench.emulator.ptx.operands import Immediate, Register
from dgw.workbench.emulator.schedule import reads_of


def narrow_values(operations: Sequence[Operation]) -> dict[Register, str]:
    """Registers that only ever hold values converted from `f16` or `bf16`."""
    kinds: dict[Register, set[str]] = {}
    for operation in operations:
        kind = _kind(operation)
        for register in operation.writes:
            if register is not None:
                kinds.setdefault(register, set()).add(kind)
    return {register: next(iter(found)) for register, found in kinds.items() if len(found) == 1 and "" not in found}


def _kind(operation: Operation) -> str:
    name = operation.instruction.name
    if name == "cvt.f32.f16":
        return "f16"
    if name == "cvt.f32.bf16":
        return "bf16"
    if name in ("mov.b32", "mov.u32") and operation.detail == ("pack", 16):
        low = operation.reads[0]
        return "bf16" if isinstance(low, Immediate) and low.value == 0 else ""
    return ""


def undefined_registers(operations: Sequence[Operation]) -> frozenset[Register]:
    """Registers that are read and that no instruction writes."""
    written = {register for operation in operations for register in operation.writes if register is not None}
    return frozenset(
        register for operation in operations for register in reads_of(operation) if register not in written
    )


def live_out(blocks: Sequence[Block], operations: Sequence[Operation]) -> list[set[Register]]:
    """Per block, the registers that may be read after it."""
    number: dict[Register, int] = {}
    uses, defines = [], []
    for block in blocks:
        use = define = 0
        for operation in operations[block.first : block.last]:
            for register in reads_of(operation):
                bit = 1 << number.setdefault(register, len(number))
                if not define & bit:
                    use |= bit
            for written in operation.writes:
                if written is not None:
                    bit = 1 << number.setdefault(written, len(number))
                    if operation.instruction.guard is None:
                        define |= bit
                    else:
                        use |= bit & ~define
        uses.append(use)
        defines.append(define)
    live_in = [0] * len(blocks)
    out = [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            after = 0
            for successor in block.successors:
                if successor >= 0:
                    after |= live_in[successor]
            before = uses[block.number] | (after & ~defines[block.number])
            if after != out[block.number] or before != live_in[block.number]:
                out[block.number], live_in[block.number] = after, before
                changed = True
    names = {bit: register for register, bit in number.items()}
    return [{names[i] for i in _bits(word)} for word in out]


def _bits(word: int) -> list[int]:
    return [position for position, digit in enumerate(reversed(bin(word)[2:])) if digit == "1"]
