"""Reads PTX text into a Module. Anything that it does not understand is an EmulatorError with the PTX line."""

from __future__ import annotations

import re
from dataclasses import replace

from dgw.workbench.emulator.errors import at_line
from dgw.workbench.emulator.ptx.declarations import header_parameters, is_variable, variable
from dgw.workbench.emulator.ptx.lines import Lines
from dgw.workbench.emulator.ptx.module import Function, Instruction, Module
from dgw.workbench.emulator.ptx.operands import Label, Operand, Register, Symbol, parse
from dgw.workbench.emulator.ptx.scopes import Scopes
from dgw.workbench.emulator.ptx.statements import Statement, split, split_operands

_GUARD = re.compile(r"@(!?)\s*([%\w$]+)\s+")
_OPCODE = re.compile(r"([a-z][a-z0-9_]*)((?:\.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*)*)(?=[\s\[{(]|$)")
_HEADER = re.compile(r"((?:\.(?:visible|extern|weak|common)\s+)*)\.(entry|func)\b\s*(.*)\Z", re.DOTALL)
_FILE = re.compile(r'\.file\s+(\d{1,9})\s+"([^"]*)"')
_BOUNDS = re.compile(r"\.(maxntid|reqntid)\s+([\d\s,]+)")
_IGNORED = (
    ".pragma",
    ".maxn",
    ".minnctapersm",
    ".reqntid",
    ".noreturn",
    ".alias",
    ".maxclusterrank",
    ".explicitcluster",
)


