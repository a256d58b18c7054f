"""Which GPU this is, and what its sensors say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dgw.toolchain.devices import device
from dgw.workbench import environment
from dgw.workbench.device.nvml import Sensors


class FakeGpu:
    def __init__(self, name: str, **attributes: int) -> None:
        self.name, self.attributes = name, attributes

    def attribute(self, name: str) -> int:
        return self.attributes.get(name, 1)


def test_a_known_gpu_is_the_entry_of_the_table() -> None:
    assert environment.device_of(FakeGpu("NVIDIA H200", MULTIPROCESSOR_COUNT=132)) == device("h200")  # type: ignore[arg-type]


def test_an_unknown_gpu_is_made_of_what_the_driver_says() -> None:
    made = environment.device_of(
        FakeGpu(  # type: ignore[arg-type]
            "NVIDIA GeForce RTX 4070", MULTIPROCESSOR_COUNT=46, COMPUTE_CAPABILITY_MAJOR=8, COMPUTE_CAPABILITY_MINOR=9,
            CLOCK_RATE=2475000, MEMORY_CLOCK_RATE=10501000, GLOBAL_MEMORY_BUS_WIDTH=192, L2_CACHE_SIZE=36 << 20,
            MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=101376, MAX_THREADS_PER_MULTIPROCESSOR=1536,
        )
    )  # fmt: skip
    assert (made.name, made.arch, made.sms) == ("geforce-rtx-4070", "sm_89", 46)
    assert made.dram_bytes_per_s == pytest.approx(504e9, rel=0.01)
    assert made.clock_hz == pytest.approx(2.475e9)
    assert made.shared_per_block == 101376
    assert any("l4" in source for source in made.sources)


@pytest.mark.parametrize(
    ("major", "minor", "arch"), [(8, 0, "sm_80"), (8, 9, "sm_89"), (9, 0, "sm_90a"), (10, 0, "sm_100a")]
)
def test_the_architecture_follows_from_the_compute_capability(major: int, minor: int, arch: str) -> None:
    assert environment.arch_of(major, minor) == arch


class FakeNvml:
    """pynvml with one GPU."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0
    nvmlClocksEventReasonGpuIdle, nvmlClocksEventReasonSwPowerCap = 1, 4  # noqa: N815

    def __init__(self, count: int = 1, **broken: bool) -> None:
        self.count, self.broken = count, broken

    def __getattr__(self, name: str) -> Any:
        values = {
            "nvmlInit": None, "nvmlDeviceGetCount": self.count, "nvmlDeviceGetHandleByIndex": "gpu 0",
            "nvmlDeviceGetClockInfo": 1755, "nvmlDeviceGetPowerUsage": 698_123, "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetCurrentClocksEventReasons": 5, "nvmlDeviceGetTotalEnergyConsumption": 5_000,
            "nvmlSystemGetDriverVersion": "580.159", "nvmlDeviceGetHandleByUUID": "gpu",
        }  # fmt: skip
        if name not in values:
            raise AttributeError(name)

        def call(*_: object) -> Any:
            if self.broken.get(name):
                raise self.NVMLError(f"{name} not supported")
            return values[name]

        return call


def test_sensors_are_in_base_units() -> None:
    sensors = Sensors("GPU-x", FakeNvml())
    reading = sensors.telemetry()
    assert (reading.sm_clock, reading.power, reading.temperature) == (1755e6, pytest.approx(698.123), 61)
    assert reading.throttle == ("GpuIdle", "SwPowerCap")
    assert sensors.joules() == 5.0
    assert sensors.driver() == "580.159"


def test_a_sensor_that_is_not_there_is_none_and_the_others_stay() -> None:
    sensors = Sensors("GPU-x", FakeNvml(nvmlDeviceGetPowerUsage=True, nvmlDeviceGetTotalEnergyConsumption=True))
    assert sensors.telemetry().power is None
    assert sensors.telemetry().sm_clock == 1755e6
    assert sensors.joules() is None


def test_a_gpu_that_nvml_does_not_know_by_uuid_is_found_when_it_is_the_only_one() -> None:
    assert Sensors("GPU-x", FakeNvml(nvmlDeviceGetHandleByUUID=True)).absent == ""
    assert "not supported" in Sensors("GPU-x", FakeNvml(count=2, nvmlDeviceGetHandleByUUID=True)).absent


def test_without_nvml_there_is_a_reason_and_no_reading() -> None:
    sensors = Sensors("GPU-x", SimpleNamespace())
    assert sensors.absent.startswith("NVML:")
    assert sensors.telemetry().sm_clock is None
    assert sensors.driver() == ""
