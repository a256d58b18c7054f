"""Loads and stores in each memory space, with bounds, alignment and initialisation checked.

A bad lane is reported, reads all ones (NaN as a float) and stores nothing; the run goes on.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from dgw.workbench.emulator.addresses import Pattern
from dgw.workbench.emulator.findings import Findings
from dgw.workbench.emulator.memory import WIDE, Arena, Memory
from dgw.workbench.emulator.observer import InstructionInfo
from dgw.workbench.emulator.state import Lanes

Array = Any  # a NumPy array
_SITE = count()
REMEMBERED = 1024


class Site:
    """Where an access happens: the instructions of a group, and plans that are kept from one execution to the next."""

    __slots__ = ("infos", "plans", "serial", "width")

    def __init__(self, infos: tuple[InstructionInfo, ...], width: int) -> None:
        self.infos = infos
        self.width = width
        self.serial = next(_SITE)
        self.plans: dict[tuple[int, int], Plan] = {}


class Plan:
    """An access pattern at a fixed place of an arena: element `indices` [n, lanes], and `bad` lanes if any."""

    __slots__ = ("active", "addresses", "bad", "footprint", "indices")

    def __init__(self, indices: Array, addresses: Array, active: Array | None, bad: Array | None) -> None:
        self.indices = indices
        self.addresses = addresses
        self.active = active
        self.bad = bad
        self.footprint: Any = None


def _report(
    findings: Findings, kind: str, what: str, site: Site, lanes: Lanes, wrong: Array, addresses: Array, space: str
) -> None:
    for member in np.nonzero(wrong.any(axis=1))[0]:
        threads = np.nonzero(wrong[member])[0]
        address = int(addresses[member, threads[0]])
        info = site.infos[member]
        verb = "stores to" if info.kind in ("st", "stmatrix", "red", "cp.async") else "accesses"
        message = f"{info.text.split()[0]} {verb} {space} address {address:#x}: {what}"
        findings.add(kind, message, info.index, lanes, threads, address, space)


class GlobalSpace:
    """Registered buffers."""

    def __init__(self, memory: Memory, findings: Findings, lanes: Lanes) -> None:
        self.memory, self.findings, self.lanes = memory, findings, lanes

    def load(self, pattern: Pattern, first: int, site: Site) -> Array:
        """Elements [n, lanes] of the site's width."""
        width = site.width
        buffer = self.memory.locate(first + pattern.low, first + pattern.high + width)
        if buffer is not None and not (first | pattern.bits) & (width - 1):
            shift = width.bit_length() - 1
            return buffer.view(width).take(pattern.indices(shift) + ((first - buffer.base) >> shift))
        if not (first | pattern.bits) & (width - 1):
            mixed = self._load_members(pattern, first, width)
            if mixed is not None:
                return mixed
        addresses = pattern.relative + first
        result = _poison(addresses.shape, width)
        for chosen, found in self._parts(addresses, pattern.mask, site):
            result[chosen] = found.view(width)[(addresses[chosen] - found.base) // width]
        return result

    def _load_members(self, pattern: Pattern, first: int, width: int) -> Array | None:
        """Each member of the group from its own buffer; None when one of them is not inside any."""
        buffers = [self.memory.locate(first + low, first + high + width) for low, high in pattern.bounds]
        shift = width.bit_length() - 1
        indices = pattern.indices(shift)
        result = np.empty(indices.shape, dtype=WIDE[width])
        for member, buffer in enumerate(buffers):
            if buffer is None:
                return None
            result[member] = buffer.view(width).take(indices[member] + ((first - buffer.base) >> shift))
        return result

    def store(self, pattern: Pattern, first: int, site: Site, data: Array) -> None:
        """Store elements [n, lanes]; members later in the group win."""
        width = site.width
        buffer = self.memory.locate(first + pattern.low, first + pattern.high + width)
        if buffer is not None and buffer.writable and not (first | pattern.bits) & (width - 1):
            shift = width.bit_length() - 1
            indices = pattern.indices(shift) + ((first - buffer.base) >> shift)
            _put(buffer.view(width), indices, data, pattern.mask)
            return
        addresses = pattern.relative + first
        for chosen, found in self._parts(addresses, pattern.mask, site):
            if not found.writable:
                what = f"buffer {found.name} is read-only"
                _report(self.findings, "read-only", what, site, self.lanes, chosen, addresses, "global")
                continue
            found.view(width)[(addresses[chosen] - found.base) // width] = data[chosen]

    def parts(self, pattern: Pattern, first: int, site: Site) -> list[tuple[Array, Any]]:
        """(lanes [n, lanes], buffer) of the good lanes; bad ones are reported."""
        return self._parts(pattern.relative + first, pattern.mask, site)

    def places(self, pattern: Pattern, first: int, site: Site) -> list[tuple[Array, Array, Array]]:
        """(elements, indices [n, lanes], active [n, lanes]) of each buffer that an atomic updates."""
        addresses = pattern.relative + first
        found = []
        for chosen, buffer in self._parts(addresses, pattern.mask, site):
            if not buffer.writable:
                what = f"buffer {buffer.name} is read-only"
                _report(self.findings, "read-only", what, site, self.lanes, chosen, addresses, "global")
                continue
            found.append((buffer.view(site.width), (addresses - buffer.base) // site.width, chosen))
        return found

    def check_alignment(self, pattern: Pattern, first: int, site: Site) -> None:
        """Report addresses that are no multiple of the site's width."""
        addresses = pattern.relative + first
        wrong = (addresses & (site.width - 1)) != 0
        if pattern.mask is not None:
            wrong &= pattern.mask
        if wrong.any():
            what = f"not a multiple of {site.width} bytes"
            _report(self.findings, "misaligned", what, site, self.lanes, wrong, addresses, "global")

    def _parts(self, addresses: Array, mask: Array | None, site: Site) -> list[tuple[Array, Any]]:
        width = site.width
        left = np.ones(addresses.shape, dtype=bool) if mask is None else np.broadcast_to(mask, addresses.shape).copy()
        wrong = left & ((addresses & (width - 1)) != 0)
        if wrong.any():
            what = f"not a multiple of {width} bytes"
            _report(self.findings, "misaligned", what, site, self.lanes, wrong, addresses, "global")
            left &= ~wrong
        found = []
        while left.any():
            place = int(addresses.flat[int(np.argmax(left))])
            buffer = self.memory.find(place)
            inside = None
            if buffer is not None:
                inside = left & (addresses >= buffer.base) & (addresses + width <= buffer.end)
            if buffer is None or inside is None or not inside.any() or not inside.flat[int(np.argmax(left))]:
                self._out_of_bounds(left, addresses, site, buffer)
                continue
            found.append((inside, buffer))
            left &= ~inside
        return found

    def _out_of_bounds(self, left: Array, addresses: Array, site: Site, buffer: Any) -> None:
        """Report (and drop from `left`) the lanes that no buffer holds, beginning with the first."""
        first = int(addresses.flat[int(np.argmax(left))])
        if buffer is None:
            what, wrong = "there is no buffer", left.copy()
        elif first < buffer.base:
            what, wrong = f"{buffer.base - first} bytes before {buffer.name}", left & (addresses < buffer.base)
        else:
            over = first + site.width - buffer.end
            what = f"{over} bytes past the end of {buffer.name} ({len(buffer.data)} bytes)"
            nearest = np.array([self.memory.find(int(a)) is buffer for a in addresses.flat]).reshape(addresses.shape)
            wrong = left & nearest & (addresses + site.width > buffer.end)
        _report(self.findings, "out-of-bounds", what, site, self.lanes, wrong, addresses, "global")
        left &= ~wrong


def _poison(shape: tuple[int, ...], width: int) -> Array:
    return np.full((*shape, width), 0xFF, dtype=np.uint8).view(WIDE[width])[..., 0]


def _put(view: Array, indices: Array, data: Array, mask: Array | None) -> None:
    if mask is None:
        view[indices] = data
        return
    chosen = np.broadcast_to(mask, indices.shape)
    view[indices[chosen]] = data[chosen]


class WindowSpace:
    """Memory in an arena where each lane sees `limit` bytes starting at its own `lane_base`: local, const, param."""

    def __init__(self, name: str, arena: Arena, lane_base: Array, limit: int, findings: Findings, lanes: Lanes) -> None:
        self.name, self.arena, self.lane_base, self.limit = name, arena, lane_base, limit
        self.findings, self.lanes = findings, lanes
        self.stored = Arena(np.zeros(len(arena.data), dtype=np.uint8)) if name == "local" else None

    def reset(self) -> None:
        """Fresh memory for another batch."""
        self.arena.data.fill(0)
        if self.stored is not None:
            self.stored.data.fill(0)

    def plan(self, pattern: Pattern, first: int, site: Site) -> Plan:
        """The plan of a pattern at a place; bad lanes are reported each time."""
        key = (pattern.serial, first)
        plan = site.plans.get(key)
        if plan is None:
            if len(site.plans) >= REMEMBERED:
                site.plans.clear()
            plan = site.plans[key] = self._make(pattern, first, site.width)
        if plan.bad is not None:
            self._report_bad(plan, site)
        return plan

    def _make(self, pattern: Pattern, first: int, width: int) -> Plan:
        addresses = pattern.relative + first
        low, end = first + pattern.low, first + pattern.high + width
        active, bad = pattern.mask, None
        if low < 0 or end > self.limit or (first | pattern.bits) & (width - 1):
            bad = (addresses < 0) | (addresses + width > self.limit) | ((addresses & (width - 1)) != 0)
            if active is not None:
                bad &= active
            active = ~bad if active is None else np.broadcast_to(active, bad.shape) & ~bad
            bad = bad if bad.any() else None
        physical = addresses + self.lane_base
        if active is not None:
            physical = np.where(active, physical, 0)
        return Plan(physical >> (width.bit_length() - 1), addresses, active, bad)

    def _report_bad(self, plan: Plan, site: Site) -> None:
        bad, width = plan.bad, site.width
        assert bad is not None
        outside = bad & ((plan.addresses < 0) | (plan.addresses + width > self.limit))
        if outside.any():
            what = f"outside the {self.limit} bytes of {self.name} memory"
            _report(self.findings, "out-of-bounds", what, site, self.lanes, outside, plan.addresses, self.name)
        odd = bad & ~outside
        if odd.any():
            what = f"not a multiple of {width} bytes"
            _report(self.findings, "misaligned", what, site, self.lanes, odd, plan.addresses, self.name)

    def load(self, pattern: Pattern, first: int, site: Site) -> Array:
        """Elements [n, lanes] of the site's width."""
        plan = self.plan(pattern, first, site)
        self.check_load(plan, site)
        data = self.arena.view(site.width).take(plan.indices)
        if plan.bad is not None:
            data = np.where(plan.bad, _poison((1, 1), site.width), data)
        return data

    def store(self, pattern: Pattern, first: int, site: Site, data: Array) -> None:
        """Store elements [n, lanes]; members later in the group win."""
        plan = self.plan(pattern, first, site)
        self.check_store(plan, site, data)
        _put(self.arena.view(site.width), plan.indices, data, plan.active)
        self.after_store(plan, site, data)

    def places(self, pattern: Pattern, first: int, site: Site) -> list[tuple[Array, Array, Array]]:
        """(elements, indices [n, lanes], active [n, lanes]) that an atomic updates."""
        plan = self.plan(pattern, first, site)
        self.atomic(plan, site)
        active = np.ones(plan.indices.shape, bool) if plan.active is None else plan.active
        return [(self.arena.view(site.width), plan.indices, np.broadcast_to(active, plan.indices.shape))]

    def atomic(self, plan: Plan, site: Site) -> None:
        """Called before an atomic update."""
        self.check_load(plan, site)

    def check_load(self, plan: Plan, site: Site) -> None:
        """Local memory must have been written before it is read."""
        if self.stored is None:
            return
        flags = self.stored.view(site.width).take(plan.indices)
        full = flags.view(np.uint8).reshape(*plan.indices.shape, site.width).all(axis=-1)
        missing = ~full if plan.active is None else ~full & plan.active
        if missing.any():
            what = "nothing was stored there"
            addresses = plan.addresses
            _report(self.findings, "uninitialised-local", what, site, self.lanes, missing, addresses, self.name)

    def check_store(self, plan: Plan, site: Site, data: Array) -> None:
        """Called before a store."""

    def after_store(self, plan: Plan, site: Site, data: Array) -> None:
        """Called after a store."""
        if self.stored is not None:
            ones = np.broadcast_to(_poison((1, 1), site.width), plan.indices.shape)
            _put(self.stored.view(site.width), plan.indices, ones, plan.active)
