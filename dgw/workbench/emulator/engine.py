"""Executes a batch of CTAs: which block runs next for which lanes, barriers, and the services that groups use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.async_copy import AsyncCopies
from dgw.workbench.emulator.blockcode import Program, compile_block
from dgw.workbench.emulator.bulk_copy import BulkStores
from dgw.workbench.emulator.cfg import Block
from dgw.workbench.emulator.clusters import ClusterBarriers
from dgw.workbench.emulator.findings import Findings
from dgw.workbench.emulator.group import Context, Group
from dgw.workbench.emulator.mbarriers import Mbarriers
from dgw.workbench.emulator.memory import Arena, Memory
from dgw.workbench.emulator.observer import Observer
from dgw.workbench.emulator.operation import Thunk
from dgw.workbench.emulator.ptx.operands import Register, Symbol
from dgw.workbench.emulator.races import SharedSpace
from dgw.workbench.emulator.spaces import GlobalSpace, WindowSpace
from dgw.workbench.emulator.state import WARP, Lanes, Registers

if TYPE_CHECKING:
    from dgw.workbench.emulator.barriers import Barriers

SHARED_STRIDE = 1024


class Engine:
    """One batch: lanes, registers, memory spaces, and the code of the blocks that have run."""

    def __init__(
        self,
        program: Program,
        lanes: Lanes,
        memory: Memory,
        parameters: NDArray[np.uint8],
        shared_bytes: int,
        symbols: dict[str, int],
        findings: Findings,
        observer: Observer | None,
    ) -> None:
        kernel = program.kernel
        self.program, self.kernel, self.lanes, self.memory = program, kernel, lanes, memory
        self.infos, self.findings, self.observer = kernel.infos, findings, observer
        self.dynamic_bytes, self.symbols = shared_bytes, symbols
        self.shared_bytes = kernel.dynamic_shared + shared_bytes
        self.registers = Registers(program.rows.total, lanes.count)
        self.active = np.zeros(lanes.count, dtype=np.bool_)
        self.alive = lanes.exists.copy()
        self.written = {register: np.zeros(lanes.count, dtype=np.bool_) for register in kernel.undefined}
        self._specials: dict[tuple[str, Any], NDArray[Any]] = {}
        self._code: dict[tuple[int, bool], list[Thunk]] = {}
        self._plain = Context(self, self.registers, lanes, program.rows, None)
        self._masked = Context(self, self.registers, lanes, program.rows, self.active)
        self._spaces = self._make_spaces(parameters)
        self.copies = AsyncCopies(self.shared, lanes)
        self.mbarriers = Mbarriers(self)
        self.clusters = ClusterBarriers(self)
        self.stores = BulkStores()
        self.barriers: Barriers  # set by whoever controls the lanes
        self.block_warps = np.zeros(len(kernel.blocks), dtype=np.int64)

    def _make_spaces(self, parameters: NDArray[np.uint8]) -> dict[str, GlobalSpace | WindowSpace]:
        lanes, kernel, findings = self.lanes, self.kernel, self.findings
        stride = -(-max(self.shared_bytes, 1) // SHARED_STRIDE) * SHARED_STRIDE
        arena = Arena(np.zeros(stride * len(lanes.ctas), dtype=np.uint8))
        self.shared = SharedSpace(arena, stride, self.shared_bytes, kernel.granule, findings, lanes)
        spaces: dict[str, GlobalSpace | WindowSpace] = {
            "global": GlobalSpace(self.memory, findings, lanes),
            "shared": self.shared,
            "param": WindowSpace("param", Arena(parameters.copy()), 0, kernel.sizes["param"], findings, lanes),
            "const": WindowSpace("const", Arena(self._constants()), 0, kernel.sizes["const"], findings, lanes),
        }
        for name in ("local", "frame"):
            size = -(-kernel.sizes[name] // 16) * 16
            private = Arena(np.zeros(max(size, 16) * lanes.count, dtype=np.uint8))
            base = np.arange(lanes.count, dtype=np.int64) * size
            spaces[name] = WindowSpace(name, private, base, kernel.sizes[name], findings, lanes)
        return spaces

    def _constants(self) -> NDArray[np.uint8]:
        data = np.zeros(-(-max(self.kernel.sizes["const"], 1) // 16) * 16, dtype=np.uint8)
        for placement in self.kernel.placements.values():
            if placement.space == "const":
                initial = np.frombuffer(placement.variable.initial, dtype=np.uint8)
                data[placement.offset : placement.offset + len(initial)] = initial
        return data

    def space(self, name: str) -> Any:
        """The memory space called `name`."""
        return self._spaces[name]

    def address_of(self, symbol: Symbol, line: int) -> int:
        """The address of a variable inside its window, or its global address."""
        base = self.symbols.get(symbol.name)
        if base is None:
            placement = self.kernel.placement(symbol, line)
            # The address of a frame variable is generic once it leaves its instruction; only direct use is supported.
            base = placement.offset
        return base + symbol.offset

    def special(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        """A special register in every lane."""
        key = (name, dtype)
        if key not in self._specials:
            value = self.lanes.special(name, self.shared_bytes, self.dynamic_bytes)
            self._specials[key] = value.astype(dtype)
        return self._specials[key]

    def predicate(self, register: Register) -> NDArray[np.bool_]:
        """The value of a predicate register in every lane (a view)."""
        view: NDArray[np.bool_] = self.registers.arrays[1][self.program.rows.of(register)]
        return view

    def require_whole_warps(self, mask: NDArray[np.bool_], group: Group) -> None:
        """Report warps of which only some of the lanes that still run execute an aligned instruction."""
        warps = np.broadcast_to(mask, (group.n if mask.ndim > 1 else 1, self.lanes.count)).reshape(
            -1, self.lanes.warps, WARP
        )
        partly = warps.any(axis=-1) & (warps != self.alive.reshape(self.lanes.warps, WARP)).any(axis=-1)
        if partly.any():
            lanes = np.repeat(partly, WARP, axis=-1) & warps.reshape(len(warps), -1)
            self.report_divergent(lanes, group, "the lanes of its warp")

    def report_divergent(self, lanes: NDArray[np.bool_], group: Group, what: str) -> None:
        """Report an instruction that the lanes of a warp do not execute together."""
        for member in np.nonzero(lanes.any(axis=1))[0]:
            info = self.infos[group.operations[int(member)].index]
            message = f"{info.text.split()[0]}: not all of {what} execute it"
            self.findings.add("divergent", message, info.index, self.lanes, np.nonzero(lanes[member])[0])

    def code(self, block: Block, masked: bool) -> list[Thunk]:
        """The thunks of a block."""
        key = (block.number, masked)
        found = self._code.get(key)
        if found is None:
            found = self._code[key] = compile_block(self.program, block, self._masked if masked else self._plain)
        return found

    def attach(
        self, memory: Memory, parameters: NDArray[np.uint8], findings: Findings, observer: Observer | None
    ) -> None:
        """Serve another run of the same kernel: its buffers, parameters, findings and observer."""
        self.memory, self.findings, self.observer = memory, findings, observer
        for space in self._spaces.values():
            space.findings = findings
        self._spaces["global"].memory = memory  # type: ignore[union-attr]
        self._spaces["param"].arena.data[...] = parameters  # type: ignore[union-attr]
        self.block_warps.fill(0)

    def reset(self, lanes: Lanes) -> None:
        """Prepare for another batch with as many CTAs: new places in the grid, fresh memory."""
        self.lanes.ctas, self.lanes.grid = lanes.ctas, lanes.grid
        for (name, dtype), array in self._specials.items():
            array[...] = self.lanes.special(name, self.shared_bytes, self.dynamic_bytes).astype(dtype)
        self.alive[...] = self.lanes.exists
        for written in self.written.values():
            written.fill(False)
        self.shared.reset()
        for name in ("local", "frame"):
            self._spaces[name].reset()  # type: ignore[union-attr]
        self.copies.reset()
        self.mbarriers.reset()
        self.clusters.reset()
        self.stores.groups.clear()
