"""Reads a report of Nsight Compute through NVIDIA's `ncu_report`, joined by NVTX state, never by position.

`ncu_report` opens damaged files without a word and shows what it could read. So the blocks of the file are walked first
(the format is documented in `extras/FileFormat` of Nsight Compute): a magic number, then blocks, each a sized header
that says how long its payload is, each entry of the payload again with its size.
"""

from __future__ import annotations

import importlib
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgw.errors import Missing, ReportError
from dgw.workbench.collectors.ncu_command import DOMAIN
from dgw.workbench.tools import find_tool, report_reader_folder

Value = float | int | str

PER_INSTRUCTION = ("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal", "sass__inst_executed_per_opcode")
STALL_SAMPLES = "smsp__pcsamp_warps_issue_stalled_"
_MAGIC = b"NVR\0"
_SOURCES, _RESULTS, _PAYLOAD_SIZE = 1, (2, 7, 8, 9), 5  # fields of a block header


@dataclass(frozen=True, slots=True)
class Instance:
    """The part of a counter that one instruction caused: its opcode (`LDS.128`), `FILE:LINE` where known, the count."""

    opcode: str
    place: str
    value: float


@dataclass(frozen=True)
class KernelCounters:
    """The counters of one launch. `key` is the NVTX range it ran in (a Case.key), empty outside of domain `dgw`.

    `values` and `units` map names of ncu to what ncu says, in its own base units (ns, %, byte); `instances` holds the
    counters that ncu splits by instruction.
    """

    key: str
    name: str
    values: Mapping[str, Value]
    units: Mapping[str, str] = field(default_factory=dict)
    instances: Mapping[str, tuple[Instance, ...]] = field(default_factory=dict)


def load_reader(folder: Path | None = None) -> Any:
    """The module `ncu_report`: the installed package, else the copy in `folder` (`extras/python` of Nsight Compute).

    Without `folder` the copy of the installation that `find_tool` finds is taken. Missing when there is neither.
    """
    try:
        return importlib.import_module("ncu_report")
    except ImportError:
        pass
    folder = folder or report_reader_folder(find_tool("ncu"))
    if folder is not None:
        sys.path.insert(0, str(folder))
        try:
            return importlib.import_module("ncu_report")
        except ImportError:
            pass
        finally:
            sys.path.remove(str(folder))
    raise Missing("reports of Nsight Compute cannot be read: ncu_report is not installed", "pip install ncu-report")


def read_report(path: Path | str, reader: Any = None) -> dict[str, list[KernelCounters]]:
    """The kernels of a report by the NVTX range (of domain `dgw`) that they ran in, in launch order.

    ReportError when the file is missing, empty or no report. A file that was cut short gives the kernels that are
    whole; :func:`damage` says so.
    """
    by_key: dict[str, list[KernelCounters]] = {}
    for kernel in read_kernels(path, reader):
        if kernel.key:
            by_key.setdefault(kernel.key, []).append(kernel)
    return by_key


def read_kernels(path: Path | str, reader: Any = None) -> list[KernelCounters]:
    """Every kernel of a report, whoever made it, in file order. Errors as in :func:`read_report`."""
    path = Path(path)
    found = _walk(path)
    if found.problem and found.whole == 0:
        raise ReportError(f"{path.name}: {found.problem}", "measure these cases again, or check the disk for space")
    module = reader if reader is not None else load_reader()
    if not found.problem:
        return _load(path, module)
    with tempfile.TemporaryDirectory(prefix="dgw-report-") as folder:
        repaired = Path(folder) / path.name
        repaired.write_bytes(found.repaired)
        return _load(repaired, module)


def _load(path: Path, module: Any) -> list[KernelCounters]:
    try:
        parts = _items(module.load_report(str(path)), "range")
        return [_kernel(action) for part in parts for action in _items(part, "action")]
    except (OSError, RuntimeError, ValueError) as error:
        raise ReportError(f"{path.name} cannot be read: {error}", "measure these cases again") from error


def damage(path: Path | str) -> str:
    """What is wrong with a report file in words, empty when it is whole."""
    return _walk(Path(path)).problem


@dataclass(frozen=True)
class _Walk:
    """What is wrong with a file, how many results are whole, and the bytes that hold only those."""

    problem: str = ""
    whole: int = 0
    repaired: bytes = b""


def _walk(path: Path) -> _Walk:
    if not path.is_file():
        return _Walk("there is no such report")
    size = path.stat().st_size
    if size == 0:
        return _Walk("the report is empty")
    whole = 0
    with path.open("rb") as file:
        if file.read(4) != _MAGIC:
            return _Walk() if path.suffix == ".ncu-repz" else _Walk("this is not a report of Nsight Compute")
        header = _sized(file.read(4))
        if header is None or len(file.read(header)) < header:
            return _Walk("the report was cut short in its header")
        while file.tell() < size:
            start = file.tell()
            length = _sized(file.read(4))
            block = file.read(length) if length is not None else b""
            if length is None or len(block) < length:
                return _Walk("the report was cut short", whole, path.read_bytes()[:start])
            fields = _integers(block)
            end = file.tell() + fields.get(_PAYLOAD_SIZE, 0)
            if end > size:
                kept, payload = _complete(block, fields, file.read())
                return _Walk("the report was cut short", whole + kept, path.read_bytes()[:start] + payload)
            whole += sum(fields.get(number, 0) for number in _RESULTS)
            file.seek(end)
    return _Walk("", whole)


