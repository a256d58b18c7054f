"""Moves lanes from block to block: one block at a time, the earliest that has lanes waiting, all its lanes together.

Lanes that look again and again whether others have stored something let all others go first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.barriers import Barriers, barrier_operands
from dgw.workbench.emulator.cfg import Block, is_cluster_wait, is_cta_barrier, is_mbarrier_wait, looks_again
from dgw.workbench.emulator.engine import Engine
from dgw.workbench.emulator.ptx.operands import Register
from dgw.workbench.emulator.state import WARP

Array = Any  # a NumPy array
YIELDED = 1 << 38
WAITING = 1 << 39
FINISHED = 1 << 40


class Stop(Exception):
    """The batch cannot go on: a trap, a deadlock or the step limit."""


class Control:
    """The program counters of a batch. `place` is the rank of each lane's next block, or WAITING or FINISHED; YIELDED
    is added to the rank while others go first.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.kernel = engine.kernel
        self.lanes = engine.lanes
        self.barriers = Barriers(engine)
        engine.barriers = self.barriers
        self.place = np.zeros(self.lanes.count, dtype=np.int64)
        self.resume = np.zeros(self.lanes.count, dtype=np.int64)
        self.steps = 0
        instructions = self.kernel.function.instructions
        self.looking = frozenset(block.number for block in self.kernel.blocks if looks_again(block, instructions))
        self.split: list[tuple[int, str, Array]] = []  # aligned barriers that part of a warp waits at: who

    def run(self, step_limit: int) -> None:
        """Run all lanes to their end. Raises Stop after reporting why the batch cannot go on."""
        engine, lanes, blocks = self.engine, self.lanes, self.kernel.blocks
        self.barriers.reset()
        if not blocks:
            return
        if engine.observer is not None:
            engine.observer.begin(engine.infos, lanes.ctas, lanes.warps_per_cta)
        self.place[...] = np.where(lanes.exists, self.kernel.rank[0], FINISHED)
        uniform: int | None = 0 if lanes.full else None
        order = self.kernel.order
        while True:
            if uniform is None:
                rank = int(self.place.min())
                if YIELDED <= rank < WAITING:
                    self.place[self.place < WAITING] -= YIELDED
                    rank -= YIELDED
                if rank >= WAITING:
                    if rank == FINISHED:
                        return
                    self._deadlock()
                np.equal(self.place, rank, out=engine.active)
                number = order[rank]
                if engine.active.all():
                    uniform = number
                else:
                    self._run_masked(blocks[number])
            if uniform is not None:
                uniform = self._run_uniform(blocks[uniform])
                if uniform == FINISHED:
                    return
            if engine.mbarriers.changed or engine.clusters.changed:
                self._wake()
            self.steps += 1
            if self.steps > step_limit:
                self._step_limit()

    def _count(self, block: Block, warps: int) -> None:
        self.engine.block_warps[block.number] += warps
        if self.engine.observer is not None and warps:
            self.engine.observer.block(block.first, block.last, warps)

    def _run_uniform(self, block: Block) -> int | None:
        """Run a block with all lanes. Returns the next block if all lanes go there, FINISHED, or None if they part."""
        for thunk in self.engine.code(block, False):
            thunk()
        self._count(block, self.lanes.warps)
        end = block.terminator
        if end is None or (end.opcode == "bra" and end.guard is None):
            return self._whole(block.successors[0] if block.successors else -1)
        taken: Any = True
        if end.guard is not None:
            taken = self.engine.predicate(end.guard) ^ end.negated
            amount = int(np.count_nonzero(taken))
            if end.opcode == "bra" and amount in (0, len(taken)):
                self._branch(block, self.lanes.warps, 0)
                return self._whole(block.successors[0 if amount else 1] if len(block.successors) > 1 or amount else -1)
        if is_cta_barrier(end) and end.guard is None and self._whole_barrier(block):
            return self._whole(block.successors[0] if block.successors else -1)
        if end.opcode in ("ret", "exit") and end.guard is None:
            self.engine.alive[...] = False
            return FINISHED
        self._leave(block, np.ones(self.lanes.count, dtype=np.bool_))
        return None

    def _whole(self, number: int) -> int:
        if number < 0:
            self.engine.alive[...] = False
            return FINISHED
        return number

    def _whole_barrier(self, block: Block) -> bool:
        """Pass a plain CTA barrier at which all lanes of the batch are."""
        end = block.terminator
        assert end is not None
        number, count, vote = barrier_operands(end)
        if count is not None or vote is not None or isinstance(number, Register) or self.barriers.arrivals.any():
            return False
        everyone = np.ones(self.lanes.warps, dtype=np.bool_)
        self.engine.shared.barrier(everyone, True)
        if self.engine.observer is not None:
            self.engine.observer.barrier(block.last - 1, self.lanes.warps)
        return True

    def _run_masked(self, block: Block) -> None:
        """Run a block with the active lanes and move them on."""
        active = self.engine.active
        for thunk in self.engine.code(block, True):
            thunk()
        self._count(block, int(active.reshape(-1, WARP).any(axis=1).sum()))
        self._leave(block, active)

    def _leave(self, block: Block, mask: NDArray[np.bool_]) -> None:
        """Move the lanes of `mask` from a block to their next places."""
        end, rank = block.terminator, self.kernel.rank
        following = block.successors[-1] if block.successors else -1
        if end is None:
            self._go(mask, following)
            return
        taken: Array = mask
        if end.guard is not None:
            taken = mask & (self.engine.predicate(end.guard) ^ end.negated)
        rest = mask & ~taken
        if end.opcode == "bra":
            if end.guard is not None:
                self._report_branch(block, mask, taken)
            self._go(rest, block.successors[1] if len(block.successors) > 1 else -1)
            self._go(taken, block.successors[0])
            if block.number in self.looking:
                again = mask & (self.place == rank[block.number])
                self.place[again] += YIELDED
        elif end.opcode == "brx":
            self._go(rest, following)
            self._jump(block, taken)
        elif is_cta_barrier(end):
            self._go(rest, following)
            self._wait(block, taken, rank[following] if following >= 0 else FINISHED)
        elif is_mbarrier_wait(end) or is_cluster_wait(end):
            self._go(rest, following)
            self._await(block, taken, rank[following] if following >= 0 else FINISHED)
        else:
            self._go(rest, following)
            if end.opcode == "trap" and taken.any():
                self.engine.findings.add("trap", "the kernel traps", block.last - 1, self.lanes, np.nonzero(taken)[0])
                raise Stop("trap")
            self._go(taken, -1)
            self._release()

    def _go(self, mask: Array, number: int) -> None:
        if number < 0:
            if mask.any():
                self.place[mask] = FINISHED
                self.engine.alive[mask] = False
                self.engine.clusters.changed |= bool(self.engine.clusters.waiting.any())
                self._release()
        else:
            self.place[mask] = self.kernel.rank[number]

    def _jump(self, block: Block, mask: Array) -> None:
        """brx.idx: each lane to the target that its index names."""
        end = block.terminator
        assert end is not None
        index = self.barriers.value(end.operands[0])
        targets = block.successors[: -1 if end.guard is not None else None]
        for position, target in enumerate(targets):
            self._go(mask & (index == position), target)

    def _wait(self, block: Block, mask: Array, resume: int) -> None:
        if not mask.any():
            return
        end = block.terminator
        assert end is not None
        if end.opcode == "bar" or "aligned" in end.modifiers:
            warps = mask.reshape(-1, WARP)
            partly = warps.any(axis=1) & (warps != self.engine.alive.reshape(-1, WARP)).any(axis=1)
            if partly.any():
                self.split.append((block.last - 1, end.name, mask & np.repeat(partly, WARP)))
        self.barriers.wait(block.last - 1, mask)
        self.place[mask] = WAITING
        self.resume[mask] = resume
        self._release()

    def _await(self, block: Block, mask: Array, resume: int) -> None:
        """Wait for a phase of a barrier in shared memory, or for the CTAs of the cluster."""
        if mask.any():
            self.place[mask] = WAITING
            self.resume[mask] = resume
            index, engine = block.last - 1, self.engine
            cluster = is_cluster_wait(engine.kernel.operations[index].instruction)
            ended = engine.clusters.wait(mask) if cluster else engine.mbarriers.wait(index, mask)
            self.place[ended] = self.resume[ended]

    def _wake(self) -> None:
        """Phases have ended, or CTAs have arrived: who waited for that goes on."""
        barriers = self.engine.mbarriers
        barriers.changed = False
        ended = barriers.ended(barriers.at >= 0) | self.engine.clusters.ended()
        self.place[ended] = self.resume[ended]

    def _release(self) -> None:
        while (released := self.barriers.release()) is not None:
            self._judge_split(released)
            self.place[released] = self.resume[released]

    def _judge_split(self, released: Array) -> None:
        """Report barriers that the rest of a warp did not execute; that the rest has exited meanwhile is no fault."""
        left = []
        for index, name, waiting in self.split:
            if not (waiting & released).any():
                left.append((index, name, waiting))
                continue
            rest = self.engine.alive & ~waiting
            torn = np.repeat(rest.reshape(-1, WARP).any(axis=1), WARP) & waiting
            if torn.any():
                message = f"{name}: not all lanes of its warp execute it"
                self.engine.findings.add("divergent", message, index, self.lanes, np.nonzero(torn)[0])
        self.split = left

    def _branch(self, block: Block, warps: int, divergent: int) -> None:
        if self.engine.observer is not None:
            self.engine.observer.branch(block.last - 1, warps, divergent)

    def _report_branch(self, block: Block, mask: Array, taken: Array) -> None:
        if self.engine.observer is None:
            return
        lanes, goes = mask.reshape(-1, WARP), taken.reshape(-1, WARP)
        some = goes.any(axis=1)
        divergent = some & (goes != lanes).any(axis=1)
        self._branch(block, int(lanes.any(axis=1).sum()), int(divergent.sum()))

    def _deadlock(self) -> None:
        self._judge_split(self.place == WAITING)
        self.barriers.deadlock()
        self.engine.mbarriers.deadlock()
        raise Stop("deadlock")

    def _step_limit(self) -> None:
        place = np.where(self.place < WAITING, self.place % YIELDED, -1)
        rank = int(place.max())
        block = self.kernel.blocks[self.kernel.order[max(rank, 0)]]
        message = f"{self.steps} basic blocks were executed and the kernel has not ended"
        self.engine.findings.add("step-limit", message, block.last - 1, self.lanes, np.nonzero(place == rank)[0])
        raise Stop("step-limit")
