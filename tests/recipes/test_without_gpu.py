"""What recipes say of records of the emulator, in which no pipe is known to be busy and no time was taken."""

from __future__ import annotations

import pytest

from dgw.model import Environment, Record
from dgw.recipes.diagnosis import diagnose
from dgw.toolchain.devices import device
from tests.recipes.making import record

H200 = device("h200")
UNMEASURED = dict.fromkeys(("elapsed_cycles", "time_cold", "time_hot", "sm_active_cycles", "achieved_occupancy"))


def emulated(numbers: dict[str, float | str | None], launches: int = 1) -> Record:
    environment = Environment(device="h200", arch="sm_90a", engine="emulator")
    return record(UNMEASURED | numbers, launches=launches, environment=environment)


def limited(resource: str, occupancy: float | None) -> list[str]:
    """What is said where `resource` leaves room for one block of four."""
    limits = {"occ_limit_registers": 4, "occ_limit_shared_mem": 4, f"occ_limit_{resource}": 1}
    found = diagnose(emulated({**limits, "theoretical_occupancy": occupancy}), H200, unknown=False)
    return [str(one) for one in found if one.recipe.endswith("-occupancy")]


@pytest.mark.parametrize("resource", ["registers", "shared_mem"])
def test_few_warps_are_named_for_what_keeps_them_away_and_enough_of_them_are_not(resource: str) -> None:
    (few,), enough, unknown = limited(resource, 0.125), limited(resource, 0.5), limited(resource, None)
    assert "by assumption" in few
    assert "busiest pipe" not in few
    assert enough == []
    assert len(unknown) == 1


def test_starting_many_kernels_comes_on_top_of_the_work_that_the_emulator_knows() -> None:
    (many,) = [f for f in diagnose(emulated({}, launches=64), H200) if f.recipe == "launch-bound"]
    start, work = 64 * 2.4, 425_000 / 1980
    assert f"starting 64 kernels takes up to 154 us on top of {work:.3g} us of work at least" in many.verdict
    assert many.cost == pytest.approx(start / (start + work), rel=0.01)
    assert [f for f in diagnose(emulated({}, launches=3), H200) if f.recipe == "launch-bound"] == []
    timed = record({"time_cold": 400e-6}, launches=64)
    (measured,) = [f for f in diagnose(timed, H200) if f.recipe == "launch-bound"]
    assert "takes up to 154 us of the 400 us" in measured.verdict
