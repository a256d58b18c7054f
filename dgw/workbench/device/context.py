"""The GPU of a child: its primary context (the one torch uses as well), one stream, memory, events."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from dgw.workbench.device.driver import CudaError, Driver

Bytes = npt.NDArray[np.uint8]


class Gpu:
    """One device. Addresses are plain integers; all work goes to `stream`, which never waits for the default stream.

    Raises CudaError when there is no driver (`CUDA_ERROR_NO_DRIVER`), no device or no context.
    """

    def __init__(self, driver: Driver, ordinal: int = 0) -> None:
        self.driver = driver
        self.allocated: dict[int, int] = {}
        try:
            driver.call("cuInit", 0)
        except CudaError:
            raise
        except Exception as error:  # cuda.bindings raises its own type when libcuda is not there
            raise CudaError("cuInit", "CUDA_ERROR_NO_DEVICE", str(error).splitlines()[0]) from error
        self.device = driver.call("cuDeviceGet", ordinal)
        self.context = driver.call("cuDevicePrimaryCtxRetain", self.device)
        driver.call("cuCtxSetCurrent", self.context)
        self.stream = driver.call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        self._start = driver.call("cuEventCreate", 0)
        self._end = driver.call("cuEventCreate", 0)

    def attribute(self, name: str) -> int:
        """A device attribute by the end of its name, such as `MULTIPROCESSOR_COUNT`."""
        enum = getattr(self.driver.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", enum, self.device))

    @property
    def name(self) -> str:
        """The product name."""
        return bytes(self.driver.call("cuDeviceGetName", 256, self.device)).split(b"\0")[0].decode().strip()

    @property
    def uuid(self) -> str:
        """`GPU-xxxxxxxx-xxxx-...`, as nvidia-smi writes it."""
        text = bytes(self.driver.call("cuDeviceGetUuid", self.device).bytes).hex()
        return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))

    @property
    def driver_version(self) -> int:
        """The CUDA version of the driver: 1000 * major + 10 * minor."""
        return int(self.driver.call("cuDriverGetVersion"))

    def free_bytes(self) -> int:
        """Device memory that is free now."""
        return int(self.driver.call("cuMemGetInfo")[0])

    def allocate(self, size: int) -> int:
        """Address of `size` new bytes, 256-byte aligned. Raises CudaError (out of memory)."""
        address = int(self.driver.call("cuMemAlloc", max(size, 1)))
        self.allocated[address] = size
        return address

    def free(self, address: int) -> None:
        """Give `address` back; work that uses it must be finished."""
        if self.allocated.pop(address, None) is not None:
            self.driver.call("cuMemFree", address)

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set `size` bytes, in stream order."""
        if size:
            self.driver.call("cuMemsetD8Async", address, byte, size, self.stream)

    def upload(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy a contiguous array to `address`; it has arrived when this returns."""
        flat = np.ascontiguousarray(data)
        self.driver.call("cuMemcpyHtoDAsync", address, int(flat.ctypes.data), flat.nbytes, self.stream)
        self.synchronise()

    def download(self, address: int, size: int) -> Bytes:
        """Copy `size` bytes from `address`, after all earlier work of the stream."""
        data = np.empty(size, np.uint8)
        self.driver.call("cuMemcpyDtoHAsync", int(data.ctypes.data), address, size, self.stream)
        self.synchronise()
        return data

    def synchronise(self) -> None:
        """Wait for the stream; raises the error of anything that failed on it."""
        self.driver.call("cuStreamSynchronize", self.stream)

    def alive(self) -> bool:
        """Whether the context still answers (a sticky error makes every later call fail)."""
        try:
            self.driver.call("cuCtxSynchronize")
        except CudaError:
            return False
        return True

    def elapsed(self, work: Callable[[], None], meanwhile: Callable[[], None] | None = None) -> float:
        """Seconds between the events around `work` on the stream; `meanwhile` runs on the host before the wait."""
        self.driver.call("cuEventRecord", self._start, self.stream)
        work()
        self.driver.call("cuEventRecord", self._end, self.stream)
        if meanwhile is not None:
            meanwhile()
        self.driver.call("cuEventSynchronize", self._end)
        return float(self.driver.call("cuEventElapsedTime", self._start, self._end)) * 1e-3

    def in_flight(self, work: Callable[[], None]) -> Iterator[None]:
        """Each step enqueues `work` once more and waits until the one before it is done."""
        events = (self._start, self._end)
        for number in count():
            work()
            self.driver.call("cuEventRecord", events[number % 2], self.stream)
            if number:
                self.driver.call("cuEventSynchronize", events[(number - 1) % 2])
            yield


class Graph:
    """A captured sequence of launches."""

    def __init__(self, gpu: Gpu, record: Callable[[], None]) -> None:
        """Capture what `record` enqueues on the GPU's stream. Raises CudaError; the stream is usable afterwards."""
        self._gpu = gpu
        api = gpu.driver.api
        gpu.driver.call("cuStreamBeginCapture", gpu.stream, api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            record()
        except BaseException:
            api.cuStreamEndCapture(gpu.stream)  # its error would hide the one that matters
            raise
        graph = gpu.driver.call("cuStreamEndCapture", gpu.stream)
        try:
            self._exec = gpu.driver.call("cuGraphInstantiate", graph, 0)
        finally:
            gpu.driver.call("cuGraphDestroy", graph)
        gpu.driver.call("cuGraphUpload", self._exec, gpu.stream)

    def launch(self) -> None:
        """Enqueue one replay."""
        self._gpu.driver.call("cuGraphLaunch", self._exec, self._gpu.stream)

    def destroy(self) -> None:
        """Give its resources back; replays must be finished."""
        self._gpu.driver.call("cuGraphExecDestroy", self._exec)


class Parameters:
    """Kernel parameters in C's form: an array of pointers to values that lives as long as this object."""

    def __init__(self, values: list[bytes]) -> None:
        self._values = [ctypes.create_string_buffer(value, len(value)) for value in values]
        self._array = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in self._values))

    @property
    def address(self) -> int:
        """What cuLaunchKernelEx takes as kernelParams."""
        return ctypes.addressof(self._array)
