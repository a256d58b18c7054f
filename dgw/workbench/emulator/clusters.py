"""Clusters: CTAs side by side along x, their addresses of each other's shared memory, and where all of them meet.

A shared::cluster address is that of the CTA's own shared memory, or one that `mapa` made: it has the rank of the CTA,
from one, above the bits of the address.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.addresses import split_address
from dgw.workbench.emulator.elementwise import elementwise
from dgw.workbench.emulator.group import U32, Group
from dgw.workbench.emulator.operation import (
    Operation,
    Thunk,
    check_modifiers,
    expect,
    items,
    malformed,
    source,
    unknown,
)
from dgw.workbench.emulator.ptx.module import Instruction

if TYPE_CHECKING:
    from dgw.workbench.emulator.engine import Engine

Array = Any  # a NumPy array
RANK_BIT = 24
POISON = 0xFFFFFFFF  # a NaN
_WORDS = {"cluster", "arrive", "wait", "aligned", "relaxed", "release", "acquire"}
_ASYNC = ("async", "weak", "shared::cluster", "mbarrier::complete_tx::bytes", "v4")


def reached(engine: Engine, lane: int, address: int) -> tuple[int, int]:
    """The CTA of the batch and its shared address that a lane means by a shared::cluster address."""
    lanes, rank = engine.lanes, address >> RANK_BIT
    cta = int(lanes.cta[lane])
    return (lanes.first_of_cluster(cta) + rank - 1 if rank else cta), address & (1 << RANK_BIT) - 1


class ClusterBarriers:
    """`barrier.cluster`: how often each lane has arrived, and who waits for all others to have arrived as often."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        count = engine.lanes.count
        self.arrived = np.zeros(count, dtype=np.int64)
        self.waiting = np.zeros(count, dtype=np.bool_)
        self.changed = False

    def reset(self) -> None:
        """Nobody has arrived."""
        self.arrived.fill(0)
        self.waiting.fill(False)
        self.changed = False

    def arrive(self, mask: NDArray[np.bool_]) -> None:
        """The lanes of `mask` arrive and go on."""
        self.arrived[mask] += 1
        self.changed = True

    def wait(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The lanes of `mask` wait; those that need not, and others that need not any more."""
        self.waiting |= mask
        return self.ended()

    def ended(self) -> NDArray[np.bool_]:
        """The lanes that wait no longer: every lane of their cluster has arrived as often, or has exited."""
        self.changed = False
        lanes = self.engine.lanes
        others = np.where(self.engine.alive, self.arrived, np.iinfo(np.int64).max)
        least = others.reshape(-1, lanes.per_cta * lanes.cluster).min(axis=1)
        found = self.waiting & (self.arrived <= np.repeat(least, lanes.per_cta * lanes.cluster))
        self.waiting &= ~found
        return found


def decode_barrier(instruction: Instruction) -> Operation:
    """barrier.cluster.arrive; `control` performs the wait."""
    present = check_modifiers(instruction, _WORDS)
    expect(instruction, 0)
    if "wait" in present:
        return Operation(instruction, (), (), lambda group: lambda: None, "control", False)

    def build(group: Group) -> Thunk:
        mask, lanes = group.mask, group.lanes
        everyone = np.ones(lanes.count, dtype=np.bool_)

        def run() -> None:
            chosen = everyone if mask is None else mask.reshape(-1, lanes.count).any(axis=0)
            group.engine.clusters.arrive(chosen & lanes.exists)

        return group.finish(run)

    return Operation(
        instruction, (), (), build, "arrive", False, loads="generic", stores="generic", ordered=True
    )  # fmt: skip


def decode_mapa(instruction: Instruction) -> Operation:
    """mapa: the shared::cluster address of what is at a shared address of another CTA of the cluster."""
    if instruction.modifiers != ("shared::cluster", "u32"):
        raise unknown(instruction)
    one, bit = np.uint32(1), np.uint32(RANK_BIT)
    return elementwise(instruction, lambda address, rank: address | (rank + one) << bit, [U32, U32], U32)


def decode_store(instruction: Instruction) -> Operation:
    """st.async: four words to shared memory of the cluster, whose bytes count at a barrier there."""
    if instruction.modifiers[:-1] != _ASYNC or instruction.modifiers[-1] not in ("f32", "b32", "u32", "s32"):
        raise unknown(instruction)
    target, values, barrier = expect(instruction, 3)
    (first, offset), (counter, other) = split_address(instruction, target), split_address(instruction, barrier)
    words = tuple(source(instruction, item, 32) for item in items(instruction, values, 4))
    if offset < 0 or other < 0:
        raise malformed(instruction)
    return Operation(instruction, (), (first, *words, counter), _build_store, (offset, other), False, ordered=True)


def _build_store(group: Group) -> Thunk:
    offset, other = group.detail
    engine, lanes = group.engine, group.lanes
    address, counter = group.source(0, U32).fetch, group.source(5, U32).fetch
    values = group.vector(range(1, 5), U32).fetch

    def run() -> None:
        shape = (group.n, lanes.count)
        targets, counters = np.broadcast_to(address(), shape), np.broadcast_to(counter(), shape)
        words = np.broadcast_to(values(), (group.n, 4, lanes.count))
        active = np.broadcast_to(True if group.mask is None else group.mask, shape) & lanes.exists
        for member, lane in zip(*np.nonzero(active), strict=True):
            index = group.operations[member].index
            cta, at = reached(engine, int(lane), int(targets[member, lane]) + offset)
            place = slice((engine.shared.first_byte(cta) + at) // 4, (engine.shared.first_byte(cta) + at) // 4 + 4)
            view, found = engine.shared.arena.view(4), words[member, :, lane].copy()
            view[place] = POISON
            engine.shared.filled(place.start * 4, 16)
            barrier = int(counters[member, lane]) + other
            engine.mbarriers.count(int(lane), barrier, 16, index, partial(view.__setitem__, place, found))

    return group.finish(run)
