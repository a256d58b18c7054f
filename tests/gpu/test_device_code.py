"""The kernels that fill, compute references and judge, against their NumPy models."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from dgw.errors import UsageError
from dgw.model import Epilogue, Operand, Problem, gemm
from dgw.operands import bounds, data, dtypes, layouts, references
from dgw.workbench.device.arena import Arena
from dgw.workbench.device.buffers import BufferSet, element_bytes, slab_layout
from dgw.workbench.device.check import CHUNK_ELEMENTS, Chunk, chunks
from dgw.workbench.device.context import Gpu
from dgw.workbench.device.inputs import Inputs
from dgw.workbench.device.launch import Kernels

TYPES = ("f16", "bf16", "f32", "tf32", "e4m3", "s8")


def odd_problem(dtype: str = "f16", layout: str = "nn", data_set: str = "normal", **fields: object) -> Problem:
    """Odd sizes, leading dimensions above the width, bases off the 256-byte grid."""
    out = {"s8": "s32", "e4m3": "f16", "tf32": "f32"}.get(dtype, dtype)
    plain = gemm(37, 70, 45, dtype, layout, out, data=data_set, seed=7, **fields)
    rows_a, rows_b = (45 if layout[0] == "n" else 37), (70 if layout[1] == "n" else 45)

    def strided(operand: Operand, width: int, offset: int) -> Operand:
        return Operand(dtype=operand.dtype, order=operand.order, ld=width + 3, offset=offset)

    return Problem(
        **{
            **{name: getattr(plain, name) for name in plain.__struct_fields__},
            "a": strided(plain.a, rows_a, 1),
            "b": strided(plain.b, rows_b, 3),
            "d": strided(plain.d, 70, 2),
        }
    )


def download(gpu: Gpu, buffers: BufferSet, name: str) -> np.ndarray:
    problem = buffers.problem
    dtype = problem.operands()[name].dtype
    raw = gpu.download(buffers.address(name), layouts.extent(problem, name) * element_bytes(dtype))
    return layouts.view(raw.view(dtypes.numpy_dtype(dtype)), problem, name)


def upload(gpu: Gpu, buffers: BufferSet, values: np.ndarray) -> None:
    """Write a logical D, its padding left as it is."""
    problem = buffers.problem
    width = element_bytes(problem.d.dtype)
    raw = gpu.download(buffers.address("d"), layouts.extent(problem, "d") * width)
    flat = raw.view(dtypes.numpy_dtype(problem.d.dtype))
    layouts.view(flat, problem, "d")[...] = values
    gpu.upload(buffers.address("d"), flat.view(np.uint8))


@pytest.fixture
def arena_of(gpu: Gpu, kernels: Kernels, inputs: Inputs, device_code: dict[str, str]) -> Iterator[object]:
    made: list[Arena] = []

    def make(problem: Problem) -> Arena:
        made.append(Arena(gpu, kernels, inputs, device_code, problem))
        return made[-1]

    yield make
    for arena in made:
        arena.free()


@pytest.mark.parametrize("data_set", data.DATA_SETS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_filled_operands_are_bit_for_bit_the_generated_ones(
    gpu: Gpu, inputs: Inputs, dtype: str, layout: str, data_set: str
) -> None:
    problem = odd_problem(dtype, layout, data_set)
    try:
        expected = {name: data.generate(problem, name) for name in ("a", "b")}
    except UsageError:
        assert data.refuses(data_set, dtype)
        return
    buffers = BufferSet(gpu, problem, slab_layout(problem))
    inputs.fill(buffers)
    for name, values in expected.items():
        found = np.ascontiguousarray(download(gpu, buffers, name))
        assert found.tobytes() == np.ascontiguousarray(values).tobytes()
        assert inputs.untouched(buffers, name).changed == 0
    buffers.free()


def variants_of_problems() -> list[Problem]:
    c, bias = Operand(dtype="f32"), Operand(dtype="f16")
    found = [odd_problem(dtype, layout) for dtype in TYPES for layout in ("nn", "nt", "tn", "tt")]
    found += [odd_problem("f16", data_set=name) for name in data.DATA_SETS]
    found += [odd_problem("f32", data_set=name) for name in ("integer", "one-hot", "naninf", "uniform")]
    found += [odd_problem("bf16", c=c, beta=0.5, alpha=1.25, bias=bias, residual=c)]
    found += [odd_problem("f16", epilogue=Epilogue(activation=kind)) for kind in ("relu", "gelu", "gelu-tanh", "silu")]
    for out, per in (("s8", "row"), ("s8", "tensor"), ("e4m3", "row"), ("e4m3", "tensor")):
        quantised = gemm(37, 70, 45, epilogue=msgspec.convert({"activation": "gelu", "quantise": per}, Epilogue))
        found.append(msgspec.structs.replace(quantised, d=Operand(dtype=out, zero_point=3 if out == "s8" else 0)))
    found += [gemm(9, 17, 33, "f16", batch=3, bias=bias), gemm(1, 1, 1, "f32"), gemm(65, 1, 7, "bf16")]
    return found


@pytest.mark.parametrize("problem", variants_of_problems(), ids=lambda p: f"{p.a.dtype}-{p.layout}-{p.data}-{p.shape}")
def test_the_verdict_on_the_gpu_is_that_of_the_model(gpu: Gpu, arena_of, problem: Problem) -> None:  # type: ignore[no-untyped-def]
    arena = arena_of(problem)
    exact = [references.block_reference(problem, batch=item) for item in range(problem.batch)]
    stored = np.stack([references.stored_output(problem, block.value, block.scale) for block in exact])
    draw = np.random.default_rng(0)
    noisy = dtypes.store(dtypes.widen(stored) * (1 + 1e-3 * draw.standard_normal(stored.shape)), problem.d.dtype)
    one_wrong, one_unwritten = stored.copy(), stored.copy()
    one_wrong[-1, -1, -1] = 3
    one_wrong.view(np.uint8).reshape(-1)[0] ^= 0x3C
    if not dtypes.is_integer(problem.d.dtype):
        one_unwritten[0, problem.m // 2, 0] = np.nan
    for output in (stored, noisy, one_wrong, one_unwritten):
        upload(gpu, arena.sets[0], output if problem.batch > 1 else output[0])
        found = arena.check()
        blocks = [
            bounds.compare(problem, output[i], block, origin=(i, 0, 0) if problem.batch > 1 else (0, 0))
            for i, block in enumerate(exact)
        ]
        if problem.batch == 1:
            assert found.passed == blocks[0].passed, (found, blocks[0])
            relative = blocks[0].relative_error
            assert (found.relative_error is None) == (relative is None)
            assert relative is None or found.relative_error == pytest.approx(relative, rel=1e-6, abs=1e-12)
            assert (found.error is None) == (blocks[0].error is None or blocks[0].error > 1e300)
            if found.error is not None and found.error > 0:
                assert found.worst == blocks[0].worst
                assert found.error == pytest.approx(blocks[0].error, rel=1e-6)
                assert found.bound == pytest.approx(blocks[0].bound, rel=1e-6)
        elif not all(block.passed for block in blocks):
            assert not found.passed
        else:
            assert found.passed or "Frobenius" in found.detail


def test_d_starts_as_nan_and_an_untouched_d_is_wrong(arena_of) -> None:  # type: ignore[no-untyped-def]
    check = arena_of(odd_problem()).check()
    assert not check.passed
    assert "never written" in check.detail


def test_a_write_into_a_guard_band_or_the_padding_is_noticed(gpu: Gpu, arena_of) -> None:  # type: ignore[no-untyped-def]
    problem = odd_problem()
    arena = arena_of(problem)
    good = references.stored_output(problem, references.block_reference(problem).value)
    upload(gpu, arena.sets[0], good)
    assert arena.check().passed
    base, width = arena.sets[0].address("d"), element_bytes("f16")
    for offset in (-1, -4096, 70 * width, 37 * 73 * width + 5000):
        gpu.fill(base + offset, 0x11, 1)
        check = arena.check()
        assert not check.passed
        assert "outside d" in check.detail
        gpu.fill(base + offset, 0xFF, 1)
    assert arena.check().passed
    gpu.fill(arena.sets[0].address("b"), 0x11, 1)
    assert "changed its input b" in arena.check().detail
    arena.restore()
    assert arena.checker.damage(arena.sets[0]) == ""


def test_chunks_cover_d_once(gpu: Gpu) -> None:
    for problem in (gemm(1000, 700, 8), gemm(10, 7, 8, batch=1000), gemm(70000, 3, 8, batch=2)):
        for most in (1000, 50_000, CHUNK_ELEMENTS):
            covered = np.zeros((problem.batch, problem.m), int)
            for chunk in chunks(problem, most):
                covered[chunk.item : chunk.item + chunk.items, chunk.row : chunk.row + chunk.rows] += 1
                assert isinstance(chunk, Chunk)
            assert (covered == 1).all()
