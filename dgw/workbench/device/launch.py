"""Cubins, kernels, and plans bound to buffers: everything about a launch that can be prepared is prepared once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dgw.model import Dim3, Fill, Launch, Plan, Problem, TensorMap
from dgw.workbench.binding import argument_bytes, map_geometry
from dgw.workbench.device.buffers import POISON, BufferSet
from dgw.workbench.device.context import Gpu, Parameters
from dgw.workbench.device.driver import CudaError

_TENSOR_TYPES = {
    "f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "tf32": "FLOAT32", "f64": "FLOAT64", "e4m3": "UINT8",
    "s8": "UINT8", "s4": "UINT8", "s32": "INT32",
}  # fmt: skip
_SWIZZLES = {"none": "NONE", "32": "32B", "64": "64B", "128": "128B"}
_PLAIN_SHARED_BYTES = 48 * 1024  # more dynamic shared memory than this must be asked for


class Kernel:
    """A loaded kernel, ready for `shared_bytes` of dynamic shared memory."""

    def __init__(self, gpu: Gpu, function: Any) -> None:
        self._gpu = gpu
        self._function = function
        self._granted = _PLAIN_SHARED_BYTES

    def allow_shared(self, size: int) -> None:
        """Ask for more than 48 KB. Raises CudaError when the device has less (CUDA_ERROR_INVALID_VALUE)."""
        if size > self._granted:
            enum = self._gpu.driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._gpu.driver.call("cuFuncSetAttribute", self._function, enum, size)
            self._granted = size

    def bind(
        self,
        grid: Dim3,
        block: Dim3,
        parameters: Sequence[bytes],
        shared_bytes: int = 0,
        cluster: Dim3 = (1, 1, 1),
        overlaps: bool = False,
        together: bool = False,
    ) -> Callable[[], None]:
        """A callable that enqueues one launch. `grid` counts blocks; parameters are copied at each launch.

        `overlaps`: it may start before the launch before it has ended. `together`: CTAs wait for each other. Raises
        CudaError(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) where they cannot all run at the same time.
        """
        api, call = self._gpu.driver.api, self._gpu.driver.call
        self.allow_shared(shared_bytes)
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared_bytes
        config.hStream = self._gpu.stream
        config.attrs = self._attributes(cluster, overlaps)
        config.numAttrs = len(config.attrs)
        if together:
            self._require_all(config, math.prod(grid), math.prod(cluster))
        values, function = Parameters(list(parameters)), self._function

        def launch() -> None:
            call("cuLaunchKernelEx", config, function, values.address, 0)

        return launch

    def _require_all(self, config: Any, blocks: int, cluster: int) -> None:
        """Refuse a launch whose blocks do not all run at the same time, as a cooperative launch would be."""
        call = self._gpu.driver.call
        if cluster > 1:
            room = int(call("cuOccupancyMaxActiveClusters", self._function, config)) * cluster
        else:
            threads = config.blockDimX * config.blockDimY * config.blockDimZ
            name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
            an_sm = int(call(name, self._function, threads, config.sharedMemBytes))
            room = an_sm * self._gpu.attribute("MULTIPROCESSOR_COUNT")
        if room < blocks:
            what = f"{blocks} blocks wait for each other, and {room} can run at the same time"
            raise CudaError("launch", "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", what)

    def _attributes(self, cluster: Dim3, overlaps: bool) -> list[Any]:
        api = self._gpu.driver.api
        found = []
        if cluster != (1, 1, 1):
            found.append(api.CUlaunchAttribute())
            found[-1].id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dimensions = found[-1].value.clusterDim
            dimensions.x, dimensions.y, dimensions.z = cluster
        if overlaps:
            found.append(api.CUlaunchAttribute())
            found[-1].id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            found[-1].value.programmaticStreamSerializationAllowed = 1
        return found


class Kernels:
    """Loads cubin files, each once, and finds kernels in them."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._libraries: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], Kernel] = {}

    def get(self, cubin: str, entry: str) -> Kernel:
        """Kernel `entry` of the file `cubin`. Raises CudaError for a wrong architecture or a name that is not there."""
        if (cubin, entry) not in self._kernels:
            call = self._gpu.driver.call
            if cubin not in self._libraries:
                code = Path(cubin).read_bytes()
                self._libraries[cubin] = call("cuLibraryLoadData", code, [], [], 0, [], [], 0)
            handle = call("cuLibraryGetKernel", self._libraries[cubin], entry.encode())
            self._kernels[cubin, entry] = Kernel(self._gpu, call("cuKernelGetFunction", handle))
        return self._kernels[cubin, entry]


