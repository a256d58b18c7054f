"""Random programs with branches and loops: the machine, all lanes together, against the oracle, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgw.workbench.emulator.cfg import blocks_of, schedule_order
from dgw.workbench.emulator.machine import EmulatedLaunch, program_of
from dgw.workbench.emulator.memory import Memory
from dgw.workbench.emulator.ptx.parser import parse_module
from tests.workbench.emulator.compiling import ptx_of
from tests.workbench.emulator.ptx_programs import consult, evaluate, program, random_bits

LANES = 96
REGISTERS = [f"%r{i}" for i in range(20, 26)]
ARITHMETIC = ("add.s32", "sub.s32", "mul.lo.s32", "xor.b32", "and.b32", "max.s32", "min.u32")


class Writer:
    """Writes a random structured program over the registers %r20 to %r25; every loop counts to a small bound."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.labels = 0

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def register(self) -> str:
        return self.draw(st.sampled_from(REGISTERS))

    def operation(self) -> None:
        name = self.draw(st.sampled_from(ARITHMETIC))
        guard = self.draw(st.sampled_from(["", "", "", "@%p10 ", "@!%p10 "]))
        second = self.draw(st.one_of(st.sampled_from(REGISTERS), st.integers(-5, 5).map(str)))
        self.lines.append(f"{guard}{name} {self.register()}, {self.register()}, {second};")

    def condition(self) -> None:
        word = self.draw(st.sampled_from(["lt", "ge", "eq", "ne"]))
        self.lines.append(f"and.b32 %r30, {self.register()}, {self.draw(st.sampled_from([1, 3, 7]))};")
        self.lines.append(f"setp.{word}.s32 %p10, %r30, {self.draw(st.integers(0, 3))};")

    def statement(self, depth: int) -> None:
        kinds = ["operation"] * 4 + (["if", "else", "loop", "leave"] if depth else [])
        kind = self.draw(st.sampled_from(kinds))
        if kind == "operation":
            self.operation()
            return
        if kind == "loop":
            self.loop(depth)
            return
        end, other = self.label(), self.label()
        self.condition()
        if kind == "leave":
            self.lines += [f"@%p10 bra {end};"]
            self.block(depth - 1)
            if self.draw(st.integers(0, 3)) == 0:
                self.lines.append("bra DONE;")
        elif kind == "if":
            self.lines.append(f"@%p10 bra {end};")
            self.block(depth - 1)
        else:
            self.lines.append(f"@%p10 bra {other};")
            self.block(depth - 1)
            self.lines += [f"bra.uni {end};", f"{other}:"]
            self.block(depth - 1)
        self.lines.append(f"{end}:")

    def loop(self, depth: int) -> None:
        head, end = self.label(), self.label()
        counter = f"%r{31 + depth}"
        self.lines += [f"and.b32 {counter}, {self.register()}, 3;", f"{head}:"]
        self.block(depth - 1)
        if self.draw(st.booleans()):  # break
            self.condition()
            self.lines.append(f"@%p10 bra {end};")
            self.block(depth - 1)
        self.lines += [f"sub.s32 {counter}, {counter}, 1;", f"setp.ge.s32 %p11, {counter}, 0;", f"@%p11 bra {head};"]
        self.lines.append(f"{end}:")

    def block(self, depth: int) -> None:
        for _ in range(self.draw(st.integers(1, 4))):
            self.statement(depth)


@st.composite
def programs(draw: st.DrawFn) -> str:
    writer = Writer(draw)
    starts = [f"mad.lo.s32 %r{20 + i}, {{a}}, {2 * i + 1}, {{b}};" for i in range(6)]
    writer.lines = [*starts, "setp.lt.s32 %p10, {a}, {b};"]
    writer.block(3)
    total = ["DONE:", "mov.b32 {x}, %r20;", *[f"xor.b32 {{x}}, {{x}}, {register};" for register in REGISTERS[1:]]]
    return "\n".join([*writer.lines, *total])


