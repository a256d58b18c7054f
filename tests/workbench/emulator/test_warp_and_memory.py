"""Instructions between lanes, memory spaces, atomics, asynchronous copies and barriers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgw.workbench.emulator.errors import EmulatorError
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import GUARD_BYTES, Memory
from dgw.workbench.emulator.observer import Access, Finding, Outcome
from tests.workbench.emulator.compiling import ptx_of
from tests.workbench.emulator.ptx_programs import evaluate, random_bits

LANES = 64
WARP = 32


def launch(
    text: str, arrays: list[np.ndarray], threads: int = 64, ctas: int = 1, arch: str = "sm_80", **more: object
) -> Outcome:
    memory = Memory()
    pointers = [memory.register(f"buffer{i}", array) for i, array in enumerate(arrays)]
    run = EmulatedLaunch(ptx_of(text, arch), "k", (ctas, 1, 1), (threads, 1, 1), pointers, memory)
    return run.run(**more)  # type: ignore[arg-type]


def kinds(outcome: Outcome) -> list[str]:
    return sorted({finding.kind for finding in outcome.findings})


def shuffled(mode: str, b: int, c: int, lane: int) -> tuple[int, bool]:
    amount, clamp, segment = b & 31, c & 31, c >> 8 & 31
    last = (lane & segment) | (clamp & ~segment)
    source = {"up": lane - amount, "down": lane + amount, "bfly": lane ^ amount,
              "idx": (lane & segment) | (amount & ~segment)}[mode]  # fmt: skip
    valid = source >= last if mode == "up" else source <= last
    return (source if valid else lane), valid


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@settings(max_examples=15, deadline=None)
@given(b=st.integers(0, 40), width=st.sampled_from([1, 2, 8, 16, 32]), seed=st.integers(0, 2**31))
def test_shuffles_follow_the_manual(mode: str, b: int, width: int, seed: int) -> None:
    values = random_bits("b32", LANES, seed)
    c = (WARP - width) << 8 | (0 if mode == "up" else 31)
    body = f"shfl.sync.{mode}.b32 {{x}}|{{y}}, {{a}}, {b}, {c}, 0xffffffff;"
    got, valid = evaluate(body, [("b32", values)], ["b32", "pred"])
    for lane in range(LANES):
        source, inside = shuffled(mode, b, c, lane % WARP)
        assert got[lane] == values[lane // WARP * WARP + source]
        assert valid[lane] == inside


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_votes_matches_and_reductions(seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 4, LANES).astype(np.uint32)
    full, data = "0xffffffff", [("b32", values)]
    test = "setp.ne.u32 %p9, {a}, 0;\n"
    (votes,) = evaluate(f"{test} vote.sync.ballot.b32 {{x}}, %p9, {full};", data, ["b32"])
    body = f"{test} vote.sync.all.pred {{x}}, %p9, {full};\n vote.sync.any.pred {{y}}, !%p9, {full};"
    every, some = evaluate(body, data, ["pred", "pred"])
    (same,) = evaluate(f"match.any.sync.b32 {{x}}, {{a}}, {full};", data, ["b32"])
    body = f"redux.sync.add.u32 {{x}}, {{a}}, {full};\n redux.sync.min.s32 {{y}}, {{a}}, {full};"
    total, least = evaluate(body, data, ["b32", "b32"])
    for lane in range(LANES):
        warp = values[lane // WARP * WARP :][:WARP]
        assert votes[lane] == sum(1 << i for i in range(WARP) if warp[i])
        assert every[lane] == all(warp != 0)
        assert some[lane] == any(warp == 0)
        assert same[lane] == sum(1 << i for i in range(WARP) if warp[i] == values[lane])
        assert total[lane] == warp.sum()
        assert least[lane] == warp.min()


def test_a_shuffle_that_half_a_warp_executes_is_reported() -> None:
    out = np.zeros(64, np.int32)
    text = """extern "C" __global__ void k(int* o) {
        int t = threadIdx.x;
        if (t % 2) asm volatile("shfl.sync.idx.b32 %0, %0, 0, 31, 0xffffffff;" : "+r"(t));
        o[threadIdx.x] = t; }"""
    assert kinds(launch(text, [out])) == ["divergent"]


def test_ldmatrix_and_stmatrix_are_inverse_and_transposes_are() -> None:
    text = """extern "C" __global__ void k(unsigned* o) {
        __shared__ __align__(16) unsigned short m[4][8][8], n[4][8][8];
        int t = threadIdx.x; unsigned r[4];
        for (int i = t; i < 256; i += 32) (&m[0][0][0])[i] = i;
        __syncwarp();
        unsigned a = (unsigned)__cvta_generic_to_shared(&m[0][t][0]);
        unsigned b = (unsigned)__cvta_generic_to_shared(&n[0][t][0]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0,%1,%2,%3};"
                     :: "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(b));
        __syncwarp();
        for (int i = t; i < 128; i += 32) o[i] = ((unsigned*)n)[i]; }"""
    out = np.zeros(128, np.uint32)
    outcome = launch(text, [out], threads=32, arch="sm_90")
    assert outcome.findings == ()
    expected = np.arange(256, dtype=np.uint16).reshape(4, 8, 8).transpose(0, 2, 1)
    assert np.array_equal(out.view(np.uint16).reshape(4, 8, 8), expected)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**31), spread=st.sampled_from([1, 3, 64]))
def test_atomics_give_every_lane_its_turn(seed: int, spread: int) -> None:
    text = f"""extern "C" __global__ void k(int* cells, int* old) {{
        __shared__ int local[64];
        int t = threadIdx.x, cell = t % {spread};
        local[t] = 0;
        __syncthreads();
        old[blockIdx.x * 64 + t] = atomicAdd(&cells[cell], t + 1);
        atomicMax(&local[cell], t);
        atomicAdd(&cells[64 + cell], 1);
        __syncthreads();
        atomicExch(&cells[128 + t], local[cell]); }}"""
    cells, old = np.zeros(192, np.int32), np.zeros(128, np.int32)
    assert launch(text, [cells, old], ctas=2).findings == ()
    for cell in range(spread):
        lanes = [t for t in range(64) if t % spread == cell]
        assert cells[cell] == 2 * sum(t + 1 for t in lanes)
        assert cells[64 + cell] == 2 * len(lanes)
        assert all(cells[128 + t] == max(lanes) for t in lanes)
        steps = sorted(int(old[64 * b + t]) for b in range(2) for t in lanes)
        assert steps[0] == 0
        assert len(set(steps)) == len(steps)


def test_compare_and_swap_builds_a_lock_free_sum() -> None:
    text = """extern "C" __global__ void k(float* sum) {
        int* at = (int*)sum; int seen = *at, before;
        do {
            before = seen;
            seen = atomicCAS(at, before, __float_as_int(__int_as_float(before) + 1.0f));
        } while (seen != before);
    }"""
    total = np.zeros(1, np.float32)
    assert launch(text, [total]).findings == ()
    assert total[0] == 64


def test_generic_addresses_reach_every_space() -> None:
    text = """__constant__ int table[4] = {10, 20, 30, 40};
    __device__ __noinline__ int read(const int* p) { return *p; }
    extern "C" __global__ void k(int* g) {
        __shared__ int s[64];
        int local[4]; int t = threadIdx.x;
        for (int i = 0; i < 4; ++i) local[(i + t) % 4] = i;
        s[t] = t * 2;
        __syncthreads();
        const int* p = t % 4 == 0 ? &g[t] : t % 4 == 1 ? &s[t] : t % 4 == 2 ? &local[t % 3] : &table[t % 4];
        int v = read(p);
        __syncthreads();
        g[t] = v; }"""
    g = np.arange(64, dtype=np.int32) + 1000
    before = g.copy()
    assert launch(text, [g]).findings == ()
    for t in range(64):
        local = {(i + t) % 4: i for i in range(4)}
        assert g[t] == [before[t], 2 * t, local[t % 3], 40][t % 4]


COPY = """__device__ __forceinline__ unsigned at(void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void k(const int* in, int* out) {
    __shared__ __align__(16) int s[256];
    int t = threadIdx.x;
"""


def test_a_copy_of_fewer_bytes_fills_with_zeros_and_reads_no_more() -> None:
    text = (
        COPY
        + """
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(at(&s[4 * t])), "l"(in + 4 * t), "r"(t % 5 * 4));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    for (int i = 0; i < 4; ++i) out[4 * t + i] = s[4 * t + i]; }"""
    )
    source, out = np.arange(1, 4 * 63 + 3 + 1, dtype=np.int32), np.zeros(256, np.int32)
    assert launch(text, [source, out]).findings == ()  # thread 63 reads 12 of 16 bytes: just inside the buffer
    for t in range(64):
        assert out[4 * t : 4 * t + 4].tolist() == [4 * t + i + 1 if i < t % 5 else 0 for i in range(4)]


def test_a_wait_covers_all_but_the_latest_groups() -> None:
    text = (
        COPY
        + """
    for (int g = 0; g < 4; ++g) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(&s[64 * g + t])), "l"(in + 64 * g + t));
        asm volatile("cp.async.commit_group;");
    }
    asm volatile("cp.async.wait_group 2;");
    __syncthreads();
    out[t] = s[t] + s[64 + t];
    %s
    }"""
    )
    source, out = np.arange(256, dtype=np.int32), np.zeros(64, np.int32)
    assert launch(text.replace("%s", ""), [source, out]).findings == ()
    assert out.tolist() == [t + 64 + t for t in range(64)]
    assert kinds(launch(text.replace("%s", "out[t] += s[128 + t];"), [source, out])) == ["async-pending"]


NAMED = """extern "C" __global__ void k(int* out) {
    __shared__ int s[64];
    int t = threadIdx.x, warp = t / 32;
    if (warp == 0) {
        s[t] = t * 5;
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[t - 32] = s[t - 32];
    } }"""


def test_a_named_barrier_orders_producers_before_consumers() -> None:
    out = np.zeros(32, np.int32)
    assert launch(NAMED, [out]).findings == ()
    assert out.tolist() == [5 * t for t in range(32)]


def test_stores_after_an_arrival_are_not_ordered_by_it() -> None:
    text = NAMED.replace('s[t] = t * 5;\n        asm volatile("bar.arrive 1, 64;" ::: "memory");',
                         's[t] = t; asm volatile("bar.arrive 1, 64;" ::: "memory"); s[t] = t * 5;')  # fmt: skip
    assert kinds(launch(text, [np.zeros(32, np.int32)])) == ["race"]


def test_lanes_of_a_warp_need_a_warp_barrier() -> None:
    text = """extern "C" __global__ void k(int* out) {
        __shared__ int s[32]; int t = threadIdx.x;
        s[t] = t * 3; %s
        out[t] = s[(t + 1) % 32]; }"""
    out = np.zeros(32, np.int32)
    assert kinds(launch(text.replace("%s", 'asm volatile("" ::: "memory");'), [out], threads=32)) == ["race"]
    assert launch(text.replace("%s", "__syncwarp();"), [out], threads=32).findings == ()
    assert out.tolist() == [(t + 1) % 32 * 3 for t in range(32)]


def test_threads_may_write_the_same_value_to_one_place() -> None:
    text = """extern "C" __global__ void k(int* out) {
        __shared__ int flag; int t = threadIdx.x;
        flag = %s; __syncthreads(); out[t] = flag; }"""
    out = np.zeros(64, np.int32)
    assert launch(text.replace("%s", "7"), [out]).findings == ()
    assert kinds(launch(text.replace("%s", "t"), [out])) == ["race"]


def test_the_checks_of_shared_memory_can_be_left_out() -> None:
    text = """extern "C" __global__ void k(int* out) {
        __shared__ int s[64]; int t = threadIdx.x; s[t] = t; out[t] = s[63 - t]; }"""
    out = np.zeros(64, np.int32)
    assert kinds(launch(text, [out])) == ["race"]
    assert launch(text, [out], strict=False).findings == ()
    assert kinds(launch(text, [out])) == ["race"]


LEAVING = """extern "C" __global__ void k(int* out) {
    __shared__ int s[64]; int t = threadIdx.x;
    if (t >= %s) return;
    s[t] = t * 3; %s
    out[t] = s[%s]; }"""


@pytest.mark.parametrize("left", [32, 40, 1])
def test_a_barrier_waits_only_for_threads_that_have_not_exited(left: int) -> None:
    out = np.zeros(64, np.int32)
    assert launch(LEAVING % (left, "__syncthreads();", f"{left} - 1 - t"), [out]).findings == ()
    assert out.tolist() == [3 * (left - 1 - t) for t in range(left)] + [0] * (64 - left)


def test_what_exited_threads_should_have_written_is_found_where_it_is_read() -> None:
    out = np.zeros(64, np.int32)
    assert kinds(launch(LEAVING % (40, "__syncthreads();", "63 - t"), [out])) == ["uninitialised-shared"]


def test_a_barrier_for_a_number_of_threads_does_not_count_exited_ones() -> None:
    outcome = launch(LEAVING % (32, 'asm volatile("bar.sync 1, 64;" ::: "memory");', "t"), [np.zeros(64, np.int32)])
    assert kinds(outcome) == ["deadlock"]
    assert "32 threads of the CTA have exited" in outcome.findings[0].message


def test_a_barrier_counts_votes() -> None:
    text = """extern "C" __global__ void k(int* out) {
        int t = threadIdx.x;
        int some = __syncthreads_or(t == 5) != 0, all = __syncthreads_and(t < 60) != 0;
        out[t] = __syncthreads_count(t % 3 == 0) + 1000 * some + 10000 * all; }"""
    out = np.zeros(64, np.int32)
    assert launch(text, [out]).findings == ()
    assert (out == 22 + 1000).all()


def test_a_trap_and_a_failed_assertion_stop_the_run() -> None:
    for text in ('asm volatile("trap;");', "__trap();"):
        outcome = launch(f'extern "C" __global__ void k(int* o) {{ if (threadIdx.x == 3) {{ {text} }} *o = 1; }}',
                         [np.zeros(1, np.int32)])  # fmt: skip
        assert kinds(outcome) == ["trap"]
        assert not outcome.completed


def out_of_bounds(index: str) -> Finding:
    text = f'extern "C" __global__ void k(int* a, int* b) {{ a[{index}] = 1; }}'
    arrays = [np.zeros(64, np.int32), np.zeros(64, np.int32)]
    outcome = launch(text, arrays)
    assert not arrays[1].any()
    return next(finding for finding in outcome.findings if finding.kind == "out-of-bounds")


def test_an_address_outside_every_buffer_names_the_nearest_and_the_distance() -> None:
    after = out_of_bounds("threadIdx.x + 1")
    assert "4 bytes past the end of buffer0 (256 bytes)" in after.message
    assert after.threads == (63,)
    assert after.space == "global"
    before = out_of_bounds("(int)threadIdx.x - 2")
    assert "before buffer0" in before.message
    assert before.count == 2
    far = out_of_bounds(f"threadIdx.x + {GUARD_BYTES // 8}")
    assert far.count == 64


class Watch:
    """Keeps what the machine announces."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []
        self.blocks: list[tuple[int, int, int]] = []
        self.branches: list[tuple[int, int, int]] = []
        self.barriers: list[tuple[int, int]] = []
        self.batches: list[tuple[int, int]] = []

    def begin(self, instructions: object, ctas: list[object], warps_per_cta: int) -> None:
        self.batches.append((len(ctas), warps_per_cta))

    def block(self, first: int, last: int, warps: int) -> None:
        self.blocks.append((first, last, warps))

    def branch(self, instruction: int, warps: int, divergent: int) -> None:
        self.branches.append((instruction, warps, divergent))

    def stored(self, addresses: object, width: int) -> None:
        pass

    def barrier(self, instruction: int, warps: int) -> None:
        self.barriers.append((instruction, warps))

    def memory(self, access: Access) -> None:
        self.accesses.append(access)


