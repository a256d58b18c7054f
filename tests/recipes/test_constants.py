"""The constants of recipes that come from an H200, made again from its stored records."""

from __future__ import annotations

import gzip
from math import ceil, inf
from pathlib import Path

import msgspec
import pytest

from dgw.model import Environment, Finding, Run
from dgw.recipes import (
    barrier_bound,
    epilogue_bound,
    l2_locality,
    launch_bound,
    no_reuse,
    occupancy,
    overlap,
    partial_wave,
    wgmma_serialised,
)
from dgw.recipes.facts import SCHEDULERS, Facts
from dgw.recipes.tiling import barriers
from dgw.recipes.wrong_path_for_m1 import FEW
from dgw.toolchain.devices import device
from tests.recipes.making import record

H200 = device("h200")
STORED = Path(__file__).resolve().parents[1] / "data" / "bottlenecks.json.gz"
CUBE, FUSED = "4096x4096x4096", "4096x4096x512"


@pytest.fixture(scope="module")
def stored() -> list[Facts]:
    run = msgspec.json.decode(gzip.decompress(STORED.read_bytes()), type=Run)
    return [Facts(one, H200) for one in run.records]


def of(stored: list[Facts], name: str, shape: str) -> Facts:
    (found,) = [f for f in stored if (f.case.variant, f.problem.shape) == (f"bottlenecks/{name}", shape)]
    return found


def judged(recipe: object, facts: Facts) -> Finding:
    finding = recipe.RECIPE.judge(facts)  # type: ignore[attr-defined]
    assert isinstance(finding, Finding)
    return finding


def whys(finding: Finding) -> str:
    return "; ".join(evidence.why for evidence in finding.evidence)


def test_what_a_launch_takes_lies_between_the_cycles_of_ncu_and_a_replayed_graph(stored: list[Facts]) -> None:
    slices = of(stored, "slices", "1024x1024x512")
    blocks = slices.launches * (slices.blocks or 0.0)
    a_block = (slices.number("sm_active_cycles") or 0.0) * H200.sms / blocks / H200.clock_hz
    counted = (slices.number("elapsed_cycles") or 0.0) / slices.launches / H200.clock_hz - a_block
    replayed = (slices.number("time_cold") or 0.0) / slices.launches - a_block
    assert slices.number("sm_clock") == H200.clock_hz
    assert counted == pytest.approx(launch_bound.LAUNCH, rel=0.05)
    assert replayed == pytest.approx(launch_bound.IN_A_GRAPH, rel=0.05)
    assert "an estimate, 2.4 us each" in whys(judged(launch_bound, slices))


def test_what_a_barrier_takes_is_what_a_kernel_with_more_of_them_took_longer(stored: list[Facts]) -> None:
    many, few = of(stored, "many-barriers", CUBE), of(stored, "tensor", CUBE)
    passed = [(barriers(f) or 0.0) * (f.blocks or 0.0) / H200.sms for f in (many, few)]
    each = (many.cycles - few.cycles) / (passed[0] - passed[1])
    assert each == pytest.approx(barrier_bound.MEETING, rel=0.05)


def test_an_epilogue_without_defect_stays_far_below_the_bar_and_the_planted_one_far_above(stored: list[Facts]) -> None:
    large = [f for f in stored if min(f.problem.m, f.problem.n) > FEW]
    each = {f.case.variant.partition("/")[2]: epilogue_bound.beside(f)[1] for f in large}
    planted = each.pop("slow-gelu")
    assert max(each.values()) < epilogue_bound.AN_ELEMENT / 2
    assert planted > 10 * epilogue_bound.AN_ELEMENT


def test_an_instruction_of_an_epilogue_takes_at_least_the_slots_assumed(stored: list[Facts]) -> None:
    slow, passes = of(stored, "slow-gelu", FUSED), of(stored, "passes", FUSED)
    (product,) = [m.value for m in passes.record.measurements if (m.metric, m.scope) == ("elapsed_cycles", "kernel 0")]
    slots = epilogue_bound.beside(slow)[0] / SCHEDULERS / H200.sms
    assert isinstance(product, float)
    assert (slow.cycles - product) / slots == pytest.approx(2.8, rel=0.05)
    assert epilogue_bound.SLOTS < 2.8
    assert "assumed to take 1.5 slots" in whys(judged(epilogue_bound, slow))


def test_loops_of_multiply_adds_and_what_goes_with_a_load_are_within_what_is_allowed_for_them(
    stored: list[Facts],
) -> None:
    simt = [f for f in stored if f.tile and min(f.problem.m, f.problem.n) > FEW and not f.uses_tensor_cores]
    tiled = [f for f in simt if not f.local_sectors and not f.case.variant.endswith("/naive-f32")]
    an_fma = [(f.number("issued") or 0.0) / (f.problem.flops / 64) for f in tiled]
    assert len(an_fma) > 5
    assert 1.1 < min(an_fma) < max(an_fma) < epilogue_bound.FMA_LOOP
    short = of(stored, "tensor", "4096x4096x256")
    loads = short.total("global_requests_ld", "ldsm_inst", "smem_requests_ld", "smem_requests_st")
    a_load = ((short.number("issued") or 0.0) - short.total("tensor_inst")) / loads
    assert a_load == pytest.approx(epilogue_bound.A_LOAD, rel=0.01)


