"""Writes small files in the report format of Nsight Compute, so that the real reader can be tested without a GPU.

The format (a magic number, then blocks of protocol buffer messages) is documented in `extras/FileFormat` of Nsight
Compute. Only the fields that a reader needs are written.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Value = int | float | str
FORMAT_VERSION = 20191


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def _field(number: int, value: Value | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _value(value: Value) -> bytes:
    return _field({str: 1, float: 3, int: 5}[type(value)], value)


def _sized(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def _triple(*numbers: int) -> bytes:
    return b"".join(_field(place, number) for place, number in enumerate(numbers, 1))


@dataclass
class Kernel:
    """One launch: NVTX range, name, counters, and counters split by instruction (address or opcode -> value)."""

    key: str
    name: str = "kernel"
    values: Mapping[str, Value] = field(default_factory=dict)
    instances: Mapping[str, Mapping[int | str, Value]] = field(default_factory=dict)
    domain: str = "dgw"
    ranges: tuple[str, ...] = ()


def _nvtx(kernel: Kernel) -> bytes:
    if not kernel.key:
        return b""
    stack = b"".join(_field(3, _field(1, name)) for name in (*kernel.ranges, kernel.key))
    other = _field(1, _field(1, 2) + _field(2, "library"))
    thread = _field(1, 7) + _field(2, _field(1, 2) + _field(3, _field(1, "matmul"))) + _field(2, _field(1, 1) + stack)
    return _field(21, other + _field(1, _field(1, 1) + _field(2, kernel.domain)) + _field(2, thread))


def _result(kernel: Kernel, strings: list[str]) -> bytes:
    names = b"".join(_field(number, kernel.name) for number in (5, 6)) + _field(7, f"{kernel.name}(float*, int)")
    launch = _field(8, 3) + _field(9, _triple(0, 0, 0)) + _field(10, _triple(4, 1, 1)) + _field(11, _triple(128, 1, 1))
    metrics = b""
    for name in {**kernel.values, **kernel.instances}:
        if name not in strings:
            strings.append(name)
        parts = kernel.instances.get(name, {})
        total: Value = kernel.values.get(name, sum(v for v in parts.values() if not isinstance(v, str)))
        listed = b"".join(_field(3, _field(1, _value(w)) + _field(2, _value(v))) for w, v in parts.items())
        metrics += _field(13, _field(1, strings.index(name)) + _field(2, _value(total)) + listed)
    source = _field(15, _field(1, 1) + _field(2, ""))
    return b"".join(_field(number, 7) for number in (1, 2, 3, 4)) + names + launch + metrics + source + _nvtx(kernel)


def report(kernels: Sequence[Kernel]) -> bytes:
    """The bytes of a report with these kernels."""
    strings: list[str] = []
    payload = b"".join(_sized(_result(kernel, strings)) for kernel in kernels)
    table = b"".join(_field(1, text) for text in strings)
    counts = _field(1, 0) + _field(2, len(kernels)) + _field(3, b"")
    header = counts + _field(4, table) + _field(5, len(payload))
    return b"NVR\0" + _sized(_field(1, FORMAT_VERSION)) + _sized(header) + payload
