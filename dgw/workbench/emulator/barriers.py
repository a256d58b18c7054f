"""CTA barriers: who waits where, when they are released, and what is wrong with that.

`bar.sync a` without a count waits for every thread of the CTA that has not exited. So do sm_70 and newer: the Volta
tuning guide speaks of "all non-exited threads", and the PTX manual of `exit` says that a barrier for all threads is
released when only exiting threads hold it up. Leaving early is no fault of its own; what the missing threads should
have written is missing, and that is found where it is read. That some thread waits for the same barrier at another
instruction is reported. With a count, whole warps are counted, at whatever instruction they wait, so producers
and consumers may use named barriers; exited threads do not arrive there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.operation import Operation, Thunk, malformed, unknown
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import Immediate, Not, Operand, Register
from dgw.workbench.emulator.state import WARP

if TYPE_CHECKING:
    from dgw.workbench.emulator.engine import Engine
    from dgw.workbench.emulator.group import Group

Array = Any  # a NumPy array
BARRIERS = 16


class Barriers:
    """The barriers of a batch. Lane arrays: `at` the instruction waited at (-1: not waiting), `number`, `count`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        lanes = engine.lanes
        self.at = np.full(lanes.count, -1, dtype=np.int64)
        self.number = np.zeros(lanes.count, dtype=np.int64)
        self.count = np.zeros(lanes.count, dtype=np.int64)
        self.votes = np.zeros(lanes.count, dtype=np.bool_)
        self.given: dict[tuple[int, int], Array] = {}  # what arriving warps knew, by CTA and barrier
        self.arrivals = np.zeros((len(lanes.ctas), BARRIERS, lanes.warps_per_cta), dtype=np.int64)

    def reset(self) -> None:
        """Nobody waits."""
        self.at.fill(-1)
        self.arrivals.fill(0)
        self.given.clear()

    def value(self, operand: Operand) -> Array:
        """An integer operand in every lane."""
        if isinstance(operand, Immediate):
            return np.full(self.engine.lanes.count, operand.value, dtype=np.int64)
        assert isinstance(operand, Register)
        row = self.engine.program.rows.of(operand)
        return self.engine.registers.arrays[32][row].astype(np.int64)

    def wait(self, index: int, mask: NDArray[np.bool_]) -> None:
        """The lanes of `mask` arrive at the barrier instruction `index` and wait."""
        instruction = self.engine.kernel.operations[index].instruction
        number, count, vote = barrier_operands(instruction)
        self.at[mask] = index
        self.number[mask] = (self.value(number) % BARRIERS)[mask]
        self.count[mask] = 0 if count is None else self.value(count)[mask]
        if vote is not None:
            register = vote.register if isinstance(vote, Not) else vote
            assert isinstance(register, Register)
            self.votes[mask] = (self.engine.predicate(register) ^ isinstance(vote, Not))[mask]

    def arrive(self, index: int, number: Operand, count: Operand, mask: NDArray[np.bool_]) -> None:
        """`bar.arrive` at instruction `index`: the warps of `mask` arrive and go on."""
        engine, lanes = self.engine, self.engine.lanes
        arriving = mask.reshape(-1, lanes.warps, WARP)[0].any(axis=1)
        ids = self.value(number).reshape(lanes.warps, WARP).max(axis=1) % BARRIERS
        for warp in np.nonzero(arriving)[0]:
            cta, barrier = int(warp) // lanes.warps_per_cta, int(ids[warp])
            self.arrivals[cta, barrier, warp % lanes.warps_per_cta] += 1
            knowledge = engine.shared.arrive(int(warp))
            old = self.given.get((cta, barrier))
            self.given[cta, barrier] = knowledge if old is None else np.maximum(old, knowledge)
        if engine.observer is not None:
            engine.observer.barrier(index, int(arriving.sum()))

    def release(self) -> NDArray[np.bool_] | None:
        """The lanes whose barrier is complete, or None; orders memory among their warps."""
        lanes = self.engine.lanes
        waiting = self.at >= 0
        if not waiting.any():
            return None
        released = np.zeros(lanes.count, dtype=np.bool_)
        given: dict[int, Array] = {}
        per = lanes.per_cta
        for cta in np.unique(lanes.cta[waiting]):
            span = slice(int(cta) * per, (int(cta) + 1) * per)
            for number in np.unique(self.number[span][waiting[span]]):
                members = waiting[span] & (self.number[span] == number)
                if self._complete(int(cta), int(number), members, span):
                    released[span] |= members
                    if (int(cta), int(number)) in self.given:
                        given[int(cta)] = self.given.pop((int(cta), int(number)))
                    self.arrivals[cta, number] = np.maximum(self.arrivals[cta, number] - 1, 0)
        if not released.any():
            return None
        self._finish(released, given)
        return released

    def _complete(self, cta: int, number: int, members: Array, span: slice) -> bool:
        counts = self.count[span][members]
        alive = self.engine.alive[span]
        if not counts.any():
            return not (alive & ~members).any()
        warps = int(members.reshape(-1, WARP).any(axis=1).sum()) + int((self.arrivals[cta, number] > 0).sum())
        return warps * WARP >= int(counts.max())

    def _finish(self, released: NDArray[np.bool_], given: dict[int, Array]) -> None:
        engine, lanes = self.engine, self.engine.lanes
        self._report(released)
        self._reduce(released)
        waiting = released.reshape(lanes.warps, WARP).any(axis=1)
        engine.shared.barrier(waiting, bool(waiting.all()), given)
        if engine.observer is not None:
            for index in np.unique(self.at[released]):
                at = (released & (self.at == index)).reshape(lanes.warps, WARP).any(axis=1)
                engine.observer.barrier(int(index), int(at.sum()))
        self.at[released] = -1

    def _report(self, released: NDArray[np.bool_]) -> None:
        """Whole-CTA barriers that some threads reach at another instruction."""
        engine, lanes = self.engine, self.engine.lanes
        whole = released & (self.count == 0)
        for cta in np.unique(lanes.cta[whole]):
            here = lanes.cta == cta
            places = np.unique(self.at[whole & here])
            if len(places) > 1:
                first, second = int(places[0]), int(places[1])
                line = engine.infos[second].line
                message = f"some threads wait here, others at PTX line {line}: not every thread reaches this barrier"
                members = np.nonzero(whole & here & (self.at == first))[0]
                engine.findings.add("barrier", message, first, lanes, members, other=second)

    def _reduce(self, released: NDArray[np.bool_]) -> None:
        """Write the results of bar.red."""
        engine, lanes = self.engine, self.engine.lanes
        for index in np.unique(self.at[released]):
            instruction = engine.kernel.operations[int(index)].instruction
            if "red" not in instruction.modifiers:
                continue
            write = instruction.operands[0]
            assert isinstance(write, Register)
            row = engine.registers.arrays[write.bits][engine.program.rows.of(write)]
            for cta in np.unique(lanes.cta[released]):
                here = released & (lanes.cta == cta)
                votes = self.votes[here]
                value = {"popc": votes.sum(), "and": votes.all(), "or": votes.any()}[
                    next(word for word in ("popc", "and", "or") if word in instruction.modifiers)
                ]
                row[here & (self.at == index)] = value

    def deadlock(self) -> None:
        """Report the barriers at which threads wait in vain."""
        engine, lanes = self.engine, self.engine.lanes
        for index in np.unique(self.at[self.at >= 0]):
            members = np.nonzero(self.at == index)[0]
            message = f"{len(members)} threads wait for barrier {int(self.number[members[0]])} and nobody can go on"
            gone = int(((lanes.cta == lanes.cta[members[0]]) & lanes.exists & ~engine.alive).sum())
            message += f"; {gone} threads of the CTA have exited" if gone else ""
            engine.findings.add("deadlock", message, int(index), lanes, members)