@settings(max_examples=120, deadline=None)
@given(text=programs(), seed=st.integers(0, 2**32 - 1))
def test_diverged_lanes_compute_what_each_would_alone(text: str, seed: int) -> None:
    data = [("b32", random_bits("b32", LANES, seed)), ("b32", random_bits("b32", LANES, seed + 1))]
    (got,), (expected,) = evaluate(text, data, ["b32"]), consult(text, data, ["b32"])
    assert np.array_equal(got, expected)


@settings(max_examples=60, deadline=None)
@given(text=programs())
def test_the_schedule_keeps_loops_together(text: str) -> None:
    module = parse_module(program(text, ("b32", "b32"), ("b32",)))
    blocks = blocks_of(module.functions["k"])
    order = schedule_order(blocks)
    assert sorted(order) == list(range(len(blocks)))
    rank = {number: place for place, number in enumerate(order)}
    for block in blocks:
        for successor in block.successors:
            if successor > block.number:  # forward in the text of a structured program
                assert rank[successor] > rank[block.number]


def run_cuda(text: str, count: int, threads: int = 64) -> np.ndarray:
    memory = Memory()
    out = np.zeros(count, np.int32)
    pointer = memory.register("out", out)
    outcome = EmulatedLaunch(ptx_of(text), "k", (count // threads, 1, 1), (threads, 1, 1), [pointer], memory).run()
    assert outcome.findings == ()
    return out


def test_lanes_meet_again_after_a_divergent_loop_so_that_a_whole_warp_votes() -> None:
    out = run_cuda(
        """extern "C" __global__ void k(int* out) {
            int n = 0;
            for (int i = 0; i < threadIdx.x % 7; ++i) { if (i == 3 && threadIdx.x % 2) break; n += i; }
            out[blockIdx.x * blockDim.x + threadIdx.x] = __popc(__ballot_sync(~0u, n >= 0)) + n;
        }""",
        128,
    )
    expected = []
    for t in range(64):
        n = 0
        for i in range(t % 7):
            if i == 3 and t % 2:
                break
            n += i
        expected.append(32 + n)
    assert out.tolist() == expected * 2


def test_a_switch_and_an_early_return_leave_the_others_whole() -> None:
    out = run_cuda(
        """extern "C" __global__ void k(int* out) {
            int t = threadIdx.x, r = 0;
            if (t % 5 == 4) return;
            switch (t % 4) { case 0: r = t * 3; break; case 1: r = t - 100; case 2: r += 7; break; default: r = -t; }
            out[blockIdx.x * blockDim.x + t] = r;
        }""",
        64,
    )
    for t in range(64):
        expected = {0: t * 3, 1: t - 93, 2: 7, 3: -t}[t % 4]
        assert out[t] == (0 if t % 5 == 4 else expected)


def test_calls_are_inlined_with_their_own_registers() -> None:
    out = run_cuda(
        """struct P { int a[5]; };
        __device__ __noinline__ int leaf(int x, int n) {
            for (int i = 0; i < n; ++i) x = x * 3 + i;
            return x;
        }
        __device__ __noinline__ P made(int t) {
            P p;
            for (int i = 0; i < 5; ++i) p.a[i] = leaf(t + i, t % 3);
            return p;
        }
        extern "C" __global__ void k(int* out) {
            P p = made(threadIdx.x);
            out[blockIdx.x * blockDim.x + threadIdx.x] = p.a[threadIdx.x % 5] + leaf(1, 2);
        }""",
        64,
    )

    def leaf(x: int, n: int) -> int:
        for i in range(n):
            x = x * 3 + i
        return x

    assert out.tolist() == [leaf(t + t % 5, t % 3) + leaf(1, 2) for t in range(64)]


@pytest.mark.parametrize("threads", [1, 31, 33, 100])
def test_blocks_that_are_no_whole_number_of_warps(threads: int) -> None:
    text = 'extern "C" __global__ void k(int* o) { o[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x + 1; }'
    assert run_cuda(text, 3 * threads, threads).tolist() == [t + 1 for t in range(threads)] * 3


def test_a_program_is_compiled_once() -> None:
    text = ptx_of('extern "C" __global__ void k(int* o) { o[threadIdx.x] = 1; }')
    assert program_of(text, "k") is program_of(text, "k")
