"""cp.async: copies whose data lands only at the wait for their group.

At issue the source is read and the destination filled with ones (NaN); until a wait covers the group of the copy, any
use of the destination is reported. Groups are counted per thread. A copy that was never committed is covered by no
`wait_group`, only by `wait_all`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.addresses import Addressing, Pattern, masked, split_address
from dgw.workbench.emulator.elementwise import immediate
from dgw.workbench.emulator.group import BOOL, I32, Group
from dgw.workbench.emulator.memory import WIDE
from dgw.workbench.emulator.memory_access import site_of
from dgw.workbench.emulator.observer import Access
from dgw.workbench.emulator.operation import Operation, Source, Thunk, check_modifiers, malformed, source, unknown
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import Not, Register
from dgw.workbench.emulator.races import Footprint, SharedSpace
from dgw.workbench.emulator.spaces import GlobalSpace, Plan, Site
from dgw.workbench.emulator.state import WARP, Lanes

Array = Any  # a NumPy array
_WORDS = {"async", "ca", "cg", "shared", "shared::cta", "global", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"}


@dataclass(frozen=True, slots=True)
class Form:
    """`size` bytes per copy; `limit` says whether the third read is a source size, a predicate to ignore, or none."""

    size: int
    limit: str


def decode(instruction: Instruction) -> Operation:
    """cp.async and its groups, without those that count at a barrier in shared memory."""
    words = instruction.modifiers
    if not words or words[0] != "async":
        raise unknown(instruction)
    if words[1:] == ("commit_group",):
        return Operation(instruction, (), (), _build_commit, "commit", False, ordered=True)
    if words[1:] in (("wait_group",), ("wait_all",)):
        count = immediate(instruction, 0) if words[1] == "wait_group" else -1
        return Operation(instruction, (), (), _build_wait, ("wait", count), False, stores="shared", ordered=True)
    present = check_modifiers(instruction, _WORDS)
    if len(present & {"ca", "cg"}) != 1 or not present & {"shared", "shared::cta"} or "global" not in present:
        raise unknown(instruction)
    size = immediate(instruction, 2)
    if size not in (4, 8, 16) or ("cg" in present and size != 16):
        raise malformed(instruction, f"a copy of {size} bytes")
    extra = list(instruction.operands[3:])
    if "L2::cache_hint" in present and extra:
        extra.pop()
    reads: list[Source] = [split_address(instruction, operand)[0] for operand in instruction.operands[:2]]
    limit = ""
    if extra:
        predicate = isinstance(extra[0], Not) or (isinstance(extra[0], Register) and extra[0].bits == 1)
        limit = "ignore" if predicate else "size"
        reads.append(source(instruction, extra[0], 1 if predicate else 32))
    return Operation(instruction, (), tuple(reads), _build_copy, Form(size, limit), False, stores="shared",
                     loads="global", ordered=True, kind="cp.async", width=size)  # fmt: skip


class _Pending:
    """Copies in flight: destination plan, data, and the group number in each lane (-1 where there is none)."""

    __slots__ = ("active", "data", "footprint", "group", "plan", "site")

    def __init__(self, plan: Plan, footprint: Footprint, site: Site, data: Array, group: Array, active: Array) -> None:
        self.plan, self.footprint, self.site = plan, footprint, site
        self.data, self.group, self.active = data, group, active


class AsyncCopies:
    """The copies of a batch of CTAs that have not landed."""

    def __init__(self, shared: SharedSpace, lanes: Lanes) -> None:
        self.shared = shared
        self.committed = np.zeros(lanes.count, dtype=np.int64)
        self.queue: list[_Pending] = []

    def reset(self) -> None:
        """Forget everything: another batch starts."""
        self.committed.fill(0)
        self.queue = []

    def issue(self, plan: Plan, site: Site, data: Array) -> None:
        """Start copies: elements [n, lanes] of the site's width."""
        shared = self.shared
        footprint = shared.footprint(plan, site.width)
        if shared.strict:
            shared.before_write(footprint, "copy", site, plan, None)
        active = np.ones(plan.indices.shape, dtype=bool) if plan.active is None else np.broadcast_to(
            plan.active, plan.indices.shape
        )  # fmt: skip
        shared.arena.view(site.width)[plan.indices[active]] = _ones(site.width)
        self.queue.append(_Pending(plan, footprint, site, data, self.committed.copy(), active))
        shared.pending.append((footprint, site))
        np.bitwise_or(shared.pending_set, footprint.bits, out=shared.pending_set)
        np.bitwise_and(shared.blank, ~footprint.bits, out=shared.blank)

    def commit(self, mask: NDArray[np.bool_] | None) -> None:
        """Close the current group in the lanes of `mask`."""
        self.committed += 1 if mask is None else mask.reshape(-1, len(self.committed))[0]

    def wait(self, left: int, mask: NDArray[np.bool_] | None) -> None:
        """Land every group but the last `left` committed ones; everything for `left` -1."""
        if not self.queue:
            return
        limit = self.committed - left if left >= 0 else np.full(len(self.committed), 1 << 60)
        if mask is not None:
            limit = np.where(mask.reshape(-1, len(limit))[0], limit, -1)
        waiting: list[_Pending] = []
        landed: list[_Pending] = []
        for pending in self.queue:
            covered = pending.group < limit
            due = pending.active & covered
            if not due.any():
                waiting.append(pending)
                continue
            rest = pending.active & ~covered
            if rest.any():
                waiting.append(self._part(pending, rest))
                pending = self._part(pending, due)
            landed.append(pending)
        if landed:
            self.queue = waiting
            self._land(landed)

    def _part(self, pending: _Pending, active: Array) -> _Pending:
        plan = Plan(pending.plan.indices, pending.plan.addresses, active, None)
        footprint = self.shared.footprint(plan, pending.site.width)
        return _Pending(plan, footprint, pending.site, pending.data, pending.group, active)

    def _land(self, landed: list[_Pending]) -> None:
        shared = self.shared
        shared.pending = [(pending.footprint, pending.site) for pending in self.queue]
        shared.pending_set.fill(0)
        for pending in self.queue:
            np.bitwise_or(shared.pending_set, pending.footprint.bits, out=shared.pending_set)
        for pending in landed:
            view = shared.arena.view(pending.site.width)
            view[pending.plan.indices[pending.active]] = pending.data[pending.active]
            if shared.strict:
                shared.written(pending.footprint, "copy", pending.site)


