"""mma.sync against exact products, with fragments laid out lane by lane as the PTX manual describes them."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from tests.workbench.emulator.ptx_programs import HEADER

KINDS = {
    "f16": (np.float16, 16), "bf16": (ml_dtypes.bfloat16, 16), "tf32": (np.float32, 32), "s8": (np.int8, 8),
    "u8": (np.uint8, 8), "e4m3": (ml_dtypes.float8_e4m3fn, 8), "e5m2": (ml_dtypes.float8_e5m2, 8),
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """One mma: k, types, and the registers of A, B and C per lane."""

    k: int
    a: str
    b: str
    c: str
    sparse: bool = False

    @property
    def name(self) -> str:
        sp = "sp::ordered_metadata." if self.sparse else ""
        return f"mma.{sp}sync.aligned.m16n8k{self.k}.row.col.{self.c}.{self.a}.{self.b}.{self.c}"

    @property
    def per(self) -> int:
        return 32 // KINDS[self.a][1]


DENSE = [
    *[Shape(k, t, t, "f32") for t in ("f16", "bf16") for k in (8, 16)], Shape(16, "f16", "f16", "f16"),
    Shape(8, "f16", "f16", "f16"), Shape(4, "tf32", "tf32", "f32"), Shape(8, "tf32", "tf32", "f32"),
    *[Shape(k, a, b, "s32") for k in (16, 32) for a in ("s8", "u8") for b in ("s8", "u8")],
    *[Shape(32, a, b, "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")],
]  # fmt: skip
SPARSE = [
    *[Shape(k, t, t, "f32", True) for t, k in (("f16", 16), ("f16", 32), ("bf16", 32), ("e4m3", 64))],
    *[Shape(k, "s8", "s8", "s32", True) for k in (32, 64)],
]


def pack(values: np.ndarray) -> np.ndarray:
    """Elements of one register each (last axis) as uint32."""
    return np.ascontiguousarray(values).view(np.uint32)[..., 0]


def fragments_a(a: np.ndarray, per: int) -> np.ndarray:
    """[registers, 32] of a row-major 16 x k matrix."""
    count = a.shape[1] // (4 * per) * 2
    found = []
    for r in range(count):
        lanes = [a[lane // 4 + 8 * (r % 2), (r // 2) * 4 * per + lane % 4 * per :][:per] for lane in range(32)]
        found.append(pack(np.array(lanes)))
    return np.array(found)


def fragments_b(b: np.ndarray, per: int) -> np.ndarray:
    """[registers, 32] of a k x 8 matrix."""
    count = b.shape[0] // (4 * per)
    found = []
    for r in range(count):
        lanes = [b[r * 4 * per + lane % 4 * per :][:per, lane // 4] for lane in range(32)]
        found.append(pack(np.array(lanes)))
    return np.array(found)


def accumulator(c: np.ndarray) -> np.ndarray:
    """[registers, 32] of a 16 x 8 matrix of 32-bit or 16-bit elements."""
    found = []
    for half in range(2):
        pairs = np.array([c[lane // 4 + 8 * half, lane % 4 * 2 :][:2] for lane in range(32)])
        if c.dtype.itemsize == 2:
            found.append(pack(pairs))
        else:
            found += [np.ascontiguousarray(pairs[:, i]).view(np.uint32) for i in range(2)]
    return np.array(found)


def mma(shape: Shape, a: np.ndarray, b: np.ndarray, c: np.ndarray, extra: str = "", meta: np.ndarray | None = None):
    """Run one mma on register fragments [registers, 32]; returns D's registers."""
    counts = (len(a), len(b), len(c))
    memory = Memory()
    inputs = np.concatenate([a, b, c, *([meta[None]] if meta is not None else [])]).astype(np.uint32)
    out = np.zeros((counts[2], 32), np.uint32)
    pointers = [memory.register("in", inputs, writable=False), memory.register("out", out)]
    loads = "\n".join(f"  ld.global.u32 %r{i}, [%d1+{128 * i}];" for i in range(len(inputs)))
    stores = "\n".join(f"  st.global.u32 [%d2+{128 * i}], %r{40 + i};" for i in range(counts[2]))
    starts = np.cumsum([0, *counts])
    groups = ["{" + ", ".join(f"%r{i}" for i in range(starts[g], starts[g + 1])) + "}" for g in range(3)]
    d = "{" + ", ".join(f"%r{40 + i}" for i in range(counts[2])) + "}"
    text = f"""{HEADER.format(arch="sm_90")}.visible .entry k(.param .u64 p0, .param .u64 p1)
{{
  .reg .b32 %r<64>;
  .reg .b64 %d<8>;
  mov.u32 %r63, %tid.x;
  mul.wide.u32 %d0, %r63, 4;
  ld.param.u64 %d1, [p0];
  ld.param.u64 %d2, [p1];
  add.s64 %d1, %d1, %d0;
  add.s64 %d2, %d2, %d0;
{loads}
  {shape.name} {d}, {", ".join(groups)}{extra};
{stores}
  ret;
}}
"""
    outcome = EmulatedLaunch(text, "k", (1, 1, 1), (32, 1, 1), pointers, memory).run()
    assert outcome.findings == ()
    return out


