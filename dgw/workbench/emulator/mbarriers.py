"""Barriers in shared memory (mbarrier): who arrives, what bytes are on their way, and who waits for a phase.

A phase ends when as many arrivals have come as the barrier was made for, and all bytes that were announced. Copies
count when they are issued, and land when somebody's wait for their phase ends: until then their destination is poison.
A wait ends with its phase: `try_wait` never gives up, which the PTX manual allows; `test_wait` says at once whether the
phase has ended. Whoever arrives hands over what it knows of memory to those whose wait ends with the phase.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.addresses import split_address
from dgw.workbench.emulator.clusters import reached
from dgw.workbench.emulator.group import BOOL, U32, Group
from dgw.workbench.emulator.operation import Operation, Source, Thunk, destination, malformed, source, unknown
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import Address, Immediate, Register, Sink
from dgw.workbench.emulator.state import WARP

if TYPE_CHECKING:
    from dgw.workbench.emulator.engine import Engine

Array = Any  # a NumPy array
_SAID = {"release", "relaxed", "cta", "cluster", "shared", "shared::cta", "shared::cluster", "b64"}


@dataclass(slots=True)
class Phase:
    """The running phase of one barrier: arrivals that a phase takes and that are missing, bytes that are missing."""

    arrivals: int
    missing: int
    number: int = 0
    bytes: int = 0
    given: Array | None = None  # what those who arrived in the running phase know
    known: Array | None = None  # and those of the phase before
    copies: list[Callable[[], None]] = field(default_factory=list)  # that count in the running phase, to be landed
    due: list[Callable[[], None]] = field(default_factory=list)  # and in phases that have ended

    def end(self) -> bool:
        """Begin the next phase if this one is complete."""
        if self.missing or self.bytes:
            return False
        self.number += 1
        self.missing = self.arrivals
        self.known, self.given = self.given, None
        self.due += self.copies
        self.copies.clear()
        return True

    def land(self) -> None:
        """Somebody's wait has ended: what was copied is there."""
        for copy in self.due:
            copy()
        self.due.clear()


