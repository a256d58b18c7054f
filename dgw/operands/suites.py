"""Suites: lists of problems in TOML, what runs on them, and how much worse a kernel may become. All a file may say:

meaning = "what these shapes are"
layouts = ["nt"]                    # default nn; an entry of a grid may have its own
dtypes = ["f16", "bf16"]            # default f16
variants = ["swizzled", "cuda/tiled"]  # default: every stage that runs
shapes = ["4096x4096x4096"]

[[grid]]                            # m x nk
model = "a name, for readers"
m = [1, 16]
nk = ["6144x4096"]

[floors]                            # relative changes that a gate lets pass
time = 0.01
geometric_mean = 0.005
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from dgw.errors import UsageError
from dgw.operands.shapes import parse_shape
from dgw.operands.toml_lines import Path, lines

LAYOUTS = ("nn", "nt", "tn", "tt")
LARGEST_FLOOR = 1.0


@dataclass(frozen=True)
class Wanted:
    """One shape of a list, and what the list says of its types and layout (empty: nothing)."""

    shape: str
    dtype: str = ""
    layout: str = ""


@dataclass(frozen=True)
class Suite:
    """A suite as its file says it; empty where it says nothing. `floors` are ratios: 0.01 is one per cent.

    The floor `time` is the smallest slowdown of a shape that fails a gate, `geometric_mean` that of all of them
    together; any other one is the name of a metric and how much it may rise (default 0).
    """

    name: str
    shapes: tuple[Wanted, ...]
    meaning: str = ""
    layouts: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    floors: Mapping[str, float] = field(default_factory=dict)


def read_suite(text: str, file: str) -> Suite:
    """The suite in `text`; `file` is its name in errors. Raises UsageError that names the line."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not valid TOML: {error}", f"mend {file}") from error
    return _Check(file, lines(text + "\n")).suite(content)


@dataclass(frozen=True)
class _Check:
    file: str
    lines: dict[Path, int]

    def suite(self, content: dict[str, Any]) -> Suite:
        self._keys(content, (), ("meaning", "layouts", "dtypes", "variants", "shapes", "grid", "floors"))
        meaning = content.get("meaning", "")
        if not isinstance(meaning, str):
            self._wrong(("meaning",), "meaning must be a text", 'write meaning = "..."')
        shapes = [Wanted(shape) for shape in self._texts(content, ("shapes",))]
        for position, wanted in enumerate(shapes):
            self._shape(wanted.shape, ("shapes", position))
        grids = content.get("grid", [])
        if not isinstance(grids, list) or not all(isinstance(grid, dict) for grid in grids):
            self._wrong(("grid",), "grid must be a table", "begin it with [[grid]]")
        for position, grid in enumerate(grids):
            shapes += self._grid(grid, ("grid", position))
        if not shapes:
            raise UsageError(f"{self.file} lists no shapes", f'add shapes = ["MxNxK"] to {self.file}')
        return Suite(
            name=PurePath(self.file).stem,
            shapes=tuple(dict.fromkeys(shapes)),
            meaning=meaning,
            layouts=tuple(self._each(content, ("layouts",), self._layout)),
            dtypes=tuple(self._each(content, ("dtypes",), self._dtype)),
            variants=tuple(self._texts(content, ("variants",))),
            floors=self._floors(content.get("floors", {})),
        )

    def _grid(self, grid: dict[str, Any], path: Path) -> Iterator[Wanted]:
        self._keys(grid, path, ("model", "m", "nk", "dtype", "layout"))
        for key in ("m", "nk"):
            if not grid.get(key):
                self._wrong(path, f"the grid has no {key}", 'a grid has m = [1, 16] and nk = ["NxK"]')
        rows = grid["m"]
        if not isinstance(rows, list):
            self._wrong((*path, "m"), "m must be a list of sizes", "write m = [1, 16]")
        dtype, layout = (grid.get(key, "") for key in ("dtype", "layout"))
        if dtype:
            self._dtype(dtype, (*path, "dtype"))
        if layout:
            self._layout(layout, (*path, "layout"))
        for at, weights in enumerate(self._texts(grid, (*path, "nk"))):
            if weights.lower().count("x") != 1:
                self._wrong((*path, "nk", at), f"{weights!r} is not NxK", 'write it like "6144x4096"')
            for row, m in enumerate(rows):
                if isinstance(m, bool) or not isinstance(m, int):
                    self._wrong((*path, "m", row), f"m must be a size, not {m!r}", "write m = [1, 16]")
                shape = f"{m}x{weights}"
                self._shape(shape, (*path, "nk", at))
                yield Wanted(shape, dtype, layout)

    def _floors(self, floors: Any) -> dict[str, float]:
        if not isinstance(floors, dict):
            self._wrong(("floors",), "floors must be a table", "begin it with [floors]")
        for name, value in floors.items():
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not number or not 0 <= value <= LARGEST_FLOOR:
                self._wrong(
                    ("floors", name), f"the floor {name} must be a ratio from 0 to 1, not {value!r}", f"{name} = 0.01"
                )
        return {name: float(value) for name, value in floors.items()}

    def _texts(self, table: dict[str, Any], path: Path) -> list[str]:
        found = table.get(str(path[-1]), [])
        if not isinstance(found, list):
            self._wrong(path, f"{path[-1]} must be a list", f'write {path[-1]} = ["..."]')
        for position, text in enumerate(found):
            if not isinstance(text, str) or not text.strip():
                self._wrong((*path, position), f"{path[-1]} must hold texts, not {text!r}", "put it in quotes")
        return [text.strip() for text in found]

    def _each(self, table: dict[str, Any], path: Path, check: Any) -> Iterator[str]:
        for position, text in enumerate(self._texts(table, path)):
            check(text, (*path, position))
            yield text

    def _shape(self, text: str, path: Path) -> None:
        try:
            parse_shape(text)
        except UsageError as error:
            self._wrong(path, error.message, error.hint)

    def _dtype(self, text: Any, path: Path) -> None:
        from dgw.operands.dtypes import check_dtype  # NumPy is not needed where no type is named

        try:
            check_dtype(str(text))
        except UsageError as error:
            self._wrong(path, error.message, error.hint)

    def _layout(self, text: Any, path: Path) -> None:
        if text not in LAYOUTS:
            self._wrong(path, f"no layout is named {text!r}", f"use {' or '.join(LAYOUTS)}")

    def _keys(self, table: dict[str, Any], path: Path, known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
                meant = f"did you mean {near[0]}?" if near else f"it may have {', '.join(known)}"
                self._wrong((*path, key), f"{key!r} is not known here", meant)

    def _wrong(self, path: Path, what: str, hint: str) -> None:
        while path and path not in self.lines:
            path = path[:-1]
        line = f":{self.lines[path]}" if path else ""
        raise UsageError(f"{self.file}{line}: {what}", hint)
