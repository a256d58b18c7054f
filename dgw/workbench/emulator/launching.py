"""Runs a Plan in the emulator: operands and workspaces in host memory, launches and fills in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dgw.model import Case, Dim3, Fill, Launch, Plan, Source, TensorMap
from dgw.operands.quantisation import scale_arrays
from dgw.workbench.binding import argument_bytes, map_geometry
from dgw.workbench.emulator import tensor_maps
from dgw.workbench.emulator.classes import Tile, Tiling
from dgw.workbench.emulator.counters import Counters
from dgw.workbench.emulator.errors import EmulatorError
from dgw.workbench.emulator.grid import Coverage, run_all, run_classes
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from dgw.workbench.emulator.observer import Access, Finding
from dgw.workbench.emulator.operands import POISON, Buffers, Writes

WHOLE_GRID_FLOPS = 1 << 28
"""Problems up to this much arithmetic run their whole grid, because it takes no longer than compiling."""
FINDINGS_KEPT = 100


@dataclass(frozen=True)
class LaunchRun:
    """One launch and what was run of it."""

    launch: Launch
    coverage: Coverage


class PlanRun:
    """A case bound to host memory. `run` once; then D is in `buffers` and what was stored in `writes`."""

    def __init__(self, case: Case, plan: Plan, ptx_of: Callable[[Source], str], full_grid: bool = False) -> None:
        self.case, self.plan, self.ptx_of = case, plan, ptx_of
        problem = case.problem
        launches = plan.launches
        alone = len(launches) == 1 and launches[0].cluster == (1, 1, 1) and not launches[0].together
        self.whole = full_grid or not alone or plan.tile is None or problem.flops <= WHOLE_GRID_FLOPS
        self.buffers = Buffers(problem)
        self.memory = Memory()
        self.addresses = {
            name: self.memory.register(name, raw, writable=name == "d") + self.buffers.offset_bytes(name)
            for name, raw in self.buffers.raw.items()
        }
        for name, factors in scale_arrays(problem).items():
            self.addresses[name] = self.memory.register(name, factors, writable=False)
        self.workspaces = {name: np.full(max(size, 1), POISON, np.uint8) for name, size in plan.workspaces.items()}
        self.places = {
            name: self.memory.register(f"workspace {name}", array) for name, array in self.workspaces.items()
        }
        self.writes = Writes(problem, self.addresses["d"])

    def run(self) -> list[LaunchRun]:
        """Execute every step. Raises EmulatorError for PTX that the emulator does not know."""
        found = []
        for step in self.plan.steps:
            if isinstance(step, Fill):
                self.workspaces[step.workspace][:] = step.byte
            else:
                found.append(LaunchRun(step, self._launch(step)))
        return found

    def tiles(self, runs: Sequence[LaunchRun]) -> list[Tile] | None:
        """The tiles of D that were computed; None when it is all of D."""
        return runs[0].coverage.tiles if len(runs) == 1 else None

    def alike(self, runs: Sequence[LaunchRun]) -> bool:
        """Whether every CTA does the same work: one launch, one tile a CTA, one class of tiles."""
        if len(runs) != 1 or self.plan.tile is None:
            return False
        tiling = Tiling(self.case.problem, self.plan.tile)
        return runs[0].coverage.grid == tiling.total and len(tiling.classes()) == 1

    def _launch(self, launch: Launch) -> Coverage:
        problem, grid = self.case.problem, launch.grid
        if launch.cluster[1:] != (1, 1):
            raise EmulatorError(f"{launch.entry}: only clusters along x are emulated", "another shape of the cluster")
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        emulated = EmulatedLaunch(
            self.ptx_of(launch.source), launch.entry, grid, launch.block, self._parameters(launch), self.memory,
            launch.shared_bytes, launch.cluster[0], launch.together,
        )  # fmt: skip

        def run(blocks: Sequence[Dim3], counters: Counters) -> Sequence[Finding]:
            counters.full_warps = threads % 32 == 0
            outcome = emulated.run(blocks, _Watch(counters, self.writes))
            counters.finish()
            return outcome.findings[:FINDINGS_KEPT]

        if not self.whole:
            assert self.plan.tile is not None
            tiling = Tiling(problem, self.plan.tile)
            found = run_classes(tiling, grid, self.case.config, run, self.buffers, self.writes)
            if found is not None:
                return found
            self.buffers.poison_output()
            self.writes.clear()
        return run_all(grid, run, self.buffers)

    def _parameters(self, launch: Launch) -> list[bytes]:
        def tensor_map(argument: TensorMap) -> bytes:
            return self._map(argument).encode()

        def workspace(name: str) -> int:
            return self.places[name]

        return [
            argument_bytes(self.case.problem, argument, self.addresses.__getitem__, workspace, tensor_map)
            for argument in launch.arguments
        ]

    def _map(self, wanted: TensorMap) -> tensor_maps.TensorMap:
        """The map of an operand, or of its copy in a workspace."""
        base = self.places[wanted.workspace] if wanted.workspace else self.addresses[wanted.operand]
        found = map_geometry(self.case.problem, wanted, base)
        if len(found.extents) != 2 or len(found.box) != 2:
            raise EmulatorError(f"tensor map of {wanted.operand}: only boxes of two extents are emulated")
        swizzle = tensor_maps.SWIZZLES[wanted.swizzle]
        return tensor_maps.TensorMap(found.address, *found.extents, found.strides[0], *found.box, found.width, swizzle)


class _Watch:
    """Passes events on to the counters, and stores to the record of writes too."""

    def __init__(self, counters: Counters, writes: Writes) -> None:
        self.begin, self.block = counters.begin, counters.block
        self.branch, self.barrier = counters.branch, counters.barrier
        self.stored = writes.of_the_engine
        self._counters, self._writes = counters, writes

    def memory(self, access: Access) -> None:
        """A memory event."""
        self._counters.memory(access)
        if access.instructions[0].kind != "ld":
            self._writes.memory(access)
