"""What the driver is asked for when a tensor map is made."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from dgw.kernels.hopper import lines, tiling
from dgw.model import Config, TensorMap, gemm
from tests.workbench.fake_tensor_maps import BASE, COPY, made


def encoded(wanted: TensorMap, offset: int = 0) -> tuple[int, list[int], list[int], list[int]]:
    """Address, extents, strides in bytes and box for A of 48 x 40 f16, 64 elements from row to row."""
    plain = gemm(48, 24, 40)
    problem = msgspec.structs.replace(plain, a=msgspec.structs.replace(plain.a, ld=64, offset=offset))
    (found,) = made(problem, wanted)
    return found.address, found.extents, found.strides, found.box


def test_a_map_has_columns_first_and_the_distance_of_rows_in_bytes() -> None:
    assert encoded(TensorMap(operand="a", box=(16, 8))) == (BASE, [40, 48], [128], [8, 16])


def test_a_map_of_a_copy_has_its_address_and_its_distance() -> None:
    assert encoded(TensorMap(operand="a", box=(16, 8), workspace="w", ld=72)) == (COPY, [40, 48], [144], [8, 16])


@pytest.mark.parametrize("offset", range(8, 16))
def test_a_shifted_map_begins_at_sixteen_bytes_and_ends_where_the_operand_does(offset: int) -> None:
    shift = offset % 8
    address, extents, strides, _ = encoded(TensorMap(operand="a", box=(16, 8), shift=shift), offset)
    assert address % 16 == 0
    assert address + 2 * shift == BASE + 2 * offset
    assert (extents, strides) == ([40 + shift, 48], [128])


@pytest.mark.parametrize("offset", [0, 3, 8])
@pytest.mark.parametrize("ld", [93, 95, 90, 92])
@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_boxes_of_all_phases_together_are_a_tile_of_the_operand(layout: str, ld: int, offset: int) -> None:
    """Loaded as WgmmaTile does: line t of the tile, or of a block across k, is the line that `place` says."""
    m, k = (150, 89) if layout == "nt" else (89, 150)
    plain = gemm(m, 256, k, layout=layout)
    a = msgspec.structs.replace(plain.a, ld=ld, offset=offset)
    problem = msgspec.structs.replace(plain, a=a, b=msgspec.structs.replace(plain.b, ld=ld if layout == "tn" else k))
    if layout == "tn":
        problem = msgspec.structs.replace(problem, b=msgspec.structs.replace(plain.b, ld=264))
    along_k, extent = layout == "nt", 128
    config: Config = {"BM": 128, "BN": 256, "PHASED": 1}
    phases = lines.phases(problem, config)
    count = phases["a"]
    assert count > 1
    said = lines.defines(problem, phases)
    shifts = [(int(said["SHIFT_A"]) + phase * int(said["STEP_A"])) % 8 for phase in range(count)]
    maps = made(problem, tiling.box(problem, "a", extent, count))
    memory = np.arange(1, offset + 150 * ld + 1, dtype=np.uint16)
    stored = np.zeros((256 + 64, 256), np.uint16)
    for line in range(150):
        stored[line, :89] = memory[offset + line * ld : offset + line * ld + 89]
    size = extent if along_k else 64
    for first, column in ((0, 0), (size, 0), (0, 64), (size, 64)):
        loaded = np.concatenate([
            one.load(memory, first // count, column + shift) for one, shift in zip(maps, shifts, strict=True)
        ])  # fmt: skip
        t = np.arange(size)
        assert np.array_equal(
            loaded, stored[first + t % (size // count) * count + t // (size // count), column : column + 64]
        )
