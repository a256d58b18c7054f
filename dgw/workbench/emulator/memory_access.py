"""ld and st: any space, any vector, widened into wider registers; cache hints are read and ignored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgw.workbench.emulator.addresses import Addressing, Pattern, masked, split_address
from dgw.workbench.emulator.elementwise import NUMPY
from dgw.workbench.emulator.group import Group
from dgw.workbench.emulator.memory import WIDE
from dgw.workbench.emulator.moves import WINDOWS
from dgw.workbench.emulator.observer import Access
from dgw.workbench.emulator.operation import Operation, Thunk, destination, items, malformed, source, unknown
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import TYPE_BITS, Operand, Register
from dgw.workbench.emulator.spaces import Site
from dgw.workbench.emulator.state import WARP

Array = Any  # a NumPy array

SPACES = frozenset({"global", "shared", "local", "param", "const", "frame"})
_CACHE = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"}
_LEVELS = {"L2::64B", "L2::128B", "L2::256B", "L2::cache_hint", "L1::no_allocate"}
_EVICTIONS = {f"{level}::evict_{how}" for level in ("L1", "L2") for how in ("normal", "unchanged", "first", "last")}
_ORDERS = {"weak", "volatile", "relaxed", "acquire", "release", "cta", "cluster", "gpu", "sys", "unified"}
HINTS = frozenset(_CACHE | _LEVELS | _EVICTIONS | _ORDERS)
_TYPES = frozenset(
    {"b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64", "b128"}
)
STRONG = frozenset({"relaxed", "acquire", "release"})


@dataclass(frozen=True, slots=True)
class Form:
    """The modifiers of a memory access: `space`, `vector` members of `type_name`, bytes of the whole access."""

    space: str
    type_name: str
    vector: int
    width: int
    strong: bool


def parse_form(instruction: Instruction) -> Form:
    """Read space, vector and type; unknown-instruction error for anything else."""
    *words, type_name = instruction.modifiers or ("",)
    space, vector, strong = "generic", 1, False
    for word in words:
        plain = word.partition("::")[0]
        if plain in SPACES and (word == plain or word in ("shared::cta", "param::entry", "param::func")):
            space = plain
        elif word in ("v2", "v4", "v8"):
            vector = int(word[1])
        elif word in HINTS:
            strong |= word in STRONG
        else:
            raise unknown(instruction)
    if type_name not in _TYPES:
        raise unknown(instruction)
    width = vector * TYPE_BITS[type_name] // 8
    if width > 16:
        raise unknown(instruction)
    return Form(space, type_name, vector, width, strong)


def _offsets(group: Group) -> list[int]:
    return [split_address(op.instruction, _address_operand(op.instruction))[1] for op in group.operations]


def _address_operand(instruction: Instruction) -> Operand:
    return instruction.operands[1 if instruction.opcode in ("ld", "ldu") else 0]


def decode_load(instruction: Instruction) -> Operation:
    """ld and ldu."""
    form = parse_form(instruction)
    if len(instruction.operands) not in (2, 3):
        raise malformed(instruction)
    members = items(instruction, instruction.operands[0], form.vector)
    bits = TYPE_BITS[form.type_name]
    writes = tuple(destination(instruction, member) for member in members)
    if any(w is not None and (w.bits == 1 or (w.bits < bits and bits > 8)) for w in writes):
        raise malformed(instruction, "a destination is narrower than the type")
    base, _ = split_address(instruction, instruction.operands[1])
    constant = form.space in ("param", "const")
    return Operation(
        instruction, writes, (base,), _build_load, detail=form, pure=False, loads="" if constant else form.space,
        kind="ld", width=form.width,
    )  # fmt: skip


def decode_store(instruction: Instruction) -> Operation:
    """st."""
    form = parse_form(instruction)
    if len(instruction.operands) not in (2, 3) or form.space in ("param", "const"):
        raise malformed(instruction)
    values = items(instruction, instruction.operands[1], form.vector)
    bits = TYPE_BITS[form.type_name]
    reads = tuple(source(instruction, value) for value in values)
    if any(isinstance(read, Register) and (read.bits == 1 or read.bits < bits) for read in reads):
        raise malformed(instruction, "a source is narrower than the type")
    base, _ = split_address(instruction, instruction.operands[0])
    return Operation(
        instruction, (), (base, *reads), _build_store, detail=form, pure=False, stores=form.space, kind="st",
        width=form.width,
    )  # fmt: skip


def site_of(group: Group, width: int) -> Site:
    """The Site of a group."""
    return Site(tuple(group.engine.infos[operation.index] for operation in group.operations), width)


class Announcer:
    """Tells the observer of an access, when there is one."""

    def __init__(self, group: Group, site: Site) -> None:
        self.engine = group.engine
        self.site = site
        self.shape = (group.lanes.warps, WARP)
        self.n = group.n
        self.everyone = np.ones((1, *self.shape), dtype=bool)

    def __call__(self, space: str, pattern: Pattern, first: int) -> None:
        """An access in `space` at the pattern's addresses plus `first`."""
        observer = self.engine.observer
        if observer is None or space in ("param", "const", "frame"):
            return
        mask = self.everyone if pattern.mask is None else pattern.mask.reshape(-1, *self.shape)
        shape = (self.n, *self.shape)
        key = (self.site.serial, pattern.serial, first & 127)
        observer.memory(Access(self.site.infos, space, lambda: (pattern.relative + first).reshape(shape), mask, key))


