"""Tests that need a GPU. Without one they are skipped; under DGW_REQUIRE_GPU=1 a skip is a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dgw.toolchain.cache import CompileCache
from dgw.workbench import prepare
from dgw.workbench.device.context import Gpu
from dgw.workbench.device.driver import CudaError, Driver
from dgw.workbench.device.inputs import Inputs
from dgw.workbench.device.launch import Kernels
from dgw.workbench.environment import device_of

REQUIRED = os.environ.get("DGW_REQUIRE_GPU") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if REQUIRED and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"DGW_REQUIRE_GPU=1 and this test was skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    try:
        return Gpu(Driver())
    except CudaError as error:
        if error.unavailable:
            pytest.skip(f"no GPU: {error.message}")
        raise


@pytest.fixture(scope="session")
def device_code(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The cubin files of dgw's own kernels for this GPU."""
    folder: Path = tmp_path_factory.mktemp("device")
    files = {}
    for name, cubin in prepare.device_code(device_of(gpu).arch, CompileCache(folder / "cache")).items():
        (folder / f"{name}.cubin").write_bytes(cubin)
        files[name] = str(folder / f"{name}.cubin")
    return files


@pytest.fixture(scope="session")
def kernels(gpu: Gpu) -> Kernels:
    return Kernels(gpu)


@pytest.fixture(scope="session")
def inputs(gpu: Gpu, kernels: Kernels, device_code: dict[str, str]) -> Inputs:
    return Inputs(gpu, kernels, device_code["fill"])
