"""Spills where nothing was measured: PTX has none, so they are looked for in the machine code."""

from __future__ import annotations

import pytest

from dgw.model import Environment, Finding, Record
from dgw.recipes.diagnosis import diagnose
from dgw.recipes.facts import Facts
from dgw.toolchain.devices import device
from tests.recipes.making import record

H200 = device("h200")
NOTHING = dict.fromkeys(("elapsed_cycles", "time_cold", "time_hot", "issued", "l2_sectors"))


def emulated(sectors: float | None, spilled: float = 600, **numbers: float) -> Record:
    kept = {"spill_sectors": sectors, "spill_store_bytes": spilled, "spill_load_bytes": spilled, **numbers}
    return record({**NOTHING, **kept}, environment=Environment(device="h200", arch="sm_90a", engine="emulator"))


def spills(one: Record) -> Finding | None:
    return next((finding for finding in diagnose(one, H200, unknown=False) if finding.recipe == "spills"), None)


def test_spills_in_the_loop_of_the_products_cost_the_cycles_in_which_l1_moves_them() -> None:
    finding = spills(emulated(5e8))
    assert finding is not None
    cycles = 5e8 / 4 / 132
    assert finding.cost == pytest.approx(cycles / (cycles + Facts(emulated(5e8), H200).cycles))
    assert finding.confidence == "high"
    assert "500,000,000 sectors of them are moved" in finding.verdict
    evidence = {each.metric: each.value for each in finding.evidence}
    assert evidence["spill_sectors"] == 5e8
    assert evidence.keys() & {"local_load_sectors", "local_store_sectors"} == set()


def test_spills_before_and_behind_the_loop_cost_nothing_to_speak_of() -> None:
    assert spills(emulated(2e6)) is None
    assert spills(emulated(0.0, spilled=0)) is None


def test_without_machine_code_it_is_said_that_nobody_knows_how_often_they_move_and_nothing_is_sure() -> None:
    finding = spills(emulated(None))
    assert finding is not None
    assert finding.confidence == "medium"
    assert finding.verdict.endswith("how often that happens is not known")
    assert "sectors" not in finding.verdict


def test_local_memory_that_the_ptx_has_is_counted_as_it_is() -> None:
    finding = spills(emulated(None, local_load_sectors=4e8, local_store_sectors=1e8))
    assert finding is not None
    assert "500,000,000 sectors of them are moved" in finding.verdict
    found = spills(emulated(5e8))
    assert found is not None
    assert finding.cost == pytest.approx(found.cost)
