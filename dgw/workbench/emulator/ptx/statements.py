"""Splits PTX text into statements by characters: one line may hold several, one statement several lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dgw.workbench.emulator.errors import at_line

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|[{};\n:]|[^{};\n:"/]+|.', re.DOTALL)
_LINE_DIRECTIVES = (".version", ".target", ".address_size", ".loc", ".file", "@@DWARF")
_HEADER = re.compile(r"(?:\.(?:visible|extern|weak|common)\s+)*\.(?:entry|func)\b")
_LABEL = re.compile(r"[A-Za-z_$%][\w$]*\Z")


class Statement(NamedTuple):
    """`kind` is one of: open, close, label, line (a directive that ends with its line), header, plain."""

    kind: str
    text: str
    line: int


def _is_label(text: str) -> bool:
    return _LABEL.match(text) is not None


def split(text: str) -> Iterator[Statement]:
    """Yield the statements of `text` in order, each with the line it starts on; EmulatorError on unbalanced braces."""
    pending: list[str] = []
    line = start = 1
    braces = scopes = section = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "\n":
            line += 1
            if pending:
                words = "".join(pending).strip()
                if words.startswith(_LINE_DIRECTIVES) and not braces:
                    yield Statement("line", words, start)
                    pending = []
                else:
                    pending.append(" ")
            continue
        if section or token.startswith(("//", "/*")):
            line += token.count("\n")
            section += (token == "{") - (token == "}") if section else 0
            continue
        blank = not pending or not "".join(pending).strip()
        if blank:
            pending, start = [], line
        if token == ";" and not braces:
            if not blank:
                yield Statement("plain", "".join(pending).strip(), start)
            pending = []
        elif token == "{":
            words = "".join(pending).strip()
            if words.startswith(".section"):
                section, pending = 1, []
            elif blank or _HEADER.match(words):
                if not blank:
                    yield Statement("header", words, start)
                yield Statement("open", "", line)
                scopes += 1
                pending = []
            else:
                braces += 1
                pending.append(token)
        elif token == "}":
            if braces:
                braces -= 1
                pending.append(token)
                continue
            if not blank:
                raise at_line(f"`{_short(pending)}` has no semicolon", start)
            if not scopes:
                raise at_line("a brace closes nothing", line)
            scopes -= 1
            yield Statement("close", "", line)
            pending = []
        elif token == ":" and not braces and _is_label("".join(pending).strip()):
            yield Statement("label", "".join(pending).strip(), start)
            pending = []
        else:
            pending.append(token)
            line += token.count("\n")
    yield from _rest(pending, start, scopes, line)


def _rest(pending: list[str], start: int, scopes: int, line: int) -> Iterator[Statement]:
    words = "".join(pending).strip()
    if words.startswith(_LINE_DIRECTIVES):
        yield Statement("line", words, start)
    elif words.strip("\0"):
        raise at_line(f"`{_short(pending)}` has no semicolon", start)
    if scopes:
        raise at_line("the text ends inside a brace", line)


def _short(pending: list[str]) -> str:
    words = " ".join("".join(pending).split())
    return words if len(words) <= 60 else words[:57] + "..."


def split_operands(text: str, line: int) -> list[str]:
    """Split `a, {b, c}, [d+4]` at its top-level commas; EmulatorError on unbalanced brackets."""
    if not text:
        return []
    if "{" not in text and "[" not in text and "(" not in text:
        return [part.strip() for part in text.split(",")]
    parts: list[str] = []
    depth = begin = 0
    for position, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
            if depth < 0:
                break
        elif character == "," and not depth:
            parts.append(text[begin:position].strip())
            begin = position + 1
    if depth:
        raise at_line(f"unbalanced brackets in `{text[:60]}`", line)
    parts.append(text[begin:].strip())
    return parts
