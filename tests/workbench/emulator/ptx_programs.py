"""Small PTX programs around one instruction or a few, run by the machine and by the scalar oracle."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from dgw.workbench.emulator.oracle import Thread
from dgw.workbench.emulator.ptx.operands import TYPE_BITS
from dgw.workbench.emulator.ptx.parser import parse_module

Bits = NDArray[np.unsignedinteger]
HEADER = ".version 8.3\n.target {arch}\n.address_size 64\n"
REGISTERS = """    .reg .pred %p<16>;
    .reg .b16 %h<32>;
    .reg .b32 %r<64>;
    .reg .b64 %d<64>;
"""
_PREFIX = {16: "h", 32: "r", 64: "d"}


def register(name: str, number: int) -> str:
    """The register that holds operand `number` of a type: operands 0 to 3 are the inputs, 8 and up the outputs."""
    return "%p" + str(number) if name == "pred" else f"%{_PREFIX[max(TYPE_BITS[name], 16)]}{number}"


@functools.cache
def program(body: str, inputs: tuple[str, ...], outputs: tuple[str, ...], arch: str = "sm_80") -> str:
    """An entry `k(in..., out...)`: each thread loads its inputs, runs `body` and stores its outputs.

    `body` names operands {a} {b} {c} {e} (inputs) and {x} {y} (outputs); predicates travel as u32 0 or 1.
    """
    names = dict(zip("abce", (register(t, i) for i, t in enumerate(inputs)), strict=False))
    names |= dict(zip("xy", (register(t, 8 + i) for i, t in enumerate(outputs)), strict=False))
    count = len(inputs) + len(outputs)
    lines = [HEADER.format(arch=arch) + ".visible .entry k("]
    lines.append(",\n".join(f"    .param .u64 p{i}" for i in range(count)) + "\n)\n{\n" + REGISTERS)
    lines.append("    mov.u32 %r40, %tid.x;")
    for i, name in enumerate((*inputs, *outputs)):
        size = 4 if name == "pred" else max(TYPE_BITS[name] // 8, 1)
        lines += [f"    ld.param.u64 %d{40 + i}, [p{i}];", f"    cvta.to.global.u64 %d{40 + i}, %d{40 + i};"]
        lines += [f"    mul.wide.u32 %d63, %r40, {size};", f"    add.s64 %d{40 + i}, %d{40 + i}, %d63;"]
    for i, name in enumerate(inputs):
        if name == "pred":
            lines += [f"    ld.global.u32 %r41, [%d{40 + i}];", f"    setp.ne.u32 %p{i}, %r41, 0;"]
        else:
            lines.append(f"    ld.global.{_plain(name)} {register(name, i)}, [%d{40 + i}];")
    lines.append(body.format(**names))
    for i, name in enumerate(outputs):
        place = f"[%d{40 + len(inputs) + i}]"
        if name == "pred":
            lines += [f"    selp.u32 %r41, 1, 0, %p{8 + i};", f"    st.global.u32 {place}, %r41;"]
        else:
            lines.append(f"    st.global.{_plain(name)} {place}, {register(name, 8 + i)};")
    return "\n".join([*lines, "    ret;", "}", ""])


def _plain(name: str) -> str:
    return f"b{TYPE_BITS[name]}"


def storage(name: str) -> np.dtype[np.unsignedinteger]:
    """The unsigned type that holds the bits of a PTX type."""
    return np.dtype(np.uint32) if name == "pred" else np.dtype(f"u{max(TYPE_BITS[name] // 8, 1)}")


def evaluate(
    body: str, inputs: Sequence[tuple[str, Bits]], outputs: Sequence[str], arch: str = "sm_80"
) -> tuple[Bits, ...]:
    """Run `body` in one lane per array element; inputs and results are bit patterns."""
    count = len(inputs[0][1])
    memory = Memory()
    arrays = [np.ascontiguousarray(values).astype(storage(name)) for name, values in inputs]
    results = [np.zeros(count, dtype=storage(name)) for name in outputs]
    pointers = [memory.register(f"in{i}", array, writable=False) for i, array in enumerate(arrays)]
    pointers += [memory.register(f"out{i}", array) for i, array in enumerate(results)]
    text = program(body, tuple(name for name, _ in inputs), tuple(outputs), arch)
    outcome = EmulatedLaunch(text, "k", (1, 1, 1), (count, 1, 1), pointers, memory).run()
    assert outcome.findings == ()
    return tuple(results)


def consult(body: str, inputs: Sequence[tuple[str, Bits]], outputs: Sequence[str]) -> tuple[Bits, ...]:
    """The same by the oracle, thread by thread."""
    count = len(inputs[0][1])
    text = program(body, tuple(name for name, _ in inputs), tuple(outputs))
    module = parse_module(text)
    arrays = [np.ascontiguousarray(values).astype(storage(name)) for name, values in inputs]
    bases = [1 << (20 + i) for i in range(len(inputs) + len(outputs))]
    memory: dict[int, int] = {}
    for base, array in zip(bases, arrays, strict=False):
        memory |= {base + i: int(byte) for i, byte in enumerate(array.view(np.uint8))}
    parameters = b"".join(base.to_bytes(8, "little") for base in bases)
    for lane in range(count):
        thread = Thread(module, "k", parameters, {"%tid.x": lane})
        thread.memory = memory
        thread.run()
    found = []
    for base, name in zip(bases[len(inputs) :], outputs, strict=True):
        size = storage(name).itemsize
        raw = bytes(memory[base + i] for i in range(count * size))
        found.append(np.frombuffer(raw, dtype=storage(name)))
    return tuple(found)


def random_bits(name: str, count: int, seed: int) -> Bits:
    """Bit patterns of a type, with the awkward ones often: zeros, limits, infinities, NaN, subnormals, neighbours."""
    random = np.random.default_rng(seed)
    dtype = storage(name)
    if name == "pred":
        return random.integers(0, 2, count).astype(dtype)
    bits = 8 * dtype.itemsize
    values = random.integers(0, 1 << 63, count, dtype=np.uint64) * 2 + random.integers(0, 2, count, dtype=np.uint64)
    values = values.astype(dtype)
    small = random.integers(-4, 5, count).astype(f"i{dtype.itemsize}").view(dtype)
    edges = np.array([0, 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1, (1 << bits) - 2], dtype=dtype)
    mantissa = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}.get(name)
    if mantissa is not None:
        one = ((1 << (bits - 2 - mantissa)) - 1) << mantissa
        infinity = ((1 << (bits - 1 - mantissa)) - 1) << mantissa
        sign = 1 << (bits - 1)
        edges = np.array(
            [0, sign, 1, sign | 1, one, sign | one, infinity, sign | infinity, infinity | 1, infinity - 1,
             1 << mantissa, (1 << mantissa) - 1, one + 1, one - 1], dtype=dtype,
        )  # fmt: skip
        spread = random.integers(-3, 4, count) << mantissa
        near = one + spread + random.integers(0, 1 << mantissa, count)
        small = (near + np.where(random.integers(0, 2, count), sign, 0)).astype(np.uint64).astype(dtype)
    kind = random.integers(0, 4, count)
    return np.where(kind == 0, random.choice(edges, count), np.where(kind == 1, values, small)).astype(dtype)


def same(name: str, a: Bits, b: Bits) -> bool:
    """Whether two arrays of bits are equal, any NaN being as good as any other."""
    mantissa = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}.get(name)
    if mantissa is None:
        return bool(np.array_equal(a, b))
    bits = 8 * storage(name).itemsize
    infinity = np.array(((1 << (bits - 1 - mantissa)) - 1) << mantissa, dtype=a.dtype)
    magnitude = np.array((1 << (bits - 1)) - 1, dtype=a.dtype)
    nan_a, nan_b = (a & magnitude) > infinity, (b & magnitude) > infinity
    return bool(np.array_equal(nan_a, nan_b) and np.array_equal(np.where(nan_a, 0, a), np.where(nan_b, 0, b)))
