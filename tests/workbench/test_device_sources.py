"""The device's own kernels compile everywhere, without spills, and agree with the host about their structures."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

import dgw.workbench.device as package
from dgw.model import Epilogue, Operand, Source, gemm
from dgw.toolchain.build import Build, build
from dgw.toolchain.cache import CompileCache
from dgw.workbench.device.buffers import ALIGNMENT, GUARD, ForeignBuffer, slab_layout
from dgw.workbench.device.check import ELEMENT_CODES, PARTIAL, Chunk, comparison, reference_task
from dgw.workbench.device.inputs import filling
from dgw.workbench.prepare import DEVICE_CODE

FOLDER = Path(package.__file__).parent
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a")


@pytest.fixture(scope="module")
def builds(cache: CompileCache) -> dict[tuple[str, str], Build]:
    return {
        (name, arch): build(Source(path=f"{name}.cu"), FOLDER, (), arch, cache)
        for name in DEVICE_CODE
        for arch in ARCHITECTURES
    }


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", DEVICE_CODE)
def test_device_code_compiles_without_remarks_and_spills(
    builds: dict[tuple[str, str], Build], name: str, arch: str
) -> None:
    made = builds[name, arch]
    assert made.remarks == ()
    for entry in made.entries:
        assert made.resources(entry).spill_store_bytes == 0
        assert made.resources(entry).local_bytes <= 64


def parameter_bytes(made: Build, entry: str) -> int:
    """Size of the one structure that `entry` takes, from its PTX."""
    found = re.search(rf"\.entry {entry}\(\s*\.param \.align 8 \.b8 \w+\[(\d+)\]", made.ptx)
    assert found is not None
    return int(found[1])


def test_structures_have_the_size_that_the_host_packs(builds: dict[tuple[str, str], Build]) -> None:
    problem = gemm(5, 6, 7, data="outliers")
    chunk, arrays = Chunk(0, 1, 0, 5), (1, 2, 0)
    for width in (8, 16, 32, 64):
        assert parameter_bytes(builds["fill", "sm_90a"], f"fill_{width}") == len(filling(problem, "a", 0, 0, 0))
    task = reference_task(problem, chunk, lambda name: 0, arrays)
    assert parameter_bytes(builds["reference", "sm_90a"], "reference") == len(task)
    assert parameter_bytes(builds["compare", "sm_90a"], "compare") == len(comparison(problem, chunk, 0, arrays, 0))
    struct = (FOLDER / "compare.cu").read_text().split("struct Partial {")[1].split("};")[0]
    fields = re.findall(r"\b(\w+)(?=[,;])", re.sub(r"//.*", "", struct))
    assert tuple(fields) == PARTIAL.names


def test_element_codes_are_the_enum_of_the_header() -> None:
    names = re.search(r"enum Element \{ (.*) \}", (FOLDER / "elements.cuh").read_text())
    assert names is not None
    order = names[1].lower().split(", ")
    assert {name: order.index(name) for name in order} == ELEMENT_CODES


def test_operands_start_on_the_grid_plus_their_offset_with_guards_around() -> None:
    problem = gemm(33, 70, 45)
    shifted = problem.__class__(
        **{f: getattr(problem, f) for f in problem.__struct_fields__} | {"a": Operand(dtype="f16", offset=3, ld=50)}
    )
    made = slab_layout(shifted)
    end = 0
    for name, region in made.regions.items():
        assert region.start == end
        assert region.start % ALIGNMENT == 0
        assert region.size % ALIGNMENT == 0
        assert (region.first - region.start - GUARD) == (6 if name == "a" else 0)
        body = (region.lines - 1) * region.pitch + region.line_bytes
        assert region.first + body + GUARD <= region.start + region.size
        end = region.start + region.size
    assert made.size == end
    assert made.payload == 2 * (33 * 45 + 45 * 70 + 33 * 70)


def test_scale_factors_lie_behind_the_operands_with_guards_of_their_own() -> None:
    for quantise, count in (("tensor", 1), ("row", 33)):
        epilogue = msgspec.convert({"quantise": quantise}, Epilogue)
        made = slab_layout(gemm(33, 70, 45, out="s8", epilogue=epilogue))
        assert list(made.regions) == ["a", "b", "d", "d_scale"]
        region = made.regions["d_scale"]
        assert (region.line_bytes, region.lines, region.first - region.start) == (4 * count, 1, GUARD)
        assert made.size == region.start + region.size
        assert region.size % ALIGNMENT == 0


def test_foreign_code_sees_shape_and_strides_of_the_logical_matrix() -> None:
    seen = ForeignBuffer(gemm(33, 70, 45, "bf16", "nt"), "b", 4096)
    assert (seen.pointer, seen.dtype, seen.shape, seen.strides) == (4096, "bf16", (45, 70), (1, 45))
    interface = seen.__cuda_array_interface__
    assert interface["typestr"] == "<u2"
    assert interface["strides"] == (2, 90)
    assert ForeignBuffer(gemm(3, 4, 5, batch=2), "d", 0).shape == (2, 3, 4)