class Workspaces:
    """The scratch buffers of a plan, poisoned once; they serve all buffer sets, since launches follow one another."""

    def __init__(self, gpu: Gpu, sizes: Mapping[str, int]) -> None:
        """Allocate. Raises CudaError (out of memory) with nothing left allocated."""
        self._gpu = gpu
        self._sizes = dict(sizes)
        self._addresses: dict[str, int] = {}
        try:
            for name, size in sizes.items():
                self._addresses[name] = gpu.allocate(size)
                gpu.fill(self._addresses[name], POISON, size)
        except CudaError:
            self.free()
            raise

    def address(self, name: str) -> int:
        """Address of workspace `name`; CudaError(CUDA_ERROR_NOT_FOUND) when the plan declares none."""
        if name not in self._addresses:
            raise CudaError("launch", "CUDA_ERROR_NOT_FOUND", f"the plan declares no workspace '{name}'")
        return self._addresses[name]

    def size(self, name: str) -> int:
        """Bytes of workspace `name`."""
        self.address(name)
        return self._sizes[name]

    def free(self) -> None:
        """Give all of them back."""
        for address in self._addresses.values():
            self._gpu.free(address)
        self._addresses.clear()


def tensor_map(gpu: Gpu, buffers: BufferSet, wanted: TensorMap, scratch: Workspaces) -> bytes:
    """The 128 bytes of a tiled TMA descriptor: the operand as stored, rows by contiguous columns, 256-byte promotion.

    Elements out of bounds read as zero. A box of three extents has the batch first. Raises CudaError when the driver
    refuses the shape (box over 256, a stride that is no multiple of 16 B, a base that is not 16-byte aligned).
    """
    api, problem = gpu.driver.api, buffers.problem
    base = scratch.address(wanted.workspace) if wanted.workspace else buffers.address(wanted.operand)
    found = map_geometry(problem, wanted, base)
    if wanted.swizzle not in _SWIZZLES or len(found.box) != len(found.extents):
        raise CudaError(
            "cuTensorMapEncodeTiled", "CUDA_ERROR_INVALID_VALUE", f"box {wanted.box}, swizzle {wanted.swizzle}"
        )
    dtype = problem.operands()[wanted.operand].dtype
    encoded = gpu.driver.call(
        "cuTensorMapEncodeTiled",
        getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TENSOR_TYPES[dtype]}"),
        len(found.extents),
        found.address,
        [api.cuuint64_t(extent) for extent in found.extents],
        [api.cuuint64_t(stride) for stride in found.strides],
        [api.cuuint32_t(extent) for extent in found.box],
        [api.cuuint32_t(1) for _ in found.box],
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[wanted.swizzle]}"),
        api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return b"".join(int(word).to_bytes(8, "little") for word in encoded.opaque)


def bind_plan(
    gpu: Gpu,
    kernels: Kernels,
    problem: Problem,
    plan: Plan,
    cubins: Sequence[str],
    buffers: BufferSet,
    scratch: Workspaces,
) -> Callable[[], None]:
    """A callable that enqueues every step of `plan` on `buffers`. `cubins`: one file per launch, in order."""
    steps: list[Callable[[], None]] = []
    files = iter(cubins)
    for step in plan.steps:
        steps.append(
            _bind_fill(gpu, step, scratch)
            if isinstance(step, Fill)
            else _bind_launch(gpu, kernels, problem, step, next(files), buffers, scratch)
        )
    if len(steps) == 1:
        return steps[0]

    def run() -> None:
        for enqueue in steps:
            enqueue()

    return run


def _bind_fill(gpu: Gpu, step: Fill, scratch: Workspaces) -> Callable[[], None]:
    address, size = scratch.address(step.workspace), scratch.size(step.workspace)
    return lambda: gpu.fill(address, step.byte, size)


def _bind_launch(
    gpu: Gpu, kernels: Kernels, problem: Problem, step: Launch, cubin: str, buffers: BufferSet, scratch: Workspaces
) -> Callable[[], None]:
    parameters = [
        argument_bytes(
            problem, argument, buffers.address, scratch.address, lambda w: tensor_map(gpu, buffers, w, scratch)
        )
        for argument in step.arguments
    ]
    kernel = kernels.get(cubin, step.entry)
    return kernel.bind(step.grid, step.block, parameters, step.shared_bytes, step.cluster, step.overlaps, step.together)
