"""How far ahead of the products data is asked for, from synthetic orders of basic blocks."""

from __future__ import annotations

import pytest

from dgw.workbench.emulator.lead import Lead, Step, lead
from tests.workbench.emulator.events import instruction

COPY = "cp.async.cg.shared.global [%r1], [%rd1], 16;"
COMMIT, PRODUCT = (
    "cp.async.commit_group ;",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r8}, {%r9}, {%f1};",
)
LOAD, STORE = "ld.global.v2.u32 {%r4, %r5}, [%rd2];", "st.shared.v2.u32 [%r6], {%r4, %r5};"
WARPS = 4


def wait(left: int) -> str:
    return f"cp.async.wait_group {left};"


def walk(*blocks: tuple[list[str], int], warps: int = WARPS) -> Lead | None:
    """The lead of a kernel whose blocks are executed in this order, each so many times by all warps."""
    infos, steps = [], []
    for texts, times in blocks:
        first = len(infos)
        infos += [
            instruction(first + i, text, 1, width=16 if text.startswith(("cp.async.cg", "ld.", "st.")) else 0)
            for i, text in enumerate(texts)
        ]
        steps += [Step(first, len(infos), warps)] * times
    return lead(infos, steps, WARPS)


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_a_ring_of_copies_is_ahead_by_its_stages_but_one(stages: int) -> None:
    begin = [COPY, COMMIT] * (stages - 1)
    assert walk((begin, 1), ([wait(stages - 2), COPY, COMMIT, *[PRODUCT] * 8], 16)) == Lead(16, stages - 1)


def test_copies_that_are_asked_for_after_the_products_are_ahead_by_one_tile_less() -> None:
    assert walk(([COPY, COMMIT] * 3, 1), ([wait(2), *[PRODUCT] * 8, COPY, COMMIT], 16)) == Lead(16, 2.0)


def test_copies_that_are_waited_for_at_once_are_not_ahead() -> None:
    assert walk(([COPY, COMMIT, wait(0), *[PRODUCT] * 8], 16)) == Lead(16, 0.0)


def test_plain_loads_are_needed_where_their_values_are_taken_up_and_not_where_they_are_only_renamed() -> None:
    products = [PRODUCT] * 8
    assert walk(([LOAD, STORE, *products], 16)) == Lead(16, 0.0)
    renamed = [LOAD, "mov.b32 %r40, %r4;", *products, "st.shared.u32 [%r6], %r40;"]
    assert walk(([LOAD, STORE], 1), (renamed, 16)) == Lead(16, 1.0)
    converted = [LOAD, "cvt.rna.tf32.f32 %r4, %r4;", "cvt.rna.tf32.f32 %r5, %r5;", *products, STORE]
    assert walk((converted, 16)) == Lead(16, 0.0)


def test_commits_without_a_copy_are_no_tiles() -> None:
    assert walk(
        ([COPY, COMMIT] * 2, 1), ([wait(1), COPY, COMMIT, PRODUCT], 6), ([wait(1), COMMIT, PRODUCT], 2)
    ) == Lead(8, 2.0)


def test_what_is_asked_for_before_the_first_product_says_nothing_of_a_loop() -> None:
    assert walk(([COPY, COMMIT] * 4, 1), ([wait(3), PRODUCT], 1), ([wait(2), PRODUCT], 1)) == Lead(2, None)


def test_loads_that_do_not_go_to_shared_memory_and_kernels_without_products_have_no_lead() -> None:
    assert walk(([LOAD, PRODUCT], 16)) is None
    assert walk(([COPY, COMMIT, wait(0)], 16)) is None


def test_nothing_is_said_where_a_part_of_the_warps_waits_alone() -> None:
    assert walk(([COPY, COMMIT, wait(0), PRODUCT], 16), warps=WARPS - 1) is None