def test_the_observer_sees_blocks_branches_barriers_and_addresses() -> None:
    text = """extern "C" __global__ void k(int* a) {
        __shared__ int s[64]; int t = threadIdx.x;
        s[t] = a[t];
        __syncthreads();
        if (t % 32 < 8 && t < 32) a[t] = s[63 - t] + clock(); }"""
    watch, array = Watch(), np.arange(64, dtype=np.int32)
    outcome = launch(text, [array], ctas=3, observer=watch)
    assert watch.batches == [(3, 2)]
    assert watch.barriers[0][1] == 6
    assert sum(divergent for _, _, divergent in watch.branches) == 3
    shared = [a for a in watch.accesses if a.space == "shared"]
    assert [a.instructions[0].kind for a in shared] == ["st", "ld"]
    assert np.array_equal(shared[0].addresses[0, :2].reshape(-1), 4 * np.arange(64))
    assert np.broadcast_to(shared[1].mask, (1, 6, 32)).sum() == 24
    executed = np.zeros(len(outcome.instructions), dtype=np.int64)
    for first, last, warps in watch.blocks:
        executed[first:last] += warps
    from_outcome = [outcome.block_warps[info.block] for info in outcome.instructions]
    assert executed.tolist() == from_outcome


def test_equal_patterns_are_recognised_again() -> None:
    text = """extern "C" __global__ void k(const float* a, float* b) {
        float s = 0; for (int i = 0; i < 16; ++i) s += a[i * 64 + threadIdx.x]; b[threadIdx.x] = s; }"""
    watch = Watch()
    launch(text, [np.ones(1024, np.float32), np.zeros(64, np.float32)], observer=watch)
    loads = [a for a in watch.accesses if a.instructions[0].kind == "ld"]
    assert len({a.pattern for a in loads}) < len(loads) or len(loads) == 1


def test_a_launch_that_does_not_fit_the_kernel_is_refused() -> None:
    text = ptx_of('extern "C" __global__ void k(int* o, int n) { *o = n; }')
    with pytest.raises(EmulatorError, match="takes 2 parameters"):
        EmulatedLaunch(text, "k", (1, 1, 1), (32, 1, 1), [0]).run()
    with pytest.raises(EmulatorError, match="has 4 bytes"):
        EmulatedLaunch(text, "k", (1, 1, 1), (32, 1, 1), [0, np.int64(3)]).run()
    with pytest.raises(EmulatorError, match="2048 threads"):
        EmulatedLaunch(text, "k", (1, 1, 1), (2048, 1, 1), [0, 3]).run()
    with pytest.raises(EmulatorError, match="contiguous"):
        Memory().register("a", np.zeros((4, 4))[:, ::2])
