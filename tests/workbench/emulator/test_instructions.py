"""Each scalar instruction against the oracle, which computes with integers and fractions and rounds once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgw.workbench.emulator.ptx.operands import TYPE_BITS
from tests.workbench.emulator.ptx_programs import consult, evaluate, random_bits, same

LANES = 64
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "f32", "f64")
WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
SEEDS = st.integers(0, 2**32 - 1)


def _binary(opcodes: str, types: tuple[str, ...]) -> list[tuple[str, tuple[str, ...], str]]:
    return [(f"{op}.{t} {{x}}, {{a}}, {{b}};", (t, t), t) for op in opcodes.split() for t in types]


INTEGER_CASES = [
    *_binary("add sub mul.lo mul.hi div rem min max", INTEGERS),
    *[(f"{op}.{t} {{x}}, {{a}};", (t,), t) for op in ("abs", "neg") for t in ("s16", "s32", "s64")],
    *[(f"mad.{how}.{t} {{x}}, {{a}}, {{b}}, {{c}};", (t, t, t), t) for how in ("lo", "hi") for t in INTEGERS],
    *[(f"mul.wide.{t} {{x}}, {{a}}, {{b}};", (t, t), wide) for t, wide in WIDE.items()],
    *[(f"mad.wide.{t} {{x}}, {{a}}, {{b}}, {{c}};", (t, t, wide), wide) for t, wide in WIDE.items()],
    *[(f"sad.{t} {{x}}, {{a}}, {{b}}, {{c}};", (t, t, t), t) for t in ("u32", "s32", "u16", "s64")],
    *_binary("and or xor", ("b16", "b32", "b64", "pred")),
    *[(f"not.{t} {{x}}, {{a}};", (t,), t) for t in ("b16", "b32", "b64", "pred")],
    *[(f"cnot.{t} {{x}}, {{a}};", (t,), t) for t in ("b16", "b32", "b64")],
    *[(f"{op}.{t} {{x}}, {{a}};", (t,), "b32") for op in ("popc", "clz") for t in ("b32", "b64")],
    *[(f"selp.{t} {{x}}, {{a}}, {{b}}, {{c}};", (t, t, "pred"), t) for t in ("b16", "b32", "f32", "b64", "f64")],
]  # fmt: skip
FLOAT_CASES = [
    *[(f"{op}.{mode}.{t} {{x}}, {{a}}, {{b}};", (t, t), t) for op in ("add", "sub", "mul", "div")
      for t in ("f32", "f64") for mode in ("rn", "rz", "rm", "rp")],
    *[(f"fma.{mode}.{t} {{x}}, {{a}}, {{b}}, {{c}};", (t, t, t), t) for t in ("f32", "f64")
      for mode in ("rn", "rz", "rm", "rp")],
    *[(f"{op}.{t} {{x}}, {{a}}, {{b}};", (t, t), t) for op in ("min", "max") for t in FLOATS],
    *[(f"{op}.{t} {{x}}, {{a}};", (t,), t) for op in ("neg", "abs") for t in FLOATS],
    *[(f"{op}.f16 {{x}}, {{a}}, {{b}};", ("f16", "f16"), "f16") for op in ("add", "sub", "mul")],
    *[(f"fma.rn.{t} {{x}}, {{a}}, {{b}}, {{c}};", (t, t, t), t) for t in ("f16", "bf16")],
]  # fmt: skip


def check(body: str, inputs: tuple[str, ...], output: str, seed: int, lanes: int = LANES) -> None:
    data = [(name, random_bits(name, lanes, seed + 7 * i)) for i, name in enumerate(inputs)]
    (got,), (expected,) = evaluate(body, data, [output]), consult(body, data, [output])
    assert same(output, got, expected), [(hex(int(v[i])) for _, v in data) for i in np.nonzero(got != expected)[0][:3]]


@pytest.mark.parametrize(("body", "inputs", "output"), INTEGER_CASES, ids=lambda v: v if isinstance(v, str) else None)
@settings(max_examples=5, deadline=None)
@given(seed=SEEDS)
def test_integer_instructions_agree_with_the_oracle(body: str, inputs: tuple[str, ...], output: str, seed: int) -> None:
    check(body, inputs, output, seed)


@pytest.mark.parametrize(("body", "inputs", "output"), FLOAT_CASES, ids=lambda v: v if isinstance(v, str) else None)
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_float_instructions_round_once(body: str, inputs: tuple[str, ...], output: str, seed: int) -> None:
    check(body, inputs, output, seed)


@pytest.mark.parametrize("name", ["b16", "b32", "b64", "s32", "s64", "u32"])
@pytest.mark.parametrize("opcode", ["shl", "shr"])
@settings(max_examples=5, deadline=None)
@given(seed=SEEDS)
def test_shift_counts_clamp_at_the_width(opcode: str, name: str, seed: int) -> None:
    type_name = f"b{TYPE_BITS[name]}" if opcode == "shl" else name
    counts = np.random.default_rng(seed).integers(0, 80, LANES).astype(np.uint32)
    data = [(type_name, random_bits(type_name, LANES, seed)), ("u32", counts)]
    body = f"{opcode}.{type_name} {{x}}, {{a}}, {{b}};"
    (got,), (expected,) = evaluate(body, data, [type_name]), consult(body, data, [type_name])
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("word", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("name", [*INTEGERS, "f16", "f32", "f64"])
@settings(max_examples=4, deadline=None)
@given(seed=SEEDS)
def test_comparisons_agree_with_the_oracle(word: str, name: str, seed: int) -> None:
    check(f"setp.{word}.{name} {{x}}, {{a}}, {{b}};", (name, name), "pred", seed)
    if name[0] == "f":
        check(f"setp.{word}u.{name} {{x}}, {{a}}, {{b}};", (name, name), "pred", seed)


CONVERSIONS = [
    *[(to, origin, "") for to in INTEGERS for origin in INTEGERS if to != origin],
    *[(to, origin, "sat") for to in INTEGERS for origin in INTEGERS if to != origin],
    *[(to, origin, mode) for to in ("f32", "f64") for origin in INTEGERS for mode in ("rn", "rz", "rm", "rp")],
    *[("f16", origin, "rn") for origin in ("s16", "u32", "s64")],
    *[(to, origin, mode) for to in INTEGERS for origin in FLOATS for mode in ("rni", "rzi", "rmi", "rpi")],
    *[(to, to, mode) for to in ("f32", "f64") for mode in ("rni", "rzi", "rmi", "rpi")],
    *[("f32", "f64", mode) for mode in ("rn", "rz", "rm", "rp")],
    *[("f16", origin, mode) for origin in ("f32", "f64") for mode in ("rn", "rz", "rm", "rp")],
    *[("bf16", "f32", mode) for mode in ("rn", "rz")],
    ("f32", "f16", ""), ("f64", "f16", ""), ("f64", "f32", ""), ("f32", "bf16", ""),
]  # fmt: skip


@pytest.mark.parametrize(("to", "origin", "mode"), CONVERSIONS, ids=str)
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
def test_conversions_agree_with_the_oracle(to: str, origin: str, mode: str, seed: int) -> None:
    words = ".".join(word for word in ("cvt", mode, to, origin) if word)
    check(f"{words} {{x}}, {{a}};", (origin,), to, seed)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_f32_multiply_add_never_rounds_twice(seed: int) -> None:
    """Sums that fall on ties of float32, or close to them, and results in the subnormal range."""
    random = np.random.default_rng(seed)
    a = random.integers(1, 1 << 12, LANES).astype(np.float32) * np.float32(2.0) ** random.integers(-80, 10, LANES)
    b = random.integers(1, 1 << 13, LANES).astype(np.float32) * np.float32(2.0) ** random.integers(-80, 10, LANES)
    exact = a.astype(np.float64) * b
    c = (exact * 2.0 ** random.integers(-30, 31, LANES) * random.choice([-1, 1], LANES)).astype(np.float32)
    data = [("f32", v.astype(np.float32).view(np.uint32)) for v in (a, b, c)]
    body = "fma.rn.f32 {x}, {a}, {b}, {c};"
    (got,), (expected,) = evaluate(body, data, ["f32"]), consult(body, data, ["f32"])
    assert same("f32", got, expected)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_predicated_instructions_leave_other_lanes_alone(seed: int) -> None:
    body = (
        "mov.b32 {x}, {a};\n setp.lt.s32 %p9, {a}, {b};\n @%p9 add.s32 {x}, {a}, {b};\n @!%p9 mul.lo.s32 {x}, {b}, 3;"
    )
    check(body, ("s32", "s32"), "s32", seed)
    body = "mov.b32 {x}, {a};\n setp.lt.s32 %p9, {a}, {b};\n @!%p9 fma.rn.f32 {x}, {a}, {b}, {b};"
    check(body, ("f32", "f32"), "f32", seed)
