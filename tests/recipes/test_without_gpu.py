"""What recipes say of records of the emulator, in which no pipe is known to be busy and no time was taken."""

from __future__ import annotations

import msgspec
import pytest

from dgw.model import Environment, Finding, Problem, Record, gemm
from dgw.recipes.diagnosis import diagnose
from dgw.toolchain.devices import device
from tests.recipes.making import record

H200 = device("h200")
UNMEASURED = dict.fromkeys(("elapsed_cycles", "time_cold", "time_hot", "sm_active_cycles", "achieved_occupancy"))


def emulated(numbers: dict[str, float | str | None], launches: int = 1, problem: Problem | None = None) -> Record:
    environment = Environment(device="h200", arch="sm_90a", engine="emulator")
    return record(UNMEASURED | numbers, problem, launches=launches, environment=environment)


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


def loaded(fma: float, conflicts: float = 0.0, tier: str = "exact") -> list[Finding]:
    """What is said of loads that take the banks 4e6 cycles beside products of 1e6 and an FMA pipe busy for `fma`."""
    wavefronts = 4e6 * H200.sms
    numbers: dict[str, float | str | None] = {
        "smem_wavefronts_actual": wavefronts + conflicts, "smem_wavefronts_ideal": wavefronts,
        "smem_wavefronts_sass_ld": wavefronts + conflicts, "smem_wavefronts_sass_ldsm": 0,
        "fma_inst": fma * H200.sms * 4, "conflict_ratio_ld": conflicts / (wavefronts + conflicts),
        "tensor_inst": 0, "ldgsts_inst": 0, "tensor_pipe_util": None, "fma_pipe_util": None,
    }  # fmt: skip
    plain = emulated(numbers, problem=gemm(4096, 4096, 1024, "f32"))
    tiers = [
        msgspec.structs.replace(m, tier=tier) if m.metric == "smem_wavefronts_sass_ld" else m
        for m in plain.measurements
    ]
    found = diagnose(msgspec.structs.replace(plain, measurements=tuple(tiers)), H200, unknown=False)
    return [one for one in found if one.recipe == "shared-memory-bound"]


def test_banks_that_conflicts_keep_busy_or_that_are_not_the_busiest_are_no_lack_of_products() -> None:
    (alone,), (beside,) = loaded(1e6), loaded(1e6, conflicts=4e7 * H200.sms)
    assert (alone.confidence, beside.confidence) == ("high", "medium")
    assert "take 3.9 times as long" in alone.verdict
    assert loaded(5e6) == []


def test_wavefronts_that_the_machine_code_may_not_make_are_said_to_be_those_of_the_ptx() -> None:
    ((exact,), (ptx,)) = loaded(1e6), loaded(1e6, tier="ptx-level")
    assert "the lower bound leaves shared memory out" in str(ptx.evidence)
    assert "the lower bound" not in str(exact.evidence)
    assert (exact.confidence, ptx.confidence) == ("high", "medium")


def test_starting_many_kernels_comes_on_top_of_the_work_that_the_emulator_knows() -> None:
    (many,) = [f for f in diagnose(emulated({}, launches=64), H200) if f.recipe == "launch-bound"]
    start, work = 64 * 2.4, 425_000 / 1980
    assert f"starting 64 kernels takes up to 154 us on top of {work:.3g} us of work at least" in many.verdict
    assert many.cost == pytest.approx(start / (start + work), rel=0.01)
    assert [f for f in diagnose(emulated({}, launches=3), H200) if f.recipe == "launch-bound"] == []
    timed = record({"time_cold": 400e-6}, launches=64)
    (measured,) = [f for f in diagnose(timed, H200) if f.recipe == "launch-bound"]
    assert "takes up to 154 us of the 400 us" in measured.verdict
