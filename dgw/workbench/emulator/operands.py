"""The operands of a problem in host memory: filled only where emulated CTAs look, and a record of what they write."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dgw.model import Problem
from dgw.operands import data, layouts
from dgw.operands.dtypes import Array, numpy_dtype
from dgw.workbench.emulator.classes import Tile
from dgw.workbench.emulator.costs import unique
from dgw.workbench.emulator.observer import Access

POISON = 0xFF  # NaN in every floating-point format here
POISONED_BYTES = 1 << 22  # larger operands without padding start as zeros, which costs nothing until they are touched
Block = tuple[int, slice, slice]  # batch item, rows and columns of D


class Buffers:
    """Flat arrays of all operands of a problem. What was not generated is poison (zero in large ones), padding too.

    `raw` are the bytes of each, `flat` its elements from the first one on.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.raw: dict[str, npt.NDArray[np.uint8]] = {}
        self.flat: dict[str, Array] = {}
        self._filled: dict[str, set[tuple[int, int, int, int, int]]] = {}
        for name, operand in problem.operands().items():
            dtype = numpy_dtype(operand.dtype)
            size = (operand.offset + layouts.extent(problem, name)) * dtype.itemsize
            logical = problem.logical_shape(name)
            tight = problem.leading_dimension(name) == logical[1 if operand.order == "row" else 0]
            lazy = size > POISONED_BYTES and tight
            raw = np.zeros(size, np.uint8) if lazy else np.full(size, POISON, np.uint8)
            self.raw[name] = raw
            self.flat[name] = raw.view(dtype)[operand.offset :]
            self._filled[name] = set()

    def offset_bytes(self, name: str) -> int:
        """Bytes from the start of `raw[name]`, which belongs on a 256-byte boundary, to the operand's first element."""
        return len(self.raw[name]) - self.flat[name].nbytes

    def poison_output(self) -> None:
        """Make D what it was."""
        self.raw["d"][:] = POISON

    def items(self, name: str) -> Array:
        """The operand as [batch, rows, cols], a writable view; one item for a shared bias."""
        logical = layouts.view(self.flat[name], self.problem, name)
        return logical if logical.ndim == 3 else logical[None]

    def fill(self, block: Block) -> None:
        """Generate the inputs that a block of D depends on, unless they are there."""
        item, rows, cols = block
        everything = slice(0, self.problem.k)
        for name in self.flat:
            if name == "d":
                continue
            across, down = {"a": (rows, everything), "b": (everything, cols), "bias": (slice(0, 1), cols)}.get(
                name, (rows, cols)
            )
            index = 0 if name == "bias" else item
            key = (index, across.start, across.stop, down.start, down.stop)
            if key not in self._filled[name]:
                self._filled[name].add(key)
                self.items(name)[index, across, down] = data.generate(self.problem, name, across, down, index)

    def inputs(self, block: Block) -> dict[str, Array]:
        """What :func:`dgw.operands.references.reference` needs for a block of D, as stored."""
        item, rows, cols = block
        self.fill(block)
        found = {}
        for name in self.flat:
            if name != "d":
                logical = self.items(name)[0 if name == "bias" else item]
                found[name] = {"a": lambda x: x[rows], "b": lambda x: x[:, cols], "bias": lambda x: x[:, cols]}.get(
                    name, lambda x: x[rows, cols]
                )(logical)
        return found

    def output(self, block: Block) -> Array:
        """A block of D as stored."""
        item, rows, cols = block
        view: Array = self.items("d")[item, rows, cols]
        return view


@dataclass
class Writes:
    """Which elements of D were stored, from the stores that an observer sees.

    `address` is that of D's first element. `stored` has one entry per element of D's flat array; it is made of the
    addresses of stores, so it does not depend on the values.
    """

    problem: Problem
    address: int
    stored: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.itemsize = numpy_dtype(self.problem.d.dtype).itemsize
        self._recent: list[npt.NDArray[np.int64]] = []
        self.stored = np.zeros(layouts.extent(self.problem, "d"), dtype=np.bool_)

    def memory(self, access: Access) -> None:
        """Note a store, if it is one to D."""
        first = access.instructions[0]
        if access.space != "global" or first.kind not in ("st", "atom", "red"):
            return
        addresses = access.addresses[np.broadcast_to(access.mask, access.addresses.shape)]
        element = unique((addresses - self.address) // self.itemsize)
        for step in range(max(1, first.width_bytes // self.itemsize)):
            at = element + step
            at = at[(at >= 0) & (at < len(self.stored))]
            self.stored[at] = True
            self._recent.append(at)

    def of_the_engine(self, addresses: npt.NDArray[np.int64], width: int) -> None:
        """Note elements of `width` bytes that a copy engine stored."""
        at = unique((addresses - self.address) // self.itemsize)
        at = at[(at >= 0) & (at < len(self.stored))]
        self.stored[at] = True
        self._recent.append(at)

    def items(self) -> npt.NDArray[np.bool_]:
        """The record as [batch, rows, cols] of D; padding is not in it."""
        logical = layouts.view(self.stored, self.problem, "d")
        return logical if logical.ndim == 3 else logical[None]

    def clear(self) -> None:
        """Forget everything."""
        self.stored[:] = False
        self._recent.clear()

    def count(self) -> int:
        """Elements stored, padding included."""
        return int(np.count_nonzero(self.stored))

    def new_tiles(self, tile: tuple[int, int]) -> set[Tile]:
        """(batch, row, column) of every tile of D in which something was stored since the last call."""
        if not self._recent:
            return set()
        element = np.concatenate(self._recent)
        self._recent.clear()
        stride = layouts.batch_stride(self.problem, "d")
        item = element // stride if stride else np.zeros_like(element)
        line, at = np.divmod(element - item * stride, self.problem.leading_dimension("d"))
        row, col = (line, at) if self.problem.d.order == "row" else (at, line)
        inside = (row < self.problem.m) & (col < self.problem.n)  # not the padding
        across, down = -(-self.problem.n // tile[1]), -(-self.problem.m // tile[0])
        place = unique(((item * down + row // tile[0]) * across + col // tile[1])[inside])
        return {(int(p) // (down * across), int(p) // across % down, int(p) % across) for p in place}
