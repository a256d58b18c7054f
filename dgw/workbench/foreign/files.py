"""Which reader a foreign file needs, and the file as it may be kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dgw.errors import Missing, ReportError, UsageError
from dgw.model import Case, Problem, Record, unknown_problem
from dgw.workbench.collectors.ncu_reader import KernelCounters
from dgw.workbench.foreign import ncu as foreign_ncu
from dgw.workbench.foreign import nsys as foreign_nsys
from dgw.workbench.foreign.naming import Lookup

SUFFIXES = (".ncu-rep", ".ncu-repz", ".csv", ".sqlite", ".nsys-rep", ".json")
_SQLITE = b"SQLite format 3\0"


def _nothing_known(keys: Iterable[str]) -> Mapping[str, Case]:
    return {}


@dataclass(frozen=True)
class Imported:
    """The records of a file, the file to keep and its kind, and what is wrong with it (empty: nothing)."""

    records: tuple[Record, ...]
    keep: Path
    kind: str
    damage: str = ""


def read_foreign(
    path: Path,
    folder: Path,
    problem: Problem | None = None,
    lookup: Lookup = _nothing_known,
    nsys: Path | None = None,
) -> Imported:
    """Read a report of ncu, its CSV, a timeline of nsys (.sqlite, or .nsys-rep with the tool `nsys`) or torch.profiler.

    `problem` is what its kernels computed, if the caller knows; `lookup` gives cases by key for ranges of domain dgw.
    What is kept of a timeline is a copy in `folder` without environment, command line, paths and host. UsageError for a
    file of another kind; ReportError for a damaged or empty one; Missing without the reader that it needs.
    """
    if not path.is_file():
        raise UsageError(f"cannot read {path}: there is no such file", "dgw import FILE")
    computed = problem or unknown_problem()
    suffix = path.suffix.lower()
    if suffix in (".ncu-rep", ".ncu-repz"):
        return _report(path, computed, lookup)
    if suffix == ".nsys-rep":
        return _timeline(_exported(path, folder, nsys), folder, computed, lookup)
    if suffix in (".sqlite", ".db", ".sqlite3") or _begins(path, _SQLITE):
        return _timeline(path, folder, computed, lookup)
    if suffix == ".json":
        return _trace(path, folder, computed, lookup)
    if suffix in (".csv", ".txt", ".log"):
        return _csv(path, computed, lookup)
    if suffix == ".qdstrm":
        raise UsageError(
            f"{path.name} is what nsys collected, not yet a report",
            f"QdstrmImporter -i {path.name} of the same version",
        )
    raise UsageError(f"{path.name} is no report that dgw can read", f"dgw import FILE with {' '.join(SUFFIXES)}")


def _begins(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _report(path: Path, problem: Problem, lookup: Lookup) -> Imported:
    from dgw.workbench.collectors.ncu import damage, read_kernels

    kernels = _some(read_kernels(path))
    return Imported(tuple(foreign_ncu.records(kernels, problem, lookup)), path, "ncu-rep", damage(path))


def _csv(path: Path, problem: Problem, lookup: Lookup) -> Imported:
    from dgw.workbench.collectors.ncu import read_csv
    from dgw.workbench.collectors.ncu_csv import holds_csv

    if not holds_csv(path):
        text = f"{path.name} is no report that dgw can read: nothing in it is CSV of ncu"
        raise UsageError(text, f"ncu -i REPORT.ncu-rep --csv --page raw > {path.stem}.csv")
    try:
        kernels = _some(read_csv(path))
    except ReportError as error:
        raise ReportError(f"{path.name}: {error.message}", error.hint) from error
    return Imported(tuple(foreign_ncu.records(kernels, problem, lookup)), path, "csv")


def _some(kernels: list[KernelCounters]) -> list[KernelCounters]:
    if not kernels:
        raise ReportError(
            "the report holds no kernel", "profile again: ncu says `No kernels were profiled` and exits 0"
        )
    return kernels


def _exported(path: Path, folder: Path, nsys: Path | None) -> Path:
    from dgw.workbench.collectors.nsys import export

    if nsys is None:
        raise Missing(
            f"{path.name} can only be read by nsys, which was not found",
            f"nsys export --type sqlite {path.name} where nsys is, then dgw import {path.stem}.sqlite",
        )
    return export(nsys, path, folder)


def _timeline(path: Path, folder: Path, problem: Problem, lookup: Lookup) -> Imported:
    from dgw.workbench.collectors.nsys_sqlite import read_sqlite, scrub

    read = read_sqlite(path)
    copy = folder / f"scrubbed-{path.name}"
    shutil.copyfile(path, copy)
    scrub(copy)
    return Imported(tuple(foreign_nsys.records(read, problem, lookup)), copy, "sqlite")


def _trace(path: Path, folder: Path, problem: Problem, lookup: Lookup) -> Imported:
    """What is kept of a trace of torch.profiler is written anew: the original names paths and the host."""
    from dgw.workbench.collectors.trace_events import read_torch_trace, write_trace

    read = read_torch_trace(path)
    kept = write_trace(read, folder / f"{path.stem}.trace.json")
    return Imported(tuple(foreign_nsys.records(read, problem, lookup)), kept, "trace.json")


def is_foreign(path: Path) -> bool:
    """Whether a file is a report of another tool rather than a run that dgw exported."""
    return path.suffix.lower() != ".json" or b'"traceEvents"' in path.read_bytes()
