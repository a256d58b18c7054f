"""Turns a basic block into groups of alike, independent operations, and gives their registers neighbouring rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgw.workbench.emulator.operation import Operation, Source
from dgw.workbench.emulator.ptx.operands import Not, Register
from dgw.workbench.emulator.state import register_class


def register_of(read: Source | None) -> Register | None:
    """The register behind a source, if it is one."""
    if isinstance(read, Not):
        return read.register
    return read if isinstance(read, Register) else None


def reads_of(operation: Operation) -> list[Register]:
    """All registers that an operation reads, its guard included."""
    found = [register for register in map(register_of, operation.reads) if register is not None]
    if operation.instruction.guard is not None:
        found.append(operation.instruction.guard)
    return found


class Arrangement:
    """A group: `shape` is (n,), or (p, q) when the operations are all pairs of p first and q second sources."""

    __slots__ = ("operations", "shape")

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.shape: tuple[int, ...] = (len(operations),)
        if operations[0].cross is not None and len(operations) > 3 and operations[0].instruction.guard is None:
            self._try_product(operations[0].cross)

    def _try_product(self, cross: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
        table: dict[tuple[Any, Any], Operation] = {}
        lefts: dict[Any, None] = {}
        rights: dict[Any, None] = {}
        for operation in self.operations:
            left = tuple(operation.reads[position] for position in cross[0])
            right = tuple(operation.reads[position] for position in cross[1])
            lefts[left] = rights[right] = None
            table[left, right] = operation
        p, q = len(lefts), len(rights)
        if p * q == len(self.operations) == len(table) and p > 1 and q > 1:
            self.operations = [table[left, right] for left in lefts for right in rights]
            self.shape = (p, q)


class _Levels:
    """Places operations on the earliest level that their dependences allow."""

    def __init__(self) -> None:
        self.written: dict[Register, int] = {}
        self.read: dict[Register, int] = {}
        self.loaded: dict[str, int] = {}
        self.stored: dict[str, tuple[int, Any]] = {}
        self.last_ordered: tuple[int, Any] = (-1, None)

    def place(self, operation: Operation) -> int:
        level = 0
        reads = reads_of(operation)
        for register in reads:
            level = max(level, self.written.get(register, -1) + 1)
        for target in operation.writes:
            if target is not None:
                level = max(level, self.written.get(target, -1) + 1, self.read.get(target, -1) + 1)
        level = max(level, self._memory(operation))
        for register in reads:
            self.read[register] = max(level, self.read.get(register, -1))
        for target in operation.writes:
            if target is not None:
                self.written[target] = level
        return level

    def _memory(self, operation: Operation) -> int:
        level = 0
        if operation.ordered:
            last, key = self.last_ordered
            level = max(level, last if key == operation.key else last + 1)
        for space in _aliases(operation.loads):
            level = max(level, self.stored.get(space, (-1, None))[0] + 1)
        for space in _aliases(operation.stores):
            last, key = self.stored.get(space, (-1, None))
            level = max(level, last if key == operation.key else last + 1, self.loaded.get(space, -1) + 1)
        return level

    def record_memory(self, operation: Operation, level: int) -> None:
        if operation.ordered:
            self.last_ordered = (level, operation.key)
        for space in _aliases(operation.loads):
            self.loaded[space] = max(level, self.loaded.get(space, -1))
        for space in _aliases(operation.stores):
            self.stored[space] = (level, operation.key)


def _aliases(space: str) -> tuple[str, ...]:
    if not space or space == "const":
        return ()
    return ("global", "shared", "local") if space == "generic" else (space,)


def arrange(operations: Sequence[Operation]) -> list[Arrangement]:
    """Group the operations of a block: by level, then by key, keeping program order inside a group."""
    levels = _Levels()
    groups: dict[int, dict[Any, list[Operation]]] = {}
    for operation in operations:
        level = levels.place(operation)
        levels.record_memory(operation, level)
        groups.setdefault(level, {}).setdefault(operation.key, []).append(operation)
    return [Arrangement(members) for level in sorted(groups) for members in groups[level].values()]


class Rows:
    """Row numbers of registers, given out so that the operands of a group are consecutive rows."""

    def __init__(self, registers: Sequence[Register]) -> None:
        self.row: dict[Register, int] = {}
        self.used: dict[int, int] = {}
        self.total: dict[int, int] = {}
        for register in registers:
            bits = register_class(register.bits)
            self.total[bits] = self.total.get(bits, 0) + 1

    def of(self, register: Register) -> int:
        """The row of a register in the array of its width."""
        row = self.row.get(register)
        if row is None:
            bits = register_class(register.bits)
            row = self.row[register] = self.used.get(bits, 0)
            self.used[bits] = row + 1
        return row

    def assign(self, arrangement: Arrangement) -> None:
        """Give rows to the operands of a group that have none yet, destinations first, member by member."""
        operations = arrangement.operations
        q = arrangement.shape[1] if len(arrangement.shape) == 2 else 0
        width = len(operations[0].writes)
        if width:
            self._take([register for operation in operations for register in operation.writes])
        cross = operations[0].cross if q else None
        done: set[int] = set()
        if cross is not None:
            self._take([register_of(op.reads[i]) for op in operations[::q] for i in cross[0]])
            self._take([register_of(op.reads[i]) for op in operations[:q] for i in cross[1]])
            done = {*cross[0], *cross[1]}
        runs = _runs([i for i in range(len(operations[0].reads)) if i not in done], operations[0])
        for run in runs:
            self._take([register_of(op.reads[i]) for op in operations for i in run])

    def _take(self, registers: list[Register | None]) -> None:
        for register in registers:
            if register is not None:
                self.of(register)


def _runs(positions: list[int], operation: Operation) -> list[list[int]]:
    """Positions that are read together as a vector (detail says how many) stay together."""
    vector = getattr(operation.detail, "vector", 1)
    values = [i for i in positions if vector > 1 and i >= len(operation.reads) - vector]
    return [[i] for i in positions if i not in values] + ([values] if values else [])
