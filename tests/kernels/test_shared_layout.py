"""Where the register-blocked stages put their shared-memory chunks, and what that costs by the rules of the banks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dgw.kernels.simt import LANES_M, SPACE, Tiling
from dgw.model import gemm
from dgw.workbench.emulator.costs import shared_cost

LANE = np.arange(32)
ALL = np.ones((1, 32), dtype=bool)


class Side:
    """One operand's tile: the index arithmetic of `Tile` in s02_tiled.cu and s03_swizzled.cu."""

    def __init__(self, tiling: Tiling, operand: str, swizzled: bool) -> None:
        along_m = operand == "a"
        self.k_major = tiling.a_k_major if along_m else tiling.b_k_major
        self.extent = tiling.bm if along_m else tiling.bn
        self.per_thread = tiling.tm if along_m else tiling.tn
        self.lane = LANE % LANES_M if along_m else LANE // LANES_M
        self.tiling, self.chunk_bytes = tiling, tiling.chunk * tiling.element_bytes
        self.in_row = (tiling.bk if self.k_major else self.extent) // tiling.chunk
        self.row = self.in_row * self.chunk_bytes
        self.line = max(self.row, 128)
        self.stride = self.per_thread * (self.row if self.k_major else tiling.element_bytes)
        self.swizzled = swizzled

    def twist(self, thread: np.ndarray) -> np.ndarray:
        if self.stride >= 128:
            return thread * self.chunk_bytes % 128
        return thread * self.stride // 128 * self.chunk_bytes % self.stride

    def place(self, row: np.ndarray, chunk: np.ndarray) -> np.ndarray:
        natural = row * self.row + chunk * self.chunk_bytes
        if not self.swizzled:
            return natural
        thread = (row if self.k_major else chunk * self.tiling.chunk) // self.per_thread
        return natural // self.line * self.line + (natural % self.line ^ self.twist(thread))

    def loads(self) -> Iterator[np.ndarray]:
        """Byte addresses of a warp, for every load of one tile."""
        first, chunk = self.lane * self.per_thread, self.tiling.chunk
        for k in range(0, self.tiling.bk, chunk if self.k_major else 1):
            for i in range(self.per_thread if self.k_major else self.per_thread // chunk):
                row = first + i if self.k_major else np.full(32, k)
                yield self.place(row, np.full(32, k // chunk) if self.k_major else first // chunk + i)

    def stores(self) -> Iterator[np.ndarray]:
        for start in range(0, self.extent * self.tiling.bk // self.tiling.chunk, 32):
            index = start + LANE
            yield self.place(index // self.in_row, index % self.in_row)


def conflict_ratio(addresses: Iterator[np.ndarray], kind: str, width: int) -> float:
    costs = [shared_cost(kind, width, address[None, :], ALL) for address in addresses]  # type: ignore[arg-type]
    actual = sum(int(cost.wavefronts[0]) for cost in costs)
    return (actual - sum(int(cost.ideal[0]) for cost in costs)) / actual


def both(dtype: str, layout: str, swizzled: bool, **config: int) -> list[Side]:
    tiling = Tiling.of(gemm(256, 256, 256, dtype, layout), {t.name: t.default for t in SPACE} | config)
    assert tiling.refuses() is None
    return [Side(tiling, operand, swizzled) for operand in ("a", "b")]


def loads(sides: list[Side]) -> float:
    return conflict_ratio((a for side in sides for a in side.loads()), "ld", sides[0].chunk_bytes)


def stores(sides: list[Side]) -> float:
    return conflict_ratio((a for side in sides for a in side.stores()), "st", sides[0].chunk_bytes)


LAYOUTS = ("nn", "nt", "tn", "tt")
CONFIGS: list[dict[str, int]] = [{}, {"BK": 16}, {"BK": 64}, {"BM": 64, "BN": 64}, {"TM": 16}, {"TN": 16, "BK": 64}]


@pytest.mark.parametrize("granularity", [4, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_no_load_and_no_store_of_the_swizzled_layout_conflicts(dtype: str, layout: str, granularity: int) -> None:
    for config in CONFIGS:
        sides = both(dtype, layout, True, GRANULARITY=granularity, **config)
        assert loads(sides) == 0.0, config
        assert stores(sides) == 0.0, config


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_the_swizzle_is_a_permutation_of_the_tile(dtype: str, layout: str) -> None:
    for side in both(dtype, layout, True):
        rows = side.extent * side.tiling.bk // side.tiling.chunk // side.in_row
        row, chunk = np.meshgrid(np.arange(rows), np.arange(side.in_row), indexing="ij")
        places = np.sort(side.place(row, chunk).ravel())
        assert np.array_equal(places, np.arange(rows * side.in_row) * side.chunk_bytes)


@pytest.mark.parametrize(
    ("dtype", "layout", "predicted"),
    [("f16", "nn", 28 / 34), ("f32", "nn", 28 / 34), ("f16", "tn", 0.0), ("f32", "tn", 0.40)],
)
def test_the_natural_layout_conflicts_as_the_declaration_predicts(dtype: str, layout: str, predicted: float) -> None:
    sides = both(dtype, layout, False)
    assert loads(sides) == pytest.approx(predicted)
    assert stores(sides) == 0.0


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_k_major_a_always_conflicts_in_the_natural_layout(dtype: str) -> None:
    assert min(loads(both(dtype, layout, False)) for layout in ("nn", "nt")) >= 0.30
