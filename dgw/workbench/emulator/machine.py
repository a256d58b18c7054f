"""Runs CTAs of a kernel launch on the CPU and says what they did and what they must not do."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.blockcode import Program
from dgw.workbench.emulator.control import Control, Stop
from dgw.workbench.emulator.engine import Engine
from dgw.workbench.emulator.errors import EmulatorError
from dgw.workbench.emulator.findings import Findings
from dgw.workbench.emulator.kernel import Kernel
from dgw.workbench.emulator.memory import Memory
from dgw.workbench.emulator.observer import Dim3, Observer, Outcome
from dgw.workbench.emulator.state import Lanes

STEP_LIMIT = 4_000_000
LANES_TOGETHER = 2048  # CTAs are stacked until a batch has about this many lanes
_PROGRAMS: dict[tuple[str, str], Program] = {}
_REMEMBERED = 64
_IDLE: dict[tuple[Any, ...], Control] = {}
_IDLE_ENGINES = 4


def program_of(ptx: str, entry: str) -> Program:
    """The compiled kernel of a PTX text, remembered by content. Raises EmulatorError."""
    key = (hashlib.sha256(ptx.encode()).hexdigest(), entry)
    found = _PROGRAMS.get(key)
    if found is None:
        if len(_PROGRAMS) >= _REMEMBERED:
            _PROGRAMS.clear()
        found = _PROGRAMS[key] = Program(Kernel.from_ptx(ptx, entry))
    return found


@dataclass
class EmulatedLaunch:
    """One launch: `parameters` holds the bytes of each kernel parameter in order (NumPy scalars are packed).

    `shared_bytes` is dynamic shared memory, `cluster` the CTAs of a cluster, along x. `at_once`: CTAs wait for each
    other, so that all that are run are run together. Addresses in parameters come from `memory.register`.
    """

    ptx: str
    entry: str
    grid: Dim3
    block: Dim3
    parameters: Sequence[bytes | np.generic | int | float]
    memory: Memory = field(default_factory=Memory)
    shared_bytes: int = 0
    cluster: int = 1
    at_once: bool = False

    def run(
        self,
        ctas: Sequence[Dim3] | None = None,
        observer: Observer | None = None,
        step_limit: int = STEP_LIMIT,
        strict: bool = True,
    ) -> Outcome:
        """Run some CTAs of the grid (all of them by default), whole clusters in their order.

        Raises EmulatorError for PTX that is not understood.
        `strict` False leaves out the checks of shared memory for races, uninitialised reads and copies in flight.
        """
        chosen = list(ctas) if ctas is not None else every_cta(self.grid)
        return run(program_of(self.ptx, self.entry), self, chosen, observer, step_limit, strict)


def every_cta(grid: Dim3) -> list[Dim3]:
    """The CTAs of a grid, x fastest."""
    return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]


def run(
    program: Program,
    launch: EmulatedLaunch,
    ctas: Sequence[Dim3],
    observer: Observer | None = None,
    step_limit: int = STEP_LIMIT,
    strict: bool = True,
) -> Outcome:
    """Run CTAs in batches, in the order given. Buffers of `launch.memory` are read and written in place.

    No further batch is begun when one has deadlocked, or thousands of its threads used addresses that they must not.
    """
    kernel = program.kernel
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if not 1 <= threads <= 1024:
        raise EmulatorError(f"{launch.entry}: a block of {threads} threads cannot be launched")
    parameters = _pack(kernel, launch)
    findings = Findings(kernel.infos)
    symbols = _register_globals(kernel, launch.memory)
    together = max(LANES_TOGETHER // (-(-threads // 32) * 32 * launch.cluster), 1) * launch.cluster
    if launch.at_once:
        together = max(len(ctas), 1)
    block_warps = np.zeros(len(kernel.blocks), dtype=np.int64)
    controls: dict[int, Control] = {}
    completed, steps = True, 0
    with np.errstate(all="ignore"):
        for start in range(0, len(ctas), together):
            batch = ctas[start : start + together]
            lanes = Lanes(launch.grid, launch.block, batch, launch.cluster)
            control = controls.get(len(batch))
            if control is None:
                control = controls[len(batch)] = _control(
                    program, launch, lanes, symbols, parameters, findings, observer
                )
            control.engine.reset(lanes)
            control.engine.shared.strict = strict
            control.steps = 0
            try:
                control.run(step_limit)
                control.engine.stores.end()
            except Stop:
                completed = False
            steps += control.steps
            if not completed or findings.hopeless:
                completed = False
                break
    for control in controls.values():
        block_warps += control.engine.block_warps
        _keep(control, launch, symbols)
    return Outcome(findings.all(), kernel.infos, block_warps, completed, steps)


def _key(program: Program, launch: EmulatedLaunch, ctas: int, symbols: dict[str, int]) -> tuple[Any, ...]:
    return (id(program), launch.block, ctas, launch.cluster, launch.shared_bytes, tuple(sorted(symbols.items())))


def _control(
    program: Program,
    launch: EmulatedLaunch,
    lanes: Lanes,
    symbols: dict[str, int],
    parameters: NDArray[np.uint8],
    findings: Findings,
    observer: Observer | None,
) -> Control:
    """An engine for batches of this size: one that ran before, with its code bound, or a new one."""
    control = _IDLE.pop(_key(program, launch, len(lanes.ctas), symbols), None)
    if control is None:
        engine = Engine(program, lanes, launch.memory, parameters, launch.shared_bytes, symbols, findings, observer)
        return Control(engine)
    control.engine.attach(launch.memory, parameters, findings, observer)
    return control


def _keep(control: Control, launch: EmulatedLaunch, symbols: dict[str, int]) -> None:
    """Keep an engine for the next run, without what belonged to this one."""
    engine = control.engine
    engine.attach(Memory(), engine.space("param").arena.data, Findings(engine.infos), None)
    if len(_IDLE) >= _IDLE_ENGINES:
        del _IDLE[next(iter(_IDLE))]
    _IDLE[_key(engine.program, launch, len(engine.lanes.ctas), symbols)] = control


def _pack(kernel: Kernel, launch: EmulatedLaunch) -> NDArray[np.uint8]:
    expected = kernel.parameters
    if len(expected) != len(launch.parameters):
        raise EmulatorError(
            f"{launch.entry} takes {len(expected)} parameters, the launch passes {len(launch.parameters)}"
        )
    data = np.zeros(-(-max(kernel.sizes["param"], 1) // 16) * 16, dtype=np.uint8)
    for variable, value in zip(expected, launch.parameters, strict=True):
        raw = _bytes(value, variable.size, variable.type_name)
        if len(raw) != variable.size:
            raise EmulatorError(
                f"{launch.entry}: parameter {variable.name} has {variable.size} bytes, the launch passes {len(raw)}"
            )
        offset = kernel.placements[variable.name].offset
        data[offset : offset + len(raw)] = np.frombuffer(raw, dtype=np.uint8)
    return data


def _bytes(value: Any, size: int, type_name: str) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, float) or type_name in ("f32", "f64"):
        return np.array(value, dtype=f"f{size}").tobytes()
    return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _register_globals(kernel: Kernel, memory: Memory) -> dict[str, int]:
    """Give module variables in global memory an address; their contents live as long as the launch."""
    addresses: dict[str, int] = {}
    for variable in [*kernel.module.variables.values(), *kernel.function.variables]:
        if variable.space != "global":
            continue
        name = f"{kernel.name}: {variable.name}"
        known = [buffer for buffer in memory.buffers if buffer.name == name]
        if known:
            addresses[variable.name] = known[0].base
            continue
        data = np.zeros(max(variable.size, 1), dtype=np.uint8)
        data[: len(variable.initial)] = np.frombuffer(variable.initial, dtype=np.uint8)
        addresses[variable.name] = memory.register(name, data, max(variable.alignment, 16))
    for variable in kernel.module.variables.values():
        for offset, symbol, addend in variable.references:
            if variable.space == "global" and symbol in addresses:
                buffer = memory.find(addresses[variable.name])
                assert buffer is not None
                target = np.array([addresses[symbol] + addend], dtype=np.uint64).view(np.uint8)
                buffer.data[offset : offset + 8] = target
    return addresses
