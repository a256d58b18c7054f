"""Splits PTX text into statements by characters: one line may hold several, one statement several lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dgw.workbench.emulator.errors import at_line

_TOKEN = re.compile(r'//|/\*|\*/|"[^"]*"|[{};:]|[^{};:"/*]+|.')
_LINE_DIRECTIVES = (".version", ".target", ".address_size", ".loc", ".file", "@@DWARF")
_HEADER = re.compile(r"(?:\.(?:visible|extern|weak|common)\s+)*\.(?:entry|func)\b")
_LABEL = re.compile(r"[A-Za-z_$%][\w$]*\Z")


class Statement(NamedTuple):
    """`kind` is one of: open, close, label, line (a directive that ends with its line), header, plain."""

    kind: str
    text: str
    line: int


# A whole line that is one statement: nothing in it can be a comment, a string, a label or a scope.
_SIMPLE = re.compile(r"[ \t]*([^\s{}/\":;.][^/\":;]*);[ \t]*\r?\Z")
_WRAPPED = re.compile(r"[ \t]*\{[ \t]*([a-z@][^{}/\":;]*);[ \t]*\}[ \t]*\r?\Z")


def split(text: str) -> Iterator[Statement]:
    """Yield the statements of `text` in order, each with the line it starts on; EmulatorError on unbalanced braces."""
    state = _Splitter()
    for number, line in enumerate(text.split("\n"), 1):
        if state.idle:
            if not line or line.isspace():
                continue
            # An instruction alone in braces declares nothing, so its scope does not matter.
            simple = _SIMPLE.match(line) or _WRAPPED.match(line)
            if simple and simple[1].count("{") == simple[1].count("}"):
                yield Statement("plain", simple[1].rstrip(), number)
                continue
        yield from state.feed(line, number)
    yield from state.end()


class _Splitter:
    """Reads line by line; `idle` when no statement, string or comment is open."""

    def __init__(self) -> None:
        self.pending: list[str] = []
        self.start = self.line = 1
        self.braces = self.scopes = self.section = 0
        self.comment = False

    @property
    def idle(self) -> bool:
        return not (self.pending or self.braces or self.section or self.comment)

    def _take(self) -> str:
        words = "".join(self.pending).strip()
        self.pending = []
        return words

    def feed(self, text: str, number: int) -> Iterator[Statement]:
        self.line = number
        for match in _TOKEN.finditer(text):
            token = match.group()
            if self.comment:
                self.comment = token != "*/"
            elif token == "/*":
                self.comment = True
            elif token.startswith("//"):
                break
            elif self.section:
                self.section += (token == "{") - (token == "}")
            else:
                yield from self._token(token)
        words = "".join(self.pending).strip()
        if not words:
            self.pending = []
        elif words.startswith(_LINE_DIRECTIVES) and not self.braces:
            yield Statement("line", self._take(), self.start)
        else:
            self.pending.append(" ")

    def _token(self, token: str) -> Iterator[Statement]:
        blank = not self.pending or not "".join(self.pending).strip()
        if blank:
            self.pending, self.start = [], self.line
        if token == "{":
            yield from self._open(blank)
        elif token == "}":
            yield from self._close(blank)
        elif token == ";" and not self.braces:
            words = self._take()
            if words:
                yield Statement("plain", words, self.start)
        elif token == ":" and not self.braces and _LABEL.match("".join(self.pending).strip()):
            yield Statement("label", self._take(), self.start)
        else:
            self.pending.append(token)

    def _open(self, blank: bool) -> Iterator[Statement]:
        words = "".join(self.pending).strip()
        if words.startswith(".section"):
            self.section, self.pending = 1, []
        elif blank or _HEADER.match(words):
            if not blank:
                yield Statement("header", words, self.start)
            yield Statement("open", "", self.line)
            self.scopes += 1
            self.pending = []
        else:
            self.braces += 1
            self.pending.append("{")

    def _close(self, blank: bool) -> Iterator[Statement]:
        if self.braces:
            self.braces -= 1
            self.pending.append("}")
            return
        if not blank:
            raise at_line(f"`{_short(self.pending)}` has no semicolon", self.start)
        if not self.scopes:
            raise at_line("a brace closes nothing", self.line)
        self.scopes -= 1
        yield Statement("close", "", self.line)
        self.pending = []

    def end(self) -> Iterator[Statement]:
        if self.section or self.comment:
            raise at_line("the text ends inside a section or a comment", self.line)
        yield from _rest(self.pending, self.start, self.scopes, self.line)


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
