"""The operands of a problem in device memory: guard bands, poison, and proof that nothing else was touched.

A buffer set is one slab. Every operand in it starts on a 256-byte boundary plus its `offset`, with a guard band before
and behind. All bytes start as 0xFF, which is NaN in every float format here: the guards, the padding between rows, and
D itself. A read of padding therefore shows in the result, and a write to it shows in the slab.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from dgw.model import Problem
from dgw.operands import layouts
from dgw.operands.dtypes import numpy_dtype
from dgw.operands.quantisation import scale_arrays
from dgw.workbench.device.context import Gpu

POISON = 0xFF
ALIGNMENT = 256
GUARD = 64 * 1024  # bytes on either side; a multiple of 256


def element_bytes(dtype: str) -> int:
    """Bytes of one stored element."""
    return int(numpy_dtype(dtype).itemsize)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Region:
    """One operand inside a slab. Bytes; `start` .. `start + size` includes both guards, `first` is the first element.

    The elements are `lines` runs of `line_bytes` contiguous bytes, `pitch` apart.
    """

    start: int
    size: int
    first: int
    line_bytes: int
    pitch: int
    lines: int


@dataclass(frozen=True)
class SlabLayout:
    """Where every operand and its scale factors lie in a slab of `size` bytes; `payload` counts elements only."""

    regions: Mapping[str, Region]
    size: int
    payload: int


def slab_layout(problem: Problem) -> SlabLayout:
    """The layout of one buffer set of `problem`."""
    regions, cursor, payload = {}, 0, 0
    for name, operand in problem.operands().items():
        width = element_bytes(operand.dtype)
        rows, cols = problem.logical_shape(name)
        inner, outer = (cols, rows) if operand.order == "row" else (rows, cols)
        items = layouts.batch_items(problem, name)
        body = operand.offset * width + layouts.extent(problem, name) * width
        size = GUARD + _aligned(body) + GUARD
        regions[name] = Region(
            start=cursor,
            size=size,
            first=cursor + GUARD + operand.offset * width,
            line_bytes=inner * width,
            pitch=problem.leading_dimension(name) * width,
            lines=outer * items,
        )
        payload += rows * cols * items * width
        cursor += size
    for name, factors in scale_arrays(problem).items():
        size = GUARD + _aligned(factors.nbytes) + GUARD
        regions[name] = Region(cursor, size, cursor + GUARD, factors.nbytes, factors.nbytes, 1)
        payload += factors.nbytes
        cursor += size
    return SlabLayout(regions, cursor, payload)


class BufferSet:
    """One slab in device memory."""

    def __init__(self, gpu: Gpu, problem: Problem, layout: SlabLayout) -> None:
        """Allocate and poison. Raises CudaError (out of memory)."""
        self.gpu, self.problem, self.layout = gpu, problem, layout
        self.base = gpu.allocate(layout.size)
        gpu.fill(self.base, POISON, layout.size)

    def address(self, name: str) -> int:
        """Address of the first element of operand `name`, or of the first factor of a `d_scale`."""
        return self.base + self.layout.regions[name].first

    def poison(self, name: str = "d") -> None:
        """Overwrite a whole operand, its guards and its padding with the poison byte."""
        region = self.layout.regions[name]
        self.gpu.fill(self.base + region.start, POISON, region.size)

    def copy_from(self, other: BufferSet) -> None:
        """Become byte for byte what `other` is."""
        self.gpu.driver.call("cuMemcpyDtoDAsync", self.base, other.base, self.layout.size, self.gpu.stream)

    def free(self) -> None:
        """Give the slab back."""
        self.gpu.free(self.base)


class SeparateSet(BufferSet):
    """The same operands in an allocation each, of not one byte more than the operand: a sanitizer sees every overrun.

    Inputs are copied from `source`; D stays as it was allocated, so that a read of it is a read of nothing written.
    """

    def __init__(self, source: BufferSet) -> None:
        """Allocate and copy. Raises CudaError (out of memory)."""
        self.gpu, self.problem, self.layout, self.base = source.gpu, source.problem, source.layout, 0
        self._addresses: dict[str, int] = {}
        for name, region in self.layout.regions.items():
            begin = region.start + GUARD
            size = region.first - begin + (region.lines - 1) * region.pitch + region.line_bytes
            allocated = self.gpu.allocate(size)
            self._addresses[name] = allocated + region.first - begin
            if name != "d":
                self.gpu.driver.call("cuMemcpyDtoDAsync", allocated, source.base + begin, size, self.gpu.stream)
        self.gpu.synchronise()

    def address(self, name: str) -> int:
        """Address of the first element of operand `name`."""
        return self._addresses[name]


@dataclass(frozen=True)
class Untouched:
    """What the bytes around the elements told: how many changed, and the offset of the first from the data."""

    changed: int
    first: int = 0

    def describe(self, name: str) -> str:
        """In words; empty when nothing changed."""
        if not self.changed:
            return ""
        side = "before" if self.first < 0 else "behind the start of"
        return (
            f"{self.changed} bytes outside {name} were overwritten, the first {abs(self.first)} bytes {side} its data"
        )


def untouched_arguments(buffers: BufferSet, name: str, result: int) -> list[bytes]:
    """Parameters of the `untouched` kernel for one region."""
    region = buffers.layout.regions[name]
    return [
        struct.pack("<Q", buffers.base + region.start),
        *(
            struct.pack("<q", value)
            for value in (region.size, region.first - region.start, region.line_bytes, region.pitch, region.lines)
        ),
        struct.pack("<Q", result),
    ]


class ForeignBuffer:
    """What `bind` gets for an operand: address, dtype, logical shape and element strides, and the array interface.

    Batched operands have a leading batch dimension.
    """

    def __init__(self, problem: Problem, name: str, pointer: int) -> None:
        self.pointer = pointer
        self.dtype = problem.operands()[name].dtype
        self.shape: tuple[int, ...] = problem.logical_shape(name)
        self.strides: tuple[int, ...] = layouts.strides(problem, name)
        if layouts.batch_items(problem, name) > 1:
            self.shape = (problem.batch, *self.shape)
            self.strides = (layouts.batch_stride(problem, name), *self.strides)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        width = element_bytes(self.dtype)
        return {
            "shape": self.shape,
            "strides": tuple(stride * width for stride in self.strides),
            "typestr": f"<u{width}" if width > 1 else "|u1",
            "data": (self.pointer, False),
            "version": 3,
        }