def test_where_a_last_wave_costs_5_percent_the_assumption_about_half_empty_sms_plays_no_part(
    stored: list[Facts],
) -> None:
    waves = {}
    for facts in stored:
        work = (facts.tiles or facts.blocks or 0.0) / H200.sms
        if work >= partial_wave.ENOUGH and facts.launches <= 2 and 1 - work / ceil(work) >= 0.05:
            waves[facts.case.variant] = (facts.idle, 1 - work / ceil(work))
    assert "bottlenecks/last-wave" in waves
    assert all(idle >= lost for idle, lost in waves.values())


def test_a_good_order_of_tiles_reads_inputs_as_often_as_is_said(stored: list[Facts]) -> None:
    good = [of(stored, name, CUBE) for name in ("tensor", "persistent", "square")]
    good += [of(stored, "tensor-core", "4096x4096x1024"), of(stored, "tensor", "2048x2048x4096")]
    times = [(f.number("dram_read_bytes") or 0.0) / f.problem.bytes_of("a", "b") for f in good]
    assert min(times) == pytest.approx(1.0, rel=0.02)
    assert max(times) == pytest.approx(2.8, rel=0.02)
    assert min(times) < l2_locality.GOOD_ORDER < max(times) < l2_locality.LEAST_REREADS
    finding = judged(l2_locality, of(stored, "scattered", "4096x4096x16384"))
    assert "1.5 times are assumed" in whys(finding)


def test_loads_without_reuse_cost_more_than_is_assumed_by_what_was_counted(stored: list[Facts]) -> None:
    finding = judged(no_reuse, of(stored, "naive-f32", "4096x4096x1024"))
    assert (finding.cost or 0.0) > no_reuse.LEAST_SHARE
    assert "assumption" not in whys(finding)


def exponent(facts: Facts) -> float:
    """The norm of the cycles of its pipes that a kernel took, while its SMs had something to do."""
    cycles = [count for pipe, count in facts.busy.items() if pipe != "issue"]
    taken = facts.cycles * (1 - facts.idle)
    return max(norm / 20 for norm in range(20, 200) if overlap.together(cycles, norm / 20) >= taken)


def test_pipes_work_beside_each_other_as_is_assumed_of_the_emulator_or_less(stored: list[Facts]) -> None:
    tiled = [f for f in stored if f.tile and f.number("smem_wavefronts_actual") and min(f.problem.m, f.problem.n) > FEW]
    tiled = [f for f in tiled if overlap.together([c for p, c in f.busy.items() if p != "issue"], 1) >= f.cycles]
    plain = [exponent(f) for f in tiled if not f.number("ldgsts_inst")]
    ahead = {f.case.variant: exponent(f) for f in tiled if f.number("ldgsts_inst")}
    assert len(plain) == 5
    assert (min(plain), max(plain)) == pytest.approx(overlap.PLAIN_SEEN, abs=0.06)
    assert max(plain) < overlap.PLAIN
    assert max(ahead, key=lambda name: ahead[name]) == "bottlenecks/persistent"
    assert max(ahead.values()) == pytest.approx(overlap.AHEAD_SEEN, abs=0.06)
    assert max(value for name, value in ahead.items() if name != "bottlenecks/persistent") < overlap.AHEAD


def test_a_pipe_that_is_nearly_the_busiest_counts_in_the_emulator_and_by_the_maximum_where_it_was_measured() -> None:
    assert overlap.together((3, 4), 1) == 7
    assert overlap.together((3, 4), 2) == 5
    assert overlap.together((3, 4, 0), inf) == 4
    assert overlap.together((), 2) == 0
    unmeasured = dict.fromkeys(("elapsed_cycles", "time_cold", "time_hot"))
    plain = Facts(record(unmeasured | {"ldgsts_inst": 0}, environment=Environment(engine="emulator")), H200)
    least = min(plain.busy, key=lambda pipe: plain.busy[pipe])
    for facts, saves in ((plain, True), (Facts(record(), H200), False)):
        for pipe, cycles in facts.busy.items():
            if pipe != facts.busiest[0] and cycles:
                assert (facts.relief({pipe: cycles}) > 0) is saves
    assert plain.relief({least: plain.busy[least]}) < plain.relief({plain.busiest[0]: plain.busy[plain.busiest[0]]})


def test_a_finding_says_which_of_its_figures_is_assumed() -> None:
    flags = ("ptxas: (C7511) Potential Performance Loss: wgmma serialised",)
    unknown = judged(wgmma_serialised, Facts(record({"tensor_pipe_util_active": None}, flags=flags), H200))
    known = judged(wgmma_serialised, Facts(record({"tensor_pipe_util_active": 0.3}, flags=flags), H200))
    assert ("an assumption" in whys(unknown), unknown.confidence) == (True, "medium")
    assert ("an assumption" in whys(known), known.confidence) == (False, "high")
    loads = record(
        {"smem_wavefronts_actual": 0, "ldgsts_inst": 0, "tensor_inst": 0, "global_requests_ld": 4e9, "issued": 1}
    )
    assert "by assumption" in whys(judged(no_reuse, Facts(loads, H200)))
    half = record({"sm_active_cycles": 480_000}, blocks=136, tile=None, config={})
    assert "by assumption" in whys(judged(partial_wave, Facts(half, H200)))
    emulated = record(dict.fromkeys(("elapsed_cycles", "time_cold", "time_hot")) | {"barrier_inst": 3e6})
    assert "an estimate, 22 for each barrier" in whys(judged(barrier_bound, Facts(emulated, H200)))
    for one, said in ((emulated, True), (record(), False)):
        assert ("by assumption" in str(occupancy.evidence(Facts(one, H200), "occ_limit_registers"))) is said
