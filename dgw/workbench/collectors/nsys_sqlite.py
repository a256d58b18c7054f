"""Reads what `nsys export --type sqlite` writes, of any version: tables exist only where there was data.

Tables and columns are looked up, never counted on: a missing table is an empty one with a reason, a missing column has
its default. Seen: schema 3.1 (2023: EXPORT_META_DATA) to 3.24 (2025: META_DATA_EXPORT).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from dgw.errors import ReportError
from dgw.workbench.collectors.timeline import Call, Copy, Gpu, Kernel, Range, Timeline

SOURCE = "nsys"
_PUSH_POP, _START_END, _DOMAIN_CREATE = 59, 60, 75
_THREAD_BITS = 0xFFFFFF  # a globalTid is the globalPid with the thread's number in its low bits
_NS = 1e-9
_COPY_KINDS = {
    0: "Unknown", 1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host", 5: "Array-to-Array",
    6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host", 10: "Peer-to-Peer",
}  # fmt: skip
_MISSING = {
    "kernels": ("CUPTI_ACTIVITY_KIND_KERNEL", "the timeline holds no kernel: none ran, or CUDA was not traced"),
    "calls": ("CUPTI_ACTIVITY_KIND_RUNTIME", "the timeline holds no call of the CUDA API"),
    "ranges": ("NVTX_EVENTS", "the timeline holds no NVTX range: NVTX was not traced"),
}


def read_sqlite(path: Path | str) -> Timeline:
    """The timeline in an export of nsys. ReportError when the file is missing, cut short or no such export."""
    path = Path(path)
    if not path.is_file():
        raise ReportError(f"there is no {path.name}", "nsys export --type sqlite -o x.sqlite x.nsys-rep")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return _Database(connection).timeline(path.name)
    except sqlite3.DatabaseError as error:
        raise ReportError(
            f"{path.name} is no complete SQLite file: {error}", "export it again: nsys export --type sqlite"
        ) from error


class _Database:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self.tables = {str(row[0]) for row in found}
        self._strings: dict[int, str] | None = None

    def timeline(self, name: str) -> Timeline:
        meta = self._meta()
        if not meta and not self.tables & {"StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"}:
            raise ReportError(f"{name} is not an export of nsys", "nsys export --type sqlite -o x.sqlite x.nsys-rep")
        domains = self._domains()
        return Timeline(
            source=SOURCE,
            version=_version(meta),
            kernels=tuple(sorted(self._kernels(), key=lambda span: span.start)),
            calls=tuple(sorted(self._calls(), key=lambda span: span.start)),
            copies=tuple(sorted((*self._copies(), *self._fills()), key=lambda span: span.start)),
            ranges=tuple(sorted(self._ranges(domains), key=lambda span: span.start)),
            gpu=self._gpu(),
            absent={what: reason for what, (table, reason) in _MISSING.items() if table not in self.tables},
        )

    def rows(self, table: str, **defaults: Any) -> Iterator[dict[str, Any]]:
        """Rows of a table that may not exist, with the columns named; one that is missing or NULL has its default."""
        if table not in self.tables:
            return
        there = {str(row["name"]) for row in self._connection.execute(f'PRAGMA table_info("{table}")')}
        wanted = [column for column in defaults if column in there]
        if not wanted:
            return
        listed = ", ".join(f'"{column}"' for column in wanted)
        for row in self._connection.execute(f'SELECT {listed} FROM "{table}"'):
            yield {**defaults, **{column: row[column] for column in wanted if row[column] is not None}}

    def text(self, number: int) -> str:
        """A string by its number, empty when there is none."""
        if self._strings is None:
            self._strings = {row["id"]: row["value"] for row in self.rows("StringIds", id=-1, value="")}
        return self._strings.get(number, "")

    def _meta(self) -> dict[str, str]:
        found = {}
        for table in ("EXPORT_META_DATA", "META_DATA_EXPORT"):
            found.update({str(row["name"]): str(row["value"]) for row in self.rows(table, name="", value="")})
        return found

    def _kernels(self) -> Iterator[Kernel]:
        defaults = {
            "start": 0, "end": 0, "globalPid": 0, "correlationId": 0, "demangledName": -1, "shortName": -1,
            "deviceId": 0, "streamId": 0, "gridX": 0, "gridY": 0, "gridZ": 0, "blockX": 0, "blockY": 0, "blockZ": 0,
            "registersPerThread": -1, "staticSharedMemory": -1, "dynamicSharedMemory": -1,
        }  # fmt: skip
        for row in self.rows("CUPTI_ACTIVITY_KIND_KERNEL", **defaults):
            yield Kernel(
                name=self.text(row["demangledName"]) or self.text(row["shortName"]),
                start=row["start"] * _NS,
                end=row["end"] * _NS,
                process=row["globalPid"],
                correlation=row["correlationId"],
                grid=(row["gridX"], row["gridY"], row["gridZ"]),
                block=(row["blockX"], row["blockY"], row["blockZ"]),
                registers=row["registersPerThread"],
                static_shared=row["staticSharedMemory"],
                dynamic_shared=row["dynamicSharedMemory"],
                device=row["deviceId"],
                stream=row["streamId"],
            )

    def _calls(self) -> Iterator[Call]:
        for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"):
            for row in self.rows(table, start=0, end=0, globalTid=0, correlationId=0, nameId=-1):
                thread = row["globalTid"]
                yield Call(
                    name=self.text(row["nameId"]),
                    start=row["start"] * _NS,
                    end=row["end"] * _NS,
                    process=thread & ~_THREAD_BITS,
                    thread=thread,
                    correlation=row["correlationId"],
                )

    def _copies(self) -> Iterator[Copy]:
        kinds = dict(_COPY_KINDS)
        kinds.update({row["id"]: row["label"] for row in self.rows("ENUM_CUDA_MEMCPY_OPER", id=-1, label="")})
        defaults = {"start": 0, "end": 0, "globalPid": 0, "correlationId": 0, "copyKind": 0, "bytes": 0, "streamId": 0}
        for row in self.rows("CUPTI_ACTIVITY_KIND_MEMCPY", **defaults):
            yield self._copy(row, kinds.get(row["copyKind"], "Unknown"))

    def _fills(self) -> Iterator[Copy]:
        defaults = {"start": 0, "end": 0, "globalPid": 0, "correlationId": 0, "bytes": 0, "streamId": 0}
        for row in self.rows("CUPTI_ACTIVITY_KIND_MEMSET", **defaults):
            yield self._copy(row, "Memset")

    def _copy(self, row: Mapping[str, Any], kind: str) -> Copy:
        return Copy(
            name=kind, start=row["start"] * _NS, end=row["end"] * _NS, process=row["globalPid"],
            correlation=row["correlationId"], kind=kind, bytes=row["bytes"], stream=row["streamId"],
        )  # fmt: skip

    def _domains(self) -> dict[tuple[int, int], str]:
        """(process, domain number) -> name of the domain. The default domain is 0 and has no name."""
        names = {}
        for row in self.rows("NVTX_EVENTS", eventType=0, domainId=0, globalTid=0, text="", textId=-1):
            if row["eventType"] == _DOMAIN_CREATE:
                names[row["globalTid"] & ~_THREAD_BITS, row["domainId"]] = row["text"] or self.text(row["textId"])
        return names

    def _ranges(self, domains: Mapping[tuple[int, int], str]) -> Iterator[Range]:
        """Ranges of both kinds that were closed. A registered name is a number, any other one a text."""
        defaults = {"eventType": 0, "start": 0, "end": -1, "globalTid": 0, "domainId": 0, "text": "", "textId": -1}
        for row in self.rows("NVTX_EVENTS", **defaults):
            if row["eventType"] not in (_PUSH_POP, _START_END) or row["end"] < row["start"]:
                continue
            process = row["globalTid"] & ~_THREAD_BITS
            yield Range(
                name=row["text"] or self.text(row["textId"]),
                start=row["start"] * _NS,
                end=row["end"] * _NS,
                process=process,
                thread=row["globalTid"],
                domain=domains.get((process, row["domainId"]), ""),
            )

    def _gpu(self) -> Gpu:
        for row in self.rows("TARGET_INFO_GPU", name="", computeMajor=0, computeMinor=0, smCount=0):
            return Gpu(row["name"], (row["computeMajor"], row["computeMinor"]), row["smCount"])
        return Gpu()


def _version(meta: Mapping[str, str]) -> str:
    """`nsys 2025.3.1, schema 3.20.2` as far as the file says."""
    product = next((value for name, value in meta.items() if "PRODUCT_VERSION" in name), "")
    schema = meta.get("EXPORT_SCHEMA_VERSION", "")
    if not schema:
        parts = [meta.get(f"EXPORT_SCHEMA_VERSION_{part}", "") for part in ("MAJOR", "MINOR", "MICRO")]
        schema = ".".join(part for part in parts if part)
    return ", ".join(part for part in (f"nsys {product}".strip(), f"schema {schema}" if schema else "") if part)


_KEPT = ("CUPTI_ACTIVITY_KIND_", "ENUM_", "NVTX_EVENTS", "StringIds", "TARGET_INFO_GPU")
_KEPT_META = ("EXPORT_SCHEMA_VERSION", "PRODUCT_VERSION")


def scrub(path: Path) -> list[str]:
    """Take out of an export whatever could tell who made it and where; answers the names of what was removed.

    Only tables that hold GPU work, API calls, ranges, and their names stay; of the metadata only versions; strings that
    nothing refers to any more (environment, paths, command line) go, and so does the GPU's UUID.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        database = _Database(connection)
        removed = []
        for table in sorted(database.tables):
            if table in ("EXPORT_META_DATA", "META_DATA_EXPORT"):
                kept = " AND ".join(f"name NOT LIKE '%{name}%'" for name in _KEPT_META)
                connection.execute(f'DELETE FROM "{table}" WHERE {kept}')
            elif not table.startswith(_KEPT) and not table.startswith("sqlite_"):
                view = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
                connection.execute(f'DROP {view} IF EXISTS "{table}"')
                removed.append(table)
        _scrub_rows(connection, database.tables - set(removed))
        connection.commit()
        connection.execute("VACUUM")
    return removed


def _scrub_rows(connection: sqlite3.Connection, tables: set[str]) -> None:
    used = []
    for table in tables - {"StringIds"}:
        columns = [str(row["name"]) for row in connection.execute(f'PRAGMA table_info("{table}")')]
        used += [
            f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'
            for column in columns
            if column in ("demangledName", "shortName", "mangledName", "nameId", "textId")
        ]
        if table == "TARGET_INFO_GPU":
            for column in {"uuid", "pciBusId", "busLocation", "ddrSerial"} & set(columns):
                connection.execute(f'UPDATE "{table}" SET "{column}" = \'\'')
    if "StringIds" in tables:
        keep = " UNION ".join(used) or "SELECT -1"
        connection.execute(f"DELETE FROM StringIds WHERE id NOT IN ({keep})")
