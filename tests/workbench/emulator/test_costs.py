"""The cost model against measured accesses and against slow, literal readings of its rules."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgw.workbench.emulator.costs import (
    bypass_global_cost,
    copy_cost,
    global_cost,
    least_copy_wavefronts,
    shared_cost,
)

TESTS = Path(__file__).parents[2]
TABLE = TESTS / "data" / "accesses.json.gz"
MORE = TESTS / "data" / "more-accesses.json.gz"  # sources of copies, broadcasts, zero fill


def _load_accesses() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dgw_tests_accesses", TESTS / "accesses.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


accesses = _load_accesses()
CASES, MORE_CASES = accesses.read_table(TABLE), accesses.read_table(MORE)
ALL = np.ones((1, 32), dtype=bool)
LANE = np.arange(32)[None, :]


def test_the_tables_of_measured_accesses_are_complete() -> None:
    assert len(CASES) == 608
    assert len({case["op"] for case in CASES}) == 25
    assert len(MORE_CASES) == 531
    assert len({case["op"] for case in MORE_CASES}) == 16


@pytest.mark.parametrize("op", sorted({case["op"] for case in CASES}))
def test_every_measured_case_is_reproduced_exactly(op: str) -> None:
    assert accesses.compare(case for case in CASES if case["op"] == op) == {}


@pytest.mark.parametrize("op", sorted({case["op"] for case in MORE_CASES}))
def test_every_case_of_the_second_table_is_reproduced_exactly(op: str) -> None:
    assert accesses.compare(case for case in MORE_CASES if case["op"] == op) == {}


def test_counters_that_say_nothing_are_few_and_only_of_copies_and_one_load() -> None:
    silent = {case["id"] for case in MORE_CASES if accesses.unmeasured(case)}
    past_l1 = {case["id"] for case in MORE_CASES if case["op"] in ("cpa16", "cpx16", "cpy16", "cpz16")}
    assert silent == past_l1 | {"lds128.odd.pairs"}
    assert not any(accesses.unmeasured(case) for case in CASES)


def test_the_script_names_an_op_that_it_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"schema": "accesses/1", "cases": [CASES[0], {**CASES[1], "op": "ldq32"}]}))
    assert accesses.main([str(table)]) == 2
    assert "unknown op 'ldq32'; known are lds," in capsys.readouterr().err


def test_the_script_exits_1_and_names_the_case_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = json.loads(json.dumps(next(case for case in CASES if case["id"] == "lds32.stride4")))
    changed["measured"]["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld"] += 1
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"schema": "accesses/1", "cases": [changed, CASES[0]]}))
    assert accesses.main([str(table)]) == 1
    shown = capsys.readouterr().out
    assert "lds32.stride4" in shown
    assert "measured 5, expected 4" in shown
    assert "1 of 2 cases equal" in shown


def test_the_script_exits_0_on_equal_and_2_on_what_is_no_table(tmp_path: Path) -> None:
    assert accesses.main([str(TABLE)]) == 0
    (tmp_path / "other.json").write_text("{}")
    assert accesses.main([str(tmp_path / "other.json")]) == 2
    assert accesses.main([str(tmp_path / "absent.json")]) == 2


def _phase_words(width: int, address: Any, mask: Any, lanes: range) -> list[list[int]]:
    """For each bank the words that the active lanes of one phase ask for, one entry a lane."""
    banks: list[list[int]] = [[] for _ in range(32)]
    for lane in lanes:
        if mask[lane]:
            for offset in range(0, max(width, 4), 4):
                word = (int(address[lane]) + offset) // 4
                banks[word % 32].append(word)
    return banks


@st.composite
def warps(draw: st.DrawFn) -> tuple[int, Any, Any]:
    width = draw(st.sampled_from((1, 2, 4, 8, 16)))
    span = draw(st.sampled_from((128, 512, 4096)))
    seed = draw(st.integers(0, 1 << 31))
    random = np.random.default_rng(seed)
    address = random.integers(0, span // width, size=(3, 32)) * width
    mask = random.random((3, 32)) < draw(st.sampled_from((0.0, 0.3, 0.8, 1.0)))
    return width, address, mask


@settings(max_examples=60, deadline=None)
@given(warps())
def test_stores_and_atomics_count_the_fullest_bank_of_each_phase(drawn: tuple[int, Any, Any]) -> None:
    width, address, mask = drawn
    lanes = min(32, 128 // width)
    store, atom = shared_cost("st", width, address, mask), shared_cost("atom", width, address, mask)
    for row in range(3):
        phases = [_phase_words(width, address[row], mask[row], range(at, at + lanes)) for at in range(0, 32, lanes)]
        busy = sum(any(banks) for banks in phases)
        assert store.wavefronts[row] == sum(max(len(set(words)) for words in banks) for banks in phases)
        assert atom.wavefronts[row] == sum(max(len(words) for words in banks) for banks in phases)
        assert store.conflicts[row] == store.wavefronts[row] - busy


@settings(max_examples=60, deadline=None)
@given(warps())
def test_a_load_never_costs_more_than_the_same_store_and_never_less_than_ideal(drawn: tuple[int, Any, Any]) -> None:
    width, address, mask = drawn
    load, store = shared_cost("ld", width, address, mask), shared_cost("st", width, address, mask)
    assert (load.wavefronts <= store.wavefronts).all()
    assert (load.ideal <= load.wavefronts).all()
    assert (load.conflicts >= 0).all()


@settings(max_examples=60, deadline=None)
@given(warps())
def test_costs_do_not_change_when_all_addresses_move_by_whole_lines(drawn: tuple[int, Any, Any]) -> None:
    width, address, mask = drawn
    for kind in ("ld", "st", "atom"):
        here, there = shared_cost(kind, width, address, mask), shared_cost(kind, width, address + 384, mask)
        assert (here.wavefronts == there.wavefronts).all()
    for bypass in {width == 16, False} if width >= 4 else ():
        copied = copy_cost(width, address, mask, LANE * width, mask, bypass)
        moved = copy_cost(width, address + 384, mask, LANE * width + 128, mask, bypass)
        assert (copied.wavefronts == moved.wavefronts).all()
        assert (copied.hardware == moved.hardware).all()


@settings(max_examples=60, deadline=None)
@given(warps())
def test_sectors_are_the_distinct_32_byte_pieces_touched(drawn: tuple[int, Any, Any]) -> None:
    width, address, mask = drawn
    moved = address + 4 * (width == 8)  # an address that is a multiple of 4 only: lanes may straddle two sectors
    cost = global_cost(width, moved, mask)
    for row in range(3):
        touched = {(int(a) + o) // 32 for a, m in zip(moved[row], mask[row], strict=True) if m for o in range(width)}
        assert cost.sectors[row] == len(touched)
        assert cost.requests[row] == bool(mask[row].any())
        assert cost.bytes[row] == width * mask[row].sum()


@pytest.mark.parametrize(("width", "wavefronts"), [(8, 1), (16, 2)])
@pytest.mark.parametrize("distance", [1, 2])
def test_wide_loads_merge_when_partners_read_the_same_address(width: int, wavefronts: int, distance: int) -> None:
    shared = (LANE // 2 if distance == 1 else LANE // 4 * 2 + LANE % 2) * width
    assert shared_cost("ld", width, shared, ALL).wavefronts[0] == wavefronts
    assert shared_cost("st", width, shared, ALL).wavefronts[0] == 2 * wavefronts
    alone = LANE & distance == 0  # an inactive partner is as good as one with the same address
    assert shared_cost("ld", width, shared, alone).wavefronts[0] == wavefronts
    broken = shared.copy()
    broken[0, distance] += 512
    assert shared_cost("ld", width, broken, ALL).wavefronts[0] > wavefronts


def test_the_worked_examples_of_shared_memory_layouts() -> None:
    column = LANE * 128  # one column of a tile with 128-byte rows: every lane in bank 0
    assert shared_cost("ld", 4, column, ALL).wavefronts[0] == 32
    assert shared_cost("ld", 4, column + LANE * 4, ALL).wavefronts[0] == 1  # padded by one word
    rows = LANE % 8 * 128 + LANE // 8 * 16  # ldmatrix.x4 of a 64-column f16 tile
    assert shared_cost("ldmatrix", 16, rows, ALL).wavefronts[0] == 32
    swizzled = LANE % 8 * 128 + (LANE // 8 ^ LANE % 8) * 16
    assert shared_cost("ldmatrix", 16, swizzled, ALL).wavefronts[0] == 4
    assert shared_cost("ldmatrix", 16, rows, ALL, matrices=1).wavefronts[0] == 8


def copied(width: int, destinations: Any, sources: Any, reading: Any = ALL, bypass: bool = True) -> int:
    """Wavefronts of a copy by all lanes."""
    return int(copy_cost(width, destinations, ALL, sources, reading, bypass).wavefronts[0])


def test_a_copy_past_l1_counts_one_writer_of_each_destination_and_whole_lines() -> None:
    linear = LANE * 16
    assert copied(16, linear, linear) == 4
    assert bypass_global_cost(linear, linear, ALL).sectors[0] == 16
    same = np.zeros((1, 32), dtype=int)
    assert copied(16, same, linear) == 1
    assert bypass_global_cost(linear, same, ALL).sectors[0] == 1
    spread = LANE * 32  # every 16 bytes to a 32-byte sector of its own
    assert copied(16, spread, linear) == 32
    assert bypass_global_cost(linear, spread, ALL).sectors[0] == 32
    shifted = linear + 16  # four lines of shared memory, each from two lines
    assert bypass_global_cost(shifted, linear, ALL).sectors[0] == 20


def test_rows_of_a_tile_copied_past_l1_cost_one_wavefront_for_each_line_they_come_from() -> None:
    linear = LANE * 16
    for row, wavefronts in ((64, 8), (256, 4), (512, 4)):
        chunk = LANE % (row // 16)
        rows = LANE // (row // 16)
        assert copied(16, linear, rows * 4096 + chunk * 16) == wavefronts
    twisted = LANE // 4 * 64 + (LANE % 4 ^ LANE // 4 % 4) * 16
    assert copied(16, twisted, LANE // 4 * 4096 + LANE % 4 * 16) == 8


ROWS = LANE // 4 * 4096 + LANE % 4 * 16  # eight rows of 64 bytes


@pytest.mark.parametrize(
    ("destinations", "sources", "wavefronts", "least"),
    [
        (LANE * 16, LANE * 16, 4, 4),
        (LANE % 4 * 2048 + LANE // 4 * 16, ROWS, 32, 8),  # panels of eight columns
        (LANE % 4 // 2 * 4096 + LANE // 4 * 32 + (LANE ^ LANE // 16) % 2 * 16, ROWS, 16, 8),  # and of sixteen
        (LANE * 16, LANE * 4096, 32, 32),  # a column of a row-major matrix
        (LANE * 16, (LANE ^ 1) * 16, 4, 4),
        (LANE // 4 * 64 + (LANE % 4 ^ LANE // 4 % 4) * 16, ROWS + 16, 16, 16),  # rows in the middle of a sector
    ],
)
def test_a_copy_past_l1_is_compared_with_the_best_place_for_what_it_copies(
    destinations: Any, sources: Any, wavefronts: int, least: int
) -> None:
    assert copied(16, destinations, sources) == wavefronts
    assert least_copy_wavefronts(16, destinations, ALL, sources, ALL, bypass=True)[0] == least


@settings(max_examples=30, deadline=None)
@given(warps(), st.booleans())
def test_no_copy_takes_fewer_wavefronts_than_the_least(drawn: tuple[int, Any, Any], bypass: bool) -> None:
    _, address, mask = drawn
    destinations, sources, reading = address // 16 * 16, address[::-1] // 16 * 16, mask[:, ::-1]
    least = least_copy_wavefronts(16, destinations, mask, sources, reading, bypass)
    assert (least <= copy_cost(16, destinations, mask, sources, reading, bypass).wavefronts).all()
    assert ((least > 0) == mask.any(axis=1)).all()


def test_lines_that_copies_look_up_do_not_depend_on_where_they_write_as_sectors_and_wavefronts_do() -> None:
    measured = [case["measured"] for case in CASES if case["op"] == "cpa16" and case["mask"] == 0xFFFFFFFF]
    assert len({one["l1tex__t_sectors_pipe_lsu_mem_global_op_ld"] for one in measured}) > 5
    assert len({one["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts"] for one in measured}) > 5
    assert {one["memory_l1_tag_requests_global"] for one in measured} == {6}  # four and two of the frame


def test_lanes_that_write_zeros_cost_what_a_plain_store_costs() -> None:
    rows = LANE // 4 * 4096 + LANE % 4 * 16
    assert copied(16, LANE * 16, rows, ~ALL) == 4
    assert copied(16, LANE * 128, rows, ~ALL) == 32  # all in one bank
    assert copied(16, LANE * 16, rows, LANE < 16) == 4 + 2  # four rows copied, two phases of zeros
    assert bypass_global_cost(rows, LANE * 16, LANE < 16).sectors[0] == 8


def test_a_copy_through_l1_conflicts_on_both_sides() -> None:
    def cost(destinations: Any, sources: Any) -> tuple[int, int, int]:
        found = copy_cost(16, destinations, ALL, sources, ALL)
        return int(found.wavefronts[0]), int(found.conflicts[0]), int(found.hardware[0])

    linear, rows = LANE * 16, LANE // 2 * 4096 + LANE % 2 * 16  # 32 bytes of every row, four rows a phase
    assert cost(linear, linear) == (4, 0, 0)
    assert cost(linear, rows) == (16, 12, 12)
    assert cost(LANE // 2 * 48 + LANE % 2 * 16, rows) == (20, 16, 12)  # rows padded: two wavefronts a phase to write
    assert cost(linear, LANE * 0) == (32, 28, 28)  # one source for all: nothing is shared
    assert cost(linear, LANE * 256) == (32, 28, 24)  # eight lines a phase: the tags take them four by four
