"""Declarations of variables and of function parameters."""

from __future__ import annotations

import re
import struct

from dgw.workbench.emulator.errors import at_line
from dgw.workbench.emulator.ptx.module import Variable
from dgw.workbench.emulator.ptx.operands import TYPE_BITS, literal
from dgw.workbench.emulator.ptx.statements import split_operands

SPACES = ("param", "shared", "local", "global", "const")
_SCALAR_TYPES = frozenset(name for name in TYPE_BITS if name not in ("pred", "e4m3", "e5m2", "tf32"))
_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(param|shared|local|global|const)\b\s*((?:\.\w+(?:\s+(?=\d)\d+)?\s*)*)"
    r"([%\w$]+)?\s*((?:\[[\w\s]*\]\s*)*)(?:=\s*(.*))?\Z",
    re.DOTALL,
)
_WORD = re.compile(r"\.(\w+)(?:\s+(\d+))?")
MAX_BYTES = 1 << 30


def is_variable(words: str) -> bool:
    """Whether a directive declares a variable."""
    return (
        re.match(r"(?:\.(?:visible|extern|weak|common)\s+)*\.(?:param|shared|local|global|const)\b", words) is not None
    )


def variable(words: str, line: int) -> Variable:
    """Read `.shared .align 16 .b8 name[128] = {...}`."""
    found = _VARIABLE.match(words)
    if not found:
        raise at_line(f"`{words[:60]}` declares no variable", line)
    alignment, element, lanes = 0, 0, 1
    type_name = ""
    for word, number in _WORD.findall(found[2]):
        if word == "align":
            alignment = int(number or 0)
        elif word in ("v2", "v4"):
            lanes = int(word[1])
        elif word in _SCALAR_TYPES:
            type_name, element = word, TYPE_BITS[word] // 8
        elif word not in ("ptr", "global", "const", "shared", "local", "attribute", "managed", "texref", "samplerref"):
            raise at_line(f"unknown word .{word} in `{words[:60]}`", line)
    if not element:
        raise at_line(f"`{words[:60]}` has no type", line)
    count = 1
    for size in re.findall(r"\[\s*(\w*)\s*\]", found[4]):
        number = literal(size, line) if size else None
        if size and number is None:
            raise at_line(f"`{size[:40]}` is no array size", line)
        count *= number.value if number else 0
    initial, references = _initial(found[5] or "", type_name, line)
    total = element * lanes * count
    if found[4] and not total and initial:
        total = len(initial)
    if not 0 <= total <= MAX_BYTES or alignment > 1 << 16 or (alignment & (alignment - 1)):
        raise at_line(f"`{words[:60]}` has an impossible size or alignment", line)
    name = found[3] or ""
    padded = initial.ljust(total, b"\0") if initial else b""
    return Variable(name, found[1], alignment or element * lanes, total, padded, type_name, references)


def _initial(text: str, type_name: str, line: int) -> tuple[bytes, tuple[tuple[int, str, int], ...]]:
    parts = [part for part in re.split(r"[{},\s]+", text) if part]
    size = TYPE_BITS[type_name] // 8
    data = bytearray()
    references: list[tuple[int, str, int]] = []
    for part in parts:
        number = literal(part, line)
        if number is not None:
            value = _as_type(number.value, number.float_bits, type_name)
            data += (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            continue
        symbol = re.match(r"(?:generic\()?([%A-Za-z_$][\w$]*)\)?(?:\+(\d+))?\Z", part)
        if not symbol:
            raise at_line(f"`{part[:40]}` is no initial value", line)
        references.append((len(data), symbol[1], int(symbol[2] or 0)))
        data += bytes(size)
    return bytes(data), tuple(references)


def _as_type(value: int, float_bits: int, type_name: str) -> int:
    if float_bits == 64 and type_name == "f32":
        return int(struct.unpack("<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", value))[0]))[0])
    return value


def header_parameters(text: str, line: int) -> tuple[list[Variable], str, list[Variable]]:
    """Read `(returns) name (parameters)` of an .entry or .func: return variables, name and parameters."""
    returns: list[Variable] = []
    text = text.strip()
    if text.startswith("("):
        inside, text = _parenthesis(text, line)
        returns = _parameter_list(inside, line)
    found = re.match(r"([%A-Za-z_$][\w$]*)\s*", text)
    if not found:
        raise at_line(f"`{text[:60]}` is no function name", line)
    text = text[found.end() :]
    parameters: list[Variable] = []
    if text.startswith("("):
        inside, text = _parenthesis(text, line)
        parameters = _parameter_list(inside, line)
    return returns, found[1], parameters


def _parenthesis(text: str, line: int) -> tuple[str, str]:
    end = text.find(")")
    if end < 0:
        raise at_line("a parenthesis is not closed", line)
    return text[1:end], text[end + 1 :].strip()


def _parameter_list(text: str, line: int) -> list[Variable]:
    found = []
    for position, part in enumerate(split_operands(text.strip(), line)):
        declared = variable(re.sub(r"^\.reg\b", ".param", part), line)
        found.append(declared if declared.name else Variable(f"?{position}", *_fields(declared)))
    return found


def _fields(declared: Variable) -> tuple[str, int, int]:
    return declared.space, declared.alignment, declared.size
