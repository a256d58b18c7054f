"""Calls of device functions, replaced by the body of the callee with registers, labels and variables of its own.

Parameters of device functions are bytes private to a thread: they are kept in a space called `frame`, which no counter
sees. printf does nothing; a failed assertion is a trap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dgw.workbench.emulator.errors import at_line
from dgw.workbench.emulator.ptx.module import Function, Instruction, Module, Variable
from dgw.workbench.emulator.ptx.operands import (
    Address,
    Group,
    Label,
    Not,
    Operand,
    Pair,
    Register,
    Symbol,
    TensorAddress,
    Vector,
)

MAX_DEPTH = 16
MAX_INSTRUCTIONS = 400_000


def inline_calls(module: Module, function: Function) -> Function:
    """The function without calls; recursion and indirect calls are EmulatorErrors."""
    if not any(instruction.opcode == "call" for instruction in function.instructions):
        return function
    result = replace(function, variables=list(function.variables), instructions=[], labels={}, branch_targets={})
    _Inliner(module, result).body(function, _Names(), ())
    return result


@dataclass
class _Names:
    """How one inlined body is renamed: `number` 0 is the kernel itself; `parameters` maps names of the callee."""

    number: int = 0
    parameters: dict[str, str] | None = None

    def label(self, name: str) -> str:
        return name if not self.number else f"{name}#{self.number}"


class _Inliner:
    def __init__(self, module: Module, result: Function) -> None:
        self.module, self.result = module, result
        self.count = 0
        self.shared = {v.name for v in result.variables if v.space == "shared"}

    def body(self, function: Function, names: _Names, callers: tuple[str, ...]) -> None:
        """Append a function's instructions; `ret` of a callee jumps behind them."""
        out, registers = self.result.instructions, dict[Register, Register]()
        frame = {v.name for v in function.variables if v.space == "param"}
        renamed = self._declare(function, names)
        places: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            places.setdefault(index, []).append(label)
        for table, targets in function.branch_targets.items():
            self.result.branch_targets[names.label(table)] = tuple(names.label(target) for target in targets)
        for index, instruction in enumerate(function.instructions):
            for label in places.get(index, ()):
                self.result.labels[names.label(label)] = len(out)
            if instruction.opcode == "call":
                self._call(instruction, names, renamed, registers, (*callers, function.name))
                continue
            out.append(self._rename(instruction, names, renamed, registers, frame))
            if len(out) > MAX_INSTRUCTIONS:
                raise at_line("the inlined calls are too large", instruction.line)
        for label in places.get(len(function.instructions), ()):
            self.result.labels[names.label(label)] = len(out)
        if names.number:
            self.result.labels[names.label("@end")] = len(out)

    def _declare(self, function: Function, names: _Names) -> dict[str, str]:
        renamed = dict(names.parameters or {})
        if not names.number:
            return renamed
        for variable in function.variables:
            if variable.space in ("local", "param"):
                renamed[variable.name] = f"{variable.name}#{names.number}"
                self.result.variables.append(replace(variable, name=renamed[variable.name]))
            elif variable.name not in self.shared:
                self.shared.add(variable.name)
                self.result.variables.append(variable)
        return renamed

    def _call(
        self,
        call: Instruction,
        names: _Names,
        renamed: dict[str, str],
        registers: dict[Register, Register],
        callers: tuple[str, ...],
    ) -> None:
        operands = list(call.operands)
        returns = _take_group(operands)
        target = operands.pop(0) if operands else None
        given = _take_group(operands)
        if not isinstance(target, Symbol) or operands:
            raise at_line(f"`{call.text[:80]}` is an indirect call, which is not implemented", call.line)
        out = self.result.instructions
        if target.name == "vprintf":
            return
        if target.name in ("__assertfail", "__assert_fail"):
            out.append(replace(call, name="trap", opcode="trap", modifiers=(), operands=()))
            return
        callee = self.module.functions.get(target.name)
        if callee is None or not callee.defined:
            raise at_line(f"`{target.name[:60]}` is called and has no body", call.line)
        if callee.name in callers or len(callers) > MAX_DEPTH:
            raise at_line(f"`{target.name[:60]}` calls itself, which is not implemented", call.line)
        self.count += 1
        inner = _Names(self.count, {})
        assert inner.parameters is not None
        for declared, operand in [*_pairs(callee.parameters, given, call), *_pairs(callee.returns, returns, call)]:
            inner.parameters[declared.name] = renamed.get(operand.name, operand.name)
        skip = f"@over#{self.count}"
        if call.guard is not None:
            guard = _register(call.guard, names, registers)
            out.append(
                replace(call, name="bra", opcode="bra", modifiers=(), operands=(Label(skip),), guard=guard,
                        negated=not call.negated)
            )  # fmt: skip
        self.body(callee, inner, callers)
        self.result.labels[skip] = len(out)

    def _rename(
        self,
        instruction: Instruction,
        names: _Names,
        renamed: dict[str, str],
        registers: dict[Register, Register],
        frame: set[str],
    ) -> Instruction:
        operands = tuple(_operand(operand, names, renamed, registers) for operand in instruction.operands)
        guard = None if instruction.guard is None else _register(instruction.guard, names, registers)
        changed = replace(instruction, operands=operands, guard=guard)
        if names.number and instruction.opcode in ("ret",):
            return replace(changed, name="bra", opcode="bra", modifiers=(), operands=(Label(names.label("@end")),))
        if instruction.opcode in ("ld", "st") and any(word.startswith("param") for word in instruction.modifiers):
            address = instruction.operands[1 if instruction.opcode == "ld" else 0]
            base = address.base if isinstance(address, Address) else None
            if names.number or (isinstance(base, Symbol) and base.name in frame):
                words = tuple("frame" if word.startswith("param") else word for word in instruction.modifiers)
                return replace(changed, modifiers=words)
        return changed


