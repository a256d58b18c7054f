"""Memory that kernels see: registered global buffers between guards, and byte arenas for the other spaces."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.errors import EmulatorError

Bytes = NDArray[np.uint8]
FIRST_ADDRESS = 1 << 34
GUARD_BYTES = 1 << 24

# One NumPy type per access width, so that a vector moves as one element.
WIDE: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
    16: np.dtype(np.complex128),
}


class Arena:
    """Bytes with a view for each access width (a last partial element is left out of the wide views)."""

    __slots__ = ("_views", "data")

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self._views: dict[int, NDArray[Any]] = {}

    def view(self, width: int) -> NDArray[Any]:
        """The bytes as elements of `width` bytes."""
        found = self._views.get(width)
        if found is None:
            whole = len(self.data) // width * width
            found = self._views[width] = self.data[:whole].view(WIDE[width])
        return found


class Buffer(Arena):
    """A registered range of global memory: addresses `base` <= a < `end`."""

    __slots__ = ("base", "end", "name", "writable")

    def __init__(self, name: str, base: int, data: Bytes, writable: bool) -> None:
        super().__init__(data)
        self.name, self.base, self.writable = name, base, writable
        self.end = base + len(data)


class Memory:
    """Global memory of a launch. Buffers stay where they are: stores change the registered arrays."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._bases: list[int] = []
        self._next = FIRST_ADDRESS

    def register(self, name: str, array: NDArray[Any], alignment: int = 256, writable: bool = True) -> int:
        """Give a C-contiguous array an address that is a multiple of `alignment` (at least 16); returns it.

        Addresses of buffers are more than 16 MiB apart, so that an access past an end is found.
        """
        if not array.flags.c_contiguous:
            raise EmulatorError(f"buffer {name} is not contiguous")
        if alignment < 16 or alignment & (alignment - 1):
            raise EmulatorError(f"buffer {name}: alignment {alignment} is not a power of two of at least 16")
        data = array.reshape(-1).view(np.uint8)
        base = -(-self._next // alignment) * alignment
        self._next = base + len(data) + GUARD_BYTES
        self.buffers.append(Buffer(name, base, data, writable and array.flags.writeable))
        self._bases.append(base)
        return base

    def address(self, name: str) -> int:
        """The base address of a registered buffer."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer.base
        raise EmulatorError(f"no buffer is called {name}")

    def find(self, address: int) -> Buffer | None:
        """The buffer whose range, or the guard behind it, holds `address`; the first one for lower addresses."""
        if not self.buffers:
            return None
        return self.buffers[max(bisect_right(self._bases, address) - 1, 0)]

    def locate(self, low: int, end: int) -> Buffer | None:
        """The buffer that holds all of `low` <= a < `end`, if there is one."""
        buffer = self.find(low)
        return buffer if buffer is not None and buffer.base <= low and end <= buffer.end else None
