"""Operands of PTX instructions and the text they are read from."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from dgw.workbench.emulator.errors import at_line
from dgw.workbench.emulator.ptx.statements import split_operands

# Width in bits of the registers of each type; predicates are 1.
TYPE_BITS: dict[str, int] = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "e4m3": 8, "e5m2": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "tf32": 32, "b64": 64, "u64": 64, "s64": 64,
    "f64": 64, "b128": 128, "e4m3x2": 16, "e5m2x2": 16, "s16x2": 32, "u16x2": 32,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Register:
    """A virtual register: typeless bits of a width (1 for predicates; 8-bit registers are held in 16 bits)."""

    name: str
    bits: int


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal: an integer, or the bit pattern of a float literal of `float_bits` (32 or 64; 0 for an integer)."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable (or the name of a function) plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A jump target; unique in its function."""

    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; no base for an absolute address."""

    base: Register | Symbol | None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class TensorAddress:
    """`[map, {x, y, ...}]`: a tensor map and where in the tensor a box begins."""

    map: Address
    coordinates: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, ...}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`(a, b, ...)`: arguments or return values of a call."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """`!p`: a negated predicate source."""

    register: Register


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a destination that is thrown away."""


Operand = Register | Immediate | Symbol | Label | Special | Address | TensorAddress | Vector | Group | Pair | Not | Sink

_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|\d+)U?\Z")
_FLOAT_BITS = re.compile(r"(-?)0([fFdD])([0-9A-Fa-f]+)\Z")
_DECIMAL = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?\Z")
_NAME = re.compile(r"[%A-Za-z_$][\w$]*(?:\.[xyzw])?\Z")
_SUM = re.compile(r"(.+?)\s*([+-])\s*([-+]?\s*\w+)\Z", re.DOTALL)

Lookup = Callable[[str, int], Operand]


def integer(text: str, line: int) -> int:
    """The value of a PTX integer literal (decimal, hexadecimal, octal or binary)."""
    if not _INTEGER.match(text) or len(text) > 80:
        raise at_line(f"`{text[:40]}` is not an integer", line)
    digits = text.rstrip("U")
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    try:
        return sign * int(digits, 8 if octal else 0)
    except ValueError:
        raise at_line(f"`{text}` is not an integer", line) from None


def literal(text: str, line: int) -> Immediate | None:
    """The Immediate that `text` spells, or None when it is no literal."""
    if _INTEGER.match(text):
        return Immediate(integer(text, line))
    bits = _FLOAT_BITS.match(text)
    if bits:
        width = 32 if bits[2] in "fF" else 64
        if len(bits[3]) * 4 != width:
            raise at_line(f"`{text[:40]}` needs {width // 4} hexadecimal digits", line)
        return Immediate(int(bits[3], 16) ^ (1 << (width - 1) if bits[1] else 0), width)
    if _DECIMAL.match(text):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return Immediate(32) if text == "WARP_SZ" else None


def _address(text: str, line: int, lookup: Lookup) -> Address:
    inner = text[1:-1].strip()
    number = literal(inner, line)
    if number is not None:
        return Address(None, number.value)
    offset = 0
    total = _SUM.match(inner)
    if total:
        inner = total[1].strip()
        offset = integer(total[3].replace(" ", ""), line) * (1 if total[2] == "+" else -1)
    base = lookup(inner, line)
    if not isinstance(base, Register | Symbol):
        raise at_line(f"`{text[:60]}` is no address", line)
    return Address(base, offset)


def parse(text: str, line: int, lookup: Lookup) -> Operand:
    """Read one operand; names are resolved by `lookup(name, line)`."""
    if not text:
        raise at_line("an operand is missing", line)
    first = text[0]
    if first == "[" and text[-1] == "]":
        parts = split_operands(text[1:-1].strip(), line)
        if len(parts) == 1:
            return _address(text, line, lookup)
        place = parse(parts[1], line, lookup) if len(parts) == 2 else None
        if not isinstance(place, Vector):
            raise at_line(f"`{text[:60]}` is no address", line)
        return TensorAddress(_address(f"[{parts[0]}]", line, lookup), place.items)
    if first in "{(" and text[-1] in "})":
        items = tuple(parse(part, line, lookup) for part in split_operands(text[1:-1].strip(), line))
        return Vector(items) if first == "{" else Group(items)
    if text == "_":
        return Sink()
    if first == "!":
        register = lookup(text[1:].strip(), line)
        if not isinstance(register, Register) or register.bits != 1:
            raise at_line(f"`{text[:40]}` does not negate a predicate", line)
        return Not(register)
    if "|" in text:
        left, _, right = text.partition("|")
        return Pair(parse(left.strip(), line, lookup), parse(right.strip(), line, lookup))
    number = literal(text, line)
    if number is not None:
        return number
    if _NAME.match(text):
        return lookup(text, line)
    total = _SUM.match(text)
    base = lookup(total[1].strip(), line) if total and _NAME.match(total[1].strip()) else None
    if total and isinstance(base, Symbol):
        return Symbol(base.name, integer(total[3].replace(" ", ""), line) * (1 if total[2] == "+" else -1))
    raise at_line(f"`{text[:60]}` is no operand", line)