def _complete(block: bytes, fields: Mapping[int, int], payload: bytes) -> tuple[int, bytes]:
    """How many results of a cut block are whole, and a block that holds only them. The last value of a field counts."""
    position = entries = 0
    while position + 4 <= len(payload):
        end = position + 4 + struct.unpack_from("<I", payload, position)[0]
        if end > len(payload):
            break
        position, entries = end, entries + 1
    sources = min(entries, fields.get(_SOURCES, 0))
    results = min(entries - sources, fields.get(_RESULTS[0], 0))
    if results == 0:
        return 0, b""
    counts = dict.fromkeys((*_RESULTS, _SOURCES), 0) | {_RESULTS[0]: results, _SOURCES: sources}
    counts[_PAYLOAD_SIZE] = position
    block += b"".join(_encoded(number << 3) + _encoded(count) for number, count in counts.items())
    return results, struct.pack("<I", len(block)) + block + payload[:position]


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _sized(raw: bytes) -> int | None:
    return struct.unpack("<I", raw)[0] if len(raw) == 4 else None


def _integers(message: bytes) -> dict[int, int]:
    """The integer fields of a protocol buffer message, by number; other fields are stepped over."""
    fields: dict[int, int] = {}
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            fields[number], position = _varint(message, position)
        elif kind == 2:
            length, position = _varint(message, position)
            position += length
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        else:
            break
    return fields


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return value, position


def _items(container: Any, what: str) -> Iterator[Any]:
    """The ranges of a context or the actions of a range, by index: the way that old and new readers share."""
    for index in range(getattr(container, f"num_{what}s")()):
        yield getattr(container, f"{what}_by_idx")(index)


def _kernel(action: Any) -> KernelCounters:
    values: dict[str, Value] = {}
    units: dict[str, str] = {}
    instances: dict[str, tuple[Instance, ...]] = {}
    sass: dict[int, tuple[str, str]] = {}
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        if metric is None:
            continue
        value = _value(metric)
        if value is not None:
            values[name] = value
            units[name] = metric.unit() or ""
        if name in PER_INSTRUCTION or name.startswith(STALL_SAMPLES):
            instances[name] = tuple(_instances(action, metric, sass))
    return KernelCounters(_range_name(action), action.name(), values, units, instances)


def _value(metric: Any, *index: int) -> Value | None:
    """The value of a metric, or of its instance `index`; what has no value is None.

    `has_value` is not asked for instances: for them the reader answers at random.
    """
    if not index and not metric.has_value():
        return None
    kind = metric.kind(*index)
    if kind in (metric.ValueKind_FLOAT, metric.ValueKind_DOUBLE):
        return float(metric.as_double(*index))
    if kind in (metric.ValueKind_UINT32, metric.ValueKind_UINT64):
        return int(metric.as_uint64(*index))
    if kind == metric.ValueKind_STRING:
        return str(metric.as_string(*index))
    return None


def _range_name(action: Any) -> str:
    """The innermost range of domain `dgw` that was open at the launch, or an empty text."""
    state = action.nvtx_state()
    for number in state.domains() if state is not None else ():
        domain = state.domain_by_id(number)
        if domain is not None and domain.name() == DOMAIN:
            names = domain.push_pop_ranges() or domain.start_end_ranges()
            return str(names[-1]) if names else ""
    return ""


def _instances(action: Any, metric: Any, sass: dict[int, tuple[str, str]]) -> Iterator[Instance]:
    ids = metric.correlation_ids() if metric.num_instances() else None
    if ids is None:
        return
    for index in range(metric.num_instances()):
        value, where = _value(metric, index), _value(ids, index)
        if not isinstance(value, int | float) or value == 0 or where is None:
            continue
        if isinstance(where, str):
            yield Instance(where, "", float(value))
            continue
        address = int(where)
        if address not in sass:
            sass[address] = (opcode(action.sass_by_pc(address) or ""), _place(action.source_info(address)))
        yield Instance(*sass[address], float(value))


def _place(source: Any) -> str:
    return f"{Path(source.file_name()).name}:{source.line()}" if source is not None and source.file_name() else ""


def opcode(instruction: str) -> str:
    """The opcode of a SASS instruction without its predicate: `LDS.128` of `@!P0 LDS.128 R4, [R2] ;`."""
    words = instruction.split()
    if words and words[0].startswith("@"):
        words = words[1:]
    return words[0].rstrip(";") if words else ""
