"""Instructions between the lanes of a warp: shfl vote match activemask redux elect, bar.warp.sync."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dgw.workbench.emulator.elementwise import NUMPY
from dgw.workbench.emulator.group import BOOL, U32, U64, Group
from dgw.workbench.emulator.operation import (
    Operation,
    Source,
    Thunk,
    check_modifiers,
    destination,
    expect,
    malformed,
    source,
    unknown,
)
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import Operand, Pair
from dgw.workbench.emulator.state import WARP

Array = Any  # a NumPy array
LANE = np.arange(WARP, dtype=np.int64)


def _pair(operand: Operand) -> tuple[Operand, ...]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand,)


class _Warps:
    """Reshapes between lanes [n, lanes] and warps [n, warps, 32], and knows which lanes take part."""

    def __init__(self, group: Group) -> None:
        self.shape = (group.n, group.lanes.warps, WARP)
        self.lanes = group.lanes.count
        self.group = group

    def warp(self, value: Array) -> Array:
        """Lanes as warps."""
        return np.broadcast_to(value, (self.shape[0], self.lanes)).reshape(self.shape)

    def flat(self, value: Array) -> Array:
        """Warps as lanes."""
        return np.broadcast_to(value, self.shape).reshape(self.shape[0], self.lanes)

    def active(self) -> Array:
        """The lanes that execute the group, [n, warps, 32]."""
        mask = self.group.mask
        return np.ones(self.shape, bool) if mask is None else self.warp(mask)

    def members(self, mask: Array) -> Array:
        """The active lanes; reports warps whose member mask names others."""
        active = self.active()
        named = (self.warp(mask)[..., None] >> LANE.astype(np.uint32)) & np.uint32(1) != 0
        named &= self.group.engine.alive.reshape(self.shape[1:])[:, None, :]
        leaders = active & (named != active[..., None, :]).any(axis=-1)
        if leaders.any():
            self.group.engine.report_divergent(leaders.reshape(self.shape[0], -1), self.group, "its member mask")
        return active


def decode_shuffle(instruction: Instruction) -> Operation:
    """shfl.sync: up down bfly idx."""
    present = check_modifiers(instruction, {"sync", "up", "down", "bfly", "idx", "b32"})
    modes = present & {"up", "down", "bfly", "idx"}
    if len(modes) != 1 or "sync" not in present or "b32" not in present:
        raise unknown(instruction)
    operands = expect(instruction, 5)
    members = _pair(operands[0])
    writes = [destination(instruction, members[0], 32)]
    writes += [destination(instruction, member, 1) for member in members[1:]]
    reads = tuple(source(instruction, operand, 32) for operand in operands[1:])
    return Operation(instruction, tuple(writes), reads, _build_shuffle, next(iter(modes)), False)


def _source_lane(mode: str, b: Array, c: Array) -> tuple[Array, Array]:
    """The lane to read and whether it is in range, as the manual's pseudo-code computes it."""
    amount, clamp, segment = b & 31, c & 31, (c >> 8) & 31
    last = (LANE & segment) | (clamp & ~segment)
    if mode == "up":
        lane = LANE - amount
        valid = lane >= last
    elif mode == "down":
        lane = LANE + amount
        valid = lane <= last
    elif mode == "bfly":
        lane = LANE ^ amount
        valid = lane <= last
    else:
        lane = (LANE & segment) | (amount & ~segment)
        valid = lane <= last
    return np.where(valid, lane, LANE), valid


def _build_shuffle(group: Group) -> Thunk:
    warps = _Warps(group)
    value, b, c, mask = (group.source(position, U32).fetch for position in range(4))
    stores = [group.target(0, U32).store]
    if len(group.first.writes) == 2:
        stores.append(group.target(1, BOOL).store)
    mode = group.detail

    def run() -> None:
        warps.members(mask())
        lane, valid = _source_lane(mode, warps.warp(b()).astype(np.int64), warps.warp(c()).astype(np.int64))
        result = np.take_along_axis(warps.warp(value()), lane, axis=-1)
        stores[0](warps.flat(result))
        for store in stores[1:]:
            store(warps.flat(valid))

    return group.finish(run)


def ballot(votes: Array) -> Array:
    """Votes [.., 32] as one 32-bit word each."""
    return np.ascontiguousarray(np.packbits(votes, axis=-1, bitorder="little")).view(np.uint32)


def decode_vote(instruction: Instruction) -> Operation:
    """vote.sync: all any uni ballot."""
    present = check_modifiers(instruction, {"sync", "all", "any", "uni", "ballot", "pred", "b32"})
    modes = present & {"all", "any", "uni", "ballot"}
    if len(modes) != 1 or "sync" not in present:
        raise unknown(instruction)
    operands = expect(instruction, 3)
    mode = next(iter(modes))
    bits = 32 if mode == "ballot" else 1
    reads: tuple[Source, ...] = (source(instruction, operands[1], 1), source(instruction, operands[2], 32))
    return Operation(instruction, (destination(instruction, operands[0], bits),), reads, _build_vote, mode, False)


def _build_vote(group: Group) -> Thunk:
    warps = _Warps(group)
    value, mask = group.source(0, BOOL).fetch, group.source(1, U32).fetch
    mode = group.detail
    store = group.target(0, U32 if mode == "ballot" else BOOL).store

    def run() -> None:
        active = warps.members(mask())
        votes = warps.warp(value())
        if mode == "ballot":
            result = ballot(votes & active)
        else:
            every, some = (votes | ~active).all(axis=-1), (votes & active).any(axis=-1)
            result = {"all": every, "any": some, "uni": every | ~some}[mode][..., None]
        store(warps.flat(result))

    return group.finish(run)


