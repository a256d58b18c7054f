"""Lists of shapes: suites of perf/suites and CSV files."""

from __future__ import annotations

import csv
import difflib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgw.errors import UsageError

FOLDER = Path("perf") / "suites"


@dataclass(frozen=True)
class Wanted:
    """One shape of a list, and what the list says of its types and layout (empty: nothing)."""

    shape: str
    dtype: str = ""
    layout: str = ""


def folders() -> list[Path]:
    """Where suites are looked for: the working directory and those above it, then beside the package."""
    here = Path.cwd()
    candidates = [*(folder / FOLDER for folder in (here, *here.parents)), Path(__file__).parents[2] / FOLDER]
    return [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]


def names() -> list[str]:
    """The suites that exist."""
    return sorted({path.stem for folder in folders() for path in folder.glob("*.toml")})


def suite(name: str) -> tuple[list[Wanted], tuple[str, ...]]:
    """Shapes of a suite and the layouts it is meant for. Raises UsageError with the nearest names."""
    path = next((folder / f"{name}.toml" for folder in folders() if (folder / f"{name}.toml").is_file()), None)
    if path is None:
        known = names()
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or known
        raise UsageError(f"no suite is named {name!r}", f"--suite {' or '.join(near) or 'needs perf/suites/NAME.toml'}")
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"suite {name} is not valid TOML: {error}", f"mend {FOLDER / path.name}") from error
    wanted = [Wanted(shape) for shape in content.get("shapes", [])]
    wanted += [wanted for grid in content.get("grid", []) for wanted in _grid(grid)]
    if not wanted:
        raise UsageError(f"suite {name} lists no shapes", f'add shapes = ["MxNxK"] to {FOLDER / path.name}')
    return wanted, tuple(content.get("layouts", ()))


def _grid(grid: dict[str, Any]) -> Iterator[Wanted]:
    for weights in grid.get("nk", []):
        for rows in grid.get("m", []):
            yield Wanted(f"{rows}x{weights}", grid.get("dtype", ""), grid.get("layout", ""))


def shapes_file(path: Path) -> list[Wanted]:
    """Shapes of a CSV file: columns m, n, k (batch, dtype and layout optional), or one `MxNxK` a line.

    Raises UsageError that names the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {path}: {reason}", "--shapes FILE.csv with columns m,n,k") from error
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise UsageError(f"{path} holds no shapes", "write m,n,k in its first line and sizes below")
    heading = [name.strip().lower() for name in next(csv.reader(lines[:1]))]
    if "shape" not in heading and not {"m", "n", "k"} <= set(heading):
        if any(name.isalpha() for name in heading):
            missing = ", ".join(sorted({"m", "n", "k"} - set(heading)))
            raise UsageError(f"{path} has no column {missing}", "name its columns m,n,k or shape")
        return [Wanted(",".join(row).strip().replace(",", "x")) for row in csv.reader(lines)]
    rows = csv.DictReader(lines[1:], fieldnames=heading)
    return [_row(row, path, number) for number, row in enumerate(rows, start=2)]


def _row(row: dict[str, str | None], path: Path, number: int) -> Wanted:
    values = {name: (value or "").strip() for name, value in row.items() if isinstance(value, str | None) and name}
    shape = values.get("shape", "")
    if not shape:
        sizes = [values.get("batch", ""), values.get("m", ""), values.get("n", ""), values.get("k", "")]
        if not all(sizes[1:]):
            raise UsageError(f"{path}: row {number} lacks a size", "give m, n and k in every row")
        shape = "x".join(size for size in sizes if size)
    return Wanted(shape, values.get("dtype", ""), values.get("layout", ""))
