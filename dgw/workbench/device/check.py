"""The correctness check on the GPU: reference, bound, guards and inputs; its verdict is that of operands/bounds.py."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dgw.model import Check, Problem
from dgw.operands import bounds, dtypes, layouts
from dgw.workbench.device.buffers import BufferSet
from dgw.workbench.device.context import Gpu
from dgw.workbench.device.inputs import Inputs
from dgw.workbench.device.launch import Kernels

ELEMENT_CODES = {"f16": 0, "bf16": 1, "f32": 2, "e4m3": 3, "s8": 4, "s32": 5, "f64": 6, "tf32": 7, "s4": 8}
ACTIVATION_CODES = {"none": 0, "relu": 1, "gelu": 2, "gelu-tanh": 3, "silu": 4}
PARTIAL = np.dtype([
    ("excess", "<f8"), ("index", "<i8"), ("error", "<f8"), ("bound", "<f8"), ("found", "<f8"), ("expected", "<f8"),
    ("wrong", "<i8"), ("unwritten", "<i8"), ("finite", "<i8"), ("error_squares", "<f8"), ("value_squares", "<f8"),
])  # fmt: skip
COMPARE_BLOCKS = 1024
CHUNK_ELEMENTS = 1 << 27  # of D at a time: 1 GiB for the values, as much for the magnitudes
TILE = 64
_GRID_ROWS = 65535  # most blocks in y and z

Partials = npt.NDArray[Any]


def unsupported(problem: Problem) -> str:
    """Why the GPU check cannot judge this problem (then the host judges tiles of it), or an empty string."""
    quantised = problem.epilogue.quantise != "none"
    for name, operand in problem.operands().items():
        shifted = operand.zero_point and not (quantised and name == "d")
        if operand.scale != "none" or shifted or operand.packing != "plain" or operand.sparsity != "dense":
            return "scaled, packed or sparse operands"
        if operand.dtype not in ELEMENT_CODES:
            return "an element type that it does not know"
    return ""


@dataclass(frozen=True)
class Chunk:
    """Rows [row, row + rows) of the batch items [item, item + items)."""

    item: int
    items: int
    row: int
    rows: int


def chunks(problem: Problem, most: int = CHUNK_ELEMENTS) -> list[Chunk]:
    """D in pieces of at most about `most` elements: several whole items, or some rows of one item."""
    per_item = problem.m * problem.n
    if per_item <= most:
        items = max(1, min(most // per_item, _GRID_ROWS))
        return [Chunk(i, min(items, problem.batch - i), 0, problem.m) for i in range(0, problem.batch, items)]
    rows = max(1, min(most // problem.n, _GRID_ROWS * TILE))
    return [
        Chunk(item, 1, row, min(rows, problem.m - row))
        for item in range(problem.batch)
        for row in range(0, problem.m, rows)
    ]


def reference_task(
    problem: Problem, chunk: Chunk, address: Callable[[str], int], arrays: tuple[int, int, int]
) -> bytes:
    """The `Task` structure of reference.cu; `arrays` are the addresses of value, magnitude and linear (0: none)."""
    packed = b""
    for name in ("a", "b", "c", "bias", "residual"):
        if name not in problem.operands():
            packed += bytes(40)
            continue
        row, col = layouts.strides(problem, name)
        code = ELEMENT_CODES[problem.operands()[name].dtype]
        packed += struct.pack("<Q4q", address(name), row, col, layouts.batch_stride(problem, name), code)
    activation = ACTIVATION_CODES[problem.epilogue.activation]
    alpha, beta = float(np.float32(problem.alpha)), float(np.float32(problem.beta))
    packed += struct.pack("<6q", chunk.rows, problem.n, problem.k, chunk.row, chunk.item, activation)
    return packed + struct.pack("<2d3Q", alpha, beta, *arrays)


def comparison(
    problem: Problem, chunk: Chunk, d: int, arrays: tuple[int, int, int], partials: int, scale: int = 0
) -> bytes:
    """The `Comparison` structure of compare.cu: the figures are those that bounds.tolerance uses.

    `scale` is the address of D's scale factors, 0 where D is not quantised.
    """
    kind, activation = problem.d.dtype, problem.epilogue.activation
    row, col = layouts.strides(problem, "d")
    floor = 0.5 * dtypes.smallest_step(kind)
    integer = dtypes.is_integer(kind)
    threshold = math.inf if dtypes.saturates(kind) else dtypes.largest(kind) * (1 + dtypes.unit_roundoff(kind) / 2)
    return struct.pack(
        "<Q4q5q3Q3d6d3qQqdQ",
        d, row, col, layouts.batch_stride(problem, "d"), ELEMENT_CODES[kind],
        chunk.items, chunk.rows, problem.n, chunk.item, chunk.row, *arrays,
        bounds.coefficient(problem), bounds.LIPSCHITZ[activation], bounds.EVALUATION[activation],
        bounds.exact_limit(problem), dtypes.unit_roundoff(kind), floor if integer else max(floor, 2.0**-126),
        dtypes.smallest(kind), dtypes.largest(kind), threshold,
        int(dtypes.saturates(kind)), int(integer), ACTIVATION_CODES[activation],
        scale, int(problem.epilogue.quantise == "row"), float(problem.d.zero_point), partials,
    )  # fmt: skip


def verdict(problem: Problem, parts: list[tuple[Chunk, Partials]]) -> Check:
    """Put the partial verdicts of all chunks together."""
    worst_chunk, worst = parts[0][0], parts[0][1][0]
    for chunk, partials in parts:
        for partial in partials[partials["index"] >= 0]:
            if partial["excess"] > worst["excess"]:
                worst_chunk, worst = chunk, partial
    sums = {
        name: sum(p[name].sum() for _, p in parts)
        for name in ("wrong", "unwritten", "finite", "error_squares", "value_squares")
    }
    line, col = divmod(max(0, int(worst["index"])), problem.n)
    item, row = divmod(line, worst_chunk.rows)
    position: tuple[int, ...] = (worst_chunk.row + row, col)
    if problem.batch > 1:
        position = (worst_chunk.item + item, *position)
    total = problem.m * problem.n * problem.batch
    error, size = math.sqrt(sums["error_squares"]), math.sqrt(sums["value_squares"])
    relative, detail = bounds.frobenius(problem, bounds.relative_limit(problem), int(sums["finite"]), error, size)
    if sums["wrong"]:
        detail = (
            f"{int(sums['wrong'])} of {total} elements are wrong; "
            f"d{list(position)} is {worst['found']:.9g} instead of {worst['expected']:.9g}"
        )
        if sums["unwritten"]:
            detail += f" ({int(sums['unwritten'])} hold NaN; D starts as NaN, so an element never written is NaN)"
    return Check(
        passed=not detail, compared=total, worst=position, error=_number(worst["error"]),
        bound=_number(worst["bound"]), relative_error=relative, detail=detail, collector="gpu",
    )  # fmt: skip


def _number(value: float) -> float | None:
    """A finite figure, or None for what no number says."""
    return float(value) if math.isfinite(value) and abs(value) < sys.float_info.max else None


class Checker:
    """Judges outputs of one problem. The reference is computed on first use and kept while it fits one chunk."""

    def __init__(
        self, gpu: Gpu, kernels: Kernels, inputs: Inputs, device_code: Mapping[str, str], buffers: BufferSet
    ) -> None:
        """`buffers` holds the inputs; its checksums are what every later set is compared with."""
        self._gpu, self._kernels, self._inputs, self._code = gpu, kernels, inputs, device_code
        self.problem = buffers.problem
        self._source = buffers
        self._chunks = chunks(self.problem)
        self._expected = inputs.checksums(buffers)
        self._arrays: tuple[int, int, int] | None = None
        self._holds: Chunk | None = None
        self._partials = gpu.allocate(COMPARE_BLOCKS * PARTIAL.itemsize)

    def check(self, buffers: BufferSet, roundings: int = 0) -> Check:
        """The verdict on D in `buffers`; also that its guards, its padding and all inputs are as they were.

        `roundings` is what Variant.roundings says; with any, tiles are compared on the host.
        """
        if unsupported(self.problem) or roundings:
            from dgw.workbench.device.host_check import host_check

            found = host_check(self._gpu, buffers, roundings)
        else:
            found = verdict(self.problem, [(chunk, self._compare(chunk, buffers)) for chunk in self._chunks])
        damage = self.damage(buffers)
        if damage:
            said = "; ".join(filter(None, (damage, found.detail)))
            found = msgspec.structs.replace(found, passed=False, detail=said)
        return found

    def damage(self, buffers: BufferSet) -> str:
        """What was written that must not be, in words; empty when nothing was."""
        found = [self._inputs.untouched(buffers, "d").describe("d")]
        for name, value in self._inputs.checksums(buffers).items():
            if value != self._expected[name]:
                around = self._inputs.untouched(buffers, name).describe(name)
                found.append(around or f"the kernel changed its input {name}")
        return "; ".join(filter(None, found))

    def _reference(self, chunk: Chunk) -> tuple[int, int, int]:
        if self._arrays is None:
            largest = max(c.items * c.rows for c in self._chunks) * self.problem.n * 8
            linear = self.problem.epilogue.activation != "none"
            self._arrays = (
                self._gpu.allocate(largest), self._gpu.allocate(largest), self._gpu.allocate(largest) if linear else 0
            )  # fmt: skip
        if self._holds != chunk:
            task = reference_task(self.problem, chunk, self._source.address, self._arrays)
            grid = (-(-self.problem.n // TILE), -(-chunk.rows // TILE), chunk.items)
            self._kernels.get(self._code["reference"], "reference").bind(grid, (256, 1, 1), [task])()
            self._gpu.synchronise()
            self._holds = chunk
        return self._arrays

    def _compare(self, chunk: Chunk, buffers: BufferSet) -> Partials:
        arrays = self._reference(chunk)
        blocks = max(1, min(COMPARE_BLOCKS, -(-chunk.items * chunk.rows * self.problem.n // 256)))
        scale = buffers.address("d_scale") if self.problem.epilogue.quantise != "none" else 0
        packed = comparison(self.problem, chunk, buffers.address("d"), arrays, self._partials, scale)
        self._kernels.get(self._code["compare"], "compare").bind((blocks, 1, 1), (256, 1, 1), [packed])()
        return self._gpu.download(self._partials, blocks * PARTIAL.itemsize).view(PARTIAL)

    def forget(self) -> None:
        """Compute the reference anew when it is needed next: a kernel may have written into it."""
        self._holds = None

    def free(self) -> None:
        """Give the reference back."""
        for address in (self._partials, *(self._arrays or ())):
            self._gpu.free(address)
        self._arrays = None