def decode_match(instruction: Instruction) -> Operation:
    """match.any.sync and match.all.sync."""
    present = check_modifiers(instruction, {"sync", "any", "all", "b32", "b64"})
    if len(present & {"any", "all"}) != 1 or len(present & {"b32", "b64"}) != 1 or "sync" not in present:
        raise unknown(instruction)
    operands = expect(instruction, 3)
    members = _pair(operands[0])
    writes = [destination(instruction, members[0], 32)]
    writes += [destination(instruction, member, 1) for member in members[1:]]
    wide = "b64" in present
    reads = (source(instruction, operands[1], 64 if wide else 32), source(instruction, operands[2], 32))
    detail = ("all" if "all" in present else "any", wide)
    return Operation(instruction, tuple(writes), reads, _build_match, detail, False)


def _build_match(group: Group) -> Thunk:
    warps = _Warps(group)
    mode, wide = group.detail
    value, mask = group.source(0, U64 if wide else U32).fetch, group.source(1, U32).fetch
    store = group.target(0, U32).store
    second = group.target(1, BOOL).store if len(group.first.writes) == 2 else None

    def run() -> None:
        active = warps.members(mask())
        values = warps.warp(value())
        same = (values[..., :, None] == values[..., None, :]) & active[..., None, :]
        if mode == "any":
            store(warps.flat(ballot(same)[..., 0]))
            return
        every = (same | ~active[..., None, :]).all(axis=-1)
        store(warps.flat(np.where(every, ballot(active), np.uint32(0))))
        if second is not None:
            second(warps.flat(every))

    return group.finish(run)


def decode_activemask(instruction: Instruction) -> Operation:
    """activemask: the lanes of the warp that execute it together."""
    check_modifiers(instruction, {"b32"})
    (operand,) = expect(instruction, 1)

    def build(group: Group) -> Thunk:
        warps = _Warps(group)
        store = group.target(0, U32).store
        return group.finish(lambda: store(warps.flat(ballot(warps.active()))))

    return Operation(instruction, (destination(instruction, operand, 32),), (), build, "activemask", False)


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def decode_reduction(instruction: Instruction) -> Operation:
    """redux.sync on 32-bit integers."""
    present = check_modifiers(instruction, {"sync", *_REDUCTIONS, "u32", "s32", "b32"})
    words, types = present & set(_REDUCTIONS), present & {"u32", "s32", "b32"}
    if len(words) != 1 or len(types) != 1 or "sync" not in present:
        raise unknown(instruction)
    operands = expect(instruction, 3)
    name, type_name = next(iter(words)), next(iter(types))
    reads = (source(instruction, operands[1], 32), source(instruction, operands[2], 32))
    build = partial(_build_reduction, name, NUMPY[type_name])
    return Operation(instruction, (destination(instruction, operands[0], 32),), reads, build, None, False)


def _build_reduction(name: str, dtype: np.dtype[Any], group: Group) -> Thunk:
    warps = _Warps(group)
    value, mask = group.source(0, dtype).fetch, group.source(1, U32).fetch
    store, function = group.target(0, dtype).store, _REDUCTIONS[name]
    limits = np.iinfo(dtype)
    neutral = {"min": limits.max, "max": limits.min, "and": -1 if dtype.kind == "i" else limits.max}.get(name, 0)

    def run() -> None:
        active = warps.members(mask())
        values = np.where(active, warps.warp(value()), dtype.type(neutral))
        store(warps.flat(function.reduce(values, axis=-1, keepdims=True, dtype=dtype)))  # type: ignore[attr-defined]

    return group.finish(run)


def decode_elect(instruction: Instruction) -> Operation:
    """elect.sync: the lowest active lane is the leader."""
    check_modifiers(instruction, {"sync"})
    operands = expect(instruction, 2)
    members = _pair(operands[0])
    if len(members) != 2:
        raise malformed(instruction)
    writes = (destination(instruction, members[0], 32), destination(instruction, members[1], 1))

    def build(group: Group) -> Thunk:
        warps = _Warps(group)
        mask = group.source(0, U32).fetch
        lane, leads = group.target(0, U32).store, group.target(1, BOOL).store

        def run() -> None:
            active = warps.members(mask())
            leader = np.argmax(active, axis=-1)[..., None]
            lane(warps.flat(leader.astype(np.uint32)))
            leads(warps.flat(leader == LANE))

        return group.finish(run)

    return Operation(instruction, writes, (source(instruction, operands[1], 32),), build, None, False)


def decode_warp_barrier(instruction: Instruction) -> Operation:
    """bar.warp.sync: orders memory among the lanes of a warp."""
    check_modifiers(instruction, {"warp", "sync"})
    (operand,) = expect(instruction, 1)

    def build(group: Group) -> Thunk:
        warps = _Warps(group)
        mask, shared = group.source(0, U32).fetch, group.engine.space("shared")

        def run() -> None:
            active = warps.members(mask())
            shared.warp_barrier(active[0].any(axis=-1))

        return group.finish(run)

    reads = (source(instruction, operand, 32),)
    return Operation(
        instruction, (), reads, build, "warp barrier", False, loads="generic", stores="generic", ordered=True
    )  # fmt: skip
