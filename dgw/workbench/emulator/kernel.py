"""A kernel ready to run: decoded operations, basic blocks, memory layout."""

from __future__ import annotations

from dataclasses import dataclass

from dgw.workbench.emulator.cfg import Block, blocks_of, schedule_order
from dgw.workbench.emulator.errors import EmulatorError, at_line
from dgw.workbench.emulator.inline import inline_calls
from dgw.workbench.emulator.instruction_set import decode
from dgw.workbench.emulator.liveness import exposed_reads, live_ranges, narrow_values
from dgw.workbench.emulator.observer import InstructionInfo
from dgw.workbench.emulator.operation import Operation
from dgw.workbench.emulator.ptx.module import Function, Module, Variable
from dgw.workbench.emulator.ptx.operands import Register, Symbol
from dgw.workbench.emulator.ptx.parser import parse_module
from dgw.workbench.emulator.schedule import reads_of


@dataclass(frozen=True)
class Placement:
    """Where a variable lives: its space and byte offset in that space."""

    space: str
    offset: int
    variable: Variable


class Kernel:
    """One entry of a PTX module. Building it raises an EmulatorError for anything that cannot be run."""

    def __init__(self, module: Module, entry: str) -> None:
        function = module.functions.get(entry)
        if function is None or not function.is_entry or not function.defined:
            entries = [f.name for f in module.functions.values() if f.is_entry]
            raise EmulatorError(f"no kernel {entry} in the PTX; it has {', '.join(entries) or 'none'}")
        self.name = entry
        self.module = module
        self.function: Function = inline_calls(module, function)
        self.operations: list[Operation] = [decode(instruction) for instruction in self.function.instructions]
        self.blocks: list[Block] = blocks_of(self.function)
        order = schedule_order(self.blocks)
        self.rank = [0] * len(self.blocks)
        for rank, number in enumerate(order):
            self.rank[number] = rank
        self.order = order
        self.infos = self._number()
        self.placements: dict[str, Placement] = {}
        self.sizes = {"param": 0, "shared": 0, "local": 0, "const": 0, "frame": 0}
        self.dynamic_shared = 0  # offset where dynamic shared memory starts
        self._lay_out()
        self.registers = self._registers()
        self.narrow_values = narrow_values(self.operations)
        self.live_in, self.live_out = live_ranges(self.blocks, self.operations)
        # Registers that some path reads before anything writes them; usually none.
        self.undefined = self.live_in[0] if self.blocks else set()
        self.exposed = exposed_reads(self.blocks, self.operations, self.undefined)
        self.granule = self._granule()

    @classmethod
    def from_ptx(cls, text: str, entry: str) -> Kernel:
        """Parse PTX and build the kernel called `entry`."""
        return cls(parse_module(text), entry)

    def _number(self) -> tuple[InstructionInfo, ...]:
        infos = []
        for block in self.blocks:
            for index in range(block.first, block.last):
                operation = self.operations[index]
                operation.index = index
                instruction = operation.instruction
                space = operation.loads or operation.stores
                if operation.kind == "cp.async" or operation.kind in ("ldmatrix", "stmatrix"):
                    space = "shared"
                elif operation.kind and not space:
                    space = getattr(operation.detail, "space", "")
                info = InstructionInfo(
                    index=index,
                    opcode=instruction.opcode,
                    modifiers=instruction.modifiers,
                    text=instruction.text,
                    line=instruction.line,
                    source=instruction.source,
                    kind=operation.kind,
                    space="param" if space == "frame" else space,
                    width_bytes=operation.width,
                    matrices=operation.matrices,
                    block=block.number,
                    site=instruction.site,
                )
                infos.append(info)
        return tuple(infos)

    def _lay_out(self) -> None:
        function, module = self.function, self.module
        static = [v for v in module.variables.values() if v.space == "shared"]
        static += [v for v in function.variables if v.space == "shared"]
        for variable in function.parameters:
            self._place(variable, "param")
        dynamic = [v for v in static if v.size == 0]
        for variable in static:
            if variable.size:
                self._place(variable, "shared")
        alignment = max([v.alignment for v in dynamic] + [16])
        self.dynamic_shared = -(-self.sizes["shared"] // alignment) * alignment if dynamic else self.sizes["shared"]
        for variable in dynamic:
            self.placements[variable.name] = Placement("shared", self.dynamic_shared, variable)
        for variable in function.variables:
            if variable.space == "local":
                self._place(variable, "local")
            elif variable.space == "param":
                self._place(variable, "frame")
        for variable in [*module.variables.values(), *function.variables]:
            if variable.space == "const":
                self._place(variable, "const")

    def _place(self, variable: Variable, space: str) -> None:
        alignment = max(variable.alignment, 1)
        offset = -(-self.sizes[space] // alignment) * alignment
        self.placements[variable.name] = Placement(space, offset, variable)
        self.sizes[space] = offset + variable.size

    def _registers(self) -> list[Register]:
        found: dict[Register, None] = {}
        for operation in self.operations:
            for register in operation.writes:
                if register is not None:
                    found[register] = None
            for register in reads_of(operation):
                found[register] = None
        return list(found)

    def _granule(self) -> int:
        widths = [
            operation.width
            for operation in self.operations
            if operation.width
            and ("shared" in (operation.loads, operation.stores) or "generic" in (operation.loads, operation.stores))
        ]
        return min([*widths, 16])

    def placement(self, symbol: Symbol, line: int) -> Placement:
        """Where a symbol lives; EmulatorError for a name that has no storage."""
        found = self.placements.get(symbol.name)
        if found is None:
            raise at_line(f"`{symbol.name[:60]}` has no address", line)
        return found

    @property
    def parameters(self) -> list[Variable]:
        """The kernel's parameters in order."""
        return self.function.parameters
