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
Atomics, and cp.async through L1 (`.ca`)
    As stores, but lanes that meet in one word are not shared: a phase takes as many wavefronts as the fullest bank has
    lanes.
cp.async past L1 (`.cg`, 16 bytes)
    L2 delivers 32-byte sectors and shared memory takes what keeps its place. Of lanes with one destination only the
    first counts. One wavefront moves everything that has the same 128-byte line at the source and at the destination,
    the same exchange of places inside 64 bytes (bits 4 and 5 of source xor destination), and the same halves present in
    each sector (low, high, or both). No conflict is counted, and the hardware counter of all shared wavefronts does
    not see these at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Kind = Literal["ld", "st", "ldmatrix", "stmatrix", "atom", "cp.async.ca", "cp.async.cg"]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LINE_BYTES = 128
SECTOR_BYTES = 32
WORD_BYTES = 4
BANKS = 32
LANES = 32


@dataclass(frozen=True)
class SharedCost:
    """Per execution, int64 [n]: wavefronts needed, wavefronts without any conflict, conflicts as ncu counts them."""

    wavefronts: Ints
    ideal: Ints
    conflicts: Ints


@dataclass(frozen=True)
class GlobalCost:
    """Per execution, int64 [n]: requests (0 or 1), distinct 32-byte sectors, and bytes asked for by active lanes."""

    requests: Ints
    sectors: Ints
    bytes: Ints


def shared_cost(
    kind: Kind, width: int, addresses: Any, active: Any, matrices: int = 4, sources: Any | None = None
) -> SharedCost:
    """Cost of n executions of one shared-memory instruction.

    `width` is the bytes of one lane (1 to 16); `matrices` (1, 2 or 4) matters for ldmatrix and stmatrix only, `sources`
    (global byte addresses [n, 32]) for cp.async.cg only: without it lane i reads the 16 bytes at 16 i of a line.
    """
    address = np.asarray(addresses, dtype=np.int64)
    mask = np.asarray(active, dtype=np.bool_)
    if kind == "cp.async.cg":
        source = np.arange(LANES, dtype=np.int64) * 16 if sources is None else np.asarray(sources, dtype=np.int64)
        return _bypass_cost(np.broadcast_to(source, address.shape), address, mask)
    if kind in ("ldmatrix", "stmatrix"):
        width = 16
        mask = mask & (np.arange(LANES) < 8 * matrices)
    phase = _phases(width, address, mask, merge=kind == "ld")
    wavefronts = _bank_wavefronts(width, address, mask, phase, share=kind not in ("atom", "cp.async.ca"))
    phases = _distinct(np.where(mask, phase, -1), mask)
    full = -(-mask.sum(axis=1) * width // LINE_BYTES)
    return SharedCost(wavefronts, np.minimum(full, phases), wavefronts - phases)


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
    """Sectors that cp.async.cg (16 bytes) asks of L2.

    A sector counts once for each 32-byte sector of shared memory that it goes to (or twice, when its halves change
    places there and others do not). When its two halves go to different sectors of one 128-byte line, with the same
    exchange of halves, and the upper half goes below the lower half, they travel together and count once.
    """
    source = np.asarray(sources, dtype=np.int64)
    target = np.asarray(destinations, dtype=np.int64)
    mask = _first_writers(target, np.asarray(active, dtype=np.bool_))
    swap = (source ^ target) >> 4 & 1
    unit = _number(source // SECTOR_BYTES, target // SECTOR_BYTES, swap)
    sectors = _distinct(unit, mask)
    lanes = mask.sum(axis=1)
    joined = _rejoined_halves(source, target, swap, mask)
    return GlobalCost((lanes > 0).astype(np.int64), sectors - joined, lanes * 16)


def _rejoined_halves(source: Ints, target: Ints, swap: Ints, mask: Mask) -> Ints:
    """Number of source sectors [n] whose halves, in lanes i and i + 1, part but still travel together."""
    low, high = slice(0, LANES, 2), slice(1, LANES, 2)
    same_sector = (source[:, low] ^ 16) == source[:, high]
    same_line = target[:, low] // LINE_BYTES == target[:, high] // LINE_BYTES
    apart = target[:, low] // SECTOR_BYTES > target[:, high] // SECTOR_BYTES
    same_swap = swap[:, low] == swap[:, high]
    together = same_sector & same_line & apart & same_swap & mask[:, low] & mask[:, high]
    return np.asarray(together.sum(axis=1), dtype=np.int64)


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


def _bank_wavefronts(width: int, address: Ints, mask: Mask, phase: Ints, share: bool) -> Ints:
    """Wavefronts [n]: over the phases, the distinct words (`share`) or the lanes of the fullest bank."""
    count = len(address)
    words = address[:, :, None] // WORD_BYTES + np.arange(max(1, width // WORD_BYTES))
    row = (np.arange(count)[:, None] * 4 + phase)[:, :, None]
    row = np.broadcast_to(row, words.shape)[mask]
    words = words[mask]
    if share:
        lowest = int(words.min()) if words.size else 0
        extent = int(words.max()) - lowest + 1 if words.size else 1
        key = unique(row * extent + (words - lowest))
        row, words = key // extent, key % extent + lowest
    banks = np.bincount((row * BANKS + words % BANKS).ravel(), minlength=count * 4 * BANKS)
    return np.asarray(banks.reshape(count, 4, BANKS).max(axis=2).sum(axis=1), dtype=np.int64)


def _bypass_cost(source: Ints, target: Ints, active: Mask) -> SharedCost:
    mask = _first_writers(target, active)
    exchange = (source ^ target) >> 4 & 3
    unit = _number(source // SECTOR_BYTES, target // SECTOR_BYTES, exchange & 1)
    present = np.zeros(target.shape, dtype=np.int64)  # which halves of the lane's unit are moved: bit 0 low, bit 1 high
    for lane in range(LANES):
        same = (unit == unit[:, lane : lane + 1]) & mask[:, lane : lane + 1]
        present |= np.where(same, 1 << (source[:, lane : lane + 1] >> 4 & 1), 0)
    group = _number(source // LINE_BYTES, target // LINE_BYTES, exchange, present)
    wavefronts = _distinct(group, mask)
    ideal = -(-mask.sum(axis=1) * 16 // LINE_BYTES)
    return SharedCost(wavefronts, np.asarray(ideal, dtype=np.int64), np.zeros(len(target), dtype=np.int64))


def _first_writers(target: Ints, active: Mask) -> Mask:
    """Active lanes [n, 32] whose destination no lower active lane has."""
    same = (target[:, :, None] == target[:, None, :]) & active[:, None, :]
    earlier = np.tril(np.ones((LANES, LANES), dtype=np.bool_), -1)
    return np.asarray(active & ~(same & earlier).any(axis=2), dtype=np.bool_)


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
