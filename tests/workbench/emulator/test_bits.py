"""Bit manipulation, packed arithmetic, packed conversions and approximate functions, against plain Python."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgw.workbench.emulator.oracle import signed
from tests.workbench.emulator.ptx_programs import evaluate, random_bits, same

LANES = 64
SEEDS = st.integers(0, 2**32 - 1)
FULL = 0xFFFFFFFF


def funnel(left: bool, wrap: bool) -> Callable[[int, int, int], int]:
    def compute(low: int, high: int, count: int) -> int:
        amount = count & 31 if wrap else min(count, 32)
        both = high << 32 | low
        return (both << amount >> 32 if left else both >> amount) & FULL

    return compute


def permute(a: int, b: int, selector: int) -> int:
    pool = (b << 32 | a).to_bytes(8, "little")
    result = 0
    for place in range(4):
        nibble = selector >> 4 * place & 15
        byte = pool[nibble & 7]
        result |= (255 * (byte >> 7) if nibble & 8 else byte) << 8 * place
    return result


def extract(is_signed: bool, bits: int) -> Callable[[int, int, int], int]:
    def compute(a: int, position: int, length: int) -> int:
        start, size = position & 255, length & 255
        if size == 0:
            return 0
        value = signed(a, bits) if is_signed else a
        field = [(value >> min(start + i, bits - 1) if is_signed else (a >> (start + i) if start + i < bits else 0)) & 1
                 for i in range(min(size, bits))]  # fmt: skip
        sign = (value >> min(start + size - 1, bits - 1)) & 1 if is_signed else 0
        result = sum(bit << i for i, bit in enumerate(field))
        if size < bits and sign:
            result |= ((1 << bits) - 1) & ~((1 << size) - 1)
        return result & ((1 << bits) - 1)

    return compute


def insert(bits: int) -> Callable[[int, int, int, int], int]:
    def compute(a: int, b: int, position: int, length: int) -> int:
        result = b
        for i in range(length & 255):
            place = (position & 255) + i
            if place < bits:
                result = result & ~(1 << place) | ((a >> i & 1) << place)
        return result

    return compute


def dot(signed_a: bool, signed_b: bool) -> Callable[[int, int, int], int]:
    def compute(a: int, b: int, c: int) -> int:
        def part(value: int, i: int, is_signed: bool) -> int:
            byte = value >> 8 * i & 255
            return signed(byte, 8) if is_signed else byte

        return (c + sum(part(a, i, signed_a) * part(b, i, signed_b) for i in range(4))) & FULL

    return compute


def reverse(bits: int) -> Callable[[int], int]:
    return lambda a: int(f"{a:0{bits}b}"[::-1], 2)


def lop3(table: int) -> Callable[[int, int, int], int]:
    def compute(a: int, b: int, c: int) -> int:
        place = [(a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1) for i in range(32)]
        return sum((table >> term & 1) << i for i, term in enumerate(place))

    return compute


def bfind(is_signed: bool, bits: int) -> Callable[[int], int]:
    def compute(a: int) -> int:
        value = ~signed(a, bits) if is_signed and signed(a, bits) < 0 else a
        return value.bit_length() - 1 & FULL

    return compute


CASES = [
    *[(f"shf.{d}.{w}.b32 {{x}}, {{a}}, {{b}}, {{c}};", ("b32", "b32", "count"), "b32", funnel(d == "l", w == "wrap"))
      for d in "lr" for w in ("wrap", "clamp")],
    ("prmt.b32 {x}, {a}, {b}, {c};", ("b32", "b32", "b32"), "b32", permute),
    *[(f"bfe.{t} {{x}}, {{a}}, {{b}}, {{c}};", (t, "count", "count"), t, extract(t[0] == "s", int(t[1:])))
      for t in ("u32", "s32", "u64", "s64")],
    *[(f"bfi.{t} {{x}}, {{a}}, {{b}}, {{c}}, {{e}};", (t, t, "count", "count"), t, insert(int(t[1:])))
      for t in ("b32", "b64")],
    *[(f"dp4a.{p}.{q} {{x}}, {{a}}, {{b}}, {{c}};", ("b32",) * 3, "b32", dot(p == "s32", q == "s32"))
      for p in ("u32", "s32") for q in ("u32", "s32")],
    *[(f"brev.{t} {{x}}, {{a}};", (t,), t, reverse(int(t[1:]))) for t in ("b32", "b64")],
    *[(f"lop3.b32 {{x}}, {{a}}, {{b}}, {{c}}, {t};", ("b32",) * 3, "b32", lop3(t)) for t in (0x96, 0xE8, 0xCA, 0x40)],
    *[(f"bfind.{t} {{x}}, {{a}};", (t,), "b32", bfind(t[0] == "s", int(t[1:]))) for t in ("u32", "s32", "u64", "s64")],
]  # fmt: skip


@pytest.mark.parametrize(("body", "inputs", "output", "rule"), CASES, ids=lambda v: v if isinstance(v, str) else None)
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_bit_instructions_follow_the_manual(
    body: str, inputs: tuple[str, ...], output: str, rule: Callable[..., int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    data = []
    for i, name in enumerate(inputs):
        if name == "count":
            counts = random.choice([0, 1, 5, 16, 31, 32, 33, 40, 64, 70, 255, 256], LANES)
            data.append(("b32", counts.astype(np.uint32)))
        else:
            data.append((name, random_bits(name, LANES, seed + i)))
    (got,) = evaluate(body, data, [output])
    expected = [rule(*[int(values[lane]) for _, values in data]) for lane in range(LANES)]
    assert [int(v) for v in got] == expected


def halves(bits: np.ndarray, kind: type) -> np.ndarray:
    return np.ascontiguousarray(bits).view(kind).astype(np.float64)


@pytest.mark.parametrize("opcode", ["add", "sub", "mul"])
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_packed_half_arithmetic_rounds_each_half(opcode: str, seed: int) -> None:
    a, b = (random_bits("f16", 2 * LANES, seed + i) for i in range(2))
    (got,) = evaluate(
        f"{opcode}.f16x2 {{x}}, {{a}}, {{b}};", [("b32", a.view(np.uint32)), ("b32", b.view(np.uint32))], ["b32"]
    )
    with np.errstate(all="ignore"):
        exact = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[opcode](
            halves(a, np.float16), halves(b, np.float16)
        )
        assert same("f16", got.view(np.uint16), exact.astype(np.float16).view(np.uint16))


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_packing_two_floats_puts_the_first_into_the_high_half(seed: int) -> None:
    a, b = (random_bits("f32", LANES, seed + i) for i in range(2))
    for name, kind in (("f16x2", np.float16), ("bf16x2", ml_dtypes.bfloat16)):
        (got,) = evaluate(f"cvt.rn.{name}.f32 {{x}}, {{a}}, {{b}};", [("f32", a), ("f32", b)], ["b32"])
        with np.errstate(all="ignore"):
            high, low = (v.view(np.float32).astype(kind).view(np.uint16) for v in (a, b))
        short = "bf16" if kind is ml_dtypes.bfloat16 else "f16"
        assert same(short, (got >> 16).astype(np.uint16), high)
        assert same(short, (got & 0xFFFF).astype(np.uint16), low)


@pytest.mark.parametrize("name", ["e4m3x2", "e5m2x2"])
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_fp8_conversions_saturate_and_return(name: str, seed: int) -> None:
    kind, limit = {"e4m3x2": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2x2": (ml_dtypes.float8_e5m2, 57344.0)}[name]
    a, b = (random_bits("f32", LANES, seed + i) for i in range(2))
    body = f"cvt.rn.satfinite.{name}.f32 {{x}}, {{a}}, {{b}};"
    (got,) = evaluate(body, [("f32", a), ("f32", b)], ["b16"], arch="sm_89")
    for part, value in ((got >> 8, a), (got & 0xFF, b)):
        value = value.view(np.float32)
        expected = np.clip(value, -limit, limit).astype(kind)
        found = part.astype(np.uint8).view(kind)
        assert np.array_equal(np.isnan(found.astype(np.float32)), np.isnan(value))
        good = ~np.isnan(value)
        assert np.array_equal(found[good].view(np.uint8), expected[good].view(np.uint8))
    (back,) = evaluate(f"cvt.rn.f16x2.{name} {{x}}, {{a}};", [("b16", got)], ["b32"], arch="sm_89")
    expected = np.ascontiguousarray(got).view(kind).astype(np.float16).view(np.uint16)
    assert same("f16", back.view(np.uint16), expected)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_tf32_conversion_rounds_ties_away(seed: int) -> None:
    a = random_bits("f32", LANES, seed)
    (got,) = evaluate("cvt.rna.tf32.f32 {x}, {a};", [("f32", a)], ["b32"])
    value = a.view(np.float32)
    finite = np.isfinite(value)
    expected = ((a.astype(np.uint64) + 0x1000) & 0xFFFFE000).astype(np.uint32)
    assert np.array_equal(got[finite], expected[finite])


# Relative error of the approximate instructions: those of the manual hold with room, because float64 is used inside.
APPROXIMATE = [
    ("rcp.approx.f32", np.reciprocal), ("sqrt.approx.f32", np.sqrt), ("rsqrt.approx.f32", lambda a: 1 / np.sqrt(a)),
    ("ex2.approx.f32", np.exp2), ("lg2.approx.f32", np.log2), ("sin.approx.f32", np.sin), ("cos.approx.f32", np.cos),
    ("tanh.approx.f32", np.tanh),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), APPROXIMATE, ids=lambda v: v if isinstance(v, str) else None)
def test_approximate_functions_are_the_nearest_float(name: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    values = np.random.default_rng(1).uniform(0.01, 8, LANES).astype(np.float32)
    (got,) = evaluate(f"{name} {{x}}, {{a}};", [("f32", values.view(np.uint32))], ["f32"])
    assert np.array_equal(got.view(np.float32), function(values.astype(np.float64)).astype(np.float32))


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_flush_to_zero_flushes_inputs_and_results(seed: int) -> None:
    a, b = (random_bits("f32", LANES, seed + i) for i in range(2))
    (got,) = evaluate("mul.ftz.f32 {x}, {a}, {b};", [("f32", a), ("f32", b)], ["f32"])

    def flush(v: np.ndarray) -> np.ndarray:
        return np.where(np.abs(v) < 2.0**-126, np.copysign(np.float32(0), v), v).astype(np.float32)

    with np.errstate(all="ignore"):
        expected = flush(flush(a.view(np.float32)) * flush(b.view(np.float32)))
    assert same("f32", got, expected.view(np.uint32))


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_saturation_clamps_to_zero_and_one(seed: int) -> None:
    a, b = (random_bits("f32", LANES, seed + i) for i in range(2))
    (got,) = evaluate("add.sat.f32 {x}, {a}, {b};", [("f32", a), ("f32", b)], ["f32"])
    with np.errstate(all="ignore"):
        total = a.view(np.float32) + b.view(np.float32)
    assert np.array_equal(got.view(np.float32), np.where(total > 0, np.minimum(total, 1), 0).astype(np.float32))


def test_vectors_pack_and_unpack_little_end_first() -> None:
    words = np.arange(LANES, dtype=np.uint32) * 0x01010101 + 0x04030201
    body = "mov.b32 {{%h20, %h21}}, {a};\n mov.b32 {x}, {{%h21, %h20}};"
    (got,) = evaluate(body, [("b32", words)], ["b32"])
    assert np.array_equal(got, (words >> 16) | (words << 16))
