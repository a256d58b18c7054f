"""Tensor maps as the emulator has them: what a driver would encode, in 128 bytes of the emulator's own.

A map describes lines of elements in global memory. Elements beyond its edges read as zero and are not written. A box
that is copied lies in shared memory line after line; its 16-byte parts are permuted by bits of their own address.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BYTES = 128
_MAGIC = 0x70616D2D77676464
_FORMAT = "<10Q"
SWIZZLES = {"none": 0, "32": 1, "64": 3, "128": 7}
"""Name to the bits of an address's number of 128 bytes that its 16-byte part is crossed with."""


@dataclass(frozen=True)
class TensorMap:
    """`columns` elements of `size` bytes in each of `lines` lines, `stride` bytes apart, from `address` on."""

    address: int
    columns: int
    lines: int
    stride: int
    box_columns: int
    box_lines: int
    size: int
    swizzle: int

    def encode(self) -> bytes:
        """The 128 bytes that a launch passes."""
        fields = (self.address, self.columns, self.lines, self.stride, self.box_columns, self.box_lines, self.size)
        return struct.pack(_FORMAT, _MAGIC, *fields, self.swizzle, 0).ljust(BYTES, b"\0")

    @classmethod
    def decode(cls, raw: bytes) -> TensorMap | None:
        """The map that was encoded; None where there is none."""
        magic, *fields, _ = struct.unpack(_FORMAT, raw[: struct.calcsize(_FORMAT)])
        return cls(*fields) if magic == _MAGIC else None

    @property
    def box_bytes(self) -> int:
        """Bytes of a box, also of one that lies partly outside."""
        return self.box_columns * self.box_lines * self.size

    def first(self, line: int, column: int) -> int:
        """Global address where a box begins; also before the first element of the map."""
        return self.address + line * self.stride + column * self.size

    def outside(self, line: int, column: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Global addresses of the elements of a box [lines, columns], and which of them the map has."""
        lines = line + np.arange(self.box_lines)[:, None]
        columns = column + np.arange(self.box_columns)[None, :]
        inside = (lines >= 0) & (lines < self.lines) & (columns >= 0) & (columns < self.columns)
        return self.address + lines * self.stride + columns * self.size, inside

    def places(self, first: int) -> NDArray[np.int64]:
        """Shared addresses of the elements of a box [lines, columns] that lies at `first`."""
        places = first + np.arange(0, self.box_bytes, self.size)
        return permuted(places, self.swizzle).reshape(self.box_lines, self.box_columns)


def permuted(addresses: NDArray[np.int64], swizzle: int) -> NDArray[np.int64]:
    """Where something lies whose address would be that one without a swizzle."""
    found: NDArray[np.int64] = addresses ^ ((addresses >> 7 & swizzle) << 4)
    return found