def _ones(width: int) -> Array:
    return np.full(width, 0xFF, dtype=np.uint8).view(WIDE[width])[0]


def _build_commit(group: Group) -> Thunk:
    copies, mask = group.engine.copies, group.mask
    times = group.n
    if times == 1:
        return group.finish(lambda: copies.commit(mask))

    def several() -> None:
        for _ in range(times):
            copies.commit(mask)

    return group.finish(several)


def _build_wait(group: Group) -> Thunk:
    copies, mask, left = group.engine.copies, group.mask, group.detail[1]
    return group.finish(lambda: copies.wait(left, mask))


def _build_copy(group: Group) -> Thunk:
    form: Form = group.detail
    offsets = [
        [split_address(op.instruction, op.instruction.operands[i])[1] for op in group.operations] for i in (0, 1)
    ]
    target = Addressing(group, 0, offsets[0], group.mask)
    site = site_of(group, form.size)
    engine, shape = group.engine, (group.n, group.lanes.count)
    sizes = _sizes(group, form, shape)
    wanted = np.zeros(shape, dtype=np.bool_)
    origin = Addressing(group, 1, offsets[1], group.mask if sizes is None else wanted)
    copies, shared, memory = engine.copies, engine.space("shared"), engine.space("global")

    def run() -> None:
        resolved = target.resolve()
        if resolved is None:
            return
        plan = shared.plan(*resolved, site)
        amount = sizes() if sizes is not None else None
        if amount is not None:
            np.greater(amount, 0, out=wanted)
            if group.mask is not None:
                np.logical_and(wanted, group.mask, out=wanted)
        reading = origin.resolve()
        data = _fetch(memory, reading, site, amount, shape)
        if engine.observer is not None:
            _announce(group, site, resolved, reading, wanted if amount is not None else None)
        copies.issue(plan, site, data)

    return group.finish(run)


def _sizes(group: Group, form: Form, shape: tuple[int, int]) -> Any:
    """A function that gives the bytes to read in each lane, or None when all of them are."""
    if form.limit == "size":
        fetch = group.source(2, I32).fetch
        return lambda: np.broadcast_to(np.clip(fetch(), 0, form.size), shape)
    if form.limit == "ignore":
        ignored = group.source(2, BOOL).fetch
        return lambda: np.broadcast_to(np.where(ignored(), 0, form.size), shape)
    return None


def _fetch(
    memory: GlobalSpace, reading: tuple[Pattern, int] | None, site: Site, amount: Array | None, shape: tuple[int, int]
) -> Array:
    """The bytes that the copies will write: the source, then zeros past the source size."""
    width = site.width
    if reading is None:
        return np.zeros(shape, dtype=WIDE[width])
    pattern, first = reading
    if amount is None or (amount == width).all():
        return memory.load(pattern, first, site)
    data = np.zeros((*shape, width), dtype=np.uint8)
    for size in np.unique(amount):
        if not size:
            continue
        chosen = amount == size
        if pattern.mask is not None:
            chosen = chosen & pattern.mask
        if not chosen.any():
            continue
        part = Pattern(masked(pattern.relative, chosen), chosen)
        if size == width:
            loaded = np.ascontiguousarray(memory.load(part, first, site)).view(np.uint8).reshape(*shape, width)
        else:
            loaded = _bytes(memory, part, first, site, int(size))
        data[chosen] = np.where(np.arange(width) < size, loaded, 0)[chosen]
    return data.view(WIDE[width])[..., 0]


def _bytes(memory: GlobalSpace, part: Pattern, first: int, site: Site, size: int) -> Array:
    """The first `size` bytes of each source, one by one; the address must suit the whole copy."""
    memory.check_alignment(part, first, site)
    single = Site(site.infos, 1)
    columns = [memory.load(Pattern(part.relative + i, part.mask), first, single) for i in range(size)]
    loaded = np.zeros((*part.relative.shape, site.width), dtype=np.uint8)
    loaded[..., :size] = np.stack(columns, axis=-1)
    return loaded


def _announce(
    group: Group, site: Site, target: tuple[Pattern, int], reading: tuple[Pattern, int] | None, wanted: Array | None
) -> None:
    engine, shape = group.engine, (group.n, group.lanes.warps, WARP)
    assert engine.observer is not None
    pattern, first = target
    mask = np.ones((1, *shape[1:]), dtype=bool) if pattern.mask is None else pattern.mask.reshape(-1, *shape[1:])
    if reading is None:
        source_key: Any = None
        sources, source_mask = (lambda: np.zeros(shape, dtype=np.int64)), np.zeros(shape, dtype=bool)
    else:
        other, start = reading
        source_key = (other.serial, start & 127)
        sources = lambda: (other.relative + start).reshape(shape)  # noqa: E731
        source_mask = (mask if other.mask is None else other.mask).reshape(-1, *shape[1:])
    key = (site.serial, pattern.serial, first & 127, source_key)
    engine.observer.memory(
        Access(site.infos, "shared", lambda: (pattern.relative + first).reshape(shape), mask, key, sources, source_mask)
    )