def _take_group(operands: list[Operand]) -> tuple[Operand, ...]:
    first = operands[0] if operands else None
    if not isinstance(first, Group):
        return ()
    del operands[0]
    return first.items


def _pairs(declared: list[Variable], given: tuple[Operand, ...], call: Instruction) -> list[tuple[Variable, Symbol]]:
    if len(declared) != len(given) or not all(isinstance(operand, Symbol) for operand in given):
        raise at_line(f"`{call.text[:80]}` does not match the function it calls", call.line)
    return [(variable, name) for variable, name in zip(declared, given, strict=True) if isinstance(name, Symbol)]


def _register(register: Register, names: _Names, registers: dict[Register, Register]) -> Register:
    if not names.number:
        return register
    found = registers.get(register)
    if found is None:
        found = registers[register] = Register(f"{register.name}#{names.number}", register.bits)
    return found


def _operand(operand: Operand, names: _Names, renamed: dict[str, str], registers: dict[Register, Register]) -> Operand:
    if isinstance(operand, Register):
        return _register(operand, names, registers)
    if isinstance(operand, Not):
        return Not(_register(operand.register, names, registers))
    if isinstance(operand, Symbol):
        return Symbol(renamed.get(operand.name, operand.name), operand.offset)
    if isinstance(operand, Label):
        return Label(names.label(operand.name))
    if isinstance(operand, Address) and operand.base is not None:
        base = _operand(operand.base, names, renamed, registers)
        assert isinstance(base, Register | Symbol)
        return Address(base, operand.offset)
    if isinstance(operand, TensorAddress):
        place = _operand(operand.map, names, renamed, registers)
        assert isinstance(place, Address)
        return TensorAddress(place, tuple(_operand(item, names, renamed, registers) for item in operand.coordinates))
    if isinstance(operand, Vector):
        return Vector(tuple(_operand(item, names, renamed, registers) for item in operand.items))
    if isinstance(operand, Pair):
        first = _operand(operand.first, names, renamed, registers)
        return Pair(first, _operand(operand.second, names, renamed, registers))
    return operand
