"""An instruction with its registers told apart: what it reads and writes, and who builds its code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgw.workbench.emulator.errors import EmulatorError, at_line
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import (
    TYPE_BITS,
    Immediate,
    Not,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

if TYPE_CHECKING:
    from dgw.workbench.emulator.group import Group

Thunk = Callable[[], Any]
Builder = Callable[["Group"], Thunk]
Source = Register | Immediate | Special | Symbol | Not


@dataclass(slots=True)
class Operation:
    """`writes[i]` None is a destination thrown away. Operations with equal `key` may run as one group.

    `detail` is what the builder needs beyond registers (hashable, part of the key). `pure` operations have no effect
    but their writes. `loads` and `stores` name the memory space touched (`generic` for any); `ordered` operations keep
    their order among each other. `cross` names the two sets of read positions along which a group may be a product.
    `adds_if_told`: what it writes it reads only where a predicate says so.
    """

    instruction: Instruction
    writes: tuple[Register | None, ...]
    reads: tuple[Source, ...]
    build: Builder
    detail: Any = None
    pure: bool = True
    loads: str = ""
    stores: str = ""
    ordered: bool = False
    cross: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    adds_if_told: bool = False
    index: int = 0
    kind: str = ""
    width: int = 0
    matrices: int = 0
    key: tuple[Any, ...] = ()

    def seal(self) -> None:
        """Compute `key` once the registers are final."""
        guard = self.instruction.guard
        self.key = (
            self.instruction.name,
            tuple(0 if w is None else w.bits for w in self.writes),
            tuple(_shape(read) for read in self.reads),
            self.detail,
            None if guard is None else self.instruction.negated,
        )


def _shape(read: Source) -> Any:
    if isinstance(read, Register):
        return read.bits
    if isinstance(read, Immediate):
        return ("immediate", read.float_bits)
    return read if isinstance(read, Special) else type(read).__name__


def type_of(instruction: Instruction, position: int = -1) -> str:
    """The type modifier at `position` (the last one by default)."""
    if len(instruction.modifiers) < abs(position if position < 0 else position + 1):
        raise unknown(instruction)
    name = instruction.modifiers[position]
    if name not in TYPE_BITS:
        raise unknown(instruction)
    return name


def unknown(instruction: Instruction) -> EmulatorError:
    """The error for an instruction, or a form of it, that the emulator does not implement."""
    return at_line(f"unknown instruction `{instruction.name}`", instruction.line)


def malformed(instruction: Instruction, why: str = "its operands do not fit") -> EmulatorError:
    """The error for an instruction whose operands make no sense."""
    return at_line(f"`{instruction.text[:80]}`: {why}", instruction.line)


def check_modifiers(instruction: Instruction, allowed: Iterable[str]) -> frozenset[str]:
    """The modifiers as a set; unknown-instruction error when one is not in `allowed`."""
    present = frozenset(instruction.modifiers)
    if not present <= set(allowed):
        raise unknown(instruction)
    return present


def destination(instruction: Instruction, operand: Operand, bits: int | None = None) -> Register | None:
    """A register that is written, or None for `_`; `bits` is the width it must have."""
    if isinstance(operand, Sink):
        return None
    if not isinstance(operand, Register) or (bits is not None and not _fits(operand, bits)):
        raise malformed(instruction, "its destination is no register of the right width")
    return operand


def _fits(register: Register, bits: int) -> bool:
    return register.bits == bits or (bits == 8 and register.bits == 16)


def source(instruction: Instruction, operand: Operand, bits: int | None = None) -> Source:
    """A value that is read; `bits` is the width that a register must have."""
    if not isinstance(operand, Register | Immediate | Special | Symbol | Not):
        raise malformed(instruction)
    if bits is not None:
        found = operand.register if isinstance(operand, Not) else operand
        if isinstance(found, Register) and not _fits(found, bits):
            raise malformed(instruction, "a source register has the wrong width")
        if isinstance(operand, Not) and bits != 1:
            raise malformed(instruction)
    return operand


def items(instruction: Instruction, operand: Operand, count: int | None = None) -> tuple[Operand, ...]:
    """The members of a vector operand, or the operand itself as a vector of one."""
    found = operand.items if isinstance(operand, Vector) else (operand,)
    if count is not None and len(found) != count:
        raise malformed(instruction, f"a vector needs {count} members")
    return found


def expect(instruction: Instruction, *counts: int) -> tuple[Operand, ...]:
    """The operands; an error when their number is not among `counts`."""
    if len(instruction.operands) not in counts:
        raise malformed(instruction, f"it has {len(instruction.operands)} operands")
    return instruction.operands
