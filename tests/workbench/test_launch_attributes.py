"""What the driver is told of a launch: clusters, and that it may start before the one before has ended. And what it is
asked where blocks wait for each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from cuda.bindings import driver as api

from dgw.workbench.device.driver import CudaError
from dgw.workbench.device.launch import Kernel


class Told:
    """A driver that writes down what it is called with."""

    api = api

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def call(self, name: str, *arguments: Any) -> Any:
        self.calls.append((name, arguments))


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1)])
@pytest.mark.parametrize("overlaps", [False, True])
def test_a_launch_says_its_cluster_and_that_it_may_start_early(cluster: tuple[int, int, int], overlaps: bool) -> None:
    driver = Told()
    kernel = Kernel(SimpleNamespace(driver=driver, stream=api.CUstream(7)), "kernel")  # type: ignore[arg-type]
    kernel.bind((4, 1, 1), (128, 1, 1), [b"\0" * 8], cluster=cluster, overlaps=overlaps)()
    ((name, (config, *_)),) = driver.calls
    assert name == "cuLaunchKernelEx"
    told = {attribute.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_"): attribute.value for attribute in config.attrs}
    assert config.numAttrs == len(told)
    assert ("CLUSTER_DIMENSION" in told) == (cluster != (1, 1, 1))
    assert ("PROGRAMMATIC_STREAM_SERIALIZATION" in told) == overlaps
    if overlaps:
        assert told["PROGRAMMATIC_STREAM_SERIALIZATION"].programmaticStreamSerializationAllowed == 1


class Room(Told):
    """A driver of a device with four SMs, of which each runs one block, and that runs one cluster."""

    def call(self, name: str, *arguments: Any) -> Any:
        super().call(name, *arguments)
        return {"cuOccupancyMaxActiveClusters": 1, "cuOccupancyMaxActiveBlocksPerMultiprocessor": 1}.get(name)


@pytest.mark.parametrize(("blocks", "cluster", "room"), [(4, 1, 4), (5, 1, 4), (2, 2, 2), (4, 2, 2)])
def test_blocks_that_wait_for_each_other_all_run_or_none_does(blocks: int, cluster: int, room: int) -> None:
    driver = Room()
    gpu = SimpleNamespace(driver=driver, stream=api.CUstream(7), attribute={"MULTIPROCESSOR_COUNT": 4}.__getitem__)
    kernel = Kernel(gpu, "kernel")  # type: ignore[arg-type]

    def bind() -> None:
        kernel.bind((blocks, 1, 1), (128, 1, 1), [b"\0" * 8], cluster=(cluster, 1, 1), together=True)()

    if blocks > room:
        with pytest.raises(CudaError, match=f"{blocks} blocks wait for each other, and {room} can run"):
            bind()
    else:
        bind()
    assert ("cuLaunchKernelEx" in [name for name, _ in driver.calls]) == (blocks <= room)
