"""A scalar interpreter of one thread, for differential tests of the machine.

It shares the parser and nothing else: values are Python integers (bit patterns), floats are exact fractions rounded by
:func:`rounded`, control flow is a program counter. It knows the arithmetic, conversions, moves, loads, stores and
branches that compilers emit, and nothing between threads. It is slow and meant to be obviously right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import inf, isinf, isnan, nan

from dgw.workbench.emulator.errors import at_line
from dgw.workbench.emulator.ptx.module import Instruction, Module
from dgw.workbench.emulator.ptx.operands import (
    TYPE_BITS,
    Address,
    Immediate,
    Label,
    Not,
    Operand,
    Register,
    Special,
    Symbol,
    Vector,
)

Number = Fraction | float  # a float only for infinities, NaN and negative zero

# Precision in bits, least normal exponent, greatest exponent.
FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
MAX_STEPS = 1_000_000


def value_of(bits: int, name: str) -> Number:
    """The number that the bits of a float type mean."""
    precision, least, _greatest = FORMATS[name]
    width = TYPE_BITS[name]
    sign = -1 if bits >> (width - 1) else 1
    mantissa = bits & ((1 << (precision - 1)) - 1)
    exponent = (bits >> (precision - 1)) & ((1 << (width - precision)) - 1)
    if exponent == (1 << (width - precision)) - 1:
        return nan if mantissa else sign * inf
    if not exponent and not mantissa:
        return -0.0 if sign < 0 else Fraction(0)
    if exponent:
        mantissa |= 1 << (precision - 1)
    return sign * Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) + least - 1 - (precision - 1))


def bits_of(value: Number, name: str) -> int:
    """The bits of a number that is representable in a float type; NaN has every bit but the sign set."""
    precision, least, _greatest = FORMATS[name]
    width = TYPE_BITS[name]
    top = ((1 << (width - precision)) - 1) << (precision - 1)
    if isinstance(value, float):
        if isnan(value):
            return (1 << (width - 1)) - 1
        if isinf(value):
            return top | (1 << (width - 1) if value < 0 else 0)
        return 1 << (width - 1) if str(value)[0] == "-" else 0
    if not value:
        return 0
    sign = 1 << (width - 1) if value < 0 else 0
    exponent = max(_exponent(abs(value)), least)
    scaled = abs(value) / Fraction(2) ** (exponent - (precision - 1))
    mantissa = int(scaled)
    if mantissa < 1 << (precision - 1):
        return sign | mantissa
    return sign | ((exponent - least + 1) << (precision - 1)) | (mantissa - (1 << (precision - 1)))


def _exponent(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


def rounded(value: Number, name: str, mode: str = "rn") -> Number:
    """`value` rounded once to a float type: to nearest even (rn), zero (rz), down (rm) or up (rp)."""
    if isinstance(value, float):
        return value
    if not value:
        return value
    precision, least, greatest = FORMATS[name]
    unit = Fraction(2) ** (max(_exponent(abs(value)), least) - (precision - 1))
    scaled = value / unit
    low = scaled.numerator // scaled.denominator
    rest = scaled - low
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1)
    else:
        up = bool(rest) and (mode == "rp" or (mode == "rz" and value < 0))
    result = (low + up) * unit
    limit = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** greatest
    if abs(result) > limit:
        outward = mode == "rn" or ((mode == "rp") == (value > 0) and mode in ("rp", "rm"))
        return (inf if value > 0 else -inf) if outward else (limit if value > 0 else -limit)
    if not result:
        return -0.0 if value < 0 else Fraction(0)
    return result


def _is_negative(value: Number) -> bool:
    return str(value)[0] == "-" if isinstance(value, float) else value < 0


def _plain(value: Number) -> float:
    return value if isinstance(value, float) else float((value > 0) - (value < 0))


def multiply(a: Number, b: Number) -> Number:
    """The exact product, with IEEE rules for zeros, infinities and NaN."""
    if isinstance(a, Fraction) and isinstance(b, Fraction) and a and b:
        return a * b
    special = _plain(a) * _plain(b)
    return Fraction(0) if special == 0 and not _is_negative(special) else special


def add(a: Number, b: Number, mode: str = "rn") -> Number:
    """The exact sum, with IEEE rules for zeros, infinities and NaN."""
    if (isinstance(a, float) and (isinf(a) or isnan(a))) or (isinstance(b, float) and (isinf(b) or isnan(b))):
        return (a if isinstance(a, float) else 0.0) + (b if isinstance(b, float) else 0.0)
    x, y = (Fraction(0) if isinstance(v, float) else v for v in (a, b))
    total = x + y
    if total or (x and y):
        return total if total else (-0.0 if mode == "rm" else total)
    negative = (_is_negative(a) and _is_negative(b)) or (mode == "rm" and (_is_negative(a) or _is_negative(b)))
    return -0.0 if negative else total


def divide(a: Number, b: Number) -> Number:
    """The exact quotient, with IEEE rules for zeros, infinities and NaN."""
    zero_a, zero_b = a == 0, b == 0
    if isinstance(a, Fraction) and isinstance(b, Fraction) and a and b:
        return a / b
    negative = _is_negative(a) != _is_negative(b)
    bad = any(isinstance(v, float) and isnan(v) for v in (a, b))
    if bad or (zero_a and zero_b) or all(isinstance(v, float) and isinf(v) for v in (a, b)):
        return nan
    if zero_b or (isinstance(a, float) and isinf(a)):
        return -inf if negative else inf
    return -0.0 if negative else Fraction(0)


def signed(value: int, bits: int) -> int:
    """The two's complement meaning of the low `bits`."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _integer(value: int, name: str) -> int:
    bits = TYPE_BITS[name]
    return signed(value, bits) if name[0] == "s" else value & ((1 << bits) - 1)


