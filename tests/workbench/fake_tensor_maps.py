"""Tensor maps as the driver is asked for them, and what the copy engine reads by them."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgw.model import Problem, TensorMap
from dgw.workbench.device.driver import Driver
from dgw.workbench.device.launch import tensor_map
from tests.workbench.fake_cuda import FakeCuda

BASE, COPY = 1 << 20, 1 << 24


class Fake(FakeCuda):
    """Keeps what it is asked for."""

    asked: tuple[tuple[Any, ...], ...] = ()

    def _cuTensorMapEncodeTiled(self, *arguments: Any) -> Any:  # noqa: N802
        self.asked = (*self.asked, arguments)
        return SimpleNamespace(opaque=range(16))


@dataclass(frozen=True)
class Map:
    """What the driver is told: address, extents, strides in bytes and box, columns first."""

    address: int
    extents: list[int]
    strides: list[int]
    box: list[int]

    def load(self, memory: NDArray[np.uint16], line: int, column: int) -> NDArray[np.uint16]:
        """A box of `memory`, which begins at BASE, as the copy engine reads it: zeros out of bounds."""
        assert self.address % 16 == 0
        assert self.strides[0] % 16 == 0
        found = np.zeros(self.box[::-1], np.uint16)
        for row, at in enumerate(range(line, line + self.box[1])):
            first = (self.address - BASE + at * self.strides[0]) // 2
            for col in range(self.box[0]):
                if at < self.extents[1] and 0 <= column + col < self.extents[0]:
                    found[row, col] = memory[first + column + col]
        return found


def made(problem: Problem, wanted: TensorMap) -> list[Map]:
    """The maps of all phases."""
    fake = Fake(problem)
    buffers: Any = SimpleNamespace(problem=problem, address=lambda name: BASE + 2 * problem.operands()[name].offset)
    scratch: Any = SimpleNamespace(address=lambda name: COPY)
    gpu: Any = SimpleNamespace(driver=Driver(fake))
    assert len(tensor_map(gpu, buffers, wanted, scratch)) == 128 * wanted.phases
    return [
        Map(address, *([int(number) for number in numbers] for numbers in (extents, strides, box)))
        for _, _, address, extents, strides, box, *_ in fake.asked
    ]
