"""The ceilings of a device: what memory and arithmetic allow at most, and where each figure comes from."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dgw.model import Device, Record
from dgw.reports.units import show

TABLE = "device table"
ALIKE = 0.05
"""Measured rates of two types that differ by less are one line, at their mean."""


@dataclass(frozen=True)
class Roof:
    """One ceiling: bytes a second (`slope`) or FLOP a second. `firm` ones are limits, the others were reached once."""

    name: str
    value: float
    slope: bool
    source: str
    firm: bool = True

    @property
    def text(self) -> str:
        """Name and value: `DRAM 4.800 TB/s`."""
        return f"{self.name} {show(self.value, 'bandwidth' if self.slope else 'rate')}"


def roofs(records: Sequence[Record], device: Device) -> list[Roof]:
    """Memory roofs, then arithmetic roofs of the input types among `records`, highest first in each kind."""
    return [*memory(device), *arithmetic(records, device)]


def memory(device: Device) -> list[Roof]:
    """L2 into the SMs, and DRAM: by the data sheet, and what a copy reached where the table knows it."""
    from dgw.workbench.emulator.bound import L2_BYTES_PER_SM_PER_CLOCK

    l2 = device.sms * device.clock_hz * L2_BYTES_PER_SM_PER_CLOCK
    found = [
        Roof("L2", l2, True, f"{device.sms} SMs x {L2_BYTES_PER_SM_PER_CLOCK} B a clock at {_clock(device)}"),
        Roof("DRAM", device.dram_bytes_per_s, True, f"{TABLE}: data sheet"),
    ]
    copied = device.measured.get("dram_copy")
    return [
        *found,
        *([Roof("DRAM copy", copied, True, f"{TABLE}: measured on {device.name}", False)] if copied else []),
    ]


def arithmetic(records: Sequence[Record], device: Device) -> list[Roof]:
    """Tensor cores and mma.sync for every input type, and multiply-adds of the SMs."""
    dtypes = dict.fromkeys(r.case.problem.a.dtype for r in records if r.case.problem.known)
    alike: dict[int, list[str]] = {}
    for dtype in dtypes:
        if rate := _full(device, dtype):
            alike.setdefault(rate, []).append(dtype)
    found = [
        Roof(f"tensor {' '.join(names)}", device.sms * device.clock_hz * rate, False,
             f"{TABLE}: {rate} FLOP an SM and clock at {_clock(device)}")
        for rate, names in alike.items()
    ]  # fmt: skip
    for dtype in dtypes:
        mma = _mma(records, device, dtype)
        if mma is None or _full(device, dtype) == device.mma_flops_per_sm_per_clock.get(dtype):
            continue
        near = [one for one in found if one.source == mma.source and abs(one.value / mma.value - 1) < ALIKE]
        if near:  # one line for types that are alike
            found.remove(near[0])
            mma = replace(near[0], name=f"{near[0].name} {dtype}", value=(near[0].value + mma.value) / 2)
        found.append(mma)
    lanes = device.fma_per_sm_per_clock
    found.append(Roof("FMA f32", device.sms * device.clock_hz * lanes * 2, False,
                      f"{TABLE}: {lanes} lanes an SM at {_clock(device)}"))  # fmt: skip
    return sorted(found, key=lambda roof: -roof.value)


def _full(device: Device, dtype: str) -> int | None:
    """FLOP an SM and clock of the tensor cores."""
    return device.tensor_flops_per_sm_per_clock.get(dtype)


def _mma(records: Sequence[Record], device: Device, dtype: str) -> Roof | None:
    """mma.sync: as measured in this run, else as the table says."""
    same = [r for r in records if r.case.problem.a.dtype == dtype and r.environment.device == device.name]
    rates = [rate for record in same if (rate := record.number("mma_sync_rate"))]
    if rates:
        return Roof(f"mma.sync {dtype}", statistics.median(rates), False, "measured in this run", False)
    known = device.measured.get(f"mma_{dtype}")
    if known:
        return Roof(f"mma.sync {dtype}", known, False, f"{TABLE}: measured on {device.name}", False)
    rate = device.mma_flops_per_sm_per_clock.get(dtype)
    if rate is None:
        return None
    return Roof(f"mma.sync {dtype}", device.sms * device.clock_hz * rate, False, TABLE, False)


def _clock(device: Device) -> str:
    return show(device.clock_hz, "frequency")
