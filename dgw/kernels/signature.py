"""What the source of a kernel says of its launch: entries, parameters with their types, dynamic shared memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r"\b__global__\b[^;{}]*?\bvoid\b([^;{}]*?)\b(\w+)\s*\(([^)]*)\)\s*\{", re.DOTALL)
_EXTERN_C = re.compile(r'extern\s+"C"\s*(\{)?')
_DYNAMIC = re.compile(r"\bextern\b[^;{}]*\b__shared__\b|\b__shared__\b[^;{}]*\bextern\b")
_WORDS = r"(?:(?:unsigned|signed|long|int|float|half|__half)[ \t]*)+"
_ALIAS = re.compile(
    r"\btypedef\s+(?P<type>[\w:\s]+?)\s+(?P<name>\w+)\s*;|\busing\s+(?P<name2>\w+)\s*=\s*(?P<type2>[\w:\s]+?)\s*;"
    r"|^[ \t]*#[ \t]*define[ \t]+(?P<name3>\w+)[ \t]+(?P<type3>" + _WORDS + r")$",
    re.MULTILINE,
)
ELEMENTS = {"half": "f16", "__half": "f16", "__nv_bfloat16": "bf16", "nv_bfloat16": "bf16", "float": "f32"}
_SCALARS = (
    ("f32", r"float"),
    ("i64", r"(?:unsigned |signed )?long(?: long)?(?: int)?|(?:std::)?u?int64_t|(?:std::)?(?:size_t|ptrdiff_t)"),
    ("u32", r"unsigned(?: int)?|(?:std::)?uint32_t|uint"),
    ("i32", r"(?:signed )?int|signed|(?:std::)?int32_t"),
)
"""What a launch can pass by value, and the C types of the same bytes."""


@dataclass(frozen=True)
class Parameter:
    """One parameter as it is written. `type` is what simple aliases of types stand for, without the pointer."""

    text: str
    name: str
    type: str
    pointer: bool

    @property
    def element(self) -> str:
        """The dtype that a pointer points at; empty where it is none of dgw's."""
        return next((dtype for word, dtype in ELEMENTS.items() if re.search(rf"\b{word}\b", self.type)), "")

    @property
    def scalar(self) -> str:
        """The dtype of a number passed by value; empty where a launch cannot pass it."""
        plain = " ".join(word for word in self.type.split() if word not in ("const", "volatile", "__grid_constant__"))
        return next((dtype for dtype, pattern in _SCALARS if re.fullmatch(pattern, plain)), "")


@dataclass(frozen=True)
class Kernel:
    """One __global__ function. `mangled`: it cannot be found by its name. `dynamic`: it uses extern shared memory."""

    entry: str
    parameters: tuple[Parameter, ...]
    mangled: bool
    dynamic: bool


def kernels(source: str) -> tuple[Kernel, ...]:
    """Every __global__ function that is defined in a source, in its order."""
    text = _COMMENT.sub(" ", source)
    known = aliases(text)
    found = list(_KERNEL.finditer(text))
    bodies = [_end(text, match.end() - 1) for match in found]
    plain = [_end(text, m.end() - 1) for m in _EXTERN_C.finditer(text) if m[1]]
    blocks = list(zip((m.start() for m in _EXTERN_C.finditer(text) if m[1]), plain, strict=True))
    outside, last = "", 0
    for match, end in zip(found, bodies, strict=True):
        outside, last = outside + text[last : match.start()], end
    shared = bool(_DYNAMIC.search(outside + text[last:]))
    made = []
    for match, end in zip(found, bodies, strict=True):
        before = text[max(text.rfind(";", 0, match.start()), text.rfind("}", 0, match.start())) + 1 : match.end()]
        named = bool(_EXTERN_C.search(before)) or any(first < match.start() < until for first, until in blocks)
        parts = (" ".join(part.split()) for part in match[3].split(",") if part.strip() not in ("", "void"))
        dynamic = shared or bool(_DYNAMIC.search(text[match.end() : end]))
        made.append(Kernel(match[2], tuple(_parameter(part, known) for part in parts), not named, dynamic))
    return tuple(made)


def aliases(text: str) -> dict[str, str]:
    """Names that stand for a plain type: typedef, using, and a macro of the words of a type."""
    found: dict[str, str] = {}
    for match in _ALIAS.finditer(text):
        name = match["name"] or match["name2"] or match["name3"]
        found[name] = " ".join((match["type"] or match["type2"] or match["type3"]).split())
    return found


def _parameter(text: str, known: Mapping[str, str]) -> Parameter:
    text = text.partition("=")[0].strip()
    name = re.split(r"[\s*&]+", text.partition("[")[0].strip())[-1]
    kind = " ".join(text.partition("[")[0].removesuffix(name).replace("__restrict__", " ").split())
    for _ in range(len(known) + 1):  # an alias may stand for another
        kind = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: known.get(word[0], word[0]), kind)
    pointer = "*" in kind or "[" in text
    return Parameter(text, name, " ".join(kind.replace("*", " ").split()), pointer)


def _end(text: str, opening: int) -> int:
    """The place behind the brace that closes the one at `opening`; the end of the text where none does."""
    depth = 0
    for place in range(text.find("{", opening), len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    return len(text)