class Mbarriers:
    """The barriers of a batch, by CTA and shared address. `changed`: a phase has ended since somebody looked."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.phases: dict[tuple[int, int], Phase] = {}
        self.changed = False
        lanes = engine.lanes
        self.at = np.full(lanes.count, -1, dtype=np.int64)  # the instruction waited at
        self.address = np.zeros(lanes.count, dtype=np.int64)
        self.parity = np.zeros(lanes.count, dtype=np.int64)

    def reset(self) -> None:
        """No barrier, and nobody waits."""
        self.phases.clear()
        self.at.fill(-1)
        self.changed = False

    def make(self, lane: int, address: int, arrivals: int) -> None:
        """`mbarrier.init`."""
        self.phases[int(self.engine.lanes.cta[lane]), address] = Phase(arrivals, arrivals)

    def announce(self, lane: int, address: int, size: int, index: int) -> None:
        """`size` bytes more are on their way in this phase."""
        phase = self.find(lane, address, index)
        if phase is not None:
            phase.bytes += size
            self.changed |= phase.end()

    def count(self, lane: int, address: int, size: int, index: int, land: Callable[[], None]) -> None:
        """`size` bytes have come, and `land` puts them where they belong."""
        phase = self.find(lane, address, index)
        if phase is not None:
            phase.bytes -= size
            phase.copies.append(land)
            self.changed |= phase.end()

    def arrive(self, lane: int, address: int, index: int, announced: int = 0) -> None:
        """One arrival, and before it the announcement of bytes."""
        phase = self.find(lane, address, index)
        if phase is None:
            return
        if reached(self.engine, lane, address)[0] == self.engine.lanes.cta[lane]:
            knowledge = self.engine.shared.arrive(lane // WARP)
            phase.given = knowledge if phase.given is None else np.maximum(phase.given, knowledge)
        phase.bytes += announced
        phase.missing -= 1
        self.changed |= phase.end()

    def find(self, lane: int, address: int, index: int) -> Phase | None:
        """The barrier at a shared address of a lane's cluster; reports one that nobody has made."""
        phase = self.phases.get(reached(self.engine, lane, address))
        if phase is None:
            message = f"there is no barrier at shared address {address:#x}"
            lanes = np.array([lane])
            self.engine.findings.add("barrier", message, index, self.engine.lanes, lanes, address, "shared")
        return phase

    # -- waiting

    def wait(self, index: int, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The lanes of `mask` wait at instruction `index`; those whose phase has ended already."""
        address, parity = wait_operands(self.engine.kernel.operations[index].instruction)
        self.at[mask] = index
        self.address[mask] = self._value(address.base)[mask] + address.offset
        self.parity[mask] = self._value(parity)[mask] & 1
        return self.ended(mask)

    def ended(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of the waiting lanes of `mask` those whose phase has ended: they wait no longer, and know what was given."""
        lanes, found = self.engine.lanes, np.zeros(self.engine.lanes.count, dtype=np.bool_)
        chosen = np.nonzero(mask & (self.at >= 0))[0]
        keys = np.stack([lanes.cta[chosen], self.address[chosen], self.parity[chosen]])
        for cta, address, parity in np.unique(keys, axis=1).T:
            members = chosen[(keys == np.array([[cta], [address], [parity]])).all(axis=0)]
            phase = self.find(int(members[0]), int(address), int(self.at[members[0]]))
            if phase is None or phase.number % 2 == parity:
                continue
            found[members] = True
            self._take(phase, np.unique(members // WARP))
        self._go_on(found)
        return found

    def test(self, lane: int, address: int, parity: int, index: int) -> bool:
        """Whether the phase has ended; of a barrier that nobody has made, which is reported, it has."""
        phase = self.find(lane, address, index)
        if phase is None:
            return True
        if phase.number % 2 == parity & 1:
            return False
        self._take(phase, np.array([lane // WARP]))
        return True

    def _take(self, phase: Phase, warps: Array) -> None:
        """What was copied is there for `warps`, and they know what those knew who arrived."""
        phase.land()
        if phase.known is not None:
            self.engine.shared.learn(warps, phase.known)

    def _go_on(self, found: NDArray[np.bool_]) -> None:
        engine = self.engine
        for index in np.unique(self.at[found]):
            (done,) = engine.kernel.operations[int(index)].writes
            if done is not None:
                engine.predicate(done)[found & (self.at == index)] = True
        self.at[found] = -1

    def deadlock(self) -> None:
        """Report the barriers whose phases never end."""
        for index in np.unique(self.at[self.at >= 0]):
            members = np.nonzero(self.at == index)[0]
            phase = self.phases.get((int(self.engine.lanes.cta[members[0]]), int(self.address[members[0]])))
            missing = f"{phase.missing} arrivals and {phase.bytes} bytes are missing" if phase else "there is none"
            message = f"{len(members)} threads wait for a phase of a barrier in shared memory: {missing}"
            self.engine.findings.add("deadlock", message, int(index), self.engine.lanes, members)

    def _value(self, operand: Any) -> Array:
        return self.engine.barriers.value(Immediate(0) if operand is None else operand)


def wait_operands(instruction: Instruction) -> tuple[Address, Register | Immediate]:
    """Address and parity of `mbarrier.try_wait.parity` and `mbarrier.test_wait.parity`."""
    if len(instruction.operands) not in (3, 4) or "parity" not in instruction.modifiers:
        raise unknown(instruction)
    address, parity = instruction.operands[1:3]
    if not isinstance(address, Address) or not isinstance(parity, Register | Immediate):
        raise malformed(instruction)
    if not isinstance(address.base, Register | None):
        raise malformed(instruction, "its barrier is no register")
    return address, parity


def decode(instruction: Instruction) -> Operation:
    """mbarrier.init, .arrive, .arrive.expect_tx, .expect_tx, .inval, .try_wait.parity and .test_wait.parity."""
    words = instruction.modifiers
    if words[-1:] != ("b64",) and words[:1] != ("expect_tx",):
        raise unknown(instruction)
    if words[0] == "try_wait":
        address, parity = wait_operands(instruction)
        done = destination(instruction, instruction.operands[0], 1)
        registers = tuple(one for one in (address.base, parity) if isinstance(one, Register))
        return Operation(instruction, (done,), registers, lambda group: lambda: None, "control", False)
    if words[0] == "test_wait":
        address, _ = wait_operands(instruction)
        done = destination(instruction, instruction.operands[0], 1)
        looked = (address.base or Immediate(0), instruction.operands[2])
        looked_at = (source(instruction, operand, 32) for operand in looked)
        return Operation(instruction, (done,), tuple(looked_at), _build_test, address.offset, False, ordered=True)
    if words[0] == "inval":
        return Operation(instruction, (), (), lambda group: lambda: None, "nothing", False)
    form = _form(words)
    operands = list(instruction.operands)
    if form.startswith("arrive") and not isinstance(operands.pop(0), Sink):
        raise unknown(instruction)
    base, offset = split_address(instruction, operands[0])
    reads: tuple[Source, ...] = (base, *(source(instruction, operand, 32) for operand in operands[1:]))
    if len(reads) != (1 if form == "arrive" else 2):
        raise malformed(instruction)
    return Operation(instruction, (), reads, _build, (form, offset), False, ordered=True)


def _form(words: tuple[str, ...]) -> str:
    form = " ".join(word for word in words if word not in _SAID)
    if form not in ("init", "arrive", "arrive expect_tx", "expect_tx"):
        raise KeyError(form)
    return form


def _build_test(group: Group) -> Thunk:
    barriers, mask, shape = group.engine.mbarriers, group.mask, (group.n, group.lanes.count)
    address, parity = (group.source(position, U32).fetch for position in range(2))
    store = group.target(0, BOOL).store

    def run() -> None:
        found = np.zeros(shape, np.bool_)
        addresses, parities = (np.broadcast_to(fetch(), shape) for fetch in (address, parity))
        active = np.broadcast_to(True if mask is None else mask, shape)
        for member, lane in zip(*np.nonzero(active & group.lanes.exists), strict=True):
            at, index = int(addresses[member, lane]) + group.detail, group.operations[member].index
            found[member, lane] = barriers.test(int(lane), at, int(parities[member, lane]), index)
        store(found)

    return group.finish(run)


def _build(group: Group) -> Thunk:
    form, offset = group.detail
    barriers, mask, count = group.engine.mbarriers, group.mask, group.lanes.count
    address = group.source(0, U32).fetch
    value = group.source(1, U32).fetch if len(group.first.reads) > 1 else None

    def run() -> None:
        addresses = np.broadcast_to(address(), (group.n, count))
        values = np.broadcast_to(value() if value else np.uint32(0), (group.n, count))
        active = np.broadcast_to(True if mask is None else mask, (group.n, count))
        for member, lane in zip(*np.nonzero(active & group.lanes.exists), strict=True):
            at, amount = int(addresses[member, lane]) + offset, int(values[member, lane])
            index = group.operations[member].index
            if form == "init":
                barriers.make(int(lane), at, amount)
            elif form == "expect_tx":
                barriers.announce(int(lane), at, amount, index)
            else:
                barriers.arrive(int(lane), at, index, amount)

    return group.finish(run)
