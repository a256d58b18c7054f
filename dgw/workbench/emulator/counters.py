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
import numpy.typing as npt

from dgw.workbench.emulator.costs import (
    LINE_BYTES,
    SECTOR_BYTES,
    GlobalCost,
    Ints,
    Kind,
    Mask,
    SharedCost,
    bypass_global_cost,
    global_cost,
    shared_cost,
)
from dgw.workbench.emulator.observer import Access, Dim3, InstructionInfo

PATTERNS_KEPT = 4096
SECTORS_KEPT = 1 << 21
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


@dataclass
class _Pattern:
    """Costs of one pattern: `costs` maps a space to int64 [n, columns]; `reach` are the sectors it touches.

    `reach` holds (warp group of a CTA, sector) relative to the line of the first active address.
    """

    instructions: npt.NDArray[np.intp]
    costs: dict[str, Ints]
    reach: tuple[Ints, Ints] | None
    anchor: int
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
        self._touched: dict[str, list[Ints]] = {}
        self._kept = 0
        self._warps_per_cta = 1

    def begin(self, instructions: Sequence[InstructionInfo], ctas: Sequence[Dim3], warps_per_cta: int) -> None:
        """Start a batch; the kernel must be that of the batches before."""
        self._fold_sectors()
        if not self.instructions:
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

    def branch(self, instruction: int, warps: int, divergent: int) -> None:
        """A conditional branch was executed."""
        self.branches += warps
        self.divergent_branches += divergent
        if divergent:
            self._divergent[instruction] += divergent

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
            found = self._patterns[access.pattern] = _measure(access, self._warps_per_cta)
        found.count += 1
        if found.reach is not None:
            self._touch(access, found)

    def _touch(self, access: Access, found: _Pattern) -> None:
        """Remember which sectors the CTAs of the batch touched, each CTA apart."""
        assert found.reach is not None
        cta, sector = found.reach
        addresses = access.addresses if access.sources is None else access.sources
        base = int(addresses.flat[found.anchor]) // LINE_BYTES * (LINE_BYTES // SECTOR_BYTES)
        self._touched.setdefault(_traffic(access), []).append(cta + (sector + base))
        self._kept += len(sector)
        if self._kept > SECTORS_KEPT:
            self._compact()

    def _compact(self) -> None:
        self._touched = {kind: [np.unique(np.concatenate(parts))] for kind, parts in self._touched.items()}
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
            for space, costs in found.costs.items():
                total = self._totals.get(space)
                if total is None:
                    total = self._totals[space] = np.zeros((len(self.instructions), len(Column)), dtype=np.int64)
                np.add.at(total, found.instructions, costs * found.count)
            found.count = 0
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


def _measure(access: Access, warps_per_cta: int) -> _Pattern:
    """The cost of one execution of a group."""
    addresses = access.addresses
    n, warps = addresses.shape[:2]
    mask = np.broadcast_to(access.mask, addresses.shape).reshape(-1, 32)
    flat = np.where(mask, addresses.reshape(-1, 32), 0)
    first = access.instructions[0]
    indices = np.array([info.index for info in access.instructions], dtype=np.intp)
    if first.kind == "cp.async":
        return _measure_copy(access, flat, mask, indices, warps_per_cta)
    if access.space == "shared":
        cost = shared_cost(SHARED_KINDS[first.kind], first.width_bytes, flat, mask, first.matrices or 4)
        return _Pattern(indices, {"shared": _shared_columns(cost, mask, first.width_bytes, n)}, None, 0)
    if access.space not in ("global", "local"):  # constant memory has its own cache and no sectors
        counts = np.zeros((n, len(Column)), dtype=np.int64)
        counts[:, Column.REQUESTS] = mask.any(axis=1).reshape(n, warps).sum(axis=1)
        return _Pattern(indices, {access.space: counts}, None, 0)
    sectors = global_cost(first.width_bytes, flat, mask)
    columns = {access.space: _global_columns(sectors, mask, n)}
    if access.space == "local" or not mask.any():
        return _Pattern(indices, columns, None, 0)
    reach, anchor = _reach(flat, mask, first.width_bytes, n, warps, warps_per_cta)
    return _Pattern(indices, columns, reach, anchor)


def _measure_copy(
    access: Access, flat: Ints, mask: Mask, indices: npt.NDArray[np.intp], warps_per_cta: int
) -> _Pattern:
    """A cp.async: wavefronts at its destination, sectors at its source."""
    first = access.instructions[0]
    n, warps = access.addresses.shape[:2]
    origin, reads = access.sources, access.source_mask
    assert origin is not None
    reading = mask if reads is None else np.broadcast_to(reads, origin.shape).reshape(-1, 32) & mask
    sources = np.where(reading, origin.reshape(-1, 32), 0)
    if "cg" in first.modifiers:
        cost = shared_cost("cp.async.cg", 16, flat, mask, sources=sources)
        sectors = bypass_global_cost(sources, flat, reading)
    else:
        cost = shared_cost("cp.async.ca", first.width_bytes, flat, mask)
        sectors = global_cost(first.width_bytes, sources, reading)
    columns = {
        "shared": _shared_columns(cost, mask, first.width_bytes, n),
        "global": _global_columns(sectors, reading, n),
    }
    if not reading.any():
        return _Pattern(indices, columns, None, 0)
    reach, anchor = _reach(sources, reading, first.width_bytes, n, warps, warps_per_cta)
    return _Pattern(indices, columns, reach, anchor)


def _reach(flat: Ints, mask: Mask, width: int, n: int, warps: int, warps_per_cta: int) -> tuple[tuple[Ints, Ints], int]:
    """((CTA << 44, sector relative to the anchor's line) of each distinct sector, flat index of the anchor)."""
    anchor = int(np.argmax(mask.ravel()))
    base = int(flat.flat[anchor]) // LINE_BYTES * LINE_BYTES
    cta = np.broadcast_to((np.arange(warps) // warps_per_cta)[None, :, None], (n, warps, 32)).reshape(-1, 32)
    ends = [(flat - base) // SECTOR_BYTES, (flat - base + width - 1) // SECTOR_BYTES]
    key = np.unique(np.concatenate([(cta[mask] << 44) + (end[mask] + (1 << 43)) for end in ends]))
    group = key >> 44 << 44
    return (group, key - group - (1 << 43)), anchor


def _shared_columns(cost: SharedCost, mask: Mask, width: int, n: int) -> Ints:
    lanes = mask.sum(axis=1)
    values = np.zeros((len(mask), len(Column)), dtype=np.int64)
    values[:, Column.REQUESTS] = lanes > 0
    values[:, Column.LANES] = lanes
    values[:, Column.BYTES] = lanes * width
    values[:, Column.WAVEFRONTS] = cost.wavefronts
    values[:, Column.IDEAL] = cost.ideal
    values[:, Column.CONFLICTS] = cost.conflicts
    return np.asarray(values.reshape(n, -1, len(Column)).sum(axis=1), dtype=np.int64)


def _global_columns(cost: GlobalCost, mask: Mask, n: int) -> Ints:
    values = np.zeros((len(mask), len(Column)), dtype=np.int64)
    values[:, Column.REQUESTS] = cost.requests
    values[:, Column.LANES] = mask.sum(axis=1)
    values[:, Column.BYTES] = cost.bytes
    values[:, Column.SECTORS] = cost.sectors
    return np.asarray(values.reshape(n, -1, len(Column)).sum(axis=1), dtype=np.int64)
