"""Fills a buffer set on the GPU with what operands/data.py says, and proves afterwards that inputs stayed the same."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dgw.model import Problem
from dgw.operands import data, layouts
from dgw.operands.quantisation import scale_arrays
from dgw.workbench.device.buffers import BufferSet, Untouched, element_bytes, untouched_arguments
from dgw.workbench.device.context import Gpu
from dgw.workbench.device.launch import Kernels

THREADS = 256
MAX_POINTS = 4


def blocks_for(elements: int, most: int = 8192) -> int:
    """Blocks of 256 threads for a grid-stride loop over `elements`."""
    return max(1, min(most, -(-elements // THREADS)))


def filling(problem: Problem, name: str, base: int, table: int, line_table: int) -> bytes:
    """The `Filling` structure of fill.cu for operand `name` (addresses of its first element and of the tables)."""
    pattern = data.pattern(problem, name)
    if len(pattern.points) > MAX_POINTS:
        raise ValueError(f"a pattern of {len(pattern.points)} points; fill.cu holds {MAX_POINTS}")
    rows, cols = problem.logical_shape(name)
    row, col = layouts.strides(problem, name)
    if col != 1 and row != 1:
        raise ValueError("fill.cu wants one contiguous direction")
    line = pattern.line
    packed = struct.pack(
        "<3Q3q3q2Q3qq",
        base, table, line_table, layouts.batch_items(problem, name), rows, cols,
        layouts.batch_stride(problem, name), row, col, problem.seed & (2**64 - 1), data.OPERAND_NUMBER[name],
        line.axis if line else 0, line.modulus if line else 1, line.residue if line else 0, len(pattern.points),
    )  # fmt: skip
    bits = f"u{pattern.table.itemsize}"
    for point in pattern.points:
        value = int(np.asarray(point.value).astype(pattern.table.dtype).reshape(1).view(bits)[0])
        packed += struct.pack("<4qQ", point.modulus, point.residue, point.stride, point.shift, value)
    return packed + bytes(40 * (MAX_POINTS - len(pattern.points)))


class Inputs:
    """Data tables in device memory, and the kernels of fill.cu."""

    def __init__(self, gpu: Gpu, kernels: Kernels, cubin: str) -> None:
        self._gpu, self._kernels, self._cubin = gpu, kernels, cubin
        self._tables: dict[
            int, tuple[npt.NDArray[Any], int]
        ] = {}  # by identity; the array is kept so that it stays its own
        self._result = gpu.allocate(16)

    def _table(self, values: npt.NDArray[Any]) -> int:
        if id(values) not in self._tables:
            address = self._gpu.allocate(values.nbytes)
            self._gpu.upload(address, values.view(f"u{values.itemsize}"))
            self._tables[id(values)] = (values, address)
        return self._tables[id(values)][1]

    def addresses(self) -> set[int]:
        """What is kept for as long as the child lives."""
        return {self._result, *(address for _, address in self._tables.values())}

    def fill(self, buffers: BufferSet) -> None:
        """Write every input operand and all scale factors; D stays poisoned."""
        problem = buffers.problem
        for name in problem.operands():
            if name == "d":
                continue
            pattern = data.pattern(problem, name)
            line_table = self._table(pattern.line.table) if pattern.line else 0
            packed = filling(problem, name, buffers.address(name), self._table(pattern.table), line_table)
            rows, cols = problem.logical_shape(name)
            width = 8 * element_bytes(problem.operands()[name].dtype)
            kernel = self._kernels.get(self._cubin, f"fill_{width}")
            grid = blocks_for(rows * cols * layouts.batch_items(problem, name))
            kernel.bind((grid, 1, 1), (THREADS, 1, 1), [packed])()
        for name, factors in scale_arrays(problem).items():
            self._gpu.upload(buffers.address(name), factors)
        self._gpu.synchronise()

    def checksums(self, buffers: BufferSet) -> dict[str, int]:
        """One number per input operand and array of scales, depending on every byte of its region and its guards."""
        found = {}
        for name, region in buffers.layout.regions.items():
            if name != "d":
                arguments = [struct.pack("<Q", buffers.base + region.start), struct.pack("<q", region.size)]
                words = self._run("checksum", region.size // 8, arguments, (0, 0))
                found[name] = words[0]
        return found

    def untouched(self, buffers: BufferSet, name: str) -> Untouched:
        """What happened to the bytes around the elements of operand `name`."""
        region = buffers.layout.regions[name]
        arguments = untouched_arguments(buffers, name, 0)[:-1]
        changed, first = self._run("untouched", region.size // 8, arguments, (0, 2**64 - 1))
        return Untouched(changed, first - (region.first - region.start) if changed else 0)

    def _run(self, entry: str, words: int, arguments: list[bytes], start: tuple[int, int]) -> tuple[int, int]:
        self._gpu.upload(self._result, np.array(start, np.uint64))
        kernel = self._kernels.get(self._cubin, entry)
        launch: Callable[[], None] = kernel.bind(
            (blocks_for(words), 1, 1), (THREADS, 1, 1), [*arguments, struct.pack("<Q", self._result)]
        )
        launch()
        first, second = self._gpu.download(self._result, 16).view(np.uint64)
        return int(first), int(second)
