"""The ceilings of a device: what memory and arithmetic allow at most, and where each figure comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dgw.model import Device, Record, sm
from dgw.reports.units import show

TABLE = "device table"
WGMMA, MMA = "wgmma", "mma.sync"
HOPPER = 90
ALIKE = 0.05
"""Measured rates of two types that differ by less are one line, at the higher of them."""


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
    """Tensor cores and mma.sync for every input type, and multiply-adds of the SMs.

    Where the best instruction is another than mma.sync both have a roof: which one ends a kernel is a matter of what
    it multiplies by.
    """
    dtypes = dict.fromkeys(r.case.problem.a.dtype for r in records if r.case.problem.known)
    alike: dict[int, list[str]] = {}
    for dtype in dtypes:
        if rate := _full(device, dtype):
            alike.setdefault(rate, []).append(dtype)
    best = WGMMA if sm(device.arch) == HOPPER else "tensor"
    found = [
        Roof(f"{best} {' '.join(names)}", device.sms * device.clock_hz * rate, False,
             f"{TABLE}: {rate} FLOP an SM and clock at {_clock(device)}")
        for rate, names in alike.items()
    ]  # fmt: skip
    slower = [dtype for dtype in dtypes if _full(device, dtype) != device.mma_flops_per_sm_per_clock.get(dtype)]
    found += _as_one({dtype: roof for dtype in slower if (roof := _mma(records, device, dtype)) is not None})
    lanes = device.fma_per_sm_per_clock
    found.append(Roof("FMA f32", device.sms * device.clock_hz * lanes * 2, False,
                      f"{TABLE}: {lanes} lanes an SM at {_clock(device)}"))  # fmt: skip
    return sorted(found, key=lambda roof: -roof.value)


def _as_one(roofs: Mapping[str, Roof]) -> list[Roof]:
    """The roofs of mma.sync by type, those of types that are alike as one line: the highest, whose source says what
    each type reached. A mean would be a rate that nothing reached, and cases could lie above it."""
    found: list[dict[str, Roof]] = []
    for dtype, roof in roofs.items():
        for group in found:
            first = next(iter(group.values()))
            if first.source == roof.source and abs(first.value / roof.value - 1) < ALIKE:
                group[dtype] = roof
                break
        else:
            found.append({dtype: roof})
    lines = []
    for group in found:
        top = max(group.values(), key=lambda roof: roof.value)
        source = top.source
        if len({roof.value for roof in group.values()}) > 1:
            each = ", ".join(f"{dtype} {show(roof.value, 'rate')}" for dtype, roof in group.items())
            source += f" ({each}; the highest is drawn)"
        lines.append(replace(top, name=f"{MMA} {' '.join(group)}", source=source))
    return lines


def _full(device: Device, dtype: str) -> int | None:
    """FLOP an SM and clock of the tensor cores."""
    return device.tensor_flops_per_sm_per_clock.get(dtype)


def _mma(records: Sequence[Record], device: Device, dtype: str) -> Roof | None:
    """mma.sync: the highest that was measured in this run, else as the table says."""
    same = [r for r in records if r.case.problem.a.dtype == dtype and r.environment.device == device.name]
    rates = {rate for record in same if (rate := record.number("mma_sync_rate"))}
    if rates:
        return Roof(f"{MMA} {dtype}", max(rates), False, "measured in this run", False)
    known = device.measured.get(f"mma_{dtype}")
    if known:
        return Roof(f"{MMA} {dtype}", known, False, f"{TABLE}: measured on {device.name}", False)
    rate = device.mma_flops_per_sm_per_clock.get(dtype)
    if rate is None:
        return None
    return Roof(f"{MMA} {dtype}", device.sms * device.clock_hz * rate, False, TABLE, False)


def _clock(device: Device) -> str:
    return show(device.clock_hz, "frequency")
