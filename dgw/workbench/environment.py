"""Where a Record was made: read in the child, never a host name, user name, path or environment variable."""

from __future__ import annotations

import functools
import hashlib
import platform
import sys
from importlib import metadata

from dgw.errors import UsageError
from dgw.model import Device, Environment
from dgw.toolchain import devices
from dgw.workbench.device.context import Gpu
from dgw.workbench.device.nvml import Sensors

_SUFFIXED = (90, 100, 101, 103, 110, 120, 121)  # where machine code for one architecture only is the rule


def arch_of(major: int, minor: int) -> str:
    """The architecture to compile for on a GPU of this compute capability: sm_90a, sm_89, ..."""
    number = 10 * major + minor
    return f"sm_{number}a" if number in _SUFFIXED else f"sm_{number}"


def device_of(gpu: Gpu) -> Device:
    """The entry of the device table that this GPU is, or one made of what the driver says.

    A made-up entry has the driver's limits, the memory's peak rate, and no tensor-core rates.
    """
    known = devices.identify(gpu.name, gpu.attribute("MULTIPROCESSOR_COUNT"))
    if known is not None:
        return known
    bits, clock = gpu.attribute("GLOBAL_MEMORY_BUS_WIDTH"), gpu.attribute("MEMORY_CLOCK_RATE") * 1e3
    arch = arch_of(gpu.attribute("COMPUTE_CAPABILITY_MAJOR"), gpu.attribute("COMPUTE_CAPABILITY_MINOR"))
    try:
        alike = devices.device_for_arch(arch)
        tensor, mma, fma = (
            alike.tensor_flops_per_sm_per_clock, alike.mma_flops_per_sm_per_clock, alike.fma_per_sm_per_clock
        )  # fmt: skip
        note = f"rates per SM and clock are those of {alike.name}, which has the same architecture"
    except UsageError:
        tensor, mma, fma, note = {}, {}, 128, "no rates are known for this architecture"
    return Device(
        name=gpu.name.lower().removeprefix("nvidia ").replace(" ", "-"),
        arch=arch,
        sms=gpu.attribute("MULTIPROCESSOR_COUNT"),
        clock_hz=gpu.attribute("CLOCK_RATE") * 1e3,
        l2_bytes=gpu.attribute("L2_CACHE_SIZE"),
        dram_bytes_per_s=2.0 * clock * bits / 8,
        shared_per_sm=gpu.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        shared_per_block=gpu.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_reserved_per_block=gpu.attribute("RESERVED_SHARED_MEMORY_PER_BLOCK"),
        registers_per_sm=gpu.attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        max_threads_per_sm=gpu.attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        max_blocks_per_sm=gpu.attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        fma_per_sm_per_clock=fma,
        tensor_flops_per_sm_per_clock=tensor,
        mma_flops_per_sm_per_clock=mma,
        sources=("limits, clocks and memory rate: the driver's device attributes", note),
    )


@functools.cache
def package_version(name: str) -> str:
    """The installed version of a distribution, or an empty string."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def host_environment() -> Environment:
    """What is known without a GPU: Python, system, compiler and torch versions."""
    return Environment(
        nvrtc=package_version("nvidia-cuda-nvrtc"),
        torch=package_version("torch"),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
    )


def gpu_environment(gpu: Gpu, sensors: Sensors, device: Device) -> Environment:
    """The environment of a child on a GPU. The UUID is kept as 16 hex digits of its SHA-256."""
    version = gpu.driver_version
    host = host_environment()
    return Environment(
        device=device.name,
        arch=device.arch,
        device_uuid=hashlib.sha256(gpu.uuid.encode()).hexdigest()[:16],
        driver=sensors.driver(),
        cuda=f"{version // 1000}.{version % 1000 // 10}",
        nvrtc=host.nvrtc,
        torch=host.torch,
        cublas=cublas_version(),
        python=host.python,
        system=host.system,
        engine="gpu",
    )


def cublas_version() -> str:
    """The cuBLAS that torch brings, as far as package data tell; nothing is imported."""
    if "torch" not in sys.modules and not package_version("torch"):
        return ""
    return next(
        (v for v in map(package_version, ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12")) if v), ""
    )
