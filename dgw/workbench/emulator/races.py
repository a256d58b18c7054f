"""Shared memory watched: uninitialised reads, data races between barriers, and copies that have not landed.

Lockstep execution is one legal interleaving and hides races, so order is judged by barriers alone. Memory is divided
into granules (the narrowest shared access of the kernel); sets of granules are bit sets over all CTAs of the batch.
Between two barriers every access is logged with its granules; only when the granules of a new access meet earlier ones
of which one is a write are the threads compared.

Order between two accesses of different threads holds when a barrier lies between in which both warps took part, by
themselves or through warps that met both: every warp has a clock, and knows the clocks of the others as of the last
barrier they shared. Inside a warp only `bar.warp.sync` and CTA barriers order memory, as the PTX manual says: shfl,
vote and mma do not. A partial `bar.warp.sync` is taken to order the whole warp. Atomics do not race with each other.
Two stores of the same value to the same place are not reported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.findings import Findings
from dgw.workbench.emulator.memory import Arena
from dgw.workbench.emulator.spaces import Plan, Site, WindowSpace
from dgw.workbench.emulator.state import WARP, Lanes

Array = Any  # a NumPy array
Words = NDArray[np.uint64]

_VERB = {"read": "read", "write": "written", "atomic": "updated atomically", "copy": "written by cp.async"}


class Footprint:
    """The granules that an access touches: `bits` over the batch, and (granule, lane, member) of each touch."""

    __slots__ = ("_warps", "bits", "granules", "lanes", "members", "own_conflict")

    def __init__(self, plan: Plan, width: int, lane_base: Array, granule: int, total: int) -> None:
        physical = plan.addresses + lane_base
        active = np.ones(physical.shape, bool) if plan.active is None else np.broadcast_to(plan.active, physical.shape)
        members, lanes = np.nonzero(active)
        start = physical[active] // granule
        spread = max(width // granule, 1)
        self.granules = (start[:, None] + np.arange(spread)).reshape(-1)
        self.lanes = np.repeat(lanes, spread)
        self.members = np.repeat(members, spread)
        flags = np.zeros(total, dtype=np.uint8)
        flags[self.granules] = 1
        self.bits: Words = np.packbits(flags, bitorder="little").view(np.uint64)
        self.own_conflict = self._find_own_conflict(total)
        self._warps: Array | None = None

    def warps(self) -> Array:
        """The warps of the batch that touch any, found once: with each barrier all accesses before it are looked at."""
        if self._warps is None:
            self._warps = np.unique(self.lanes // WARP)
        return self._warps

    def _find_own_conflict(self, total: int) -> bool:
        owner = np.empty(total, dtype=np.int64)  # read only where it is written
        owner[self.granules] = self.lanes
        return bool((owner[self.granules] != self.lanes).any())


class _Logged:
    __slots__ = ("clock", "footprint", "kind", "site", "warp_clock")

    def __init__(self, footprint: Footprint, kind: str, site: Site, clock: Array, warp_clock: Array) -> None:
        self.footprint, self.kind, self.site = footprint, kind, site
        self.clock, self.warp_clock = clock, warp_clock


def _both(a: Words, b: Words) -> bool:
    return bool(np.bitwise_and(a, b).any())


class SharedSpace(WindowSpace):
    """Shared memory of a batch of CTAs: one window of `limit` bytes per CTA, `stride` bytes apart."""

    def __init__(self, arena: Arena, stride: int, limit: int, granule: int, findings: Findings, lanes: Lanes) -> None:
        super().__init__("shared", arena, lanes.cta * stride, limit, findings, lanes)
        self.strict = True  # False: no races, no uninitialised reads, no copies in flight; bounds are always checked
        self.granule, self.stride = granule, stride
        self.per_cta = stride // granule
        self.total = self.per_cta * len(lanes.ctas)
        words = -(-self.total // 64)
        self.blank: Words = np.full(words, ~np.uint64(0))
        self.read_set, self.write_set, self.pending_set = (np.zeros(words, dtype=np.uint64) for _ in range(3))
        self.log: list[_Logged] = []
        self._logged: set[tuple[int, str, int, int]] = set()  # ids of objects that the log keeps alive
        self._stale = False  # some of the log may be forgotten since it was last pruned
        self.pending: list[tuple[Footprint, Site]] = []
        self.reset()

    def reset(self) -> None:
        """Fresh memory for another batch."""
        super().reset()
        self.blank.fill(~np.uint64(0))
        for words in (self.read_set, self.write_set, self.pending_set):
            words.fill(0)
        self.log, self._logged, self.pending, self._stale = [], set(), [], False
        warps, ctas = self.lanes.warps_per_cta, len(self.lanes.ctas)
        self.known = np.zeros((ctas, warps, warps), dtype=np.int64)
        self.known[:, np.arange(warps), np.arange(warps)] = 1
        self.warp_clock = np.zeros(self.lanes.warps, dtype=np.int64)

    def footprint(self, plan: Plan, width: int) -> Footprint:
        """The footprint of a plan, computed once."""
        if plan.footprint is None:
            plan.footprint = Footprint(plan, width, self.lane_base, self.granule, self.total)
        found: Footprint = plan.footprint
        return found

    def check_load(self, plan: Plan, site: Site) -> None:
        """A read: of nothing written, of a copy in flight, or unordered with a write."""
        if not self.strict:
            return
        footprint = self.footprint(plan, site.width)
        bits = footprint.bits
        if self.pending and _both(bits, self.pending_set):
            self._report_pending(footprint, site, "read")
        elif _both(bits, self.blank):
            self._report_blank(footprint, site)
        if self._meets(bits, "write"):
            self._compare(footprint, "read", site, ("write", "copy", "atomic"))
        np.bitwise_or(self.read_set, bits, out=self.read_set)
        self._note(footprint, "read", site)

    def check_store(self, plan: Plan, site: Site, data: Array) -> None:
        """A write: into a copy in flight, or unordered with an earlier access."""
        if self.strict:
            self.before_write(self.footprint(plan, site.width), "write", site, plan, data)

    def before_write(self, footprint: Footprint, kind: str, site: Site, plan: Plan, data: Array | None) -> None:
        """Judge a write that is about to happen (or, for a copy, to be issued)."""
        bits = footprint.bits
        if self.pending and _both(bits, self.pending_set):
            self._report_pending(footprint, site, "overwritten")
        if self._meets(bits, "write"):
            self._compare(
                footprint, kind, site, ("write", "copy", "atomic"), (plan, data) if data is not None else None
            )
        if self._meets(bits, "read"):
            self._compare(footprint, kind, site, ("read",))

    def after_store(self, plan: Plan, site: Site, data: Array) -> None:
        """Two threads of one store in one place must agree."""
        if not self.strict:
            return
        footprint = self.footprint(plan, site.width)
        if footprint.own_conflict:
            self._own_conflict(plan, site, data)
        self.written(footprint, "write", site)

    def written(self, footprint: Footprint, kind: str, site: Site) -> None:
        """Note a write that has happened."""
        np.bitwise_and(self.blank, ~footprint.bits, out=self.blank)
        np.bitwise_or(self.write_set, footprint.bits, out=self.write_set)
        self._note(footprint, kind, site)

    def atomic(self, plan: Plan, site: Site) -> None:
        """An atomic update: races with plain reads and writes, not with other atomics."""
        if not self.strict:
            return
        footprint = self.footprint(plan, site.width)
        bits = footprint.bits
        if self.pending and _both(bits, self.pending_set):
            self._report_pending(footprint, site, "updated")
        elif _both(bits, self.blank):
            self._report_blank(footprint, site)
        if self._meets(bits, "write"):
            self._compare(footprint, "atomic", site, ("write", "copy"))
        if self._meets(bits, "read"):
            self._compare(footprint, "atomic", site, ("read",))
        self.written(footprint, "atomic", site)

    def _meets(self, bits: Words, kind: str) -> bool:
        """Whether there are bits of earlier reads or else writes, of those that are not ordered before everything."""
        if not _both(bits, self.read_set if kind == "read" else self.write_set):
            return False
        if not self._stale:
            return True
        self._prune()
        return _both(bits, self.read_set if kind == "read" else self.write_set)

    def _note(self, footprint: Footprint, kind: str, site: Site) -> None:
        key = (id(footprint), kind, id(self.known), id(self.warp_clock))
        if key not in self._logged:
            self._logged.add(key)
            self.log.append(_Logged(footprint, kind, site, self.known, self.warp_clock))

    def _report_blank(self, footprint: Footprint, site: Site) -> None:
        touched = self._members(footprint, self.blank)
        for member in np.unique(footprint.members[touched]):
            chosen = touched & (footprint.members == member)
            self._add("uninitialised-shared", footprint, site, chosen, "is read but nothing was stored there")

    def _report_pending(self, footprint: Footprint, site: Site, verb: str) -> None:
        touched = self._members(footprint, self.pending_set)
        for other, other_site in self.pending:
            common = touched & np.isin(footprint.granules, other.granules)
            for member in np.unique(footprint.members[common]):
                chosen = common & (footprint.members == member)
                granule = footprint.granules[chosen][0]
                source = other.members[np.nonzero(other.granules == granule)[0][0]]
                info = other_site.infos[source]
                text = f"is {verb} before the cp.async of PTX line {info.line} was waited for"
                self._add("async-pending", footprint, site, chosen, text, info.index)

    def _members(self, footprint: Footprint, words: Words) -> Array:
        """Which touches of a footprint fall into a bit set."""
        return (words[footprint.granules >> 6] >> (footprint.granules & 63).astype(np.uint64)) & np.uint64(1) != 0

    def _add(
        self, kind: str, footprint: Footprint, site: Site, chosen: Array, text: str, other: int | None = None
    ) -> None:
        place = int(np.nonzero(chosen)[0][0])
        address = int(footprint.granules[place]) % self.per_cta * self.granule
        info = site.infos[int(footprint.members[place])]
        message = f"{info.text.split()[0]}: shared address {address:#x} {text}"
        self.findings.add(kind, message, info.index, self.lanes, footprint.lanes[chosen], address, "shared", other)

    def _own_conflict(self, plan: Plan, site: Site, data: Array) -> None:
        """Lanes of one store that wrote different values to one place: whoever lost reads back something else."""
        back = self.arena.view(site.width).take(plan.indices)
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(*plan.indices.shape, -1)
        differs = (np.ascontiguousarray(back).view(np.uint8).reshape(raw.shape) != raw).any(axis=-1)
        if plan.active is not None:
            differs &= plan.active
        footprint = self.footprint(plan, site.width)
        lost = differs[footprint.members, footprint.lanes]
        owner = np.empty(self.total, dtype=np.int64)
        owner[footprint.granules] = footprint.lanes
        lost &= owner[footprint.granules] != footprint.lanes
        for member in np.unique(footprint.members[lost]):
            chosen = lost & (footprint.members == member)
            rival = int(owner[footprint.granules[chosen][0]]) % self.lanes.per_cta
            text = f"is written by several threads with different values (thread {rival} among them)"
            self._add("race", footprint, site, chosen, text, site.infos[int(member)].index)

    def _compare(
        self,
        footprint: Footprint,
        kind: str,
        site: Site,
        against: tuple[str, ...],
        stored: tuple[Plan, Array] | None = None,
    ) -> None:
        """Look for earlier accesses of other threads that no barrier orders before this one."""
        for entry in self.log:
            if entry.kind not in against or not _both(entry.footprint.bits, footprint.bits):
                continue
            mine, theirs = _meetings(footprint, entry.footprint)
            a, b = footprint.lanes[mine], entry.footprint.lanes[theirs]
            racing = (a != b) & ~self._ordered(entry, b, a)
            if racing.any() and stored is not None and entry.kind == "write":
                racing &= self._changes(footprint, stored, site)[mine]
            if not racing.any():
                continue
            member = footprint.members[mine[racing][0]]
            chosen = np.zeros(len(footprint.lanes), dtype=bool)
            chosen[mine[racing]] = True
            chosen &= footprint.members == member
            place = int(np.nonzero(racing)[0][0])
            other = entry.site.infos[int(entry.footprint.members[theirs[place]])]
            thread = int(b[place]) % self.lanes.per_cta
            text = (
                f"is {_VERB[kind]} by thread {int(a[place]) % self.lanes.per_cta} and {_VERB[entry.kind]} by thread "
                f"{thread} (PTX line {other.line}) with no barrier between"
            )
            self._add("race", footprint, site, chosen, text, other.index)

    def _changes(self, footprint: Footprint, stored: tuple[Plan, Array], site: Site) -> Array:
        """Which touches of a store are about to change the memory."""
        plan, data = stored
        old = np.ascontiguousarray(self.arena.view(site.width).take(plan.indices))
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(*plan.indices.shape, -1)
        differs = (old.view(np.uint8).reshape(raw.shape) != raw).any(axis=-1)
        return differs[footprint.members, footprint.lanes]

    def _ordered(self, entry: _Logged, earlier: Array, later: Array) -> Array:
        """Whether the access of lanes `earlier`, logged in `entry`, happened before anything that `later` does now."""
        per = self.lanes.warps_per_cta
        w, v = earlier // WARP, later // WARP
        cta = w // per
        then = entry.clock[cta, w % per, w % per]
        across = self.known[cta, v % per, w % per] >= then
        within = self.warp_clock[w] > entry.warp_clock[w]
        return np.where(w == v, within, across)

    def arrive(self, warp: int) -> Array:
        """A warp arrives at a barrier and goes on. Returns what it knows, to be given to those who wait there."""
        per = self.lanes.warps_per_cta
        cta, place = warp // per, warp % per
        knowledge = self.known[cta, place].copy()
        self.known = self.known.copy()
        self.known[cta, place, place] += 1
        return knowledge

    def learn(self, warps: Array, knowledge: Array) -> None:
        """Warps of one CTA that go on after others have arrived, and now know what these knew."""
        per = self.lanes.warps_per_cta
        cta, places = int(warps[0]) // per, warps % per
        self.known = self.known.copy()
        self.known[cta, places] = np.maximum(self.known[cta, places], knowledge)
        self.known[cta, places, places] += 1
        moved = np.zeros(self.lanes.warps, dtype=np.bool_)
        moved[warps] = True
        self.warp_clock = self.warp_clock + moved
        self._stale = True

    def first_byte(self, cta: int) -> int:
        """Where in the arena the shared memory of a CTA of the batch begins."""
        return cta * self.stride

    def filled(self, first: int, size: int) -> None:
        """Bytes of the arena that a copy engine has written: they are there for whoever waits for them."""
        begin, end = first // self.granule, -(-(first + size) // self.granule)
        word, behind = begin // 64, -(-end // 64)
        flags = np.zeros((behind - word) * 64, dtype=np.uint8)
        flags[begin - word * 64 : end - word * 64] = 1
        bits: Words = np.packbits(flags, bitorder="little").view(np.uint64)
        self.blank[word:behind] &= ~bits

    def barrier(self, arrived: Array, everyone: bool, given: dict[int, Array] | None = None) -> None:
        """Warps (bool [warps of the batch]) waited for each other at a barrier, each CTA on its own.

        `everyone`: all warps of all CTAs met. `given`: per CTA, the knowledge of warps that arrived without waiting.
        """
        self.warp_clock = self.warp_clock + arrived
        if everyone:
            self.log.clear()
            self._logged.clear()
            self._stale = False
            self.read_set.fill(0)
            self.write_set.fill(0)
            return
        per = self.lanes.warps_per_cta
        known = self.known.copy()
        for cta in np.unique(np.nonzero(arrived)[0] // per):
            here = np.nonzero(arrived[cta * per : (cta + 1) * per])[0]
            joined = known[cta, here].max(axis=0)
            if given is not None and int(cta) in given:
                joined = np.maximum(joined, given[int(cta)])
            known[cta, here] = np.maximum(known[cta, here], joined)
            known[cta, here, here] += 1
        self.known = known
        self._prune()

    def _prune(self) -> None:
        """Forget accesses that every warp of their CTA is ordered after: with each barrier of a CTA, but after barriers
        in shared memory, of which there are many, when one is met."""
        self._stale = False
        per = self.lanes.warps_per_cta
        kept = []
        for entry in self.log:
            warps = entry.footprint.warps()
            cta, w = warps // per, warps % per
            diagonal = self.known[cta, w, w] > entry.clock[cta, w, w]
            if not (diagonal & (self.known[cta, :, w].min(axis=1) >= entry.clock[cta, w, w])).all():
                kept.append(entry)
        self.log = kept
        self._logged = {(id(e.footprint), e.kind, id(e.clock), id(e.warp_clock)) for e in kept}
        self.read_set.fill(0)
        self.write_set.fill(0)
        for entry in kept:
            target = self.read_set if entry.kind == "read" else self.write_set
            np.bitwise_or(target, entry.footprint.bits, out=target)

    def warp_barrier(self, warps: Array) -> None:
        """`bar.warp.sync` in some warps (bool [warps of the batch])."""
        self.warp_clock = self.warp_clock + warps


def _meetings(a: Footprint, b: Footprint) -> tuple[Array, Array]:
    """Pairs of touches (indices into `a` and into `b`) of the same granule."""
    order = np.argsort(b.granules, kind="stable")
    ranked = b.granules[order]
    left = np.searchsorted(ranked, a.granules, side="left")
    right = np.searchsorted(ranked, a.granules, side="right")
    amount = right - left
    mine = np.repeat(np.arange(len(a.granules)), amount)
    offsets = np.arange(len(mine)) - np.repeat(np.cumsum(amount) - amount, amount)
    return mine, order[np.repeat(left, amount) + offsets]
