"""Where things stand in a TOML file: the standard library's reader gives values, but no lines to complain about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

Path = tuple[str | int, ...]
"""Names of tables and keys, and positions in arrays: ("grid", 1, "nk", 0)."""

_TOKEN = re.compile(
    r'#[^\n]*|"""(?:\\.|[^\\])*?"""|\'\'\'(?:.|\n)*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|[\[\]{},=.\n]|[^\s\[\]{},=.#"\']+',
    re.DOTALL,
)


def lines(text: str) -> dict[Path, int]:
    """The line (from 1) of every table, key and array item of a valid TOML text. Inside inline tables: their own."""
    return _Reader(list(_tokens(text))).read()


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line, position = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        if not match[0].startswith("#"):
            yield match[0], line


@dataclass
class _Reader:
    tokens: list[tuple[str, int]]
    at: int = 0
    found: dict[Path, int] = field(default_factory=dict)
    counts: dict[Path, int] = field(default_factory=dict)

    def read(self) -> dict[Path, int]:
        table: Path = ()
        while self.at < len(self.tokens):
            token, line = self.tokens[self.at]
            if token == "\n":
                self.at += 1
            elif token == "[":
                table = self._header()
                self.found.setdefault(table, line)
            else:
                key = (*table, *self._names("="))
                self.found.setdefault(key, line)
                self._value(key)
        return self.found

    def _next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][0] if self.at <= len(self.tokens) else "\n"

    def _names(self, end: str) -> list[str]:
        names: list[str] = []
        while (token := self._next()) not in (end, "\n"):
            if token != ".":
                names.append(token.strip("\"'"))
        return names

    def _header(self) -> Path:
        self._next()
        many = self.tokens[self.at][0] == "["
        if many:
            self._next()
        names = self._names("]")
        while self._next() != "\n":
            pass
        path: Path = ()
        for position, name in enumerate(names, start=1):
            path = (*path, name)
            if many and position == len(names):
                self.counts[path] = self.counts.get(path, -1) + 1
            if path in self.counts:
                path = (*path, self.counts[path])
        return path

    def _value(self, key: Path) -> None:
        """Walk over the value of `key`, down to the end of its line, noting items of arrays."""
        path, depth = list(key), 0  # depth of inline tables, whose commas separate no items
        fresh = False
        while self.at < len(self.tokens):
            line = self.tokens[self.at][1]
            token = self._next()
            if token == "\n":
                if len(path) == len(key) and not depth:
                    return
                continue
            if token in "{}":
                depth += 1 if token == "{" else -1
            if depth and token != "{":
                continue
            if token == "]":
                path.pop()
            elif token == ",":
                position = path.pop()
                path.append(int(position) + 1)
                fresh = True
            elif fresh or len(path) > len(key):
                self.found.setdefault(tuple(path), line)
                fresh = False
            if token == "[":
                path.append(0)
