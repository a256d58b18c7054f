"""What the machine tells whoever counts: the records of one emulated run and the protocol of its observer.

The machine executes groups of alike instructions for all warps of a CTA (and of several CTAs) at once, so every event
carries arrays: `n` instructions by `warps` (CTAs of the batch times warps per CTA, CTA-major) by 32 lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class SourceLine:
    """A line of the source named by a `.loc` directive; `line` 0 and file "" when there is none.

    `inlined` is set where this is the place in the kernel's own file at which a function of another file was inlined:
    `FILE:N` of the line in that function, without folders.
    """

    file: str = ""
    line: int = 0
    inlined: str = ""

    def __str__(self) -> str:
        """`swizzled.cu:73`, or `swizzled.cu:73 (async.cuh:39)`."""
        return f"{PurePath(self.file).name}:{self.line}" + (f" ({self.inlined})" if self.inlined else "")


@dataclass(frozen=True)
class InstructionInfo:
    """One PTX instruction as counters see it. `index` is its position in the kernel (inlined callees included).

    `opcode` is the first word (`ld`, `mma`), `modifiers` the others without dots. `kind` classes memory instructions:
    `ld st ldmatrix stmatrix cp.async atom red`, empty for the rest. `space` is `global shared local param const
    generic` or empty; `Access.space` is the resolved one. `width_bytes` is what one lane moves: bytes of the whole
    vector; for ldmatrix and stmatrix 16 (one row), for cp.async the copy size.
    `matrices` is the count of 8x8 matrices of ldmatrix and stmatrix, else 0. `source` is the innermost line, as in the
    machine code's line table; `site` the line of the kernel's own file from which it was inlined, or that line itself.
    """

    index: int
    opcode: str
    modifiers: tuple[str, ...]
    text: str
    line: int
    source: SourceLine
    kind: str = ""
    space: str = ""
    width_bytes: int = 0
    matrices: int = 0
    block: int = 0
    site: SourceLine = SourceLine()


class Access:
    """One executed group of `n` alike memory instructions (same opcode, width and space).

    `pattern` is hashable and cheap to hash: two accesses of equal `pattern` have the same instructions, the same mask
    and addresses (sources too) that differ by one multiple of 128 bytes, so they cost the same. (The reverse does not
    hold: a cache of patterns is bounded.) `space` is the resolved one. `mask` says which lanes took part: bool,
    broadcastable to [n, warps, 32]; for ldmatrix and stmatrix x1 and x2 only the lanes that give row addresses.

    A cp.async is announced once, with space `shared` and the destinations as `addresses`; `sources` then holds the
    global addresses and `source_mask` the lanes that read there (src-size above 0); both None for everything else.
    """

    __slots__ = ("_addresses", "_sources", "instructions", "mask", "pattern", "source_mask", "space")

    def __init__(
        self,
        instructions: tuple[InstructionInfo, ...],
        space: str,
        addresses: Callable[[], NDArray[np.int64]],
        mask: NDArray[np.bool_],
        pattern: Hashable,
        sources: Callable[[], NDArray[np.int64]] | None = None,
        source_mask: NDArray[np.bool_] | None = None,
    ) -> None:
        self.instructions = instructions
        self.space = space
        self._addresses = addresses
        self.mask = mask
        self.pattern = pattern
        self._sources = sources
        self.source_mask = source_mask

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Byte addresses (offsets for shared and local), int64 [n, warps, 32]; undefined where masked off."""
        return self._addresses()

    @property
    def sources(self) -> NDArray[np.int64] | None:
        """Global source addresses of a cp.async, int64 [n, warps, 32]; None for other instructions."""
        return None if self._sources is None else self._sources()


class Observer(Protocol):
    """Receives what a run did. Every method may be called often: memoise on `Access.pattern`."""

    def begin(self, instructions: Sequence[InstructionInfo], ctas: Sequence[Dim3], warps_per_cta: int) -> None:
        """A batch of CTAs starts; `instructions[i].index == i`. Warps of later events are numbered CTA-major."""

    def block(self, first: int, last: int, warps: int) -> None:
        """`warps` warps executed a basic block: instructions `first` <= index < `last`, predicated ones included."""

    def memory(self, access: Access) -> None:
        """A group of memory instructions was executed (param accesses are not announced)."""

    def stored(self, addresses: NDArray[np.int64], width: int) -> None:
        """A copy engine stored elements of `width` bytes at these global addresses."""

    def branch(self, instruction: int, warps: int, divergent: int) -> None:
        """A conditional branch was executed by `warps` warps, in `divergent` of which the active lanes disagreed."""

    def barrier(self, instruction: int, warps: int) -> None:
        """`warps` warps executed a CTA-level barrier."""


@dataclass(frozen=True)
class Finding:
    """One thing that a run did and must not do.

    `kind` is one of :data:`KINDS`. `line` is the PTX line, `source` the source line of the accused instruction, `site`
    that line in the kernel's own file; `other_line` and `other_source` name the earlier conflicting access of a race.
    `threads` are linear thread indices in `cta` (at most 8 of `count`), `address` the byte address of the first of them
    in `space`.
    """

    kind: str
    message: str
    line: int
    source: SourceLine
    cta: Dim3 = (0, 0, 0)
    threads: tuple[int, ...] = ()
    address: int | None = None
    space: str = ""
    count: int = 1
    other_line: int = 0
    other_source: SourceLine = field(default_factory=SourceLine)
    site: SourceLine = field(default_factory=SourceLine)


KINDS: dict[str, str] = {
    "out-of-bounds": "an address outside every registered buffer, or outside shared, local, const or param memory",
    "misaligned": "an address that is not a multiple of the access width",
    "read-only": "a store into an input",
    "uninitialised-shared": "shared memory was read that nobody has written",
    "uninitialised-local": "local memory was read that the thread has not written",
    "uninitialised-register": "a register was used that nothing has written",
    "async-pending": "the destination of a cp.async was used before the wait for its group",
    "race": "two threads, one shared address, at least one write, and no barrier between",
    "barrier": "a barrier that some threads of the CTA never reach",
    "divergent": "an aligned instruction (bar.sync, mma, ldmatrix, shfl ...) that only part of a warp executes",
    "deadlock": "no thread can go on",
    "step-limit": "more basic blocks executed than allowed",
    "trap": "the kernel executed trap or failed an assertion",
}


@dataclass
class Outcome:
    """What a run did. `instructions` and `block_warps` give counts without an observer.

    `block_warps[b]` is how often a warp executed basic block `b` (instructions with `block == b`). `completed` is False
    when the run stopped early (deadlock, step limit, trap).
    """

    findings: tuple[Finding, ...]
    instructions: tuple[InstructionInfo, ...]
    block_warps: NDArray[np.int64]
    completed: bool = True
    steps: int = 0
