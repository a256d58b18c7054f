"""The kernels that multiply copies start before these are made, and wait for them before they read."""

from __future__ import annotations

import re

import pytest

from dgw.kernels.loader import load
from dgw.model import Launch, Problem, Variant, gemm
from dgw.toolchain.devices import device
from tests.kernels.test_aligned_copy import ptx_of

H200 = device("h200")
STAGES = [variant for variant in load().values() if variant.family == "hopper"]


def launches(variant: Variant, problem: Problem, **pinned: int) -> tuple[Launch, ...]:
    plan = variant.plan(problem, variant.config_for(problem, H200, pinned), H200)  # type: ignore[misc]
    return plan.launches


@pytest.mark.parametrize("variant", STAGES, ids=lambda variant: variant.id)
def test_what_multiplies_a_copy_starts_early_and_waits_for_it_before_its_first_box(variant: Variant) -> None:
    copying, multiplying = launches(variant, gemm(255, 255, 255))
    assert not copying.overlaps  # with what may have used the operands
    assert multiplying.overlaps
    text = ptx_of(multiplying.source)
    waits = [found.start() for found in re.finditer(r"griddepcontrol\.wait;\s+fence\.proxy\.async\.global;", text)]
    assert len(waits) == 1
    assert waits[0] < text.index("cp.async.bulk.tensor.2d.shared")
    assert ptx_of(copying.source).count("griddepcontrol.launch_dependents") == 1


def test_sums_of_a_split_k_wait_for_the_copies_too() -> None:
    variant = load()["hopper/persistent"]
    multiplying = launches(variant, gemm(255, 255, 2047), SPLIT=4)[-1]
    assert multiplying.source.path == "split_k.cu"
    assert multiplying.overlaps
    assert ptx_of(multiplying.source).count("griddepcontrol.wait") == 1


@pytest.mark.parametrize("variant", STAGES, ids=lambda variant: variant.id)
def test_what_multiplies_operands_where_they_lie_waits_for_nothing(variant: Variant) -> None:
    (multiplying,) = launches(variant, gemm(256, 256, 256))
    assert not multiplying.overlaps
    assert "griddepcontrol" not in ptx_of(multiplying.source)