def _build_load(group: Group) -> Thunk:
    form: Form = group.detail
    addressing = Addressing(group, 0, _offsets(group), group.mask)
    site = site_of(group, form.width)
    load = _loader(group, form.space, site)
    element = _element(form.type_name)
    store = group.vector_target(range(form.vector), element).store
    n, lanes, vector = group.n, group.lanes.count, form.vector

    def run() -> None:
        resolved = addressing.resolve()
        if resolved is None:
            return
        data = np.ascontiguousarray(load(*resolved))
        if vector == 1:
            store(data.view(element)[:, None, :])
        else:
            store(data.view(element).reshape(n, lanes, vector).transpose(0, 2, 1))

    return group.finish(run)


def _element(type_name: str) -> np.dtype[Any]:
    dtype = NUMPY[type_name]
    return np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}{dtype.itemsize}") if dtype.itemsize < 16 else dtype


def _loader(group: Group, space: str, site: Site) -> Callable[[Pattern, int], Array]:
    announce = Announcer(group, site)
    if space == "generic":
        return _GenericAccess(group, site, announce).load
    inner = group.engine.space(space).load

    def load(pattern: Pattern, first: int) -> Array:
        announce(space, pattern, first)
        return inner(pattern, first, site)

    return load


def _build_store(group: Group) -> Thunk:
    form: Form = group.detail
    addressing = Addressing(group, 0, _offsets(group), group.mask)
    site = site_of(group, form.width)
    element = _element(form.type_name)
    values = group.vector(range(1, 1 + form.vector), element).fetch
    announce = Announcer(group, site)
    n, lanes, wide = group.n, group.lanes.count, WIDE[form.width]
    space = form.space
    store = _GenericAccess(group, site, announce).store if space == "generic" else group.engine.space(space).store

    def run() -> None:
        resolved = addressing.resolve()
        if resolved is None:
            return
        parts = values()
        if parts.shape[-1] != lanes:
            parts = np.broadcast_to(parts, (*parts.shape[:-1], lanes))
        data = np.ascontiguousarray(parts.transpose(0, 2, 1)).view(wide).reshape(n, lanes)
        if space != "generic":
            announce(space, *resolved)
        store(*resolved, site, data)

    return group.finish(run)


class _GenericAccess:
    """Generic addresses: each window goes to its space."""

    def __init__(self, group: Group, site: Site, announce: Announcer) -> None:
        self.engine, self.site, self.announce = group.engine, site, announce
        self.spaces = {start >> 56: name for name, start in WINDOWS.items()}
        self.split: dict[tuple[int, int], list[tuple[str, Pattern, int]]] = {}

    def _parts(self, pattern: Pattern, first: int) -> list[tuple[str, Pattern, int]]:
        low, high = (first + pattern.low) >> 56, (first + pattern.high) >> 56
        if low == high:
            name = self.spaces.get(low, "global")
            return [(name, pattern, first - WINDOWS[name])]
        key = (pattern.serial, first)
        if key not in self.split:
            if len(self.split) > 64:
                self.split.clear()
            addresses = pattern.relative + first
            parts = []
            for window in np.unique(addresses >> 56):
                mask = (addresses >> 56) == window
                if pattern.mask is not None:
                    mask &= pattern.mask
                if mask.any():
                    name = self.spaces.get(int(window), "global")
                    parts.append((name, Pattern(masked(addresses - WINDOWS[name], mask), mask), 0))
            self.split[key] = parts
        return self.split[key]

    def load(self, pattern: Pattern, first: int) -> Array:
        """Elements [n, lanes]."""
        result: Array = None
        for name, part, base in self._parts(pattern, first):
            self.announce(name, part, base)
            data = self.engine.space(name).load(part, base, self.site)
            result = data if result is None or part.mask is None else np.where(part.mask, data, result)
        return result

    def store(self, pattern: Pattern, first: int, site: Site, data: Array) -> None:
        """Store elements [n, lanes]."""
        for name, part, base in self._parts(pattern, first):
            self.announce(name, part, base)
            self.engine.space(name).store(part, base, site, data)
