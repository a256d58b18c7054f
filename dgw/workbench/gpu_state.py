"""What NVML says of the GPUs at this moment: read only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dgw.workbench.device.nvml import Sensors


@dataclass(frozen=True)
class GpuState:
    """One GPU: clocks in Hz (None: unknown), `processes` of others on it, `cuda` that the driver supports."""

    index: int = 0
    uuid: str = ""
    name: str = ""
    capability: str = ""  # such as 9.0
    driver: str = ""
    cuda: tuple[int, int] = (0, 0)
    mig: bool = False
    processes: int = 0
    throttle: tuple[str, ...] = ()
    clock_limit_hz: float | None = None
    max_clock_hz: float | None = None


def gpu_states(api: Any = None) -> list[GpuState]:
    """Every GPU that NVML sees; empty without NVML, driver or GPU. `api` is pynvml, or a stand-in."""
    if api is None:
        try:
            import pynvml
        except ImportError:
            return []
        api = pynvml
    try:
        api.nvmlInit()
        count = int(api.nvmlDeviceGetCount())
    except Exception:
        return []
    return [_state(api, index) for index in range(count)]


def _state(api: Any, index: int) -> GpuState:
    handle = api.nvmlDeviceGetHandleByIndex(index)

    def ask(call: Callable[[], Any], otherwise: Any) -> Any:
        with contextlib.suppress(Exception):
            return call()
        return otherwise

    major, minor = ask(lambda: api.nvmlDeviceGetCudaComputeCapability(handle), (0, 0))
    version = int(ask(api.nvmlSystemGetCudaDriverVersion, 0))
    processes = ask(lambda: api.nvmlDeviceGetComputeRunningProcesses(handle), [])
    return GpuState(
        index=index,
        uuid=text_of(ask(lambda: api.nvmlDeviceGetUUID(handle), "")),
        name=text_of(ask(lambda: api.nvmlDeviceGetName(handle), "")),
        capability=f"{major}.{minor}",
        driver=text_of(ask(api.nvmlSystemGetDriverVersion, "")),
        cuda=(version // 1000, version % 1000 // 10),
        mig=ask(lambda: api.nvmlDeviceGetMigMode(handle)[0], 0) == 1,
        processes=sum(1 for process in processes if process.pid != os.getpid()),
        throttle=ask(lambda: Sensors(text_of(api.nvmlDeviceGetUUID(handle)), api).telemetry().throttle, ()),
        clock_limit_hz=_hertz(ask(lambda: api.nvmlDeviceGetApplicationsClock(handle, api.NVML_CLOCK_SM), None)),
        max_clock_hz=_hertz(ask(lambda: api.nvmlDeviceGetMaxClockInfo(handle, api.NVML_CLOCK_SM), None)),
    )


def shared_by(uuid: str, states: Sequence[GpuState]) -> str:
    """Why a GPU is not ours alone, in words: a slice of it, or processes of others; empty where nothing says so.

    `uuid` is what CUDA_VISIBLE_DEVICES names, empty for the first GPU there is.
    """
    if uuid.startswith("MIG-"):
        return "it is a slice of a GPU (MIG), and others may work on the other slices"
    state = next((state for state in states if state.uuid == uuid or not uuid), None)
    if state is None:
        return ""
    if state.mig:
        return "it is in MIG mode, and others may work on the other slices"
    if state.processes:
        others = "another process computes" if state.processes == 1 else f"{state.processes} other processes compute"
        return f"{others} on it"
    return ""


def text_of(value: Any) -> str:
    """What NVML says, which older bindings give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _hertz(megahertz: float | None) -> float | None:
    return None if megahertz is None else float(megahertz) * 1e6