def matrices(shape: Shape, seed: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    made = []
    for name, size in ((shape.a, (16, k)), (shape.b, (shape.k, 8))):
        kind, _ = KINDS[name]
        if name in ("s8", "u8"):
            made.append(random.integers(-128 if name == "s8" else 0, 128, size).astype(kind))
        else:
            made.append(random.standard_normal(size).astype(np.float32).astype(kind))
    kind = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[shape.c]
    made.append((random.standard_normal((16, 8)) * 10).astype(kind))
    return made[0], made[1], made[2]


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray, name: str) -> np.ndarray:
    def exact(value: np.ndarray) -> np.ndarray:
        if name == "tf32":
            value = (value.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return value.astype(np.float64)

    return (exact(a) @ exact(b) + c.astype(np.float64)).astype(c.dtype)


@pytest.mark.parametrize("shape", DENSE, ids=lambda shape: shape.name)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_dense_product_is_exact_and_rounded_once(shape: Shape, seed: int) -> None:
    a, b, c = matrices(shape, seed, shape.k)
    got = mma(shape, fragments_a(a, shape.per), fragments_b(b, shape.per), accumulator(c))
    assert np.array_equal(got, accumulator(product(a, b, c, shape.a)))


def test_integer_accumulators_wrap_or_saturate() -> None:
    shape = Shape(32, "s8", "s8", "s32")
    a, b = np.full((16, 32), 127, np.int8), np.full((32, 8), 127, np.int8)
    c = np.full((16, 8), 2**31 - 10, np.int32)
    fragments = fragments_a(a, 4), fragments_b(b, 4), accumulator(c)
    wrapped = (np.int64(2**31 - 10) + 32 * 127 * 127 + 2**31) % 2**32 - 2**31
    assert (mma(shape, *fragments).view(np.int32) == wrapped).all()

    @dataclass(frozen=True)
    class Saturating(Shape):
        @property
        def name(self) -> str:
            return "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32"

    assert (mma(Saturating(32, "s8", "s8", "s32"), *fragments).view(np.int32) == 2**31 - 1).all()


def metadata(indices: np.ndarray, shape: Shape, selector: int) -> np.ndarray:
    """Metadata registers [32] of two-bit indices [16, k / 2], for the lanes that `selector` names."""
    found = np.zeros(32, np.uint32)
    for row in range(16):
        g, h = row % 8, row // 8
        if shape.per == 2:
            blocks = indices[row].reshape(-1, 8)
            lanes = [(g * 4 + selector * len(blocks) + c, 16 * h) for c in range(len(blocks))]
        else:
            blocks = indices[row].reshape(-1, 16)
            first = 2 * selector if len(blocks) == 1 else 0
            lanes = [(g * 4 + first + 2 * c + h, 0) for c in range(len(blocks))]
        for block, (lane, shift) in zip(blocks, lanes, strict=True):
            word = sum(int(index) << (2 * i) for i, index in enumerate(block))
            found[lane] |= np.uint32(word << shift)
    return found


@pytest.mark.parametrize("shape", SPARSE, ids=lambda shape: shape.name)
@pytest.mark.parametrize("selector", [0, 1])
def test_a_sparse_product_equals_the_dense_one(shape: Shape, selector: int) -> None:
    if shape.k == 64:
        selector = 0
    stored, b, c = matrices(shape, 5 + selector, shape.k // 2)
    random = np.random.default_rng(selector)
    pairs = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
    indices = pairs[random.integers(0, 6, (16, shape.k // 4))].reshape(16, -1)
    dense = np.zeros((16, shape.k), stored.dtype)
    columns = np.arange(shape.k // 2) // 2 * 4 + indices
    np.put_along_axis(dense, columns, stored, axis=1)
    word = metadata(indices, shape, selector)
    left, right = fragments_a(stored, shape.per), fragments_b(b, shape.per)
    extra = f", %r{len(left) + len(right) + 4}, {selector:#x}"
    got = mma(shape, left, right, accumulator(c), extra, word)
    assert np.array_equal(got, accumulator(product(dense, b, c, shape.a)))
