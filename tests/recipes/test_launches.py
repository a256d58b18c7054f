"""Several launches: the epilogue of the product is told from kernels of its own, each by its own counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dgw.model import Environment, Epilogue, Finding, Launch, Plan, Pointer, Problem, Record, Source, Workspace, gemm
from dgw.recipes import epilogue_bound, launches
from dgw.recipes.diagnosis import diagnose, untold
from dgw.recipes.facts import Facts
from dgw.toolchain.devices import device
from tests.recipes.making import record, without

H200 = device("h200")
PROBLEM = gemm(4096, 4096, 512, epilogue=Epilogue(activation="gelu"))
PRODUCTS = 2 * 4096 * 4096 * 512 / 4096
EMULATED = Environment(device="h200", arch="sm_90a", engine="emulator")


def launch(*arguments: Pointer | Workspace) -> Launch:
    return Launch(source=Source(path="k.cu"), entry="k", grid=(512, 1, 1), block=(256, 1, 1), arguments=arguments)


A, B, D, SUMS = (*(Pointer(operand=name) for name in "abd"), Workspace(name="sums"))


def emulated(of_product: float, of_finish: float, problem: Problem = PROBLEM, **kernels: list[float]) -> Record:
    """A product and what finishes its f32 sums, with so many instructions, as the emulator counts them."""
    counts: dict[str, list[float]] = {
        "inst_executed": [of_product, of_finish], "tensor_inst": [PRODUCTS, 0], "global_requests_ld": [4e5, 1e5],
        "ldsm_inst": [1e6, 0], "smem_wavefronts_actual": [5.7e6, 0], "global_sectors_hw_ld": [6.2e6, 2e6],
        "global_bytes_ld": [2e8, 1e8], "global_bytes_st": [6.7e7, 3.36e7], **kernels,
    }  # fmt: skip
    numbers: dict[str, Any] = {metric: sum(values) for metric, values in counts.items()}
    nothing = dict.fromkeys(("elapsed_cycles", "time_cold", "time_hot", "issued", "l2_sectors"))
    made = record({**nothing, **numbers}, problem=problem, kernels=counts, launches=2, environment=EMULATED)
    steps = (launch(A, B, SUMS), launch(SUMS, Pointer(operand="bias"), D))
    plan = Plan(steps=steps, workspaces={"sums": 4096 * 4096 * 4}, kernels=2, tile=(128, 256))
    return msgspec.structs.replace(made, plan=plan)


def found(one: Record) -> dict[str, Finding]:
    wanted = ("epilogue-bound", "unfused-epilogue")
    return {finding.recipe: finding for finding in diagnose(one, H200) if finding.recipe in wanted}


def test_instructions_of_a_second_kernel_are_no_epilogue_of_the_product() -> None:
    one = emulated(2.5e7, 6e7)
    assert epilogue_bound.beside(Facts(one, H200))[1] > epilogue_bound.AN_ELEMENT  # both kernels together
    named = found(one)
    assert list(named) == ["unfused-epilogue"]
    evidence = {each.metric: each.value for each in named["unfused-epilogue"].evidence}
    assert evidence["issue slots outside the product"] == pytest.approx(6e7 / 4 / 132)
    assert evidence["bytes read and written again"] == 4096 * 4096 * (4 + 2)


def test_instructions_of_the_product_are_its_epilogue_though_another_kernel_follows() -> None:
    named = found(emulated(9e7, 1e6))
    assert list(named) == ["epilogue-bound", "unfused-epilogue"]
    alone = found(record(
        {"elapsed_cycles": None, "time_cold": None, "time_hot": None, "inst_executed": 9e7, "issued": 9e7,
         "ldsm_inst": 1e6, "global_requests_ld": 4e5}, problem=PROBLEM, environment=EMULATED,
    ))  # fmt: skip
    assert (named["epilogue-bound"].cost or 1) < (alone["epilogue-bound"].cost or 0)  # the other kernel takes its part


def test_kernels_that_follow_cost_their_instructions_or_their_bytes_whichever_take_longer() -> None:
    few, many, most = (found(emulated(2.5e7, count))["unfused-epilogue"].cost for count in (1e6, 2e6, 6e7))
    product = launches.product(Facts(emulated(2.5e7, 1e6), H200)).cycles
    bytes_take = 4096 * 4096 * 6 / H200.dram_bytes_per_s * H200.clock_hz
    assert few == many == pytest.approx(bytes_take / (bytes_take + product))
    assert most == pytest.approx(6e7 / 528 / (6e7 / 528 + product))


def test_without_counts_of_each_kernel_the_epilogue_cannot_be_told_and_the_bytes_of_d_are_taken() -> None:
    one = emulated(9e7, 6e7)
    kept = tuple(m for m in one.measurements if not m.scope.startswith("kernel "))
    named = found(msgspec.structs.replace(one, measurements=kept))
    assert untold(named["epilogue-bound"])
    assert "inst_executed" in named["epilogue-bound"].verdict
    evidence = {each.metric: each.value for each in named["unfused-epilogue"].evidence}
    assert evidence["bytes read and written again"] == 2 * 4096 * 4096 * 2
    assert "issue slots outside the product" not in evidence


def test_one_kernel_on_a_gpu_is_judged_by_its_own_cycles() -> None:
    counts = {"inst_executed": [1.2e8, 1e6], "tensor_inst": [PRODUCTS, 0], "global_requests_ld": [4e5, 1e5],
              "ldsm_inst": [1e6, 0], "tensor_pipe_util": [0.2, 0]}  # fmt: skip
    cycles = {"elapsed_cycles": [300_000.0, 100_000.0]}
    case = {"elapsed_cycles": 400_000, "issued": None}
    measured = record(case, problem=PROBLEM, kernels={**counts, **cycles}, launches=2)
    named = found(measured)["epilogue-bound"]
    assert not untold(named)
    slots = next(each for each in named.evidence if each.metric == "cycles of issue")
    assert slots.threshold == 300_000
    assert named.cost == pytest.approx(min(0.95, 1 - 0.2, (slots.value or 0) / 300_000 * 1.5) * 0.75)
    untimed = found(record(case, problem=PROBLEM, kernels=counts, launches=2))["epilogue-bound"]
    assert "needs elapsed_cycles" in untimed.verdict


@pytest.mark.parametrize(
    ("given", "loaded", "stored", "moved"),
    [
        ((SUMS, D), 6.7e7, 3.3e7, 6.7e7 + 3.3e7),
        ((SUMS, D), 9e7, 4096 * 4096 * 2, 4096 * 4096 * 6),  # no more than the sums hold
        ((D,), 9e7, 4096 * 4096 * 2, 4096 * 4096 * 4),  # in place: read and written
    ],
)
def test_a_launch_moves_what_it_stores_and_no_more_than_it_is_given(
    given: tuple[Pointer | Workspace, ...], loaded: float, stored: float, moved: float
) -> None:
    one = emulated(2e7, 1e6, global_bytes_ld=[1.0, loaded], global_bytes_st=[1.0, stored])
    assert one.plan is not None
    plan = msgspec.structs.replace(one.plan, steps=(one.plan.launches[0], launch(*given)))
    assert launches.bytes_moved(Facts(msgspec.structs.replace(one, plan=plan), H200), 1) == moved
    assert launches.bytes_moved(Facts(without(one, ("global_bytes_st",)), H200), 1) is None
