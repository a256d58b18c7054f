"""atom and red: read-modify-write in global, shared or generic memory, one lane after the other in lane order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgw.workbench.emulator import rounding
from dgw.workbench.emulator.addresses import Addressing, Pattern, split_address
from dgw.workbench.emulator.elementwise import NUMPY
from dgw.workbench.emulator.group import Group
from dgw.workbench.emulator.memory_access import Announcer, site_of
from dgw.workbench.emulator.moves import WINDOWS
from dgw.workbench.emulator.operation import Operation, Thunk, destination, expect, source, unknown
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import TYPE_BITS
from dgw.workbench.emulator.spaces import Site

Array = Any  # a NumPy array
_WORDS = frozenset(
    {"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz", "L2::cache_hint"}
)
_TYPES = frozenset({"b16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2"})


def _increment(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, 0, old + 1).astype(old.dtype)


def _decrement(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - 1).astype(old.dtype)


def _half_add(old: Array, value: Array) -> Array:
    parts = [np.ascontiguousarray(v).view(np.float16).astype(np.float32) for v in (old, value)]
    return (parts[0] + parts[1]).astype(np.float16).view(old.dtype)


def _bfloat_add(old: Array, value: Array) -> Array:
    parts = [rounding.bfloat16_values(np.ascontiguousarray(v).view(np.uint16)) for v in (old, value)]
    return rounding.bfloat16_bits(parts[0] + parts[1]).view(old.dtype)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum,
    "max": np.maximum, "exch": lambda old, value: value, "inc": _increment, "dec": _decrement,
    "cas": lambda old, compare, value: np.where(old == compare, value, old),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Form:
    """One atomic: `space`, operation, type, and bytes of the access."""

    space: str
    name: str
    type_name: str
    width: int


def decode(instruction: Instruction) -> Operation:
    """atom and red (scalar forms)."""
    *words, type_name = instruction.modifiers or ("",)
    space, name = "generic", ""
    for word in words:
        if word in ("global", "shared", "shared::cta"):
            space = word.partition("::")[0]
        elif word in _FUNCTIONS:
            name = word
        elif word not in _WORDS:
            raise unknown(instruction)
    if type_name not in _TYPES or not name or not _allowed(name, type_name):
        raise unknown(instruction)
    form = Form(space, name, type_name, TYPE_BITS[type_name] // 8)
    returns = instruction.opcode == "atom"
    hint = "L2::cache_hint" in words
    operands = expect(instruction, int(returns) + (3 if name == "cas" else 2) + int(hint))
    rest = operands[1:] if returns else operands
    bits = TYPE_BITS[type_name]
    base, _ = split_address(instruction, rest[0])
    values = tuple(source(instruction, operand, bits) for operand in rest[1 : len(rest) - int(hint)])
    writes = (destination(instruction, operands[0], bits),) if returns else ()
    return Operation(
        instruction, writes, (base, *values), _build, form, False, loads=space, stores=space, ordered=True,
        kind=instruction.opcode, width=form.width,
    )  # fmt: skip


def _allowed(name: str, type_name: str) -> bool:
    if name in ("and", "or", "xor", "exch", "cas"):
        return type_name in ("b32", "b64") or (name == "cas" and type_name == "b16")
    if name in ("inc", "dec"):
        return type_name == "u32"
    if name in ("min", "max"):
        return type_name in ("u32", "s32", "u64", "s64")
    return type_name not in ("b16", "b32", "b64", "s64")


def _build(group: Group) -> Thunk:
    form: Form = group.detail
    dtype = np.dtype(np.uint16) if form.type_name in ("f16", "bf16") else NUMPY[form.type_name]
    position = 1 if group.first.instruction.opcode == "atom" else 0
    offsets = [split_address(op.instruction, op.instruction.operands[position])[1] for op in group.operations]
    addressing = Addressing(group, 0, offsets, group.mask)
    site = site_of(group, form.width)
    values = [group.source(1 + i, dtype).fetch for i in range(len(group.first.reads) - 1)]
    store = group.target(0, dtype).store if group.first.writes else None
    function = _FUNCTIONS[form.name]
    if form.type_name in ("f16", "f16x2"):
        function = _half_add
    elif form.type_name in ("bf16", "bf16x2"):
        function = _bfloat_add
    update = _Update(group, form.space, site, function, dtype)

    def run() -> None:
        resolved = addressing.resolve()
        if resolved is None:
            return
        old = update(*resolved, [fetch() for fetch in values])
        if store is not None:
            store(old)

    return group.finish(run)


class _Update:
    """Performs an atomic in the space that its addresses are in."""

    def __init__(self, group: Group, space: str, site: Site, function: Callable[..., Any], dtype: Any) -> None:
        self.engine, self.space, self.site = group.engine, space, site
        self.function, self.dtype = function, dtype
        self.shape = (group.n, group.lanes.count)
        self.announce = Announcer(group, site)

    def __call__(self, pattern: Pattern, first: int, values: list[Array]) -> Array:
        name, base = self.space, first
        if name == "generic":
            window = (first + pattern.low) >> 56
            name = {start >> 56: space for space, start in WINDOWS.items()}.get(window, "global")
            base = first - WINDOWS[name]
        self.announce(name, pattern, base)
        old = np.zeros(self.shape, dtype=self.dtype)
        spread = [np.broadcast_to(value, self.shape) for value in values]
        for view, indices, active in self.engine.space(name).places(pattern, base, self.site):
            self._rounds(view.view(self.dtype), indices, active, spread, old)
        return old

    def _rounds(self, view: Array, indices: Array, active: Array, values: list[Array], old: Array) -> None:
        """Each round takes the next lane of every address, so that lanes of one address follow each other."""
        for member in range(self.shape[0]):
            lanes = np.nonzero(active[member])[0]
            places = indices[member, lanes]
            order = np.argsort(places, kind="stable")
            ranked = places[order]
            starts = np.concatenate([[True], ranked[1:] != ranked[:-1]]) if len(ranked) else np.zeros(0, bool)
            begin = np.maximum.accumulate(np.where(starts, np.arange(len(ranked)), 0)) if len(ranked) else ranked
            rank = np.arange(len(ranked)) - begin
            for turn in range(int(rank.max(initial=-1)) + 1):
                chosen = lanes[order[rank == turn]]
                where = indices[member, chosen]
                before = view[where]
                old[member, chosen] = before
                view[where] = self.function(before, *[value[member, chosen] for value in values])
