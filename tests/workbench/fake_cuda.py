"""A CUDA driver made of host memory, with the signatures and enums of the installed one and a clock of its own.

Kernels are Python functions by entry name. Device memory is host memory, so addresses can be read and written.
"""

# ruff: noqa: N802, N815, E731 - the names are the driver's
from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from typing import Any

import cuda.bindings.driver as real
import numpy as np

from dgw.model import Problem
from dgw.operands import bounds, data, dtypes, layouts, references
from dgw.workbench.device.buffers import element_bytes
from dgw.workbench.device.check import PARTIAL

OK = real.CUresult.CUDA_SUCCESS
Kernel = Callable[["FakeCuda", list[int]], None]


def memory(address: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


class FakeCuda:
    """Functions named cu... answer like cuda.bindings.driver; everything else (enums, types) is the real thing's."""

    def __init__(self, problem: Problem, kernels: dict[str, Kernel] | None = None, free: int = 1 << 30) -> None:
        self.problem, self.free = problem, free
        self.kernels: dict[str, Kernel] = {**DEVICE_KERNELS, **(kernels or {})}
        self.blocks: dict[int, Any] = {}
        self.time, self.seconds = 0.0, dict[str, float]()
        self.capture: list[Callable[[], Any]] | None = None
        self.dead: Any = None
        self.launched: list[str] = []
        self.granted: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if not (name.startswith("cu") and name[2:3].isupper()):
            return getattr(real, name)
        made = object.__getattribute__(self, "_" + name)
        signature = inspect.signature(getattr(real, name))

        def call(*arguments: Any) -> Any:
            signature.bind(*arguments)
            if self.dead is not None and name not in ("cuGetErrorString", "cuStreamEndCapture"):
                return (self.dead, None)
            answer = made(*arguments)
            return answer if isinstance(answer, tuple) else (OK, answer) if answer is not None else (OK,)

        return call

    _cuInit = _cuCtxSetCurrent = _cuStreamSynchronize = _cuEventSynchronize = lambda self, *_: None
    _cuGraphUpload = _cuGraphDestroy = _cuGraphExecDestroy = lambda self, *_: None
    _cuDeviceGet = _cuDevicePrimaryCtxRetain = lambda self, *_: 0
    _cuStreamCreate = lambda self, flags: real.CUstream(7)
    _cuDriverGetVersion = lambda self: 13000
    _cuDeviceGetName = lambda self, length, device: b"NVIDIA H200\0\0"
    _cuDeviceGetUuid = lambda self, device: real.CUuuid()
    _cuGetErrorString = lambda self, code: b"as the fake says"
    _cuMemGetInfo = lambda self: (OK, self.free, 2 * self.free)
    _cuLibraryLoadData = lambda self, *_: "library"
    _cuLibraryGetKernel = lambda self, library, name: name.decode()
    _cuKernelGetFunction = lambda self, kernel: kernel
    _cuGraphInstantiate = lambda self, graph, flags: graph

    def _cuCtxSynchronize(self) -> None:
        return None

    def _cuDeviceGetAttribute(self, attribute: Any, device: Any) -> int:
        return {"MULTIPROCESSOR_COUNT": 132, "L2_CACHE_SIZE": 40_000}.get(attribute.name.split("ATTRIBUTE_")[1], 9)

    def _cuMemAlloc(self, size: int) -> Any:
        if size > self.free:
            return (real.CUresult.CUDA_ERROR_OUT_OF_MEMORY, None)
        block = (ctypes.c_uint8 * (size + 256))()
        address = -(-ctypes.addressof(block) // 256) * 256
        self.blocks[address] = block
        return address

    def _cuMemFree(self, address: int) -> None:
        del self.blocks[address]

    def _do(self, work: Callable[[], Any]) -> None:
        if self.capture is not None:
            self.capture.append(work)
        else:
            work()

    def _cuMemsetD8Async(self, address: int, byte: int, size: int, stream: Any) -> None:
        self._do(lambda: memory(address, size).fill(byte))

    def _cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: Any) -> None:
        ctypes.memmove(to, source, size)

    _cuMemcpyDtoHAsync = _cuMemcpyDtoDAsync = _cuMemcpyHtoDAsync

    def _cuFuncSetAttribute(self, function: str, attribute: Any, value: int) -> Any:
        if value > 232_448:
            return (real.CUresult.CUDA_ERROR_INVALID_VALUE,)
        self.granted[function] = value
        return None

    def _cuLaunchKernelEx(self, config: Any, function: str, parameters: int, extra: int) -> Any:
        assert int(config.hStream) == 7
        assert extra == 0
        if config.sharedMemBytes > max(48 * 1024, self.granted.get(function, 0)):
            return (real.CUresult.CUDA_ERROR_INVALID_VALUE,)
        pointers = list((ctypes.c_void_p * 16).from_address(parameters)) if parameters else []

        def run() -> None:
            self.launched.append(function)
            self.time += self.seconds.get(function, 1e-5)
            self.kernels[function](self, pointers)

        self._do(run)
        return None

    def _cuStreamBeginCapture(self, stream: Any, mode: Any) -> None:
        self.capture = []

    def _cuStreamEndCapture(self, stream: Any) -> Any:
        made, self.capture = self.capture, None
        return [made]

    def _cuGraphLaunch(self, graph: Any, stream: Any) -> None:
        for work in graph[0]:
            work()

    def _cuEventCreate(self, flags: int) -> Any:
        return [0.0]

    def _cuEventRecord(self, event: Any, stream: Any) -> None:
        event[0] = self.time

    def _cuEventElapsedTime(self, start: Any, end: Any) -> float:
        return 1e3 * (end[0] - start[0])


def _fill(cuda: FakeCuda, parameters: list[int]) -> None:
    """fill.cu: base address first, the operand's number as the eleventh 8-byte member."""
    base, number = word(parameters[0]), word(parameters[0] + 80)
    name = next(name for name, value in data.OPERAND_NUMBER.items() if value == number)
    view_of(cuda.problem, name, base)[...] = data.generate(cuda.problem, name)


def view_of(problem: Problem, name: str, base: int) -> Any:
    dtype = problem.operands()[name].dtype
    raw = memory(base, layouts.extent(problem, name) * element_bytes(dtype))
    return layouts.view(raw.view(dtypes.numpy_dtype(dtype)), problem, name)


def _checksum(cuda: FakeCuda, parameters: list[int]) -> None:
    size = word(parameters[1])
    words = memory(word(parameters[0]), size).view(np.uint64)
    total = (words * np.arange(1, 2 * len(words), 2, dtype=np.uint64)).sum()
    memory(word(parameters[2]), 8).view(np.uint64)[0] = total


def _untouched(cuda: FakeCuda, parameters: list[int]) -> None:
    region, size, first, line, pitch, lines, result = (word(parameter) for parameter in parameters[:7])
    into = np.arange(size) - first
    element = (into >= 0) & (into // pitch < lines) & (into % pitch < line)
    changed = np.flatnonzero((memory(region, size) != 0xFF) & ~element)
    memory(result, 16).view(np.uint64)[:] = (len(changed), changed[0] if len(changed) else 2**64 - 1)


def _compare(cuda: FakeCuda, parameters: list[int]) -> None:
    """compare.cu for one batch item: the verdict comes from the NumPy model; one Partial holds it."""
    problem = cuda.problem
    got = view_of(problem, "d", word(parameters[0]))
    found = bounds.compare(problem, got, references.block_reference(problem))
    partials = memory(word(parameters[0] + 224), PARTIAL.itemsize).view(PARTIAL)
    row, col = found.worst[-2:]
    unwritten = int(np.isnan(dtypes.widen(got)).sum())
    worst = (0, row * problem.n + col, found.error or 0, found.bound or 0, float(got[row, col]), 0)
    known = found.relative_error is not None
    partials[0] = (*worst, not found.passed, unwritten, got.size * known, (found.relative_error or 0) ** 2, 1)


DEVICE_KERNELS: dict[str, Kernel] = {
    "fill_16": _fill, "fill_32": _fill, "fill_8": _fill, "checksum": _checksum, "untouched": _untouched,
    "reference": lambda cuda, parameters: None, "compare": _compare,
}  # fmt: skip
