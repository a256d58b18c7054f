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


def exposed_reads(
    blocks: Sequence[Block], operations: Sequence[Operation], undefined: set[Register]
) -> dict[int, list[tuple[Register, int]]]:
    """Per block number, the reads (register, instruction) of `undefined` registers that no write in the block precedes.

    A mov is no use: compilers copy undefined values along paths that never look at them. Nor is a sum that is added to,
    where whether it is added to is told at run time.
    """
    found: dict[int, list[tuple[Register, int]]] = {}
    if not undefined:
        return found
    for block in blocks:
        seen: set[Register] = set()
        for operation in operations[block.first : block.last]:
            sums = operation.writes if operation.adds_if_told else ()
            for register in reads_of(operation):
                if register in sums:
                    continue
                if register in undefined and register not in seen and operation.instruction.opcode != "mov":
                    found.setdefault(block.number, []).append((register, operation.index))
                    seen.add(register)
            seen.update(register for register in operation.writes if register is not None)
    return found


def live_ranges(blocks: Sequence[Block], operations: Sequence[Operation]) -> tuple[LiveSets, LiveSets]:
    """Per block, the registers whose values on entry may be read, and those whose values on exit may be."""
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
    return LiveSets(live_in, names), LiveSets(out, names)


class LiveSets:
    """A set of registers per block, kept as bits and made on demand."""

    def __init__(self, words: list[int], names: dict[int, Register]) -> None:
        self._words, self._names = words, names

    def __getitem__(self, block: int) -> set[Register]:
        """The registers of a block."""
        return {self._names[i] for i in _bits(self._words[block])}


def _bits(word: int) -> list[int]:
    digits, found = bin(word)[:1:-1], []
    position = digits.find("1")
    while position >= 0:
        found.append(position)
        position = digits.find("1", position + 1)
    return found
