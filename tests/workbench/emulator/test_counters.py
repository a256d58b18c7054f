"""Counting events: patterns are costed once, figures add up, lines get their share."""

from __future__ import annotations

import numpy as np
import pytest

from dgw.workbench.emulator import counters as counting
from dgw.workbench.emulator.counters import Column, Counters
from dgw.workbench.emulator.measures import combine, mma_flops, tabulate, with_ratios
from dgw.workbench.emulator.observer import SourceLine
from tests.workbench.emulator.events import access, instruction

LANE = np.arange(32)


def begin(counters: Counters, infos, ctas: int = 1, warps: int = 2) -> None:
    counters.begin(infos, [(x, 0, 0) for x in range(ctas)], warps)


def test_a_pattern_is_costed_once_and_counted_as_often_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    infos = [instruction(0, "ld.shared.f32", 10, width=4)]
    event = access(infos, np.stack([LANE * 128, LANE * 4])[None])
    measured = []
    original = counting._Event.measure
    monkeypatch.setattr(counting._Event, "measure", lambda *args: measured.append(1) or original(*args))
    counters = Counters()
    begin(counters, infos)
    for _ in range(5):
        counters.block(0, 1, 2)
        counters.memory(event)
    totals = tabulate(counters.finish()).totals()
    assert len(measured) == 1
    assert totals["smem_wavefronts_sass_ld"] == 5 * (32 + 1)
    assert totals["smem_wavefronts_ideal"] == 5 * 2
    assert totals["smem_bank_conflicts_ld"] == 5 * 31
    assert totals["smem_requests_ld"] == 10
    assert with_ratios(totals)["conflict_ratio_ld"] == (165 - 10) / 165


def test_forgetting_patterns_loses_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "PATTERNS_KEPT", 2)
    infos = [instruction(0, "ld.global.f32", 10, width=4)]
    counters = Counters()
    begin(counters, infos, warps=1)
    for shift in range(10):
        counters.memory(access(infos, (LANE * 4 + shift * 4)[None, None], pattern=shift))
    assert counters.finish().space("global")[0, Column.REQUESTS] == 10


def test_each_instruction_of_a_group_gets_its_own_cost_and_line() -> None:
    infos = [instruction(0, "ld.shared.f32", 10, width=4), instruction(1, "ld.shared.f32", 11, width=4)]
    counters = Counters()
    begin(counters, infos, warps=1)
    counters.block(0, 2, 1)
    counters.memory(access(infos, np.stack([LANE * 4, LANE * 8])[:, None]))
    table = tabulate(counters.finish())
    by_line = table.by_source_line()
    assert by_line[SourceLine("kernel.cu", 10)]["smem_wavefronts_ld"] == 1
    assert by_line[SourceLine("kernel.cu", 11)]["smem_wavefronts_ld"] == 2
    assert sum(line["inst_executed"] for line in by_line.values()) == table.totals()["inst_executed"]


def test_global_requests_and_instructions_count_only_warps_with_an_active_lane() -> None:
    infos = [instruction(0, "ld.global.v4.f32", 5, width=16), instruction(1, "st.global.f32", 6, width=4)]
    counters = Counters()
    begin(counters, infos)
    counters.block(0, 2, 2)
    mask = np.stack([LANE >= 0, LANE < 0])[None]
    counters.memory(access(infos[:1], np.stack([LANE * 16, LANE * 16])[None], mask))
    counters.memory(access(infos[1:], np.stack([LANE * 64, LANE * 64 + 4])[None]))
    totals = with_ratios(tabulate(counters.finish()).totals())
    assert totals["global_requests_ld"] == 1
    assert totals["global_inst_ld"] == 1
    assert totals["gld_sectors_per_request"] == 16
    assert totals["global_bytes_ld"] == 512
    assert totals["global_requests_st"] == 2
    assert totals["gst_sectors_per_request"] == 32


def test_a_copy_counts_at_both_ends_and_only_hardware_counters_see_its_source() -> None:
    infos = [instruction(0, "cp.async.cg.shared.global", 7, width=16)]
    counters = Counters()
    begin(counters, infos, warps=1)
    counters.block(0, 1, 1)
    counters.memory(access(infos, (LANE * 16)[None, None], sources=(LANE * 16)[None, None] + 4096, space="shared"))
    totals = tabulate(counters.finish()).totals()
    assert totals["ldgsts_inst"] == 1
    assert totals["smem_wavefronts_sass_ldgsts"] == 4
    assert totals["global_requests_ld"] == 1
    assert totals["global_sectors_hw_ld"] == 16
    assert totals["global_sectors_ld"] == 0
    assert totals["global_inst_ld"] == 0


