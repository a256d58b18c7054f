"""Names inside a function: registers, variables and labels, in nested scopes."""

from __future__ import annotations

import re

from dgw.workbench.emulator.errors import at_line
from dgw.workbench.emulator.ptx.module import Variable
from dgw.workbench.emulator.ptx.operands import TYPE_BITS, Label, Operand, Register, Special, Symbol

_VECTORS = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_SCALARS = (
    *("laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid", "clock", "clock_hi", "clock64"),
    *("globaltimer", "globaltimer_lo", "globaltimer_hi", "dynamic_smem_size", "total_smem_size", "aggr_smem_size"),
    *("lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt"),
    *("cluster_ctarank", "cluster_nctarank", "is_explicit_cluster"),
)
SPECIALS = frozenset(["%" + name for name in _SCALARS] + [f"%{name}.{axis}" for name in _VECTORS for axis in "xyz"])

_RANGE = re.compile(r"([%\w$]+)<(\d+)>\Z")
_DIGITS = re.compile(r"([%\w$]*?)(\d+)\Z")
MAX_REGISTERS = 1 << 20


class _Scope:
    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, Operand] = {}
        self.ranges: dict[str, tuple[int, int]] = {}
        self.declares = False


class Scopes:
    """Resolves names from the innermost scope outwards; inner names that hide outer ones become unique."""

    def __init__(self, outer: dict[str, Variable], functions: frozenset[str]) -> None:
        self._outer = outer
        self._functions = functions
        self._stack = [_Scope(0)]
        self._count = 0
        self._labels: set[tuple[int, str]] = set()
        self.chains: dict[int, tuple[int, ...]] = {0: (0,)}

    def open(self) -> None:
        """Enter `{`."""
        self._count += 1
        self._stack.append(_Scope(self._count))
        self.chains[self._count] = tuple(scope.number for scope in reversed(self._stack))

    def close(self, line: int) -> None:
        """Leave `}`."""
        if len(self._stack) == 1:
            raise at_line("a brace closes nothing", line)
        self._stack.pop()

    @property
    def depth(self) -> int:
        """How many scopes are open inside the function's own."""
        return len(self._stack) - 1

    @property
    def naming(self) -> int:
        """The number of the innermost scope that declares a name of its own: the same text means the same below it."""
        for scope in reversed(self._stack):
            if scope.declares:
                return scope.number
        return 0

    @property
    def number(self) -> int:
        """The number of the innermost scope."""
        return self._stack[-1].number

    def unique(self, name: str) -> str:
        """`name` made unique for the innermost scope."""
        return f"{name}@{self.number}" if self.number else name

    def declare_registers(self, type_name: str, names: list[str], line: int) -> None:
        """`.reg .type a, b, %r<9>`."""
        bits = TYPE_BITS.get(type_name)
        if bits is None:
            raise at_line(f"unknown register type .{type_name}", line)
        scope = self._stack[-1]
        scope.declares = True
        for name in names:
            several = _RANGE.match(name)
            if several:
                count = int(several[2]) if len(several[2]) < 8 else MAX_REGISTERS + 1
                if count > MAX_REGISTERS:
                    raise at_line(f"{several[2][:20]} registers are more than the emulator holds", line)
                scope.ranges[several[1]] = (count, bits)
            elif re.match(r"[%A-Za-z_$][\w$]*\Z", name):
                scope.names[name] = Register(self.unique(name), bits)
            else:
                raise at_line(f"`{name[:40]}` is no register name", line)

    def declare(self, name: str, operand: Operand) -> None:
        """Make `name` mean `operand` in the innermost scope."""
        self._stack[-1].names[name] = operand
        self._stack[-1].declares = True

    def declare_label(self, name: str, line: int) -> str:
        """A label statement; returns its unique name."""
        key = (self.number, name)
        if key in self._labels:
            raise at_line(f"label {name} is defined twice", line)
        self._labels.add(key)
        return self.unique(name)

    def has_label(self, number: int, name: str) -> str | None:
        """The unique name of label `name` seen from scope `number` once all statements are read, or None."""
        for scope in self.chains[number]:
            if (scope, name) in self._labels:
                return f"{name}@{scope}" if scope else name
        return None

    def lookup(self, name: str, line: int) -> Operand:
        """What `name` means here; an unknown plain name is a label still to come."""
        for scope in reversed(self._stack):
            found = scope.names.get(name)
            if found is not None:
                return found
            if scope.ranges:
                digits = _DIGITS.match(name)
                limits = scope.ranges.get(digits[1]) if digits else None
                if digits and limits and len(digits[2]) < 8 and int(digits[2]) < limits[0]:
                    unique = f"{name}@{scope.number}" if scope.number else name
                    register = Register(unique, limits[1])
                    scope.names[name] = register
                    return register
        if name in SPECIALS or name.startswith("%envreg"):
            return Special(name)
        if name in self._outer or name in self._functions:
            return Symbol(name)
        if name.startswith("%"):
            raise at_line(f"register {name[:40]} is not declared", line)
        return Label(name)
