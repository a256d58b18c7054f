"""Writes small timelines as `nsys export --type sqlite` does, in the schema of several versions, without a GPU."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

SCHEMAS = ("3.1.7", "3.17.2", "3.20.2", "3.24.0")
PID = 0x1_000_0123_000_000  # a globalPid: the low 24 bits are the thread's
TID = PID + 0x456
_NS = 1000

_COMMON = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER, uuid TEXT",
    "TARGET_INFO_SYSTEM_ENV": "name TEXT, value TEXT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER, returnValue INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
    "correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER",
}  # fmt: skip
_KERNEL = (
    "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER, registersPerThread INTEGER, "
    "gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, "
    "staticSharedMemory INTEGER, dynamicSharedMemory INTEGER"
)


@dataclass
class Builder:
    """Collects what happened on one thread and one stream, then writes it in the schema of a version.

    `absent` are tables that the file lacks, as where there was no data; `secrets` is the environment that nsys kept.
    """

    schema: str = "3.20.2"
    absent: tuple[str, ...] = ()
    secrets: str = "TOKEN=hunter2"
    registered: bool = False  # range names are numbers of strings, as registered strings are
    clock: int = 1_000_000
    strings: list[str] = field(default_factory=list)
    ranges: list[tuple[str, int, int]] = field(default_factory=list)
    calls: list[tuple[str, int, int, int]] = field(default_factory=list)
    kernels: list[tuple[str, int, int, int]] = field(default_factory=list)
    copies: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def text(self, value: str) -> int:
        if value not in self.strings:
            self.strings.append(value)
        return self.strings.index(value)

    def range(
        self,
        name: str,
        kernels: list[tuple[str, float]],
        copies: list[int] | None = None,
        graph: bool = False,
        gap_us: float = 1,
    ) -> None:
        """A range: each kernel (name, us) is launched by a call of 2 us, then each copy (bytes, 1 us), then a wait.

        With `graph` one call launches them all. Kernels run after all calls, `gap_us` apart.
        """
        start = self.clock
        work: list[tuple[str, float, int]] = []
        first = len(self.calls) + 100
        for number, (kernel, microseconds) in enumerate(kernels):
            if not graph or number == 0:
                self._call("cuGraphLaunch" if graph else "cuLaunchKernelEx", 2)
            work.append((kernel, microseconds, first if graph else len(self.calls) + 99))
        at = self.clock
        for size in copies or ():
            self._call("cuMemcpyAsync", 2)
            self.copies.append((at, at + 1 * _NS, len(self.calls) + 99, size, 8))
            at += 1 * _NS
        for kernel, microseconds, correlation in work:
            end = at + round(microseconds * _NS)
            self.kernels.append((kernel, at, end, correlation))
            at = end + round(gap_us * _NS)
        self.clock = max(at, self.clock)
        self._call("cuStreamSynchronize", 1)
        self.ranges.append((name, start, self.clock))
        self.clock += 50 * _NS

    def _call(self, name: str, microseconds: int) -> None:
        self.calls.append((name, self.clock, self.clock + microseconds * _NS, len(self.calls) + 100))
        self.clock += microseconds * _NS

    def write(self, path: Path) -> Path:
        """Write the file; an existing one is replaced."""
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection:
            for table, rows in self._tables().items():
                if table in self.absent:
                    continue
                columns, values = rows
                connection.execute(f"CREATE TABLE {table} ({columns})")
                for row in values:
                    connection.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
            connection.commit()
        return path

    def _tables(self) -> dict[str, tuple[str, list[tuple[object, ...]]]]:
        old = self.schema == "3.1.7"
        names = {name: self.text(name) for name, *_ in (*self.calls, *self.kernels)}
        tables: dict[str, tuple[str, list[tuple[object, ...]]]] = {
            "EXPORT_META_DATA" if old else "META_DATA_EXPORT": ("name TEXT, value TEXT", self._meta()),
            "CUPTI_ACTIVITY_KIND_KERNEL": self._kernels(names),
            "NVTX_EVENTS": self._nvtx(),
            "TARGET_INFO_CUDA_NULL_STREAM" if old else "DIAGNOSTIC_EVENT": (
                "streamId INTEGER, text TEXT", [(7, "/home/ada")]
            ),
        }  # fmt: skip
        if not old:
            tables["META_DATA_CAPTURE"] = ("name TEXT, value TEXT", [("ENVIRONMENT_VARIABLE", self.secrets)])
            tables["ENUM_CUDA_MEMCPY_OPER"] = ("id INTEGER, name TEXT, label TEXT", [(8, "D2D", "Device-to-Device")])
        self.text("/home/ada/secret-model.py")
        rows: dict[str, list[tuple[object, ...]]] = {
            "TARGET_INFO_GPU": [(0, "NVIDIA H200", 132, 9, 0, "GPU-1234")],
            "TARGET_INFO_SYSTEM_ENV": [("Hostname", "ada-desktop")],
            "CUPTI_ACTIVITY_KIND_RUNTIME": [(s, e, 0, TID, c, names[n], 0) for n, s, e, c in self.calls],
            "CUPTI_ACTIVITY_KIND_MEMCPY": [(s, e, 0, 7, c, PID, size, kind) for s, e, c, size, kind in self.copies],
            "StringIds": list(enumerate(self.strings)),
        }
        return tables | {table: (columns, rows[table]) for table, columns in _COMMON.items()}

    def _meta(self) -> list[tuple[object, ...]]:
        parts = zip(("MAJOR", "MINOR", "MICRO"), self.schema.split("."), strict=True)
        found: list[tuple[object, ...]] = [(f"EXPORT_SCHEMA_VERSION_{name}", value) for name, value in parts]
        return [*found, ("EXPORT_SCHEMA_VERSION", self.schema), ("EXPORT_FILE_PATH", "/home/ada/x.sqlite")]

    def _kernels(self, names: dict[str, int]) -> tuple[str, list[tuple[object, ...]]]:
        new = self.schema == "3.24.0"
        tail: tuple[object, ...] = (None, 0, 2, 1, 1) if new else ()
        columns = _KERNEL + (", graphId INTEGER, greenContextId INTEGER, clusterX INTEGER, clusterY INTEGER, "
                             "clusterZ INTEGER" if new else "")  # fmt: skip
        return columns, [
            (s, e, 0, 1, 7, c, PID, names[n], names[n], names[n], 64, 4, 2, 1, 128, 1, 1, 1024, 2048, *tail)
            for n, s, e, c in self.kernels
        ]

    def _nvtx(self) -> tuple[str, list[tuple[object, ...]]]:
        columns = (
            "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, domainId INTEGER, "
            "textId INTEGER"
        )
        rows: list[tuple[object, ...]] = [
            (0, None, 75, "dgw", PID + 1, 1, None),
            (0, None, 75, "CCCL", PID + 1, 2, None),
        ]
        for name, start, end in self.ranges:
            if self.registered:
                rows.append((start, end, 59, None, TID, 1, self.text(name)))
            else:
                rows.append((start, end, 59, name, TID, 1, None))
        rows.append((1, 2, 59, "library", TID, 2, None))
        return columns, rows
