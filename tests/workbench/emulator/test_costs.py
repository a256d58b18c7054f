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

from dgw.workbench.emulator.costs import bypass_global_cost, global_cost, shared_cost

TESTS = Path(__file__).parents[2]
TABLE = TESTS / "data" / "accesses.json.gz"


def _load_accesses() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dgw_tests_accesses", TESTS / "accesses.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


accesses = _load_accesses()
CASES = accesses.read_table(TABLE)
ALL = np.ones((1, 32), dtype=bool)
LANE = np.arange(32)[None, :]


def test_the_table_of_measured_accesses_is_complete() -> None:
    assert len(CASES) == 608
    assert len({case["op"] for case in CASES}) == 25


@pytest.mark.parametrize("op", sorted({case["op"] for case in CASES}))
def test_every_measured_case_is_reproduced_exactly(op: str) -> None:
    assert accesses.compare(case for case in CASES if case["op"] == op) == {}


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
    if width == 16:
        moved = shared_cost("cp.async.cg", 16, address + 384, mask, sources=LANE * 16 + 128)
        assert (shared_cost("cp.async.cg", 16, address, mask).wavefronts == moved.wavefronts).all()


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


def test_a_copy_past_l1_counts_the_first_writer_and_whole_lines() -> None:
    linear = LANE * 16
    assert shared_cost("cp.async.cg", 16, linear, ALL).wavefronts[0] == 4
    assert bypass_global_cost(linear, linear, ALL).sectors[0] == 16
    same = np.zeros((1, 32), dtype=int)
    assert shared_cost("cp.async.cg", 16, same, ALL).wavefronts[0] == 1
    assert bypass_global_cost(linear, same, ALL).sectors[0] == 1
    spread = LANE * 32  # every 16 bytes to a 32-byte sector of its own
    assert shared_cost("cp.async.cg", 16, spread, ALL).wavefronts[0] == 32
    assert bypass_global_cost(linear, spread, ALL).sectors[0] == 32
