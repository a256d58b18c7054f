"""Lists of shapes: suites of perf/suites and CSV files."""

from __future__ import annotations

import csv
import difflib
from pathlib import Path

from dgw.errors import UsageError
from dgw.operands.suites import Suite, Wanted, read_suite

FOLDER = Path("perf") / "suites"


def folders() -> list[Path]:
    """Where suites are looked for: the working directory and those above it, then beside the package."""
    here = Path.cwd()
    candidates = [*(folder / FOLDER for folder in (here, *here.parents)), Path(__file__).parents[2] / FOLDER]
    return [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]


def names() -> list[str]:
    """The suites that exist."""
    return sorted({path.stem for folder in folders() for path in folder.glob("*.toml")})


def suite(name: str) -> Suite:
    """The suite of that name, or in the file NAME where it ends in .toml.

    Raises UsageError with the nearest names, or with the line that is wrong.
    """
    path, file = (Path(name), name) if name.endswith(".toml") else _named(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        hint = f"--suite {' or '.join(names())}" if not path.exists() else f"mend {file}"
        raise UsageError(f"cannot read {file}: {reason}", hint) from error
    return read_suite(text, file)


def _named(name: str) -> tuple[Path, str]:
    """The file of a suite, and what it is called in errors."""
    path = next((folder / f"{name}.toml" for folder in folders() if (folder / f"{name}.toml").is_file()), None)
    if path is None:
        known = names()
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or known
        raise UsageError(f"no suite is named {name!r}", f"--suite {' or '.join(near) or 'needs perf/suites/NAME.toml'}")
    return path, (FOLDER / path.name).as_posix()


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