def parse_module(text: str) -> Module:
    """Parse PTX text; EmulatorError naming the instruction and its line on anything malformed."""
    return _Parser(text).run()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.module = Module()
        self.function: Function | None = None
        self.scopes: Scopes | None = None
        self.lines = Lines({int(n): name for n, name in _FILE.findall(text)})
        self.pending: list[tuple[int, int]] = []  # (instruction index, scope number) with labels to resolve
        self.awaiting: Function | None = None
        self.operands: dict[tuple[int, str], Operand] = {}
        self.names: dict[str, tuple[str, tuple[str, ...]]] = {}

    def run(self) -> Module:
        """Read every statement."""
        handlers = {"open": self._open, "close": self._close, "label": self._label, "line": self._line,
                    "header": self._header, "plain": self._plain}  # fmt: skip
        for statement in split(self.text):
            handlers[statement.kind](statement)
        return self.module

    def _open(self, statement: Statement) -> None:
        if self.awaiting is not None:
            self.function, self.awaiting = self.awaiting, None
            outer = dict(self.module.variables)
            outer.update({v.name: v for v in self.function.parameters + self.function.returns})
            self.scopes = Scopes(outer, frozenset(self.module.functions))
            self.lines.begin()
            self.pending, self.operands = [], {}
        elif self.scopes is not None:
            self.scopes.open()
        else:
            raise at_line("a brace outside a function", statement.line)

    def _close(self, statement: Statement) -> None:
        if self.scopes is None or self.function is None:
            raise at_line("a brace closes nothing", statement.line)
        if self.scopes.depth:
            self.scopes.close(statement.line)
            return
        for index, scope in self.pending:
            instruction = self.function.instructions[index]
            instruction.operands = tuple(self._resolve(operand, scope, instruction) for operand in instruction.operands)
        for name, targets in self.function.branch_targets.items():
            self.function.branch_targets[name] = tuple(self._target(t, 0, statement.line) for t in targets)
        self.function = self.scopes = None

    def _target(self, name: str, scope: int, line: int) -> str:
        assert self.scopes is not None
        found = self.scopes.has_label(scope, name)
        if found is None:
            raise at_line(f"`{name[:60]}` is not declared", line)
        return found

    def _resolve(self, operand: Operand, scope: int, instruction: Instruction) -> Operand:
        if not isinstance(operand, Label) or operand.name in self._tables():
            return operand
        if instruction.opcode not in ("bra", "brx", "call"):
            raise at_line(f"`{operand.name[:60]}` is not declared (in `{instruction.text[:60]}`)", instruction.line)
        if instruction.opcode == "call":
            return Symbol(operand.name)
        return Label(self._target(operand.name, scope, instruction.line))

    def _tables(self) -> dict[str, tuple[str, ...]]:
        assert self.function is not None
        return self.function.branch_targets

    def _label(self, statement: Statement) -> None:
        if self.function is None or self.scopes is None:
            raise at_line("a label outside a function", statement.line)
        name = self.scopes.declare_label(statement.text, statement.line)
        self.function.labels[name] = len(self.function.instructions)

    def _line(self, statement: Statement) -> None:
        words = statement.text
        if words.startswith(".loc"):
            if not self.lines.read(words):
                raise at_line(f"`{words[:60]}` is malformed", statement.line)
        elif words.startswith(".target"):
            self.module.arch = words[len(".target") :].split(",")[0].strip()

    def _header(self, statement: Statement) -> None:
        if self.function is not None:
            raise at_line("a function inside a function", statement.line)
        found = _HEADER.match(statement.text)
        if not found:
            raise at_line(f"`{statement.text[:60]}` is no function", statement.line)
        returns, name, parameters = header_parameters(found[3], statement.line)
        function = Function(name, found[2] == "entry", statement.line, parameters, returns)
        bounds = _BOUNDS.search(found[3])
        if bounds:
            function.max_threads = tuple(int(part) for part in bounds[2].split(",") if part.strip())
        self.module.functions[name] = function
        self.awaiting = function

    def _plain(self, statement: Statement) -> None:
        words = statement.text
        if words[0] == ".":
            self._directive(statement)
            return
        if self.function is None or self.scopes is None:
            raise at_line(f"`{words[:60]}` outside a function", statement.line)
        if (
            ":" in words
            and "::" not in words
            and re.match(r"[\w$]+\s*:\s*\.(branchtargets|calltargets|callprototype)", words)
        ):
            self._table(words)
            return
        instruction = self._instruction(words, statement.line)
        if instruction.opcode in ("bra", "brx", "call") or any(isinstance(x, Label) for x in instruction.operands):
            self.pending.append((len(self.function.instructions), self.scopes.number))
        self.function.instructions.append(instruction)

    def _table(self, words: str) -> None:
        name, _, rest = words.partition(":")
        targets = rest.strip().partition(" ")[2]
        self._tables()[name.strip()] = tuple(part.strip() for part in targets.split(","))

    def _directive(self, statement: Statement) -> None:
        words = statement.text
        if words.startswith(".reg"):
            found = re.match(r"\.reg\s+(?:\.v[24]\s+)?\.(\w+)\s+(.*)\Z", words, re.DOTALL)
            if not found or self.scopes is None:
                raise at_line(f"`{words[:60]}` declares no registers here", statement.line)
            names = [part.strip() for part in found[2].split(",")]
            self.scopes.declare_registers(found[1], names, statement.line)
        elif is_variable(words):
            declared = variable(words, statement.line)
            if self.function is None or self.scopes is None:
                self.module.variables[declared.name] = declared
            else:
                unique = self.scopes.unique(declared.name)
                declared = replace(declared, name=unique)
                self.function.variables.append(declared)
                self.scopes.declare(unique.partition("@")[0], Symbol(unique))
        elif _HEADER.match(words):  # a declaration without a body
            found = _HEADER.match(words)
            assert found is not None
            returns, name, parameters = header_parameters(found[3], statement.line)
            self.module.functions.setdefault(
                name, Function(name, found[2] == "entry", statement.line, parameters, returns, defined=False)
            )
        elif not words.startswith(_IGNORED):
            raise at_line(f"unknown directive `{words[:60]}`", statement.line)

    def _instruction(self, words: str, line: int) -> Instruction:
        assert self.scopes is not None
        guard, negated, rest = None, False, words
        if words[0] == "@":
            found = _GUARD.match(words)
            operand = self.scopes.lookup(found[2], line) if found else None
            if not found or not isinstance(operand, Register) or operand.bits != 1:
                raise at_line(f"`{words[:60]}` has no predicate after @", line)
            guard, negated, rest = operand, found[1] == "!", words[found.end() :]
        opcode = _OPCODE.match(rest)
        if not opcode:
            raise at_line(f"`{words[:60]}` is no instruction", line)
        name = opcode[0]
        if name not in self.names:
            self.names[name] = (opcode[1], tuple(opcode[2].split(".")[1:]))
        first, modifiers = self.names[name]
        operands = tuple(self._operand(part, line) for part in split_operands(rest[opcode.end() :].strip(), line))
        source, site = self.lines.source, self.lines.site
        return Instruction(name, first, modifiers, operands, guard, negated, line, source, words, site)

    def _operand(self, text: str, line: int) -> Operand:
        assert self.scopes is not None
        key = (self.scopes.naming, text)
        found = self.operands.get(key)
        if found is None:
            try:
                found = parse(text, line, self.scopes.lookup)
            except RecursionError:
                raise at_line("brackets are nested too deeply", line) from None
            if not isinstance(found, Label):
                self.operands[key] = found
        return found