def decode_arrive(instruction: Instruction) -> Operation:
    """bar.arrive: arrives at a barrier and goes on."""
    words = [word for word in instruction.modifiers if word not in ("cta", "aligned")]
    operands = instruction.operands
    if words != ["arrive"] or len(operands) != 2 or not all(isinstance(o, Immediate | Register) for o in operands):
        raise unknown(instruction)

    def build(group: Group) -> Thunk:
        barriers, mask = group.engine.barriers, group.mask
        everyone = np.ones(group.lanes.count, dtype=np.bool_)

        def run() -> None:
            for operation in group.operations:
                number, count = operation.instruction.operands
                barriers.arrive(operation.index, number, count, everyone if mask is None else mask)

        return group.finish(run)

    reads = tuple(operand for operand in operands if isinstance(operand, Register))
    return Operation(
        instruction, (), reads, build, "arrive", False, loads="generic", stores="generic", ordered=True
    )  # fmt: skip


def barrier_operands(instruction: Instruction) -> tuple[Operand, Operand | None, Operand | None]:
    """Barrier number, thread count and voted predicate of bar.sync, barrier.sync and bar.red."""
    words = [word for word in instruction.modifiers if word not in ("cta", "aligned")]
    operands = list(instruction.operands)
    vote = None
    if words[:1] == ["red"] and len(words) == 3 and words[1] in ("popc", "and", "or") and len(operands) in (3, 4):
        vote = operands.pop()
        register = vote.register if isinstance(vote, Not) else vote
        if not isinstance(register, Register) or register.bits != 1 or not isinstance(operands.pop(0), Register):
            raise malformed(instruction)
    elif words != ["sync"]:
        raise unknown(instruction)
    if len(operands) not in (1, 2) or not all(isinstance(o, Immediate | Register) for o in operands):
        raise malformed(instruction)
    return operands[0], operands[1] if len(operands) == 2 else None, vote
