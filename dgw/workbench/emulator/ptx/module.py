"""What a PTX file declares: variables, functions and their instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

from dgw.workbench.emulator.observer import SourceLine
from dgw.workbench.emulator.ptx.operands import Operand, Register


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: `space` is param, shared, local, global or const; `size` in bytes, 0 for an extern array.

    `initial` holds the bytes it starts with (empty: zeros for global and const, nothing for the rest); `references`
    lists (byte offset, symbol name, addend) of addresses inside the initial value.
    """

    name: str
    space: str
    alignment: int
    size: int
    initial: bytes = b""
    type_name: str = "b8"
    references: tuple[tuple[int, str, int], ...] = ()


@dataclass(slots=True)
class Instruction:
    """One instruction: `name` is the full opcode text, `opcode` its first word, `modifiers` the other words.

    `source` and `site` are its lines, as in :class:`~dgw.workbench.emulator.observer.InstructionInfo`.
    """

    name: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    negated: bool
    line: int
    source: SourceLine
    text: str
    site: SourceLine


@dataclass
class Function:
    """An entry or a device function. `labels` maps a label to the index of the instruction that follows it."""

    name: str
    is_entry: bool
    line: int
    parameters: list[Variable] = field(default_factory=list)
    returns: list[Variable] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    max_threads: tuple[int, ...] = ()
    defined: bool = True


@dataclass
class Module:
    """A parsed PTX file: variables outside functions, and functions by name. `arch` is the `.target`."""

    arch: str = ""
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
