"""cp.async.bulk.tensor: boxes between global and shared memory by tensor maps.

What is loaded is read at once, counts at a barrier in shared memory, and lands when somebody has waited there
(mbarriers.py). What is stored is read when its thread waits for its group, at the latest when the batch ends: whoever
writes there again without waiting stores that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dgw.workbench.emulator.addresses import split_address
from dgw.workbench.emulator.clusters import RANK_BIT, reached
from dgw.workbench.emulator.elementwise import immediate
from dgw.workbench.emulator.group import U16, U32, U64, Group
from dgw.workbench.emulator.moves import WINDOWS
from dgw.workbench.emulator.operands import POISON
from dgw.workbench.emulator.operation import Operation, Source, Thunk, malformed, source, unknown
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import Operand, TensorAddress
from dgw.workbench.emulator.tensor_maps import BYTES, TensorMap

Array = Any  # a NumPy array
_LOAD = ("shared::cluster", "global", "mbarrier::complete_tx::bytes")
_STORE = ("global", "shared::cta", "bulk_group")
_WINDOW = 56  # bits of an address in a window
_ILLEGAL = (
    "the box at column {} of line {} does not begin at a multiple of 16 bytes in global memory: hardware ends the "
    "launch with an illegal instruction"
)


@dataclass(frozen=True, slots=True)
class Form:
    """Offsets of the addresses of shared memory, map and barrier (0 for a store); if `several` CTAs get the box."""

    loads: bool
    shared: int
    map: int
    barrier: int = 0
    several: bool = False


def decode(instruction: Instruction) -> Operation:
    """Loads and stores of boxes with two extents, and the groups of stores."""
    words = instruction.modifiers[2:]
    several = words[-1:] == ("multicast::cluster",)
    words = words[:-1] if several else words
    if words[:1] in (("commit_group",), ("wait_group",)):
        left = immediate(instruction, 0) if words[0] == "wait_group" else -1
        return Operation(instruction, (), (), _build_group, left, False, loads="shared", stores="global", ordered=True)
    if words[:2] != ("tensor", "2d") or words[2:] not in (_LOAD, _STORE):
        raise unknown(instruction)
    loads = words[2:] == _LOAD
    operands = instruction.operands
    if len(operands) != (3 if loads else 2) + several:
        raise malformed(instruction)
    place, tensor = (operands[0], operands[1]) if loads else (operands[1], operands[0])
    if not isinstance(tensor, TensorAddress) or len(tensor.coordinates) != 2:
        raise malformed(instruction, "two coordinates are missing")
    shared, shared_offset = split_address(instruction, place)
    base, map_offset = split_address(instruction, tensor.map)
    coordinates: tuple[Operand, ...] = tensor.coordinates
    reads: list[Source] = [shared, base, *(source(instruction, one, 32) for one in coordinates)]
    barrier_offset = 0
    if loads:
        barrier, barrier_offset = split_address(instruction, operands[2])
        reads.append(barrier)
        reads += [source(instruction, operands[3], 16)] if several else []
    form = Form(loads, shared_offset, map_offset, barrier_offset, several)
    return Operation(instruction, (), tuple(reads), _build, form, False, loads="global" if loads else "shared",
                     stores="shared" if loads else "global", ordered=True)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Copy:
    """One box: who asked for it, and from where to where."""

    lane: int
    index: int
    shared: int
    map: TensorMap
    line: int
    column: int
    barrier: int
    peers: int  # a bit for each CTA of the cluster that gets it; 0: the one whose address it is


class _Copier:
    def __init__(self, group: Group) -> None:
        self.group, self.engine, self.form = group, group.engine, group.detail
        self.lanes = group.lanes
        self.shared = group.engine.shared
        self.fetches = [
            group.source(position, dtype).fetch
            for position, dtype in enumerate((U32, U64, U32, U32, U32, U16)[: len(group.first.reads)])
        ]

    def run(self) -> None:
        shape = (self.group.n, self.lanes.count)
        values = [np.broadcast_to(fetch(), shape) for fetch in self.fetches]
        mask = self.group.mask
        active = np.broadcast_to(True if mask is None else mask, shape) & self.lanes.exists
        for member, lane in zip(*np.nonzero(active), strict=True):
            found = self._copy(int(lane), int(member), [int(value[member, lane]) for value in values])
            if found is not None:
                self._load(found) if self.form.loads else self._store(found)

    def _copy(self, lane: int, member: int, values: list[int]) -> _Copy | None:
        form, index = self.form, self.group.operations[member].index
        column, line = (int(np.uint32(value).astype(np.int32)) for value in values[2:4])
        tensor = self._map(values[1] + form.map)
        shared = values[0] + form.shared
        wrong = self._wrong(tensor, values[1] + form.map, shared, line, column)
        if tensor is None or wrong is not None:
            self._report(*(wrong or ("", "")), lane, index)
            return None
        barrier = values[4] + form.barrier if form.loads else 0
        peers = values[5] if form.several else 0
        return _Copy(lane, index, shared, tensor, line, column, barrier, peers)

    def _wrong(
        self, tensor: TensorMap | None, place: int, shared: int, line: int, column: int
    ) -> tuple[str, str] | None:
        """Kind and text of what is wrong with the map that was found at an address, or with the places of its box."""
        if tensor is None:
            return "out-of-bounds", f"there is no tensor map at {place:#x}"
        if (shared & (1 << RANK_BIT) - 1) + tensor.box_bytes > self.shared.limit:
            what = f"a box of {tensor.box_bytes} bytes at shared address {shared:#x} ends outside of shared memory"
            return "out-of-bounds", what
        if shared % 128:
            return "misaligned", f"shared address {shared:#x} is no multiple of 128 bytes"
        return ("misaligned", _ILLEGAL.format(column, line)) if tensor.first(line, column) % 16 else None

    def _report(self, kind: str, message: str, lane: int, index: int) -> None:
        name = self.group.engine.infos[index].text.split()[0]
        self.engine.findings.add(kind, f"{name}: {message}", index, self.lanes, np.array([lane]))

    def _map(self, address: int) -> TensorMap | None:
        window, offset = address >> _WINDOW << _WINDOW, address & (1 << _WINDOW) - 1
        if window == WINDOWS["param"]:
            data = self.engine.space("param").arena.data
        else:
            buffer = self.engine.memory.locate(address, address + BYTES)
            if buffer is None:
                return None
            data, offset = buffer.data, address - buffer.base
        return TensorMap.decode(data[offset : offset + BYTES].tobytes()) if offset + BYTES <= len(data) else None

    def _bytes(self, copy: _Copy, addresses: Array, inside: Array) -> tuple[Array, Array] | None:
        """The bytes of the buffer that has all elements of a box, and where in it each of them begins."""
        if not inside.any():
            return np.zeros(copy.map.size, np.uint8), np.zeros(addresses.shape, np.int64)
        low, high = int(addresses[inside].min()), int(addresses[inside].max()) + copy.map.size
        buffer = self.engine.memory.locate(low, high)
        if buffer is None or (not self.form.loads and not buffer.writable):
            kind = "out-of-bounds" if buffer is None else "read-only"
            self._report(kind, f"the box at {low:#x} is in no buffer that it may use", copy.lane, copy.index)
            return None
        return buffer.data, np.where(inside, addresses - buffer.base, low - buffer.base)

    def _ends(self, copy: _Copy) -> list[tuple[int, int]]:
        """Shared and barrier addresses, as shared::cluster addresses, of all CTAs that get a box."""
        if not copy.peers:
            return [(copy.shared, copy.barrier)]
        ranks = [rank for rank in range(16) if copy.peers >> rank & 1]
        own = (1 << RANK_BIT) - 1
        return [tuple((at & own) | rank + 1 << RANK_BIT for at in (copy.shared, copy.barrier)) for rank in ranks]  # type: ignore[misc]

    def _places(self, copy: _Copy, shared: int) -> Array:
        """Where in the arena the elements of a box are."""
        cta, at = reached(self.engine, copy.lane, shared)
        return copy.map.places(at) + self.shared.first_byte(cta)

    def _load(self, copy: _Copy) -> None:
        addresses, inside = copy.map.outside(copy.line, copy.column)
        found = self._bytes(copy, addresses, inside)
        step = np.arange(copy.map.size)
        values = np.zeros((*inside.shape, copy.map.size), np.uint8)
        if found is not None:
            values = np.where(inside[..., None], found[0][found[1][..., None] + step], 0)
        arena = self.shared.arena.data
        for shared, barrier in self._ends(copy):
            places = self._places(copy, shared)
            arena[places[..., None] + step] = POISON
            self.shared.filled(int(places.min()), copy.map.box_bytes)
            land = partial(arena.__setitem__, places[..., None] + step, values)
            self.engine.mbarriers.count(copy.lane, barrier, copy.map.box_bytes, copy.index, land)

    def _store(self, copy: _Copy) -> None:
        addresses, inside = copy.map.outside(copy.line, copy.column)
        found = self._bytes(copy, addresses, inside)
        if found is None or not inside.any():
            return
        data, at = found
        step = np.arange(copy.map.size)
        places = self._places(copy, copy.shared)[..., None] + step
        arena = self.shared.arena.data

        def store() -> None:
            data[at[inside][:, None] + step] = arena[places][inside]

        self.engine.stores.issue(copy.lane, store)
        if self.engine.observer is not None:
            self.engine.observer.stored(addresses[inside], copy.map.size)


def _build(group: Group) -> Thunk:
    return group.finish(_Copier(group).run)


class BulkStores:
    """The stores of a batch that have not read their shared memory: by lane, its groups, the last one open."""

    def __init__(self) -> None:
        self.groups: dict[int, list[list[Callable[[], None]]]] = {}

    def issue(self, lane: int, store: Callable[[], None]) -> None:
        """A store of the lane's open group."""
        self.groups.setdefault(lane, [[]])[-1].append(store)

    def commit(self, lane: int) -> None:
        """Close the lane's group."""
        self.groups.setdefault(lane, [[]]).append([])

    def wait(self, lane: int, left: int) -> None:
        """All but the last `left` closed groups of the lane read what they store."""
        groups = self.groups.get(lane, [[]])
        while len(groups) - 1 > left:
            for store in groups.pop(0):
                store()

    def end(self) -> None:
        """The batch ends: all others read theirs."""
        for groups in self.groups.values():
            for store in (one for group in groups for one in group):
                store()
        self.groups.clear()


def _build_group(group: Group) -> Thunk:
    left, stores, lanes, mask = group.detail, group.engine.stores, group.lanes, group.mask

    def run() -> None:
        active = lanes.exists if mask is None else lanes.exists & mask.reshape(-1, lanes.count).any(axis=0)
        for lane in np.nonzero(active)[0]:
            stores.commit(int(lane)) if left < 0 else stores.wait(int(lane), left)

    return group.finish(run)
