"""At which locked SM clock figures were taken: their protocols say it, as in `cold-graph/1 at 1500 MHz`.

So whatever compares figures of one protocol only tells those apart too. A figure without such an ending was taken while
the GPU chose its clocks itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from dgw.model import Measurement, Record

COLLECTORS = ("timing", "gate", "ncu", "nsys", "torch-profiler", "cupti")
"""Who measures on a GPU at its clocks. The readings of its sensors (`nvml/1`) say themselves what they saw."""
_ENDING = re.compile(r" at (\d+) MHz$")
_SENSORS = "nvml/1"


def at(hertz: float) -> str:
    """The ending of a protocol: ` at 1500 MHz`; empty for 0, where the clocks are left alone."""
    return f" at {hertz * 1e-6:.0f} MHz" if hertz else ""


def locked_at(protocol: str) -> float:
    """The locked clock (Hz) that a protocol names, 0 where it names none."""
    found = _ENDING.search(protocol)
    return int(found[1]) * 1e6 if found else 0.0


def named(measurements: Iterable[Measurement], hertz: float) -> tuple[Measurement, ...]:
    """The measurements, of which those that a GPU's clocks reach name the locked one (0: as they are)."""
    if not hertz:
        return tuple(measurements)
    return tuple(
        msgspec.structs.replace(m, protocol=f"{m.protocol}{at(hertz)}") if _reached(m) and not locked_at(m.protocol)
        else m for m in measurements
    )  # fmt: skip


def clock_of(record: Record) -> float | None:
    """The locked clock (Hz) of a record's figures, 0 where it had none; None without a figure that clocks reach."""
    return next((locked_at(m.protocol) for m in record.measurements if _reached(m) and m.value is not None), None)


def said(records: Iterable[Record]) -> str:
    """What a heading says of the clocks of records, with a comma before it; empty where they were left alone."""
    clocks = dict.fromkeys(clock for record in records if (clock := clock_of(record)) is not None)
    if not any(clocks):
        return ""
    texts = [f"{clock * 1e-6:.0f} MHz" for clock in clocks if clock]
    return f", SM clock locked at {' and '.join(texts)}{' for some' if 0.0 in clocks else ''}"


def _reached(measured: Measurement) -> bool:
    return measured.collector in COLLECTORS and measured.protocol not in ("", _SENSORS)