def test_what_a_copy_moves_for_its_place_is_told_from_what_its_addresses_touch() -> None:
    infos = [instruction(0, "cp.async.cg.shared.global", 7, width=16), instruction(1, "ld.global.f32", 8, width=4)]
    counters = Counters()
    begin(counters, infos, warps=1)
    counters.block(0, 2, 1)
    apart = (LANE * 128)[None, None]
    counters.memory(access(infos[:1], apart, sources=(LANE * 16)[None, None] + 4096, space="shared"))
    counters.memory(access(infos[1:], (LANE * 32)[None, None]))
    totals = tabulate(counters.finish()).totals()
    assert (totals["global_sectors_hw_ld"], totals["global_sectors_addressed_ld"]) == (32 + 32, 16 + 32)
    assert (totals["smem_wavefronts_sass_ldgsts"], totals["smem_wavefronts_least_ldgsts"]) == (32, 4)


def test_distinct_sectors_are_counted_for_each_cta_of_a_batch() -> None:
    infos = [instruction(0, "ld.global.f32", 5, width=4), instruction(1, "st.global.f32", 6, width=4)]
    counters = Counters()
    begin(counters, infos, ctas=2, warps=1)
    same = np.stack([LANE * 4, LANE * 4])[None]  # both CTAs read the same line
    for step in range(3):
        counters.memory(access(infos[:1], same + 128 * (step % 2), pattern="ld"))
    begin(counters, infos, ctas=2, warps=1)
    counters.memory(access(infos[:1], same, pattern="ld"))
    counters.memory(access(infos[1:], same, pattern="st"))
    counters.finish()
    assert counters.ctas == 4
    assert counters.unique_sectors == {"cached": 2 * 8 + 2 * 4, "uncached": 0, "stored": 2 * 4}


def test_local_memory_branches_and_barriers_are_counted() -> None:
    infos = [
        instruction(0, "ld.local.u32", 3, width=4), instruction(1, "bra", 4), instruction(2, "bar.sync", 5),
        instruction(3, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 6), instruction(4, "fma.rn.f32", 7),
    ]  # fmt: skip
    counters = Counters()
    begin(counters, infos)
    counters.block(0, 5, 2)
    counters.memory(access(infos[:1], np.stack([LANE * 4, LANE * 4])[None]))
    counters.branch(1, 2, 1)
    counters.barrier(2, 2)
    totals = tabulate(counters.finish()).totals()
    assert totals["local_load_sectors"] == 8
    assert totals["divergent_branches"] == 1
    assert totals["barrier_inst"] == 2
    assert totals["tensor_inst"] == 2
    assert totals["fma_inst"] == 2
    assert totals["inst_executed"] == 10
    assert mma_flops(counters) == {"f16": 2 * 2 * 16 * 8 * 16}


@pytest.mark.parametrize(("text", "divergent", "known"), [("fma.rn.f32", 0, True), ("fma.rn.f32", 1, False)])
def test_threads_of_multiply_adds_are_known_only_when_no_lane_can_be_idle(
    text: str, divergent: int, known: bool
) -> None:
    infos = [instruction(0, text, 3), instruction(1, "bra", 4)]
    counters = Counters()
    begin(counters, infos)
    counters.block(0, 2, 2)
    counters.branch(1, 2, divergent)
    assert "ffma_thread_inst" not in tabulate(counters.finish()).totals()  # warps may be partly empty
    counters.full_warps = True
    totals = tabulate(counters).totals()
    assert totals.get("ffma_thread_inst") == (64 if known else None)


def test_totals_of_classes_are_scaled_by_their_ctas() -> None:
    assert combine([({"x": 3, "y": 1}, 10), ({"x": 2}, 1)]) == {"x": 32, "y": 10}


def test_a_generic_access_counts_in_the_space_it_resolved_to() -> None:
    infos = [instruction(0, "ld.f32", 9, width=4)]
    counters = Counters()
    begin(counters, infos, warps=1)
    counters.block(0, 1, 1)
    counters.memory(access(infos, (LANE * 4)[None, None], space="shared"))
    assert tabulate(counters.finish()).totals()["smem_wavefronts_ld"] == 1