def _quotient(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_COMPARE: dict[str, Callable[[Number, Number], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}  # fmt: skip


class Thread:
    """One thread of an entry. `memory` maps byte addresses to bytes; `specials` gives special registers."""

    def __init__(self, module: Module, entry: str, parameters: bytes, specials: Mapping[str, int]) -> None:
        self.function = module.functions[entry]
        self.parameters, self.specials = parameters, specials
        self.offsets: dict[str, int] = {}
        offset = 0
        for variable in self.function.parameters:
            offset = -(-offset // variable.alignment) * variable.alignment
            self.offsets[variable.name] = offset
            offset += variable.size
        self.registers: dict[Register, int] = {}
        self.memory: dict[int, int] = {}

    def run(self) -> None:
        """Execute until ret or exit."""
        place, instructions = 0, self.function.instructions
        for _ in range(MAX_STEPS):
            if place >= len(instructions):
                return
            instruction = instructions[place]
            place += 1
            if instruction.guard is not None and bool(self.registers[instruction.guard]) == instruction.negated:
                continue
            if instruction.opcode in ("ret", "exit"):
                return
            if instruction.opcode == "bra":
                label = instruction.operands[0]
                assert isinstance(label, Label)
                place = self.function.labels[label.name]
            else:
                self.step(instruction)
        raise at_line("the oracle met its step limit", self.function.line)

    def read(self, operand: Operand, name: str) -> int:
        """The bits of a source operand."""
        if isinstance(operand, Not):
            return 1 - self.registers[operand.register]
        if isinstance(operand, Register):
            return self.registers[operand] & ((1 << max(TYPE_BITS[name], 1)) - 1)
        if isinstance(operand, Immediate):
            if operand.float_bits == 64 and name == "f32":
                return bits_of(rounded(value_of(operand.value, "f64"), "f32"), "f32")
            return operand.value & ((1 << TYPE_BITS[name]) - 1)
        if isinstance(operand, Special):
            return self.specials[operand.name]
        if isinstance(operand, Symbol):
            return self.offsets[operand.name] + operand.offset
        raise TypeError(f"{operand} is no source")

    def write(self, operand: Operand, value: int) -> None:
        """Set a register."""
        assert isinstance(operand, Register)
        self.registers[operand] = value & ((1 << max(operand.bits, 1)) - 1)

    def step(self, instruction: Instruction) -> None:
        """Execute one instruction that is no branch."""
        opcode, words = instruction.opcode, instruction.modifiers
        if opcode in ("ld", "st"):
            self._access(instruction)
        elif opcode == "setp":
            self._compare(instruction)
        elif opcode in ("cvta", "mov"):
            self.write(instruction.operands[0], self.read(instruction.operands[1], words[-1]))
        elif opcode == "selp":
            a, b, p = instruction.operands[1:]
            self.write(instruction.operands[0], self.read(a if self.read(p, "pred") else b, words[-1]))
        elif opcode == "cvt":
            value = self.read(instruction.operands[1], words[-1])
            self.write(instruction.operands[0], convert(value, words[-2], words[-1], words[:-2]))
        else:
            values = [self.read(operand, words[-1]) for operand in instruction.operands[1:]]
            if opcode in ("shl", "shr"):
                values[1] = self.read(instruction.operands[2], "u32")
            elif opcode == "mad" and "wide" in words:
                wide = words[-1][0] + str(2 * TYPE_BITS[words[-1]])
                values[2] = self.read(instruction.operands[3], wide)
            self.write(instruction.operands[0], arithmetic(instruction, values))

    def _compare(self, instruction: Instruction) -> None:
        name, word = instruction.modifiers[-1], instruction.modifiers[0]
        a, b = (self.read(operand, name) for operand in instruction.operands[1:3])
        if name in FORMATS:
            x, y = value_of(a, name), value_of(b, name)
            unordered = any(isinstance(v, float) and isnan(v) for v in (x, y))
            wants = word.endswith("u") and word[:-1] in _COMPARE
            result = wants if unordered else _COMPARE[word[:-1] if wants else word](x, y)
        else:
            result = _COMPARE[word](_integer(a, name), _integer(b, name))
        self.write(instruction.operands[0], int(result))

    def _access(self, instruction: Instruction) -> None:
        loading = instruction.opcode == "ld"
        data, address = instruction.operands if loading else instruction.operands[::-1]
        name = instruction.modifiers[-1]
        size = TYPE_BITS[name] // 8
        assert isinstance(address, Address)
        base = 0 if address.base is None else self.read(address.base, "u64")
        place = base + address.offset
        for item in data.items if isinstance(data, Vector) else (data,):
            if loading and "param" in instruction.modifiers:
                self.write(item, int.from_bytes(self.parameters[place : place + size], "little"))
            elif loading:
                value = sum(self.memory[place + i] << (8 * i) for i in range(size))
                self.write(item, _integer(value, name) if name[0] == "s" else value)
            else:
                value = self.read(item, name)
                self.memory.update({place + i: value >> (8 * i) & 255 for i in range(size)})
            place += size


def arithmetic(instruction: Instruction, values: list[int]) -> int:
    """The result bits of an arithmetic or logic instruction on source bits."""
    name = instruction.modifiers[-1]
    if name in FORMATS:
        return _float_arithmetic(instruction, name, [value_of(value, name) for value in values])
    if name == "pred" or name[0] == "b":
        return _logic(instruction.opcode, name, values)
    bits = TYPE_BITS[name]
    opcode, words = instruction.opcode, instruction.modifiers
    if opcode in ("shl", "shr"):
        amount = min(values[1], bits)
        return values[0] << amount if opcode == "shl" else _integer(values[0], name) >> amount
    a, *rest = [_integer(value, name) for value in values]
    if opcode in ("mul", "mad"):
        product = a * rest[0]
        product = product >> bits if "hi" in words else product
        return product + (values[2] if opcode == "mad" else 0)
    table: dict[str, Callable[[], int]] = {
        "add": lambda: a + rest[0], "sub": lambda: a - rest[0], "div": lambda: _quotient(a, rest[0]),
        "rem": lambda: a if rest[0] == 0 else a - _quotient(a, rest[0]) * rest[0], "min": lambda: min(a, rest[0]),
        "max": lambda: max(a, rest[0]), "abs": lambda: abs(a), "neg": lambda: -a,
        "sad": lambda: abs(a - rest[0]) + rest[1],
    }  # fmt: skip
    if opcode not in table:
        raise at_line(f"the oracle does not know `{instruction.name}`", instruction.line)
    return table[opcode]()


def _logic(opcode: str, name: str, values: list[int]) -> int:
    bits = max(TYPE_BITS[name], 1)
    if opcode == "shl":
        return values[0] << min(values[1], bits)
    if opcode == "shr":
        return values[0] >> min(values[1], bits)
    if opcode in ("not", "cnot"):
        return ~values[0] if opcode == "not" else int(values[0] == 0)
    a, b = values[0], values[-1]
    count = {"popc": lambda: bin(a).count("1"), "clz": lambda: bits - a.bit_length()}
    if opcode in count:
        return count[opcode]()
    return {"and": a & b, "or": a | b, "xor": a ^ b}[opcode]


def _float_arithmetic(instruction: Instruction, name: str, values: list[Number]) -> int:
    opcode = instruction.opcode
    mode = next((word for word in instruction.modifiers if word in ("rn", "rz", "rm", "rp")), "rn")
    a, *rest = values
    if opcode in ("neg", "abs"):
        flip = opcode == "neg" or _is_negative(a)
        return bits_of(multiply(a, Fraction(-1)) if flip else a, name)
    if opcode in ("min", "max"):
        usable = [v for v in values if not (isinstance(v, float) and isnan(v))]
        order = sorted(usable, key=lambda v: (v, not _is_negative(v)))
        return bits_of((order[0] if opcode == "min" else order[-1]) if order else nan, name)
    if opcode in ("add", "sub"):
        other = rest[0] if opcode == "add" else multiply(rest[0], Fraction(-1))
        exact = add(a, other, mode)
    elif opcode in ("mul", "div"):
        exact = multiply(a, rest[0]) if opcode == "mul" else divide(a, rest[0])
    elif opcode in ("fma", "mad"):
        exact = add(multiply(a, rest[0]), rest[1], mode)
    else:
        raise at_line(f"the oracle does not know `{instruction.name}`", instruction.line)
    return bits_of(rounded(exact, name, mode), name)


def convert(bits: int, to: str, origin: str, words: tuple[str, ...]) -> int:
    """cvt between scalar types."""
    mode = next((word for word in words if word in ("rn", "rz", "rm", "rp")), "rn")
    if origin not in FORMATS:
        number = _integer(bits, origin)
        if to in FORMATS:
            return bits_of(rounded(Fraction(number), to, mode), to)
        return _clamped(number, to) if "sat" in words else _integer(number, to)
    value = value_of(bits, origin)
    whole = next((word for word in words if word in ("rni", "rzi", "rmi", "rpi")), "")
    if to in FORMATS and not whole:
        return bits_of(rounded(value, to, mode), to)
    if isinstance(value, float) and (isnan(value) or isinf(value)):
        if to in FORMATS:
            return bits_of(value, to)
        return 0 if isnan(value) else _clamped(10**30 if value > 0 else -(10**30), to)
    number = _whole(Fraction(0) if isinstance(value, float) else value, whole)
    if to in FORMATS:
        return bits_of(-0.0 if not number and _is_negative(value) else Fraction(number), to)
    return _clamped(number, to)


def _clamped(number: int, name: str) -> int:
    bits = TYPE_BITS[name]
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)
    return min(max(number, low), high)


def _whole(value: Fraction, mode: str) -> int:
    low = value.numerator // value.denominator
    rest = value - low
    if mode == "rni":
        return low + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1))
    return low + (bool(rest) and (mode == "rpi" or (mode == "rzi" and value < 0)))
