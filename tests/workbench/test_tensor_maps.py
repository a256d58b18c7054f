"""What the driver is asked for when a tensor map is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from dgw.model import TensorMap, gemm
from dgw.workbench.device.driver import Driver
from dgw.workbench.device.launch import tensor_map
from tests.workbench.fake_cuda import FakeCuda

BASE, COPY = 1 << 20, 1 << 24


class Fake(FakeCuda):
    """Keeps what it is asked for."""

    asked: tuple[Any, ...] = ()

    def _cuTensorMapEncodeTiled(self, *arguments: Any) -> Any:  # noqa: N802
        self.asked = arguments
        return SimpleNamespace(opaque=range(16))


def encoded(wanted: TensorMap, offset: int = 0) -> tuple[int, list[int], list[int], list[int]]:
    """Address, extents, strides in bytes and box for A of 48 x 40 f16, 64 elements from row to row."""
    plain = gemm(48, 24, 40)
    problem = msgspec.structs.replace(plain, a=msgspec.structs.replace(plain.a, ld=64, offset=offset))
    fake = Fake(problem)
    buffers: Any = SimpleNamespace(problem=problem, address=lambda name: BASE + 2 * problem.operands()[name].offset)
    scratch: Any = SimpleNamespace(address=lambda name: COPY)
    gpu: Any = SimpleNamespace(driver=Driver(fake))
    assert len(tensor_map(gpu, buffers, wanted, scratch)) == 128
    _, rank, address, extents, strides, box, *_ = fake.asked
    assert rank == len(extents) == len(box)
    return address, *([int(number) for number in numbers] for numbers in (extents, strides, box))


def test_a_map_has_columns_first_and_the_distance_of_rows_in_bytes() -> None:
    assert encoded(TensorMap(operand="a", box=(16, 8))) == (BASE, [40, 48], [128], [8, 16])


def test_a_map_of_a_copy_has_its_address_and_its_distance() -> None:
    assert encoded(TensorMap(operand="a", box=(16, 8), workspace="w", ld=72)) == (COPY, [40, 48], [144], [8, 16])


def test_a_map_of_an_operand_begins_at_its_first_element() -> None:
    assert encoded(TensorMap(operand="a", box=(16, 8)), offset=24) == (BASE + 48, [40, 48], [128], [8, 16])
