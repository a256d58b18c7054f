"""ldmatrix and stmatrix of 8x8 matrices of 16-bit elements, plain and transposed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgw.workbench.emulator.addresses import Addressing, split_address
from dgw.workbench.emulator.group import U32, Group
from dgw.workbench.emulator.memory import WIDE
from dgw.workbench.emulator.memory_access import Announcer, site_of
from dgw.workbench.emulator.operation import (
    Operation,
    Thunk,
    check_modifiers,
    destination,
    items,
    malformed,
    source,
    unknown,
)
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.state import WARP

Array = Any  # a NumPy array
ROW_BYTES = 16
_WORDS = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"}


@dataclass(frozen=True, slots=True)
class Form:
    """`count` matrices; `vector` makes their registers neighbours."""

    count: int
    transposed: bool
    vector: int


def decode(instruction: Instruction) -> Operation:
    """ldmatrix and stmatrix."""
    present = check_modifiers(instruction, _WORDS)
    counts = present & {"x1", "x2", "x4"}
    if len(counts) != 1 or not present >= {"sync", "aligned", "m8n8", "b16"} or len(instruction.operands) != 2:
        raise unknown(instruction)
    count = int(next(iter(counts))[1])
    form = Form(count, "trans" in present, count)
    loading = instruction.opcode == "ldmatrix"
    registers, address = instruction.operands if loading else instruction.operands[::-1]
    members = items(instruction, registers, count)
    base, _ = split_address(instruction, address)
    if loading:
        writes = tuple(destination(instruction, member, 32) for member in members)
        return Operation(instruction, writes, (base,), _build_load, form, False, loads="shared", kind="ldmatrix",
                         width=ROW_BYTES, matrices=count)  # fmt: skip
    if any(getattr(member, "bits", 32) != 32 for member in members):
        raise malformed(instruction)
    reads = tuple(source(instruction, member, 32) for member in members)
    return Operation(instruction, (), (base, *reads), _build_store, form, False, stores="shared", kind="stmatrix",
                     width=ROW_BYTES, matrices=count)  # fmt: skip


class _Rows:
    """Row addresses: lane 8 i + j gives row j of matrix i; lanes past the last matrix give none."""

    def __init__(self, group: Group) -> None:
        lanes, count = group.lanes, group.detail.count
        position = 1 if group.first.instruction.opcode == "ldmatrix" else 0
        offsets = [split_address(op.instruction, op.instruction.operands[position])[1] for op in group.operations]
        givers = np.arange(lanes.count) % WARP < 8 * count
        self.static = group.mask is None
        self.givers = givers
        self.group = group
        self.scratch: Array = givers.copy() if group.mask is None else np.zeros(group.mask.shape, dtype=np.bool_)
        partial = count < 4 or not self.static
        self.addressing = Addressing(group, 0, offsets, self.scratch if partial else None)
        self.site = site_of(group, ROW_BYTES)
        self.announce = Announcer(group, self.site)
        self.space = group.engine.space("shared")
        self.shape = (group.n, lanes.warps, WARP)

    def resolve(self) -> Any:
        """Pattern and base, or None; reports warps of which only a part executes the instruction."""
        if not self.static:
            mask = self.group.mask
            assert mask is not None
            self.group.engine.require_whole_warps(mask, self.group)
            np.logical_and(mask, self.givers, out=self.scratch)
        resolved = self.addressing.resolve()
        if resolved is not None:
            self.announce("shared", *resolved)
        return resolved


def _build_load(group: Group) -> Thunk:
    rows = _Rows(group)
    form: Form = group.detail
    count, transposed = form.count, form.transposed
    n, warps = group.n, group.lanes.warps
    store = group.vector_target(range(count), U32).store

    def run() -> None:
        resolved = rows.resolve()
        if resolved is None:
            return
        data = np.asarray(rows.space.load(*resolved, rows.site)).reshape(rows.shape)[..., : 8 * count]
        if transposed:
            halves = np.ascontiguousarray(data).view(np.uint16).reshape(n, warps, count, 8, 8)
            data = np.ascontiguousarray(halves.swapaxes(-1, -2))
        words = np.ascontiguousarray(data).view(np.uint32).reshape(n, warps, count, WARP)
        store(words.transpose(0, 2, 1, 3).reshape(n, count, warps * WARP))

    return group.finish(run)


def _build_store(group: Group) -> Thunk:
    rows = _Rows(group)
    form: Form = group.detail
    count, transposed = form.count, form.transposed
    n, warps, lanes = group.n, group.lanes.warps, group.lanes.count
    values = group.vector(range(1, 1 + count), U32).fetch
    blank = np.zeros((n, warps, WARP), dtype=WIDE[ROW_BYTES])

    def run() -> None:
        resolved = rows.resolve()
        if resolved is None:
            return
        parts = np.broadcast_to(values(), (n, count, lanes))
        words = np.ascontiguousarray(parts.reshape(n, count, warps, 8, 4).transpose(0, 2, 1, 3, 4))
        if transposed:
            halves = words.view(np.uint16).reshape(n, warps, count, 8, 8)
            words = np.ascontiguousarray(halves.swapaxes(-1, -2)).view(np.uint32)
        data = blank.copy()
        data[..., : 8 * count] = words.reshape(n, warps, 8 * count, 4).view(WIDE[ROW_BYTES])[..., 0]
        rows.space.store(*resolved, rows.site, data.reshape(n, lanes))

    return group.finish(run)
