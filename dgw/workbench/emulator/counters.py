"""Counts what the hardware would count, from the events of the machine.

A :class:`Counters` is an observer. Memory events repeat: it computes the cost of a pattern once, keeps how often it
came, and adds up when asked (or when it has seen many patterns). Everything is kept per PTX instruction: totals,
figures per PTX line and figures per source line are sums of the same numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.costs import (
    LINE_BYTES,
    SECTOR_BYTES,
    GlobalCost,
    Ints,
    Kind,
    Mask,
    SharedCost,
    bypass_global_cost,
    copy_cost,
    global_cost,
    least_copy_wavefronts,
    shared_cost,
    unique,
)
from dgw.workbench.emulator.lead import Step
from dgw.workbench.emulator.observer import Access, Dim3, InstructionInfo

PATTERNS_KEPT = 4096
SECTORS_KEPT = 1 << 21
MEASURED_KEPT = 2048
STEPS_KEPT = 1 << 16
SHARED_KINDS: dict[str, Kind] = {
    "ld": "ld", "st": "st", "ldmatrix": "ldmatrix", "stmatrix": "stmatrix", "atom": "atom", "red": "atom",
}  # fmt: skip


class Column(IntEnum):
    """What is counted of the memory instructions of one space; all per warp instruction but LANES and BYTES."""

    REQUESTS = 0  # warp instructions with an active lane
    LANES = 1  # threads that took part
    BYTES = 2  # asked for by these threads
    WAVEFRONTS = 3  # shared: needed
    IDEAL = 4  # shared: without any conflict
    CONFLICTS = 5  # shared: as ncu counts them
    SECTORS = 6  # global, local: distinct 32-byte sectors of each request
    LEAST = 7  # shared: needed by cp.async at the best place for what it copies
    ADDRESSED = 8  # global: sectors that the addresses touch, wherever cp.async puts them


@dataclass(frozen=True)
class _Measured:
    """Costs of an instruction with one set of addresses: `costs` maps a space to int64 [columns].

    `reach` are the sectors that it touches: (CTA << 44, sector relative to the line of the address `anchor`) of each
    distinct one; `anchor` is the place of the first active address among the instruction's.
    """

    costs: dict[str, Ints]
    reach: tuple[Ints, Ints] | None = None
    anchor: int = 0


_MEASURED: dict[Hashable, _Measured] = {}  # by _Event.key(): costs do not depend on the kernel


@dataclass
class _Part:
    """One instruction with one set of addresses, and how often it came."""

    instruction: int
    measured: _Measured
    count: int = 0


@dataclass
class _Pattern:
    """The parts of a group of instructions, and how often the group came since it was last added up."""

    parts: list[_Part]
    reaches: bool
    count: int = 0


class Counters:
    """Counts of one or more batches of CTAs of one kernel (observer of :mod:`dgw.workbench.emulator.observer`)."""

    def __init__(self) -> None:
        self.instructions: tuple[InstructionInfo, ...] = ()
        self.ctas = 0
        self.full_warps = False  # whoever runs the CTAs knows whether all 32 lanes of each warp exist
        self.divergent_branches = 0
        self.branches = 0
        self.unique_sectors: dict[str, int] = {"cached": 0, "uncached": 0, "stored": 0}
        self._executed = np.zeros(0, dtype=np.int64)
        self._divergent = np.zeros(0, dtype=np.int64)
        self._barriers = np.zeros(0, dtype=np.int64)
        self._blocks: dict[tuple[int, int], int] = {}
        self._totals: dict[str, Ints] = {}
        self._patterns: dict[Hashable, _Pattern] = {}
        self._parts: dict[Hashable, _Part] = {}
        self._touched: dict[str, list[Ints]] = {}
        self._kept = 0
        self._warps_per_cta = 1
        self._traced = False
        self.batch_warps = 0  # of the first batch, whose blocks `steps` has in their order
        self.steps: list[Step] = []

    def begin(self, instructions: Sequence[InstructionInfo], ctas: Sequence[Dim3], warps_per_cta: int) -> None:
        """Start a batch; the kernel must be that of the batches before."""
        self._fold_sectors()
        self._traced = not self.instructions
        if self._traced:
            self.batch_warps = len(ctas) * warps_per_cta
            self.instructions = tuple(instructions)
            for name in ("_executed", "_divergent", "_barriers"):
                setattr(self, name, np.zeros(len(instructions), dtype=np.int64))
        if len(instructions) != len(self.instructions):
            raise ValueError("one Counters counts one kernel")
        self.ctas += len(ctas)
        self._warps_per_cta = warps_per_cta

    def block(self, first: int, last: int, warps: int) -> None:
        """A basic block was executed by `warps` warps."""
        key = (first, last)
        self._blocks[key] = self._blocks.get(key, 0) + warps
        if self._traced and len(self.steps) < STEPS_KEPT:
            self.steps.append(Step(first, last, warps))

    def branch(self, instruction: int, warps: int, divergent: int) -> None:
        """A conditional branch was executed."""
        self.branches += warps
        self.divergent_branches += divergent
        if divergent:
            self._divergent[instruction] += divergent

    def stored(self, addresses: NDArray[np.int64], width: int) -> None:
        """What the copy engine stores is no access of a warp, and not counted."""

    def barrier(self, instruction: int, warps: int) -> None:
        """A barrier was executed by `warps` warps."""
        self._barriers[instruction] += warps

    def memory(self, access: Access) -> None:
        """A group of memory instructions was executed."""
        found = self._patterns.get(access.pattern)
        if found is None:
            if len(self._patterns) >= PATTERNS_KEPT:
                self._fold_patterns()
                self._patterns.clear()
                self._parts.clear()
            found = self._patterns[access.pattern] = self._recognise(access)
        found.count += 1
        if found.reaches:
            self._touch(access, found)

    def _recognise(self, access: Access) -> _Pattern:
        """The parts of a pattern: instructions whose addresses were seen before, relative to their line, are known."""
        addresses, sources = access.addresses, access.sources
        mask = np.broadcast_to(access.mask, addresses.shape)
        reading = mask if access.source_mask is None else np.broadcast_to(access.source_mask, addresses.shape) & mask
        parts = []
        for row, info in enumerate(access.instructions):
            event = _Event(info, access.space, addresses[row], mask[row])
            if sources is not None:
                event.sources, event.reading = sources[row], reading[row]
            key = (info.index, event.key(self._warps_per_cta))
            part = self._parts.get(key)
            if part is None:
                part = self._parts[key] = _Part(info.index, _measured(event, key[1], self._warps_per_cta))
            parts.append(part)
        return _Pattern(parts, any(part.measured.reach is not None for part in parts))

    def _touch(self, access: Access, found: _Pattern) -> None:
        """Remember which sectors the CTAs of the batch touched, each CTA apart."""
        addresses = access.addresses if access.sources is None else access.sources
        touched = self._touched.setdefault(_traffic(access), [])
        for row, part in zip(addresses, found.parts, strict=True):
            if part.measured.reach is not None:
                cta, sector = part.measured.reach
                base = int(row.flat[part.measured.anchor]) // LINE_BYTES * (LINE_BYTES // SECTOR_BYTES)
                touched.append(cta + (sector + base))
                self._kept += len(sector)
        if self._kept > SECTORS_KEPT:
            self._compact()

    def _compact(self) -> None:
        self._touched = {kind: [unique(np.concatenate(parts))] for kind, parts in self._touched.items()}
        self._kept = sum(len(parts[0]) for parts in self._touched.values())

    def _fold_sectors(self) -> None:
        """End of a batch: add its unique sectors."""
        self._compact()
        for kind, parts in self._touched.items():
            self.unique_sectors[kind] += len(parts[0])
        self._touched, self._kept = {}, 0

    def _fold_patterns(self) -> None:
        """Move what the patterns and blocks counted to the totals."""
        for found in self._patterns.values():
            for part in found.parts:
                part.count += found.count
            found.count = 0
        for part in self._parts.values():
            for space, costs in part.measured.costs.items():
                total = self._totals.get(space)
                if total is None:
                    total = self._totals[space] = np.zeros((len(self.instructions), len(Column)), dtype=np.int64)
                total[part.instruction] += costs * part.count
            part.count = 0
        for (first, last), warps in self._blocks.items():
            self._executed[first:last] += warps
        self._blocks.clear()

    def finish(self) -> Counters:
        """Add up everything seen so far; returns itself."""
        self._fold_sectors()
        self._fold_patterns()
        return self

    def executed(self) -> Ints:
        """How often a warp executed each instruction, predicated-off ones included: int64 [instructions]."""
        self._fold_patterns()
        return self._executed

    def divergent(self) -> Ints:
        """Divergent executions of each branch: int64 [instructions]."""
        return self._divergent

    def barriers(self) -> Ints:
        """Warp executions of each CTA-level barrier: int64 [instructions]."""
        return self._barriers

    def space(self, name: str) -> Ints:
        """Counts of one space (`shared global local`), int64 [instructions, columns]; see :class:`Column`."""
        self._fold_patterns()
        return self._totals.get(name, np.zeros((len(self.instructions), len(Column)), dtype=np.int64))


def _traffic(access: Access) -> str:
    """How global data travels: `stored`, `uncached` (past L1), or `cached`."""
    first = access.instructions[0]
    if first.kind in ("st", "red", "atom"):
        return "stored"
    past = first.kind == "cp.async" and "cg" in first.modifiers
    return "uncached" if past or {"cg", "cv", "cs"} & set(first.modifiers) else "cached"


@dataclass
class _Event:
    """One execution of one memory instruction by all warps of a batch: arrays [warps, 32]."""

    info: InstructionInfo
    space: str
    addresses: Ints
    mask: Mask
    sources: Ints | None = None
    reading: Mask | None = None

    def key(self, warps_per_cta: int) -> Hashable:
        """Equal keys cost the same: the form, addresses relative to the line of the first active one, and the mask."""
        info = self.info
        relative = _relative(self.addresses, self.mask)
        copied = () if self.sources is None or self.reading is None else (
            _relative(self.sources, self.reading).tobytes(), self.reading.tobytes(),
        )  # fmt: skip
        form = (info.kind, self._bypass, self.space, info.width_bytes, info.matrices, warps_per_cta)
        return (form, self.mask.tobytes(), relative.tobytes(), *copied)

    @property
    def _bypass(self) -> bool:
        return self.info.kind == "cp.async" and "cg" in self.info.modifiers

    def measure(self, warps_per_cta: int) -> _Measured:
        """The cost of it."""
        flat = np.where(self.mask, self.addresses, 0)
        width = self.info.width_bytes
        if self.info.kind == "cp.async":
            return self._measure_copy(flat, warps_per_cta)
        if self.space == "shared":
            cost = shared_cost(SHARED_KINDS[self.info.kind], width, flat, self.mask, self.info.matrices or 4)
            return _Measured({"shared": _shared_columns(cost, self.mask, width)})
        if self.space not in ("global", "local"):  # constant memory has its own cache and no sectors
            counts = np.zeros(len(Column), dtype=np.int64)
            counts[Column.REQUESTS] = np.count_nonzero(self.mask.any(axis=1))
            return _Measured({self.space: counts})
        columns = {self.space: _global_columns(global_cost(width, flat, self.mask), self.mask)}
        if self.space == "local" or not self.mask.any():
            return _Measured(columns)
        return _Measured(columns, *_reach(flat, self.mask, width, warps_per_cta))

    def _measure_copy(self, flat: Ints, warps_per_cta: int) -> _Measured:
        """A cp.async: wavefronts at its destination, sectors at its source."""
        assert self.sources is not None
        assert self.reading is not None
        width, reading, bypass = self.info.width_bytes, self.reading, self._bypass
        sources = np.where(reading, self.sources, 0)
        cost = copy_cost(width, flat, self.mask, sources, reading, bypass)
        sectors = bypass_global_cost(sources, flat, reading) if bypass else global_cost(width, sources, reading)
        columns = {"shared": _shared_columns(cost, self.mask, width), "global": _global_columns(sectors, reading)}
        least = least_copy_wavefronts(width, flat, self.mask, sources, reading, bypass)
        columns["shared"][Column.LEAST] = least.sum()
        columns["global"][Column.ADDRESSED] = global_cost(width, sources, reading).sectors.sum()
        if not reading.any():
            return _Measured(columns)
        return _Measured(columns, *_reach(sources, reading, width, warps_per_cta))


def _measured(event: _Event, key: Hashable, warps_per_cta: int) -> _Measured:
    """The cost of an event, remembered for all kernels."""
    found = _MEASURED.get(key)
    if found is None:
        if len(_MEASURED) >= MEASURED_KEPT:
            _MEASURED.clear()
        found = _MEASURED[key] = event.measure(warps_per_cta)
    return found


def _relative(addresses: Ints, mask: Mask) -> Ints:
    """Addresses from the line of the first active one on, 0 where masked off."""
    first = int(addresses.flat[int(np.argmax(mask.ravel()))]) // LINE_BYTES * LINE_BYTES
    return np.where(mask, addresses - first, 0)


def _reach(flat: Ints, mask: Mask, width: int, warps_per_cta: int) -> tuple[tuple[Ints, Ints], int]:
    """((CTA << 44, sector relative to the anchor's line) of each distinct sector, flat index of the anchor)."""
    anchor = int(np.argmax(mask.ravel()))
    base = int(flat.flat[anchor]) // LINE_BYTES * LINE_BYTES
    cta = np.broadcast_to((np.arange(len(flat)) // warps_per_cta)[:, None], flat.shape)
    ends = [(flat - base) // SECTOR_BYTES, (flat - base + width - 1) // SECTOR_BYTES]
    key = unique(np.concatenate([(cta[mask] << 44) + (end[mask] + (1 << 43)) for end in ends]))
    group = key >> 44 << 44
    return (group, key - group - (1 << 43)), anchor


def _shared_columns(cost: SharedCost, mask: Mask, width: int) -> Ints:
    lanes = mask.sum(axis=1)
    values = np.zeros(len(Column), dtype=np.int64)
    values[Column.REQUESTS] = np.count_nonzero(lanes)
    values[Column.LANES] = lanes.sum()
    values[Column.BYTES] = lanes.sum() * width
    values[Column.WAVEFRONTS] = cost.wavefronts.sum()
    values[Column.IDEAL] = cost.ideal.sum()
    values[Column.CONFLICTS] = cost.conflicts.sum()
    return values


def _global_columns(cost: GlobalCost, mask: Mask) -> Ints:
    values = np.zeros(len(Column), dtype=np.int64)
    values[Column.REQUESTS] = cost.requests.sum()
    values[Column.LANES] = np.count_nonzero(mask)
    values[Column.BYTES] = cost.bytes.sum()
    values[Column.SECTORS] = values[Column.ADDRESSED] = cost.sectors.sum()
    return values
