"""Boxes, barriers in shared memory and clusters: what they do, and what is found where they are misused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dgw.kernels.declaring import INCLUDE
from dgw.workbench.emulator import tensor_maps, wgmma
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from dgw.workbench.emulator.observer import Outcome
from tests.workbench.emulator.compiling import ptx_of

LINES, COLUMNS, LD = 20, 40, 48
KERNEL = """
#include "dgw/tma.cuh"
using namespace dgw;
extern "C" __global__ void box(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to) {
    __shared__ __align__(1024) unsigned char shared[8192];
    __shared__ __align__(8) unsigned long long full;
    const u32 place = shared_address(shared), barrier = shared_address(&full);
    if (threadIdx.x == 0) {
        MAKE
        ASK
        load_box<false>(place + OFFSET, from, ROW, COL, barrier);
    }
    __syncthreads();
    WAIT
    publish_to_engines();
    if (threadIdx.x == 0) {
        store_box(to, ROW, INTO, place + OFFSET);
        commit_stores();
        BEFORE
        wait_for_sources<0>();
        AFTER
    }
}
"""
GOOD = {
    "MAKE": "barrier_init(barrier, 1); publish_barriers();", "ASK": "arrive_and_expect(barrier, 16 * 64 * 2);",
    "WAIT": "wait(barrier, 0);", "BEFORE": "", "AFTER": "", "OFFSET": "0", "INTO": "COL", "ROW": "8", "COL": "-8",
}  # fmt: skip


def moved(swizzle: str = "128", writable: bool = True, **changes: str) -> tuple[Outcome, Any, Any]:
    """A box of 16 lines by 64 columns loaded and stored again; what was there, and where it came to be."""
    text = KERNEL
    for name, value in (GOOD | changes).items():
        text = text.replace(name, value)
    memory = Memory()
    source = np.arange(LINES * LD, dtype=np.uint16).reshape(LINES, LD)
    target = np.full_like(source, 0xEEEE)
    maps = [
        tensor_maps.TensorMap(address, COLUMNS, LINES, LD * 2, 64, 16, 2, tensor_maps.SWIZZLES[swizzle]).encode()
        for address in (memory.register("source", source), memory.register("target", target, writable=writable))
    ]
    ptx = ptx_of(text, "sm_90", (f"-I{INCLUDE}",))
    return EmulatedLaunch(ptx, "box", (1, 1, 1), (64, 1, 1), maps, memory).run(), source, target


@pytest.mark.parametrize("swizzle", ["none", "128"])
def test_a_box_arrives_whole_and_nothing_is_written_beyond_the_edges(swizzle: str) -> None:
    outcome, source, target = moved(swizzle)
    assert outcome.findings == ()
    expected = np.full_like(source, 0xEEEE)
    expected[8:, :COLUMNS] = source[8:, :COLUMNS]  # of lines 8 to 23 and columns -8 to 55
    assert np.array_equal(target, expected)


def test_what_was_not_waited_for_has_not_landed() -> None:
    outcome, _, target = moved(WAIT="")
    assert outcome.findings == ()
    assert (target[8:, :COLUMNS] == 0xFFFF).all()


def test_a_store_reads_what_is_there_when_it_is_waited_for() -> None:
    late = "reinterpret_cast<unsigned short*>(shared)[8] = 7;"
    _, source, target = moved("none", BEFORE=late)
    assert target[8, 0] == 7
    assert target[8, 1] == source[8, 1]
    assert moved("none", AFTER=late)[2][8, 0] == source[8, 0]


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"ASK": "arrive_and_expect(barrier, 4096);"}, "deadlock", "0 arrivals and 2048 bytes are missing"),
        ({"ASK": ""}, "deadlock", "1 arrivals and -2048 bytes are missing"),
        ({"MAKE": ""}, "barrier", "there is no barrier at shared address"),
        ({"OFFSET": "64"}, "misaligned", "is no multiple of 128 bytes"),
        ({"OFFSET": "7168"}, "out-of-bounds", "ends outside of shared memory"),
    ],
)
def test_what_a_copy_does_wrong_is_found(changes: dict[str, str], kind: str, said: str) -> None:
    outcome, _, _ = moved(**changes)
    found = next(one for one in outcome.findings if one.kind == kind)
    assert said in found.message


@pytest.mark.parametrize("column", [-4, 3, 12])
@pytest.mark.parametrize(("place", "name"), [("COL", "shared::cluster.global"), ("INTO", "global.shared::cta")])
def test_a_box_that_begins_between_sixteen_bytes_is_found(place: str, name: str, column: int) -> None:
    outcome, _, target = moved(**{"INTO": "-8", place: str(column)})
    found = [one.message for one in outcome.findings if one.kind == "misaligned"]
    assert len(found) == 1
    assert f"{name}" in found[0]
    assert f"the box at column {column} of line 8 does not begin at a multiple of 16 bytes" in found[0]
    assert "illegal instruction" in found[0]
    assert place == "COL" or (target == 0xEEEE).all()


def test_a_box_is_not_stored_into_an_input() -> None:
    outcome, _, target = moved(writable=False)
    assert [one.kind for one in outcome.findings] == ["read-only"]
    assert (target == 0xEEEE).all()


def test_what_is_no_tensor_map_is_found() -> None:
    assert tensor_maps.TensorMap.decode(bytes(128)) is None


@pytest.mark.parametrize("across", [False, True])
def test_a_descriptor_is_read_as_the_manual_lays_matrices_out(across: bool) -> None:
    """192 of m by 16 of k: in lines along k, or in blocks of 64 of m that lie 8192 bytes apart."""
    wanted = np.arange(192 * 16, dtype=np.uint16).reshape(192, 16)
    shared = np.zeros(1 << 15, np.uint16)
    for m in range(192):
        for k in range(16):
            line, part = (m // 64 * 8192 + k * 128, m % 64) if across else (m * 128, k + 32)
            address = line + part * 2
            shared[(address ^ (address >> 7 & 7) << 4) // 2] = wanted[m, k]
    start = 0 if across else 64
    descriptor = start >> 4 | (8192 >> 4) << 16 | (1024 >> 4) << 32 | 1 << 62
    found = wgmma.matrix(shared.view(np.uint8), 0, descriptor, 192, across)
    assert np.array_equal(found, wanted)


CLUSTER = """
#include "dgw/mbarrier.cuh"
using namespace dgw;
extern "C" __global__ void exchange(float* found) {
    __shared__ __align__(16) float received[4];
    __shared__ __align__(8) unsigned long long full;
    const u32 barrier = shared_address(&full), other = cluster_rank() ^ 1;
    if (threadIdx.x == 0) {
        barrier_init(barrier, 1);
        arrive_and_expect(barrier, 16);
        publish_barriers();
    }
    arrive_in_cluster();
    wait_for_cluster();
    if (threadIdx.x == 0) {
        const float base = blockIdx.x * 10.0f, values[4] = {base, base + 1, base + 2, base + 3};
        send(address_in(shared_address(received), other), address_in(barrier, other), values);
    }
    wait(barrier, 0);
    if (threadIdx.x < 4) found[blockIdx.x * 4 + threadIdx.x] = received[threadIdx.x];
    arrive_in_cluster();
    wait_for_cluster();
}
"""


def test_ctas_of_a_cluster_write_into_each_others_shared_memory() -> None:
    memory, found = Memory(), np.zeros((6, 4), np.float32)
    at = memory.register("found", found)
    ptx = ptx_of(CLUSTER, "sm_90", (f"-I{INCLUDE}",))
    outcome = EmulatedLaunch(ptx, "exchange", (6, 1, 1), (32, 1, 1), [at], memory, cluster=2).run()
    assert outcome.findings == ()
    assert found[:, 0].tolist() == [10, 0, 30, 20, 50, 40]
    assert np.array_equal(found[:, 3], found[:, 0] + 3)
