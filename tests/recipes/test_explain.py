from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.errors import NotComparable
from dgw.model import Environment, Record, Run, gemm
from dgw.recipes.explain import Explanation, explain
from tests.recipes.making import record, without

ROOT = Path(__file__).resolve().parents[2]


def measured(variant: str) -> Record:
    """A record of an H200 at 4096^3."""
    run = msgspec.convert(json.loads((ROOT / "docs/h200/first-profile.json").read_text())["run"], type=Run)
    return next(one for one in run.records if one.case.variant == variant)


def part(found: Explanation, name: str) -> Any:
    return next(one for one in found.parts if one.name == name)


def test_bank_conflicts_are_where_tiled_loses_its_time_against_swizzled() -> None:
    found = explain(measured("cuda/swizzled"), measured("cuda/tiled"))
    first = found.parts[0]
    (pipe,) = first.pipes
    assert first.name == "shared memory"
    assert pipe.head > 4 * pipe.base
    assert found.attributed >= 0.7
    assert {change.metric for change in found.changed} >= {"smem_wavefronts_actual"}


def test_the_parts_add_up_to_the_difference_and_what_is_left_is_said() -> None:
    for base, head in (("cuda/swizzled", "cuda/tiled"), ("baselines/cublas", "cuda/naive")):
        found = explain(measured(base), measured(head))
        assert sum(one.head - one.base for one in found.parts) == pytest.approx(found.difference)
        assert found.attributed + found.residual == pytest.approx(1)
        assert any("residual" in sentence for sentence in found.sentences)


def test_it_works_in_both_directions() -> None:
    there, back = (
        explain(measured(a), measured(b)) for a, b in (("cuda/swizzled", "cuda/tiled"), ("cuda/tiled", "cuda/swizzled"))
    )
    assert there.difference == -back.difference
    assert part(there, "shared memory").share == pytest.approx(part(back, "shared memory").share)


def test_reasons_that_belong_to_nothing_are_the_residual() -> None:
    slow = record({"elapsed_cycles": 1_000_000, "sm_active_cycles": 990_000}, stalls={"sleeping": 1.0})
    found = explain(record(), slow)
    assert found.residual > 0.5
    assert not part(found, "elsewhere").accounted


def test_kernels_beside_the_product_are_a_part_of_their_own() -> None:
    three = {"elapsed_cycles": [500_000.0, 200_000.0, 100_000.0]}
    found = explain(
        record(), record({"elapsed_cycles": 800_000, "sm_active_cycles": 790_000}, launches=3, kernels=three)
    )
    assert found.parts[0].name == "other kernels"
    assert found.parts[0].head == 300_000


def test_a_record_of_the_emulator_is_explained_by_its_lower_bound() -> None:
    gone = ("elapsed_cycles", "sm_active_cycles", "tensor_pipe_util", "fma_pipe_util", "dram_throughput")
    laptop = Environment(device="h200", arch="sm_90a", engine="emulator")
    good, bad = (
        without(record({"smem_wavefronts_actual": wavefronts}, environment=laptop), gone) for wavefronts in (4.6e7, 4e8)
    )
    found = explain(good, bad)
    assert not found.measured
    assert found.head_cycles == pytest.approx(4e8 / 132)
    assert "lower bound" in found.sentences[0]


def test_the_same_record_twice_has_nothing_to_explain() -> None:
    found = explain(record(), record())
    assert (found.difference, found.residual) == (0, 0)
    assert found.sentences[-1] == "No counter changed by 10 %."


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (msgspec.structs.replace(record(), outcome="wrong"), "is wrong"),
        (record(problem=gemm(4096, 4096, 2048)), "different problems"),
        (record(environment=Environment(device="h100", arch="sm_90a", driver="580", engine="gpu")), "devices"),
        (record(environment=Environment(device="h200", arch="sm_90a", driver="570", engine="gpu")), "drivers"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(other: Record, words: str) -> None:
    with pytest.raises(NotComparable, match=words):
        explain(record(), other)
