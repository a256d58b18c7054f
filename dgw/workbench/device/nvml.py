"""The GPU's sensors through NVML: SM clock, power, temperature, throttle reasons, energy. Read only, never set."""

from __future__ import annotations

import contextlib
from typing import Any

from dgw.workbench.collectors.timing import Telemetry

_REASONS = (
    "GpuIdle", "ApplicationsClocksSetting", "SwPowerCap", "HwSlowdown", "SyncBoost", "SwThermalSlowdown",
    "HwThermalSlowdown", "HwPowerBrakeSlowdown", "DisplayClockSetting",
)  # fmt: skip


class Sensors:
    """The sensors of the GPU with this UUID. `absent` says why there are none; then every reading is None.

    `api` is pynvml, or a stand-in.
    """

    def __init__(self, uuid: str, api: Any = None) -> None:
        self.absent = ""
        self._api = api
        self._handle: Any = None
        if self._api is None:
            try:
                import pynvml
            except ImportError:
                self.absent = "NVML needs the Python package nvidia-ml-py, which is not installed"
                return
            self._api = pynvml
        try:
            self._api.nvmlInit()
            self._handle = self._handle_of(uuid)
        except Exception as error:
            self.absent = f"NVML: {error}"

    def _handle_of(self, uuid: str) -> Any:
        try:
            return self._api.nvmlDeviceGetHandleByUUID(uuid)
        except self._api.NVMLError:
            if self._api.nvmlDeviceGetCount() != 1:  # a MIG slice, or a container that renumbers
                raise
            return self._api.nvmlDeviceGetHandleByIndex(0)

    def _read(self, name: str, *arguments: Any) -> float | None:
        if self._handle is None:
            return None
        with contextlib.suppress(Exception):
            return float(getattr(self._api, name)(self._handle, *arguments))
        return None

    def telemetry(self) -> Telemetry:
        """One reading of everything but energy."""
        if self._handle is None:
            return Telemetry()
        clock = self._read("nvmlDeviceGetClockInfo", self._api.NVML_CLOCK_SM)
        power = self._read("nvmlDeviceGetPowerUsage")
        return Telemetry(
            sm_clock=None if clock is None else clock * 1e6,
            power=None if power is None else power * 1e-3,
            temperature=self._read("nvmlDeviceGetTemperature", self._api.NVML_TEMPERATURE_GPU),
            throttle=self._reasons(),
        )

    def _reasons(self) -> tuple[str, ...]:
        for getter in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            mask = self._read(getter)
            if mask is not None:
                return tuple(name for name in _REASONS if int(mask) & self._reason_bit(name))
        return ()

    def _reason_bit(self, name: str) -> int:
        for prefix in ("nvmlClocksEventReason", "nvmlClocksThrottleReason"):
            bit = getattr(self._api, prefix + name, None)
            if bit is not None:
                return int(bit)
        return 0

    def joules(self) -> float | None:
        """The energy counter of the board since the driver was loaded; None where there is none."""
        millijoules = self._read("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules * 1e-3

    def driver(self) -> str:
        """The driver's release, such as 580.159; empty when unknown."""
        if self._handle is None:
            return ""
        with contextlib.suppress(Exception):
            version = self._api.nvmlSystemGetDriverVersion()
            return version.decode() if isinstance(version, bytes) else str(version)
        return ""
