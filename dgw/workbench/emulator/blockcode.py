"""Basic blocks compiled: repeated computations removed, operations grouped, and groups bound to thunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dgw.workbench.emulator.cfg import Block
from dgw.workbench.emulator.group import Context, Group
from dgw.workbench.emulator.kernel import Kernel
from dgw.workbench.emulator.operation import Operation, Source, Thunk
from dgw.workbench.emulator.ptx.operands import Not, Register
from dgw.workbench.emulator.schedule import Arrangement, Rows, arrange, reads_of

HOT_SIZE = 8  # blocks of loops at least this long get their rows first


class Program:
    """The arrangements of a kernel's blocks and the rows of its registers, independent of how many lanes run."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.rows = Rows(kernel.registers)
        self._arrangements: dict[int, list[Arrangement]] = {}
        hot = [b for b in kernel.blocks if b.depth and b.last - b.first >= HOT_SIZE]
        for block in sorted(hot, key=lambda b: (-b.depth, b.first - b.last)):
            self.arrangements(block)

    def arrangements(self, block: Block) -> list[Arrangement]:
        """The groups of a block in order."""
        found = self._arrangements.get(block.number)
        if found is None:
            last = block.last - (1 if block.terminator is not None else 0)
            operations = self.kernel.operations[block.first : last]
            operations = _without_repeats(operations, self.kernel.live_out[block.number], block, self.kernel)
            found = arrange(operations)
            for arrangement in sorted(found, key=_weight):
                self.rows.assign(arrangement)
            self._arrangements[block.number] = found
        return found


def _weight(arrangement: Arrangement) -> tuple[int, int]:
    """Crossed groups first, then the large ones."""
    return (-len(arrangement.shape), -len(arrangement.operations))


def compile_block(program: Program, block: Block, context: Context) -> list[Thunk]:
    """The thunks of a block bound to a context."""
    groups = [Group(arrangement, context) for arrangement in program.arrangements(block)]
    thunks = [group.first.build(group) for group in groups]
    if not program.kernel.undefined:
        return thunks
    return [*_checks(program, block, context), *thunks, *_marks(program, block, context)]


def _checks(program: Program, block: Block, context: Context) -> list[Thunk]:
    """Report reads of registers that no instruction has written in some lane."""
    exposed = program.kernel.exposed.get(block.number, [])
    written, active, engine = context.engine.written, context.active, context.engine

    def check() -> None:
        for register, index in exposed:
            missing = ~written[register] if active is None else active & ~written[register]
            if missing.any():
                message = f"register {register.name} is read and nothing has been written to it"
                lanes = missing.nonzero()[0]
                engine.findings.add("uninitialised-register", message, index, engine.lanes, lanes)

    return [check] if exposed else []


def _marks(program: Program, block: Block, context: Context) -> list[Thunk]:
    operations = program.kernel.operations[block.first : block.last]
    writes = {w for operation in operations for w in operation.writes if w in program.kernel.undefined}
    arrays = [context.engine.written[register] for register in writes if register is not None]
    active = context.active

    def mark() -> None:
        for array in arrays:
            array |= True if active is None else active

    return [mark] if arrays else []


def _without_repeats(
    operations: Sequence[Operation], live: set[Register], block: Block, kernel: Kernel
) -> list[Operation]:
    """Drop pure operations whose result is in another register already, and pure ones whose result nobody reads.

    A dropped register is replaced in later reads of the block; it must be written only here and not live afterwards.
    """
    terminator = kernel.operations[block.last - 1] if block.terminator is not None else None
    final = set(reads_of(terminator)) if terminator is not None else set()
    keep = live | final
    guards = {operation.instruction.guard for operation in operations}  # they are named by instructions, not by reads
    writers: dict[Register, int] = {}
    for operation in operations:
        for register in operation.writes:
            if register is not None:
                writers[register] = writers.get(register, 0) + 1
    values: dict[Any, tuple[Register | None, ...]] = {}
    renamed: dict[Register, Register] = {}
    version: dict[Register, int] = {}
    kept: list[Operation] = []
    for operation in operations:
        reads = tuple(_rename(read, renamed) for read in operation.reads)
        if reads != operation.reads:
            operation = _with_reads(operation, reads)
        repeat = None
        single = operation.writes and all(w is not None and writers[w] == 1 for w in operation.writes)
        if single and operation.pure and operation.instruction.guard is None:
            key = (operation.key, tuple(_identity(read, version) for read in reads))
            repeat = values.get(key)
            if repeat is None or any(w in keep or w in guards for w in operation.writes):
                values.setdefault(key, operation.writes)
                repeat = None
        if repeat is not None:
            for write, other in zip(operation.writes, repeat, strict=True):
                if write is not None and other is not None:
                    renamed[write] = other
            continue
        for write in operation.writes:
            if write is not None:
                version[write] = version.get(write, 0) + 1
        kept.append(operation)
    return _without_dead(kept, keep)


def _without_dead(operations: list[Operation], keep: set[Register]) -> list[Operation]:
    needed = set(keep)
    kept: list[Operation] = []
    for operation in reversed(operations):
        if operation.pure and not any(write in needed for write in operation.writes if write is not None):
            continue
        if operation.instruction.guard is None:
            needed.difference_update(write for write in operation.writes if write is not None)
        needed.update(reads_of(operation))
        kept.append(operation)
    return kept[::-1]


def _rename(read: Source, renamed: dict[Register, Register]) -> Source:
    if isinstance(read, Register):
        return renamed.get(read, read)
    if isinstance(read, Not):
        other = renamed.get(read.register)
        return read if other is None else Not(other)
    return read


def _identity(read: Source, version: dict[Register, int]) -> Any:
    register = read.register if isinstance(read, Not) else read
    if isinstance(register, Register):
        return (id(register), version.get(register, 0), isinstance(read, Not))
    return read


def _with_reads(operation: Operation, reads: tuple[Source, ...]) -> Operation:
    return replace(operation, reads=reads)
