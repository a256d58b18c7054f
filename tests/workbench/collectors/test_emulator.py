"""The emulator as a collector: checks that see every kind of wrong output, plans of several launches, tiers."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgw.errors import DgwError
from dgw.model import Case, Fill, Launch, Plan, Pointer, Problem, Scalar, Source, TensorMap, Workspace, gemm
from dgw.toolchain.devices import device
from dgw.toolchain.nvrtc import compile_program
from dgw.workbench.collectors.emulator import Emulation, emulate
from dgw.workbench.metrics import METRICS
from tests.workbench.emulator.compiling import ptx_of

H200 = device("h200")
SIZES = tuple(Scalar(name=name) for name in "mnk")
POINTERS = tuple(Pointer(operand=name) for name in "abd")

GEMM = """
#include <cuda_fp16.h>
extern "C" __global__ void gemm(const __half* a, const __half* b, __half* d, int m, int n, int k) {
    int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += __half2float(a[row * k + i]) * __half2float(b[i * n + col]);
    d[row * n + col] = __float2half(sum);
}
"""
SPLIT = """
#include <cuda_fp16.h>
extern "C" __global__ void part(const __half* a, const __half* b, float* sums, int m, int n, int k) {
    int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0;
    for (int i = blockIdx.z; i < k; i += gridDim.z) sum += __half2float(a[row * k + i]) * __half2float(b[i * n + col]);
    atomicAdd(sums + row * n + col, sum);
}
extern "C" __global__ void finish(const float* sums, __half* d, int m, int n) {
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at < m * n) d[at] = __float2half(sums[at]);
}
"""


def run(problem: Problem, plan: Plan, text: str, cubin: bool = False, full_grid: bool = False) -> Emulation:
    case = Case(problem=problem, variant="test/kernel")
    machine_code = None
    ptx = ptx_of(text)
    if cubin:
        built = compile_program(text.replace("#include <cuda_fp16.h>", ""), "kernel.cu", "sm_90a")
        ptx, machine_code = built.ptx, lambda source: built.cubin
    return emulate(case, plan, lambda source: ptx, machine_code, H200, full_grid)


def one_launch(problem: Problem, **changes: object) -> Plan:
    grid = (-(-problem.n // 32), -(-problem.m // 8), 1)
    fields = {"source": Source(path="kernel.cu"), "entry": "gemm", "grid": grid, "block": (32, 8, 1)}
    launch = Launch(**(fields | {"arguments": (*POINTERS, *SIZES)} | changes))
    return Plan(steps=(launch,), tile=(8, 32))


def two_launches(problem: Problem, fill: bool = True) -> Plan:
    source = Source(path="kernel.cu")
    grid = (-(-problem.n // 32), -(-problem.m // 8), 4)
    sums = Workspace(name="sums")
    part = Launch(source=source, entry="part", grid=grid, block=(32, 8, 1), arguments=(*POINTERS[:2], sums, *SIZES))
    finish = Launch(
        source=source, entry="finish", grid=(-(-problem.m * problem.n // 256), 1, 1), block=(256, 1, 1),
        arguments=(sums, POINTERS[2], *SIZES[:2]),
    )  # fmt: skip
    steps = (Fill(workspace="sums"), part, finish) if fill else (part, finish)
    return Plan(steps=steps, workspaces={"sums": 4 * problem.m * problem.n}, kernels=2, tile=(8, 32))


SMALL = gemm(20, 70, 24)


def test_a_correct_kernel_passes_with_figures_under_the_keys_of_the_table() -> None:
    found = run(SMALL, one_launch(SMALL), GEMM)
    assert found.check.passed, found.check.detail
    assert found.check.collector == "emulator"
    assert found.check.compared == 20 * 70
    assert {m.metric for m in found.measurements} <= set(METRICS)
    assert all(m.collector == "emulator" and m.protocol == "emulator/1 full grid of 9 CTAs" for m in found.measurements)
    values = {m.metric: m.value for m in found.measurements if m.scope == "case"}
    warps = 20 * 3  # a warp is 32 columns of one row
    assert values["global_requests_st"] == warps
    assert values["global_requests_ld"] == warps * 24 * 2
    assert not any(metric.startswith("time") for metric in values)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("i < k;", "i < k - 1;", "elements are wrong"),
        ("col >= n) return;", "col >= n - 1) return;", "20 elements of D were never stored"),
        ("b[i * n + col]", "b[i * n + (col ^ 1)]", "elements are wrong"),
        ("a[row * k + i])", "a[row * k + i + 24 * m])", "out-of-bounds at kernel.cu:"),
        ("d[row * n + col]", "d[row * n + col + 4096]", "out-of-bounds at kernel.cu:"),
    ],
)
def test_a_wrong_kernel_is_caught_and_named(old: str, new: str, words: str) -> None:
    assert old in GEMM
    found = run(SMALL, one_launch(SMALL), GEMM.replace(old, new))
    assert not found.check.passed
    assert words in found.check.detail


def test_a_grid_that_is_too_small_leaves_elements_unwritten() -> None:
    found = run(SMALL, one_launch(SMALL, grid=(3, 2, 1)), GEMM)
    assert not found.check.passed
    assert "280 elements of D were never stored" in found.check.detail


def test_elements_between_the_rows_of_d_must_not_be_stored() -> None:
    padded = Problem(m=8, n=30, k=8, a=SMALL.a, b=SMALL.b, d=type(SMALL.d)(dtype="f16", ld=32))
    wide = GEMM.replace("d[row * n + col]", "d[row * 32 + col]").replace("col >= n)", "col >= 31)")
    found = run(padded, one_launch(padded), wide)
    assert not found.check.passed
    assert "7 elements of D were stored that no CTA should write" in found.check.detail  # the last row has no padding


def test_a_plan_of_fills_launches_and_workspaces_runs_in_order() -> None:
    found = run(SMALL, two_launches(SMALL), SPLIT)
    assert found.check.passed, found.check.detail
    stored = {m.scope: m.value for m in found.measurements if m.metric == "global_requests_st"}
    assert stored["kernel 1"] > stored["kernel 0"] == 0  # the first one adds atomically
    assert stored["case"] == stored["kernel 0"] + stored["kernel 1"]


def test_a_forgotten_fill_shows_because_workspaces_start_as_poison() -> None:
    found = run(SMALL, two_launches(SMALL, fill=False), SPLIT)
    assert not found.check.passed
    assert "NaN" in found.check.detail or "nan" in found.check.detail


TILE = """
extern "C" __global__ void gemm(const unsigned* a, const unsigned* b, float* d, int m, int n, int k) {
    __shared__ float rows[32 * 33];
    for (int i = threadIdx.y; i < 32; i += 8) rows[i * 33 + threadIdx.x] = __uint_as_float(a[i * 32 + threadIdx.x]);
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8) d[i * 32 + threadIdx.x] = rows[threadIdx.x * 33 + i];
}
"""


def test_figures_are_exact_only_with_machine_code_and_a_clean_audit() -> None:
    problem = gemm(32, 32, 32, "f32", layout="tn", data="one-hot")
    plan = one_launch(problem, grid=(1, 1, 1))
    audited = run(problem, plan, TILE, cubin=True)
    assert audited.audits[0].clean, audited.audits[0].words()
    tiers = {m.metric: m.tier for m in audited.measurements if m.scope == "case"}
    assert tiers["smem_wavefronts_actual"] == "exact"
    assert tiers["global_sectors_ld"] == "exact"
    assert tiers["inst_executed"] == "ptx-level"
    unaudited = run(problem, plan, TILE)
    assert {m.tier for m in unaudited.measurements} == {"ptx-level"}


def test_conflicts_are_charged_to_their_source_line() -> None:
    problem = gemm(32, 32, 32, "f32")
    found = run(problem, one_launch(problem, grid=(1, 1, 1)), TILE.replace("33", "32"))
    lines = {line.line: counts for line, counts in found.by_line.items()}
    column = TILE[: TILE.index("d[i")].count("\n") + 1
    assert lines[column]["smem_bank_conflicts_ld"] == 32 * 31
    assert any(m.scope == f"line kernel.cu:{column}" for m in found.measurements)


def test_a_line_of_an_inlined_function_is_charged_to_the_line_of_the_kernel_that_calls_it(tmp_path: Path) -> None:
    header = tmp_path / "half.cuh"
    header.write_text("__device__ inline void keep(float* to, float value) {\n    *to = value;\n}\n")
    problem = gemm(32, 32, 32, "f32")
    text = TILE.replace("d[i * 32 + threadIdx.x] = rows[threadIdx.x * 33 + i]",
                        "keep(d + i * 32 + threadIdx.x, rows[threadIdx.x * 33 + i])")  # fmt: skip
    compiled = ptx_of('#include "half.cuh"\n' + text, options=(f"-I{tmp_path}",))
    case = Case(problem=problem, variant="test/kernel")
    found = emulate(case, one_launch(problem, grid=(1, 1, 1)), lambda source: compiled, None, H200)
    stores = {m.scope: m.value for m in found.measurements if m.metric == "global_requests_st" and "line" in m.scope}
    place = TILE[: TILE.index("d[i")].count("\n") + 2
    assert stores == {f"line kernel.cu:{place} (half.cuh:2)": 32}


def test_boxes_of_a_batch_are_refused_by_name() -> None:
    plan = one_launch(SMALL, arguments=(TensorMap(operand="a", box=(1, 8, 32)), *POINTERS[1:], *SIZES))
    with pytest.raises(DgwError, match="tensor map of a: only boxes of two extents are emulated"):
        run(SMALL, plan, GEMM)
