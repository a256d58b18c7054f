"""What one memory instruction of one warp costs: wavefronts, ideal wavefronts, conflicts, sectors.

The rules were derived from single accesses measured on an H200 (sm_90) with ncu: one warp, one instruction, 32 chosen
addresses. `tests/accesses.py` compares them with any table of such measurements. Every function takes n executions at
once: `addresses` int [n, 32] in bytes and `active` bool [n, 32]; addresses of inactive lanes are ignored.

Shared memory has 32 banks of 4-byte words; one *wavefront* serves at most one word of each bank (128 B).

Plain loads and stores
    The warp is served in phases of 128 B: all 32 lanes for accesses of up to 4 bytes, halves for 8, quarters for 16.
    A phase takes as many wavefronts as the fullest bank has distinct words; lanes with the same word share it. A phase
    without an active lane takes none.
Merged phases of wide loads
    An 8-byte load is served as one phase of 32 lanes, and each half of a 16-byte load as one phase of 16, when the
    lanes come in pairs: every active lane i has an inactive partner i ^ 1 or one with the same address; or the same
    holds with partner i ^ 2. Stores are never merged.
ldmatrix, stmatrix
    Each group of 8 lanes gives the rows of one 8x8 matrix: a phase of eight 16-byte rows. The lanes beyond the last
    matrix are ignored.
Atomics
    As stores, but lanes that meet in one word are not shared: a phase takes as many wavefronts as the fullest bank has
    lanes.
cp.async through L1 (`.ca`)
    The banks hold L1 too, so the source conflicts like the destination, and neither is shared. Each wavefront reads
    from a bank at most once and writes to it at most once: a phase is read in as many wavefronts as the fullest bank
    has source lanes, and every further destination lane of a bank adds one (source + destination - 1). ncu's SASS
    level counts as conflicts the wavefronts beyond one a phase. Its hardware counter sees four source lines at a time
    (the tags of one cycle) and among them the larger of the two sides only.
cp.async past L1 (`.cg`, 16 bytes)
    L2 delivers 32-byte sectors and shared memory takes what keeps its place. Of lanes with one destination only the
    first counts. One wavefront moves everything that has the same 128-byte line at the source and at the destination,
    the same exchange of places inside 64 bytes (bits 4 and 5 of source xor destination), and the same halves present in
    each sector (low, high, or both). No conflict is counted, and the hardware counter of all shared wavefronts does
    not see these at all.
cp.async with source size 0
    Lanes that only write zeros read nothing: they are served apart from the lanes that copy, as a plain store to their
    destinations. (Measured where all lanes write zeros; where some do, the hardware counter adds the same passes.)
Ideal wavefronts
    What the bytes of all active lanes fill, 128 a wavefront, but no more than are needed: lanes that share words may
    need fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Kind = Literal["ld", "st", "ldmatrix", "stmatrix", "atom"]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LINE_BYTES = 128
SECTOR_BYTES = 32
WORD_BYTES = 4
BANKS = 32
LANES = 32
TAGS = 4


@dataclass(frozen=True)
class SharedCost:
    """Per execution, int64 [n]: wavefronts needed, wavefronts without any conflict, conflicts as ncu counts them.

    `hardware` are the conflicts of the hardware counter; they differ from `conflicts` for cp.async through L1 only.
    """

    wavefronts: Ints
    ideal: Ints
    conflicts: Ints
    hardware: Ints


@dataclass(frozen=True)
class GlobalCost:
    """Per execution, int64 [n]: requests (0 or 1), distinct 32-byte sectors, and bytes asked for by active lanes."""

    requests: Ints
    sectors: Ints
    bytes: Ints


def shared_cost(kind: Kind, width: int, addresses: Any, active: Any, matrices: int = 4) -> SharedCost:
    """Cost of n executions of one shared-memory instruction other than cp.async.

    `width` is the bytes of one lane (1 to 16); `matrices` (1, 2 or 4) matters for ldmatrix and stmatrix only.
    """
    address = np.asarray(addresses, dtype=np.int64)
    mask = np.asarray(active, dtype=np.bool_)
    if kind in ("ldmatrix", "stmatrix"):
        width = 16
        mask = mask & (np.arange(LANES) < 8 * matrices)
    phase = _phases(width, address, mask, merge=kind == "ld")
    wavefronts = _fullest(width, address, mask, phase, share=kind != "atom").sum(axis=1)
    conflicts = wavefronts - _distinct(np.where(mask, phase, -1), mask)
    return SharedCost(wavefronts, _ideal(width, mask, wavefronts), conflicts, conflicts)


def copy_cost(
    width: int, destinations: Any, active: Any, sources: Any, reading: Any, bypass: bool = False
) -> SharedCost:
    """Cost of n executions of one cp.async of `width` bytes: past L1 (`bypass`, `.cg`) or through it (`.ca`).

    `sources` are global byte addresses [n, 32]; lanes that are active but not `reading` (source size 0) write zeros.
    """
    target = np.asarray(destinations, dtype=np.int64)
    source = np.broadcast_to(np.asarray(sources, dtype=np.int64), target.shape)
    mask = np.asarray(active, dtype=np.bool_)
    copying = mask & np.asarray(reading, dtype=np.bool_)
    cost = _bypass_cost(source, target, copying) if bypass else _through_cost(width, source, target, copying)
    if np.array_equal(copying, mask):
        return cost
    zeros = shared_cost("st", width, target, mask & ~copying)
    return SharedCost(
        cost.wavefronts + zeros.wavefronts, cost.ideal + zeros.ideal, cost.conflicts + zeros.conflicts,
        cost.hardware + zeros.hardware,
    )  # fmt: skip


def least_copy_wavefronts(
    width: int, destinations: Any, active: Any, sources: Any, reading: Any, bypass: bool = False
) -> Ints:
    """Wavefronts [n] that the same cp.async would take at a good place in shared memory: what it copies from alone
    decides. Past L1 every run of neighbouring sources has lines of its own there, in their order; rows that do not
    begin at a sector cost more there too. Through L1 only the banks that it reads from count."""
    target = np.asarray(destinations, dtype=np.int64)
    source = np.broadcast_to(np.asarray(sources, dtype=np.int64), target.shape)
    mask = np.asarray(active, dtype=np.bool_)
    copying = mask & np.asarray(reading, dtype=np.bool_)
    if bypass:
        kept = _only_writers(target, copying)
        least = _bypass_cost(source, _in_runs(source, kept), kept).wavefronts
    else:
        phase = _phases(width, target, copying, merge=False)
        least = _fullest(width, source, copying, phase, share=False).sum(axis=1)
    if not np.array_equal(copying, mask):
        least = least + shared_cost("st", width, target, mask & ~copying).wavefronts
    return np.asarray(np.minimum(least, copy_cost(width, target, mask, source, reading, bypass).wavefronts))


def global_cost(width: int, addresses: Any, active: Any) -> GlobalCost:
    """Sectors of n executions of one global load or store of `width` bytes a lane: the distinct aligned 32-byte pieces
    that the active lanes touch, whatever their order. A warp without an active lane makes no request."""
    address = np.asarray(addresses, dtype=np.int64)
    mask = np.asarray(active, dtype=np.bool_)
    first, last = address // SECTOR_BYTES, (address + width - 1) // SECTOR_BYTES
    sector = first if np.array_equal(first, last) else np.concatenate([first, last], axis=1)
    seen = mask if sector is first else np.concatenate([mask, mask], axis=1)
    lanes = mask.sum(axis=1)
    return GlobalCost((lanes > 0).astype(np.int64), _distinct(sector, seen), lanes * width)


def bypass_global_cost(sources: Any, destinations: Any, active: Any) -> GlobalCost:
    """Sectors that cp.async.cg (16 bytes) asks of L2: for each 32-byte sector of shared memory one from every 128-byte
    line that supplies a part of it. Of lanes with one destination only the last counts."""
    source = np.asarray(sources, dtype=np.int64)
    target = np.asarray(destinations, dtype=np.int64)
    mask = np.asarray(active, dtype=np.bool_)
    lanes = mask.sum(axis=1)
    unit = _number(source // LINE_BYTES, target // SECTOR_BYTES)
    sectors = _distinct(unit, _only_writers(target, mask, last=True))
    return GlobalCost((lanes > 0).astype(np.int64), sectors, lanes * 16)


def _phases(width: int, address: Ints, mask: Mask, merge: bool) -> Ints:
    """The phase [n, 32] in which each lane is served."""
    lanes = np.arange(LANES)
    if width <= 4:
        return np.zeros(address.shape, dtype=np.int64)
    size = LINE_BYTES // width
    phase = np.broadcast_to(lanes // size, address.shape)
    if not merge:
        return phase
    span = 2 * size  # lanes whose two phases may merge: the warp for 8 bytes, half a warp for 16
    merged = np.zeros((len(address), LANES // span), dtype=np.bool_)
    for distance in (1, 2):
        partner = lanes ^ distance
        paired = ~mask | ~mask[:, partner] | (address == address[:, partner])
        merged |= paired.reshape(len(address), -1, span).all(axis=2)
    return np.where(np.repeat(merged, span, axis=1), lanes // span * 2, phase)


def _fullest(width: int, address: Ints, mask: Mask, phase: Ints, share: bool, phases: int = 4) -> Ints:
    """For each phase the distinct words (`share`) or the lanes of the fullest bank: int64 [n, phases]."""
    count = len(address)
    words = address[:, :, None] // WORD_BYTES + np.arange(max(1, width // WORD_BYTES))
    row = (np.arange(count)[:, None] * phases + phase)[:, :, None]
    row = np.broadcast_to(row, words.shape)[mask]
    words = words[mask]
    if share:
        lowest = int(words.min()) if words.size else 0
        extent = int(words.max()) - lowest + 1 if words.size else 1
        key = unique(row * extent + (words - lowest))
        row, words = key // extent, key % extent + lowest
    banks = np.bincount((row * BANKS + words % BANKS).ravel(), minlength=count * phases * BANKS)
    return np.asarray(banks.reshape(count, phases, BANKS).max(axis=2), dtype=np.int64)


def _ideal(width: int, mask: Mask, wavefronts: Ints) -> Ints:
    """Wavefronts [n] that the bytes of the active lanes fill, or those needed where these are fewer."""
    return np.asarray(np.minimum(-(-mask.sum(axis=1) * width // LINE_BYTES), wavefronts), dtype=np.int64)


def _through_cost(width: int, source: Ints, target: Ints, mask: Mask) -> SharedCost:
    phase = _phases(width, target, mask, merge=False)
    reads = _fullest(width, source, mask, phase, share=False)
    writes = _fullest(width, target, mask, phase, share=False)
    wavefronts = np.where(reads > 0, reads + writes - 1, 0).sum(axis=1)
    conflicts = wavefronts - (reads > 0).sum(axis=1)
    tags = phase * 8 + _line_rank(source, phase, mask) // TAGS  # at most 32 lines a phase: 8 groups of tags
    seen = np.maximum(*(_fullest(width, side, mask, tags, share=False, phases=32) for side in (source, target)))
    hardware = np.maximum(seen - 1, 0).sum(axis=1)
    return SharedCost(wavefronts, _ideal(width, mask, wavefronts), conflicts, hardware)


def _line_rank(source: Ints, phase: Ints, mask: Mask) -> Ints:
    """How many other lines of its phase come before each lane's source line [n, 32], in the order of the lanes."""
    line = _number(source // LINE_BYTES, np.broadcast_to(phase, source.shape))
    same = (line[:, :, None] == line[:, None, :]) & mask[:, None, :]
    first = same.argmax(axis=2)  # the lane that names the line first
    leads = (first == np.arange(LANES)) & mask
    before = (leads[:, None, :] & (phase[..., :, None] == phase[..., None, :])) & np.tri(LANES, dtype=np.bool_)
    rank = before.sum(axis=2) - 1
    return np.where(mask, np.take_along_axis(rank, first, axis=1), 0)


def _bypass_cost(source: Ints, target: Ints, active: Mask) -> SharedCost:
    mask = _only_writers(target, active)
    exchange = (source ^ target) >> 4 & 3
    unit = _number(source // SECTOR_BYTES, target // SECTOR_BYTES, exchange & 1)
    same = (unit[:, :, None] == unit[:, None, :]) & mask[:, None, :]
    high = (source >> 4 & 1).astype(np.bool_)[:, None, :]
    present = (same & ~high).any(axis=2) + 2 * (same & high).any(axis=2)  # halves of the lane's unit that are moved
    group = _number(source // LINE_BYTES, target // LINE_BYTES, exchange, present)
    wavefronts = _distinct(group, mask)
    none = np.zeros(len(target), dtype=np.int64)
    return SharedCost(wavefronts, _ideal(16, mask, wavefronts), none, none)


def _in_runs(source: Ints, mask: Mask) -> Ints:
    """Destinations [n, 32] that keep each run of neighbouring 16-byte sources together, from a line on; runs apart."""
    order = np.argsort(np.where(mask, source, np.iinfo(np.int64).max), axis=1, kind="stable")
    ordered = np.take_along_axis(source, order, axis=1)
    begins = np.ones(ordered.shape, dtype=np.bool_)
    begins[:, 1:] = ordered[:, 1:] - ordered[:, :-1] != 16
    first = np.take_along_axis(ordered, np.maximum.accumulate(np.where(begins, np.arange(LANES), 0), axis=1), axis=1)
    place = np.empty_like(ordered)
    np.put_along_axis(place, order, begins.cumsum(axis=1) * LANES * 16 + (ordered - first), axis=1)
    return place


def _only_writers(target: Ints, active: Mask, last: bool = False) -> Mask:
    """Active lanes [n, 32] whose destination no lower active lane has (or none higher, with `last`)."""
    same = (target[:, :, None] == target[:, None, :]) & active[:, None, :]
    others = np.tri(LANES, k=-1, dtype=np.bool_)
    return np.asarray(active & ~(same & (others.T if last else others)).any(axis=2), dtype=np.bool_)


def _number(*parts: Ints) -> Ints:
    """One number [n, 32] for each distinct tuple of parts (arrays of one shape)."""
    total = np.zeros(parts[0].shape, dtype=np.int64)
    for part in parts:
        low, high = int(part.min()), int(part.max())
        total = total * (high - low + 1) + (part - low)
        if int(total.max()) > 1 << 31:
            total = np.unique(total, return_inverse=True)[1].reshape(total.shape).astype(np.int64)
    return total


def unique(values: Ints) -> Ints:
    """The distinct values in order, by sorting: faster than hashing for the arrays here."""
    ordered = np.sort(values, axis=None)
    new = np.ones(ordered.shape, dtype=np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return np.asarray(ordered[new], dtype=np.int64)


def _distinct(values: Ints, mask: Mask) -> Ints:
    """How many distinct values [n] each row has among the lanes of `mask`."""
    absent = int(values.min()) - 1 if values.size else 0
    ordered = np.sort(np.where(mask, values, absent), axis=1)
    new = ordered != absent
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return np.asarray(new.sum(axis=1), dtype=np.int64)
