"""mov (with packing and unpacking), selp, slct, setp, set, cvta, isspacep and instructions without effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dgw.workbench.emulator import rounding
from dgw.workbench.emulator.arithmetic_float import flush
from dgw.workbench.emulator.elementwise import NUMPY, binder, elementwise
from dgw.workbench.emulator.group import BOOL, U32, U64, Group
from dgw.workbench.emulator.operation import (
    Operation,
    Thunk,
    check_modifiers,
    destination,
    expect,
    items,
    malformed,
    source,
    type_of,
    unknown,
)
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import TYPE_BITS, Pair, Register, Vector

Array = Any  # a NumPy array

# Where the windows of generic addresses start; global addresses are themselves.
WINDOWS = {"shared": 1 << 56, "local": 2 << 56, "const": 3 << 56, "param": 4 << 56, "global": 0}
WINDOW_BYTES = 1 << 56


def _copy(group: Group) -> Thunk:
    dtype = NUMPY[group.detail]
    values, target = group.source(0, dtype), group.target(0, dtype)
    fetch, store = values.fetch, target.store
    return group.finish(lambda: store(fetch()))


def decode_mov(instruction: Instruction) -> Operation:
    """mov: a copy, or a vector packed into a register, or a register taken apart."""
    name = type_of(instruction)
    check_modifiers(instruction, {name})
    operands = expect(instruction, 2)
    to, origin = operands
    if isinstance(to, Vector):
        return _unpack(instruction, name, to, source(instruction, origin))
    if isinstance(origin, Vector):
        return _pack(instruction, name, destination(instruction, to), origin)
    bits = TYPE_BITS[name]
    write = destination(instruction, to, bits)
    same = {8: "b8", 16: "b16", 32: "b32", 64: "b64", 128: "b128", 1: "pred"}[bits]
    read = source(instruction, origin, bits)
    if same == "b8":
        raise unknown(instruction)
    return Operation(instruction, (write,), (read,), _copy, detail=same)


def _pack(instruction: Instruction, name: str, write: Register | None, vector: Vector) -> Operation:
    reads = tuple(source(instruction, item) for item in vector.items)
    total = TYPE_BITS[name]
    part = total // len(reads) if reads else 0
    if len(reads) not in (2, 4) or part not in (8, 16, 32, 64) or write is None or write.bits != total:
        raise malformed(instruction)
    small, large = np.dtype(f"u{part // 8}"), NUMPY[f"b{total}"]

    def build(group: Group) -> Thunk:
        values = group.vector(range(len(reads)), small).fetch
        store, lanes = group.target(0, large).store, group.lanes.count

        def run() -> None:
            parts = values()
            parts = np.broadcast_to(parts, (*parts.shape[:-1], lanes))
            store(np.ascontiguousarray(np.moveaxis(parts, -2, -1)).view(large)[..., 0])

        return group.finish(run)

    return Operation(instruction, (write,), reads, build, detail=("pack", part))


def _unpack(instruction: Instruction, name: str, vector: Vector, read: Any) -> Operation:
    writes = tuple(destination(instruction, item) for item in vector.items)
    total = TYPE_BITS[name]
    part = total // len(writes) if writes else 0
    if len(writes) not in (2, 4) or part not in (8, 16, 32, 64):
        raise malformed(instruction)
    if any(write is not None and write.bits != max(part, 8) for write in writes):
        raise malformed(instruction, "a part has the wrong width")
    small, large = np.dtype(f"u{part // 8}"), NUMPY[f"b{total}"]

    def build(group: Group) -> Thunk:
        fetch = group.source(0, large).fetch
        stores = [group.target(position, small).store for position in range(len(writes))]

        def run() -> None:
            parts = np.ascontiguousarray(fetch())[..., None].view(small)
            for position, store in enumerate(stores):
                store(parts[..., position])

        return group.finish(run)

    return Operation(instruction, writes, (read,), build, detail=("unpack", part))


def decode_cvta(instruction: Instruction) -> Operation:
    """cvta: between an address in a window and a generic address."""
    present = check_modifiers(instruction, {"to", "u32", "u64", *WINDOWS, "shared::cta"})
    spaces = present & {*WINDOWS, "shared::cta"}
    if len(spaces) != 1 or type_of(instruction) != "u64":
        raise unknown(instruction)
    base = np.uint64(WINDOWS[next(iter(spaces)).partition("::")[0]])
    if not base:
        expect(instruction, 2)
        operation = decode_mov(replace(instruction, name="mov.b64", opcode="mov", modifiers=("b64",)))
        operation.instruction = instruction
        return operation
    function = (lambda a: a - base) if "to" in present else (lambda a: a + base)
    return elementwise(instruction, function, [U64], U64)


def decode_isspacep(instruction: Instruction) -> Operation:
    """isspacep: whether a generic address lies in a window."""
    space = instruction.modifiers[0].partition("::")[0] if instruction.modifiers else ""
    if space not in WINDOWS:
        raise unknown(instruction)
    number = np.uint64(WINDOWS[space] >> 56)
    return elementwise(instruction, lambda a: (a >> np.uint64(56)) == number, [U64], BOOL)


def decode_selp(instruction: Instruction) -> Operation:
    """selp: a where p, else b."""
    name = type_of(instruction)
    check_modifiers(instruction, {name})
    if TYPE_BITS[name] not in (16, 32, 64):
        raise unknown(instruction)
    dtype = np.dtype(f"u{TYPE_BITS[name] // 8}")
    return elementwise(instruction, lambda a, b, p: np.where(p, a, b), [dtype, dtype, BOOL], dtype)


def decode_slct(instruction: Instruction) -> Operation:
    """slct: a where c >= 0, else b; a NaN selects b."""
    if len(instruction.modifiers) < 2:
        raise unknown(instruction)
    name, condition = instruction.modifiers[-2:]
    check_modifiers(instruction, {name, condition, "ftz"})
    if condition not in ("s32", "f32") or TYPE_BITS.get(name, 0) not in (16, 32, 64):
        raise unknown(instruction)
    dtype = np.dtype(f"u{TYPE_BITS[name] // 8}")
    inputs = [dtype, dtype, NUMPY[condition]]
    return elementwise(instruction, lambda a, b, c: np.where(c >= 0, a, b), inputs, dtype)


_ORDERED: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
_COMBINE: dict[str, Callable[..., Any]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _not_a_number(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def _comparison(word: str, is_float: bool) -> Callable[..., Any] | None:
    if word in _ORDERED:
        if word == "ne" and is_float:
            return lambda a, b: np.not_equal(a, b) & ~_not_a_number(a, b)
        return None if is_float and word in ("lo", "ls", "hi", "hs") else _ORDERED[word]
    if not is_float:
        return None
    if word in _UNORDERED:
        plain = _ORDERED[_UNORDERED[word]]
        return lambda a, b: plain(a, b) | _not_a_number(a, b)
    if word == "num":
        return lambda a, b: ~_not_a_number(a, b)
    return _not_a_number if word == "nan" else None


def _compare(instruction: Instruction) -> tuple[Callable[..., Any], str, str]:
    """The comparison of set and setp, the source type, and the combining word or ""."""
    name = type_of(instruction)
    words = list(instruction.modifiers[:-1])
    ftz = "ftz" in words
    words = [word for word in words if word != "ftz"]
    if not words or len(words) > 2 or (len(words) == 2 and words[1] not in _COMBINE):
        raise unknown(instruction)
    is_float = name in ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64")
    function = _comparison(words[0], is_float)
    if function is None or name in ("pred", "b8", "u8", "s8", "b128", "tf32"):
        raise unknown(instruction)
    core = function
    if name.startswith("bf16"):
        function = lambda a, b: core(rounding.bfloat16_values(a), rounding.bfloat16_values(b))  # noqa: E731
    elif ftz:
        function = lambda a, b: core(flush(a), flush(b))  # noqa: E731
    return function, name, words[1] if len(words) == 2 else ""


def decode_setp(instruction: Instruction) -> Operation:
    """setp: a comparison, perhaps combined with a predicate, into p or p|q (q is the other outcome)."""
    function, name, combine = _compare(instruction)
    operands = expect(instruction, 4 if combine else 3)
    pair = operands[0]
    members = (pair.first, pair.second) if isinstance(pair, Pair) else (pair,)
    writes = tuple(destination(instruction, member, 1) for member in members)
    bits = TYPE_BITS[name]
    reads = [source(instruction, operands[1], bits), source(instruction, operands[2], bits)]
    if combine:
        reads.append(source(instruction, operands[3], 1))
    join = _COMBINE.get(combine)
    packed = name.endswith("x2")
    if packed and len(writes) != 2:
        raise malformed(instruction)
    if len(writes) == 1:
        inputs = [NUMPY[name], NUMPY[name], BOOL][: len(reads)]
        whole = function if join is None else (lambda a, b, p: join(function(a, b), p))
        return Operation(instruction, writes, tuple(reads), binder(whole, inputs, BOOL))
    build = partial(_build_pair, function, join, name)
    return Operation(instruction, writes, tuple(reads), build)


def _build_pair(function: Callable[..., Any], join: Callable[..., Any] | None, name: str, group: Group) -> Thunk:
    packed = name.endswith("x2")
    a, b = (group.source(position, NUMPY[name]).fetch for position in (0, 1))
    extra = group.source(2, BOOL).fetch if join is not None else None
    first, second = group.target(0, BOOL).store, group.target(1, BOOL).store
    half = np.uint16 if name.startswith("bf16") else np.float16

    def run() -> None:
        x, y = a(), b()
        if packed:
            x, y = np.broadcast_arrays(x, y)
            both = function(
                np.ascontiguousarray(x)[..., None].view(half), np.ascontiguousarray(y)[..., None].view(half)
            )
            outcomes = [both[..., 0], both[..., 1]]
        else:
            one = function(x, y)
            outcomes = [one, ~one]
        if join is not None and extra is not None:
            other = extra()
            outcomes = [join(outcome, other) for outcome in outcomes]
        first(outcomes[0])
        second(outcomes[1])

    return group.finish(run)


def decode_set(instruction: Instruction) -> Operation:
    """set: a comparison as all ones or 1.0 (packed types for each half)."""
    if len(instruction.modifiers) < 3:
        raise unknown(instruction)
    to, name = instruction.modifiers[-2:]
    inner = replace(instruction, modifiers=(*instruction.modifiers[:-2], name))
    function, _, combine = _compare(inner)
    packed = name.endswith("x2")
    if to not in ("u32", "s32", "f32", "f16", "u16", "s16", "bf16", "f16x2", "bf16x2"):
        raise unknown(instruction)
    one = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}.get(to)
    out = NUMPY[to] if to in ("u32", "s32", "u16", "s16") else np.dtype(f"u{TYPE_BITS[to] // 8}")
    half = np.uint16 if name.startswith("bf16") else np.float16

    def compute(a: Array, b: Array, *p: Array) -> Array:
        if packed:
            a, b = (np.ascontiguousarray(v)[..., None].view(half) for v in np.broadcast_arrays(a, b))
        outcome = function(a, b)
        if p:
            outcome = _COMBINE[combine](outcome, p[0][..., None] if packed else p[0])
        small = np.dtype(np.uint16) if packed else np.dtype(f"u{out.itemsize}")
        yes = small.type(one) if one is not None else ~np.zeros((), small)
        bits = np.where(outcome, yes, small.type(0))
        return np.ascontiguousarray(bits).view(np.uint32)[..., 0].view(out) if packed else bits.view(out)

    inputs = [NUMPY[name], NUMPY[name], BOOL][: 3 if combine else 2]
    return elementwise(instruction, compute, inputs, out)


def decode_nothing(instruction: Instruction) -> Operation:
    """Hints and fences that have no effect when every access is performed in order."""
    return Operation(instruction, (), (), lambda group: lambda: None, pure=False, detail="nothing")


def decode_policy(instruction: Instruction) -> Operation:
    """createpolicy: a cache hint, 0."""
    write = (
        destination(instruction, items(instruction, instruction.operands[0], 1)[0], 64)
        if instruction.operands
        else None
    )
    if write is None:
        raise malformed(instruction)

    def build(group: Group) -> Thunk:
        store = group.target(0, U64).store
        zero = np.zeros((1, 1), dtype=np.uint64)
        return group.finish(lambda: store(zero))

    return Operation(instruction, (write,), (), build, detail="policy")


__all__ = ["U32", "WINDOWS", "WINDOW_BYTES"]
