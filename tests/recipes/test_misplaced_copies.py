"""cp.async that writes where it costs more: told from scattered sources, by the emulator and by ncu."""

from __future__ import annotations

import msgspec
import pytest

from dgw.model import Environment, Finding, Operand, Record
from dgw.recipes import bank_conflicts
from dgw.recipes.diagnosis import diagnose
from dgw.recipes.facts import Facts
from dgw.toolchain.devices import device
from tests.recipes.making import record, without

H200 = device("h200")
COPIES = 3.1e6
NO_GPU = {"elapsed_cycles": None, "time_cold": None, "time_hot": None, "l1_tag_requests_global": None}
EMULATED = Environment(device="h200", arch="sm_90a", engine="emulator")


def copying(wavefronts: float, sectors: float, **numbers: float | None) -> Record:
    """A kernel at 4096^3 whose copies take so many wavefronts and sectors each, seen by ncu; 4 and 16 are the least."""
    return record(
        {
            "smem_wavefronts_actual": 3.4e7 + wavefronts * COPIES, "smem_wavefronts_ideal": 3.4e7 + 4 * COPIES,
            "smem_wavefronts_sass_ldgsts": wavefronts * COPIES, "ldgsts_inst": COPIES, "global_requests_ld": COPIES,
            "global_sectors_hw_ld": sectors * COPIES, "l2_sectors": sectors * COPIES, "tensor_inst": 1e7,
            "tensor_pipe_util": 0.3, "elapsed_cycles": 1_200_000, **numbers,
        },
        environment=EMULATED if numbers.get("elapsed_cycles", 0) is None else Environment(device="h200", engine="gpu"),
    )  # fmt: skip


def found(one: Record) -> dict[str, Finding]:
    wanted = ("bank-conflicts", "uncoalesced")
    return {finding.recipe: finding for finding in diagnose(one, H200, unknown=False) if finding.recipe in wanted}


@pytest.mark.parametrize(
    "numbers",
    [
        {**NO_GPU, "smem_wavefronts_least_ldgsts": 4 * COPIES, "global_sectors_addressed_ld": 16 * COPIES},
        {"l1_tag_requests_global": 4 * COPIES + 5e5},
    ],
    ids=["emulator", "ncu"],
)
def test_copies_of_whole_lines_to_scattered_places_are_conflicts_and_not_uncoalesced(
    numbers: dict[str, float | None],
) -> None:
    named = found(copying(32, 32, **numbers))
    assert list(named) == ["bank-conflicts"]
    finding = named["bank-conflicts"]
    assert finding.confidence == "high"
    assert "bank conflicts of cp.async" in finding.verdict
    assert finding.next_step.startswith("keep what comes from one line of global memory in one line of shared memory")
    values = {evidence.metric: evidence for evidence in finding.evidence}
    assert values["excess wavefronts of cp.async"].value == pytest.approx(28 * COPIES, rel=0.01)
    assert "excess wavefronts of ldmatrix" not in values
    sectors = values["sectors of global loads"]
    assert sectors.value == 32 * COPIES
    assert sectors.threshold == pytest.approx(16 * COPIES, rel=0.05)


@pytest.mark.parametrize(
    "numbers",
    [
        {**NO_GPU, "smem_wavefronts_least_ldgsts": 8 * COPIES, "global_sectors_addressed_ld": 16 * COPIES},
        {"l1_tag_requests_global": 8 * COPIES + 5e5},
    ],
    ids=["emulator", "ncu"],
)
def test_conflicts_that_move_no_more_sectors_are_named_as_well_and_rows_of_half_a_line_are_no_conflicts(
    numbers: dict[str, float | None],
) -> None:
    assert list(found(copying(16, 16, **numbers))) == ["bank-conflicts"]
    assert found(copying(8, 16, **numbers)) == {}


@pytest.mark.parametrize(
    "numbers",
    [
        {**NO_GPU, "smem_wavefronts_least_ldgsts": 32 * COPIES, "global_sectors_addressed_ld": 32 * COPIES},
        {"l1_tag_requests_global": 32 * COPIES + 5e5},
    ],
    ids=["emulator", "ncu"],
)
def test_copies_from_scattered_places_are_uncoalesced_and_no_conflicts(numbers: dict[str, float | None]) -> None:
    named = found(copying(32, 32, **numbers))
    assert list(named) == ["uncoalesced"]
    assert named["uncoalesced"].confidence == "high"


def test_without_a_count_of_lines_nothing_is_said_of_where_copies_write() -> None:
    one = without(copying(16, 16), ("l1_tag_requests_global",))
    assert found(one) == {}
    assert bank_conflicts.misplaced(Facts(one, H200)) == 0


def test_rows_that_begin_in_the_middle_of_a_sector_are_no_conflicts_where_lines_alone_are_counted() -> None:
    aligned = copying(16, 16, l1_tag_requests_global=4 * COPIES)
    odd = msgspec.structs.replace(aligned.case.problem, a=Operand(dtype="f16", ld=4104))
    ragged = msgspec.structs.replace(aligned, case=msgspec.structs.replace(aligned.case, problem=odd))
    assert bank_conflicts.misplaced(Facts(aligned, H200)) == pytest.approx(12 * COPIES)
    assert bank_conflicts.misplaced(Facts(ragged, H200)) == 0


def test_the_excess_of_loads_is_shared_out_as_it_was_counted() -> None:
    numbers = {"smem_wavefronts_actual": 8e7, "smem_wavefronts_ideal": 2e7, "conflict_ratio_ld": 0.5,
               "smem_wavefronts_sass_ldsm": 7e7, "smem_wavefronts_sass_ld": 1e7}  # fmt: skip
    counted = bank_conflicts.excess_by_kind(Facts(record({**numbers, "smem_bank_conflicts_ldsm": 4e7}), H200))
    guessed = bank_conflicts.excess_by_kind(Facts(record(numbers), H200))
    assert counted == {"loads": 0, "stores": 0, "ldmatrix": 4e7, "cp.async": 0}
    assert guessed == {"loads": 5e6, "stores": 0, "ldmatrix": 3.5e7, "cp.async": 0}


def test_scattered_stores_do_not_pay_for_copies_and_cost_their_time_at_the_end_of_a_block() -> None:
    numbers = {**NO_GPU, "smem_wavefronts_least_ldgsts": 8 * COPIES, "global_sectors_addressed_ld": 16 * COPIES,
               "global_sectors_st": 8e6, "global_bytes_st": 3.2e7, "global_bytes_ld": 16 * 32 * COPIES}  # fmt: skip
    alone, shared = (found(copying(8, 16, **numbers, blocks_per_sm=blocks)) for blocks in (1, 2))
    assert list(alone) == ["uncoalesced"]
    assert "global stores" in alone["uncoalesced"].verdict
    one, two = (named["uncoalesced"].cost for named in (alone, shared))
    assert one == pytest.approx(2 * two)
    assert 0.02 < two < 0.1
