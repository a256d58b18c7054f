"""The kernels that multiply copies start before these are made, and wait for them before they read."""

from __future__ import annotations

import pytest

from dgw.kernels.hopper import alignment
from dgw.kernels.loader import load
from dgw.model import Fill, Launch, Operand, Problem, Variant, gemm
from dgw.toolchain.devices import device
from dgw.toolchain.nvrtc import compile_program

H200 = device("h200")
PERSISTENT = load()["hopper/persistent"]
STAGES = [variant for variant in load().values() if variant.family == "hopper"]


def launches(variant: Variant, problem: Problem, **pinned: int) -> tuple[Launch, ...]:
    plan = variant.plan(problem, variant.config_for(problem, H200, pinned), H200)  # type: ignore[misc]
    return plan.launches


def ptx_of(variant: Variant, launch: Launch) -> str:
    path = variant.root / launch.source.path
    return compile_program(path.read_text(), str(path), "compute_90a", launch.source.defines, variant.includes).ptx


def in_order(text: str, *parts: str) -> bool:
    """Whether each of these instructions is there once, and behind the one before."""
    places = [text.find(part) for part in parts]
    return all(text.count(part) == 1 for part in parts[:-1]) and -1 not in places and places == sorted(places)


WAIT, TO_ENGINE, BOX = "griddepcontrol.wait;", "fence.proxy.async.global;", "cp.async.bulk.tensor.2d.shared"


@pytest.mark.parametrize("variant", STAGES, ids=lambda variant: variant.id)
def test_what_multiplies_a_copy_starts_early_and_waits_for_it_before_its_first_box(variant: Variant) -> None:
    copying, multiplying = launches(variant, gemm(255, 255, 255))
    assert not copying.overlaps  # with what may have used the operands
    assert multiplying.overlaps
    assert in_order(ptx_of(variant, multiplying), WAIT, TO_ENGINE, BOX)
    assert "griddepcontrol.launch_dependents" in ptx_of(variant, copying)


def test_sums_of_a_split_k_wait_for_the_copies_too() -> None:
    variant = PERSISTENT
    multiplying = launches(variant, gemm(255, 255, 2047), SPLIT=4)[-1]
    assert multiplying.source.path == "split_k.cu"
    assert multiplying.overlaps
    assert in_order(ptx_of(variant, multiplying), WAIT, TO_ENGINE, BOX)


@pytest.mark.parametrize("variant", STAGES, ids=lambda variant: variant.id)
def test_what_multiplies_operands_where_they_lie_waits_for_nothing(variant: Variant) -> None:
    (multiplying,) = launches(variant, gemm(256, 256, 256))
    assert not multiplying.overlaps
    assert "griddepcontrol" not in ptx_of(variant, multiplying)


def test_large_copies_are_made_while_they_are_multiplied() -> None:
    """Counts are cleared before; each chunk is waited for before its first box, the launch that copies at the end."""
    variant = PERSISTENT
    problem = gemm(2047, 2047, 2047, layout="nt")
    plan = variant.plan(problem, variant.config_for(problem, H200), H200)  # type: ignore[misc]
    clear, copying, multiplying = plan.steps
    assert clear == Fill(workspace=alignment.DONE)
    assert plan.workspaces[alignment.DONE] == 4 * 4
    assert plan.kernels == 2
    assert isinstance(copying, Launch)
    assert isinstance(multiplying, Launch)
    assert (copying.grid, copying.leaves_shared, multiplying.overlaps) == ((alignment.SMS, 1, 1), True, True)
    text = ptx_of(variant, multiplying)
    assert in_order(text, "ld.acquire.gpu.global.u32", BOX)
    assert in_order(text, "ld.acquire.gpu.global.u32", WAIT)
    told = ptx_of(variant, copying)
    assert in_order(
        told[told.index("aligned_copy_in_chunks") :], "fence.acq_rel.gpu;", "red.release.gpu.global.add.u32"
    )


@pytest.mark.parametrize(
    ("problem", "pinned"),
    [
        (gemm(1001, 1001, 1001), {}),  # small copies
        (gemm(128, 57343, 8191), {}),  # whose copies take longer than the products
        (gemm(2048, 2048, 2048), {}),  # nothing to copy
        (gemm(2047, 2047, 2047), {"BN": 256}),
        (gemm(2047, 2047, 2047), {"SETMAXNREG": 0}),
        (gemm(2047, 2047, 2047, residual=Operand(dtype="f16")), {}),
        (gemm(4096, 2111, 7167, layout="nt"), {}),  # for which another tile is much faster
    ],
)
def test_other_copies_are_made_before(problem: Problem, pinned: dict[str, int]) -> None:
    assert PERSISTENT.config_for(problem, H200, pinned)["OVERLAP"] == 0


@pytest.mark.parametrize(
    ("problem", "config", "why"),
    [
        (gemm(2048, 2048, 2048), {}, "no operand has to be copied"),
        (gemm(2047, 2047, 2047), {"SPLIT": 2}, "SPLIT=1"),
        (gemm(2047, 2047, 2047), {"SETMAXNREG": 0}, "SETMAXNREG=1"),
        (gemm(2047, 2047, 2047), {"BM": 128, "BN": 256}, "BN=256; 192 fit"),
    ],
)
def test_what_cannot_overlap_is_refused_with_the_reason(problem: Problem, config: dict[str, int], why: str) -> None:
    whole = {**PERSISTENT.config_for(gemm(4095, 4095, 4095), H200), **config}
    assert whole["OVERLAP"] == 1
    assert why in str(PERSISTENT.refuses(problem, whole, H200))
