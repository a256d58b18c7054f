"""The Hopper family: every stage compiles to a pipeline that nothing holds up, and the selector's choices can run."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgw.kernels.hopper import alignment, selector, tiling
from dgw.kernels.loader import load
from dgw.model import Config, Epilogue, Operand, Problem, Record, TensorMap, Variant, Workspace, gemm
from dgw.toolchain.build import build
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device

H200 = device("h200")
STAGES = [variant for variant in load().values() if variant.family == "hopper"]
PERSISTENT = load()["hopper/persistent"]
LARGE = 4096
TILES: tuple[Config, ...] = (
    {"BM": 64, "BN": 128}, {"BM": 256, "BN": 128}, {"BN": 80},
    {"CLUSTER_M": 2, "CLUSTER_N": 2}, {"SPLIT": 2, "CLUSTER_M": 1}, {"BM": 256, "BN": 128, "SPLIT": 4, "CLUSTER_M": 1},
    {"SETMAXNREG": 0}, {"SETMAXNREG": 1}, {"PINGPONG": 1, "BN": 128, "STAGES": 6},
    {"PINGPONG": 1, "BM": 64, "BN": 256, "SETMAXNREG": 1},
)  # fmt: skip


def compiles(variant: Variant, problem: Problem, config: Config, cache: CompileCache) -> None:
    """Every launch of the plan: no spills, no stack, no C75xx, by which ptxas says that it serialised wgmma, and not
    more registers moved to the warpgroups that multiply than the CTA has: for these they would wait for ever."""
    assert variant.plan is not None
    assert variant.refuses(problem, config, H200) is None
    for launch in variant.plan(problem, config, H200).launches:
        made = build(launch.source, variant.root, variant.includes, H200.arch, cache)
        used = made.resources(launch.entry)
        assert (used.spill_store_bytes, used.spill_load_bytes, used.local_bytes) == (0, 0, 0)
        assert made.coded_remarks == ()
        taken, given = (re.findall(rf"setmaxnreg\.{way}\S* (\d+)", made.ptx) for way in ("inc", "dec"))
        if taken:
            multiplying = 128 * tiling.Tiling.of(problem, config, tiling.output_of(problem)).consumers
            others = launch.block[0] - multiplying
            assert multiplying * int(*taken) + others * int(*given) <= used.registers * launch.block[0]


def chosen(variant: Variant, problem: Problem, **pinned: int) -> Config:
    return variant.config_for(problem, H200, dict(pinned))


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("variant", STAGES, ids=lambda v: v.id)
def test_every_stage_multiplies_without_a_pause_in_every_layout(
    variant: Variant, layout: str, cache: CompileCache
) -> None:
    problem = gemm(LARGE, LARGE, LARGE, layout=layout)
    compiles(variant, problem, chosen(variant, problem), cache)


@pytest.mark.parametrize(
    ("dtype", "out", "n"), [("bf16", "f32", 4096), ("f16", "bf16", 4095), ("bf16", "s8", 4096), ("f16", "e4m3", 4096)]
)
def test_the_last_stage_stores_every_type(dtype: str, out: str, n: int, cache: CompileCache) -> None:
    epilogue = Epilogue(activation="gelu", quantise="row" if out in ("s8", "e4m3") else "none")
    problem = gemm(LARGE, n, LARGE, dtype, "nt", out, bias=Operand(dtype=dtype), epilogue=epilogue)
    compiles(PERSISTENT, problem, chosen(PERSISTENT, problem), cache)


@pytest.mark.parametrize(("out", "fused"), [("f16", False), ("f32", False), ("f16", True)])
def test_a_matrix_that_is_stored_by_rows_leaves_room_for_the_sums(out: str, fused: bool, cache: CompileCache) -> None:
    problem = gemm(LARGE, LARGE - 1, LARGE, out=out)
    if fused:
        vector, epilogue = Operand(dtype="f16"), Epilogue(activation="silu")
        problem = gemm(LARGE, LARGE - 1, LARGE, out=out, bias=vector, residual=vector, epilogue=epilogue)
    assert tiling.output_of(problem) == tiling.BY_ROWS
    compiles(PERSISTENT, problem, chosen(PERSISTENT, problem), cache)


@pytest.mark.parametrize("activation", ["none", "gelu"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_what_is_chosen_for_the_heaviest_epilogue_fits_the_registers(
    layout: str, activation: Any, cache: CompileCache
) -> None:
    matrix, epilogue = Operand(dtype="f16"), Epilogue(activation=activation)
    for m, n in ((4095, 4095), (1999, 3001), (4096, 4096)):
        added = {"beta": 0.5, "c": matrix, "bias": matrix, "residual": matrix}
        problem = gemm(m, n, 1023, layout=layout, epilogue=epilogue, **added)  # type: ignore[arg-type]
        compiles(PERSISTENT, problem, chosen(PERSISTENT, problem), cache)


@pytest.mark.parametrize("added", ["plain", "bias", "c", "residual"])
@pytest.mark.parametrize(("n", "out"), [(4096, "f16"), (4095, "f16"), (4096, "f32"), (4095, "f32")])
def test_what_is_chosen_where_warpgroups_may_take_turns_fits_the_registers(
    n: int, out: str, added: str, cache: CompileCache
) -> None:
    matrix, more = Operand(dtype="f16"), dict[str, Any]()
    if added != "plain":
        more = {"bias": matrix, "epilogue": Epilogue(activation="silu")}
    more |= {"c": {"c": matrix, "beta": 0.5}, "residual": {"residual": matrix}}.get(added, {})
    problem = gemm(LARGE, n, LARGE, layout="nt", out=out, **more)
    config = chosen(PERSISTENT, problem)
    assert config["PINGPONG"] == (0 if added == "residual" else 1)
    compiles(PERSISTENT, problem, config, cache)


@pytest.mark.parametrize("config", TILES, ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items()))
def test_every_kind_of_tile_fits_the_registers(config: Config, cache: CompileCache) -> None:
    problem = gemm(1024, 1024, LARGE, layout="nt")
    compiles(PERSISTENT, problem, {**PERSISTENT.defaults(), "CLUSTER_M": 1, **config}, cache)


sizes = st.integers(1, 20000)


@given(sizes, sizes, sizes, st.sampled_from(["nn", "nt", "tn", "tt"]), st.sampled_from(["f16", "f32"]))
def test_the_selector_takes_nothing_that_the_kernel_refuses(m: int, n: int, k: int, layout: str, out: str) -> None:
    problem = gemm(m, n, k, layout=layout, out=out)
    assert PERSISTENT.refuses(problem, chosen(PERSISTENT, problem), H200) is None
    found = selector.choose(problem, {}, H200)
    assert found is not None
    assert found.seconds == min(selector.estimate(problem, selector.candidates(problem, {}, H200), H200))
    assert found.seconds >= problem.flops / H200_RATE
    assert all(found.reasons)


H200_RATE = 2 * 1024 * 132 * 1.98e9 * 2  # FLOP/s: twice what the tensor cores of all SMs do at the highest clock


@given(st.sampled_from([64, 128, 256]), st.sampled_from([32, 64, 128]), st.sampled_from([1, 2]))
def test_what_the_user_pins_is_kept(bm: int, bn: int, split: int) -> None:
    config = chosen(PERSISTENT, gemm(512, 4096, 4096, layout="nt"), BM=bm, BN=bn, SPLIT=split)
    assert (config["BM"], config["BN"], config["SPLIT"]) == (bm, bn, split)
    assert set(config) == set(PERSISTENT.defaults())


def test_where_there_are_fewer_tiles_than_sms_k_is_split() -> None:
    assert int(chosen(PERSISTENT, gemm(128, 256, 8192, layout="nt"))["SPLIT"]) > 1
    assert chosen(PERSISTENT, gemm(8192, 8192, 8192, layout="nt"))["SPLIT"] == 1


def test_clusters_of_four_leave_sms_without_work() -> None:
    assert [selector.resident(H200, size) for size in (1, 2, 4, 8)] == [132, 132, 112, 112]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"BM": 96}, "a warpgroup multiplies 64 rows"),
        ({"BN": 264}, "multiple of 16 from 16 to 256"),
        ({"BM": 256, "BN": 256}, "sums a thread"),
        ({"PINGPONG": 1}, "sums a thread"),
        ({"PINGPONG": 1, "BN": 64, "SPLIT": 2, "CLUSTER_M": 1}, "several tiles a CTA"),
        ({"STAGES": 1}, "leaves no tile to copy into"),
        ({"STAGES": 8}, "STAGES=4 fits"),
        ({"SPLIT": 2, "CLUSTER_M": 2}, "not both"),
        ({"SPLIT": 8, "BN": 64, "CLUSTER_M": 1}, "equal parts"),
        ({"CLUSTER_M": 2, "BN": 64, "layout": "nn"}, "2 CTAs cannot load equal parts"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(config: dict[str, int | str], why: str) -> None:
    layout = str(config.pop("layout", "nt"))
    refused = PERSISTENT.refuses(gemm(LARGE, LARGE, LARGE, layout=layout), {**PERSISTENT.defaults(), **config}, H200)
    assert refused is not None
    assert why in refused


def test_a_short_k_is_not_split() -> None:
    config = {**PERSISTENT.defaults(), "SPLIT": 4, "CLUSTER_M": 1}
    assert "k = 100" in str(PERSISTENT.refuses(gemm(64, 64, 100), config, H200))


@pytest.mark.parametrize(
    ("n", "k", "copied"),
    [(256, 256, ()), (255, 256, ("b",)), (256, 250, ("a",)), (255, 3, ("a", "b")), (255, 1, ("a",))],
)
def test_operands_that_the_copy_engine_cannot_step_through_are_copied_first(
    n: int, k: int, copied: tuple[str, ...]
) -> None:
    problem, first = gemm(64, n, k), load()["hopper/tensor-core"]
    assert alignment.copied(problem) == copied
    plan = first.plan(problem, chosen(first, problem), H200)  # type: ignore[misc]
    assert plan.kernels == len(plan.launches)
    maps = [argument for argument in plan.launches[-1].arguments if isinstance(argument, TensorMap)]
    read = {box.operand: box for box in maps if box.operand in ("a", "b")}
    for name in ("a", "b"):
        assert bool(read[name].workspace) == (name in copied)
    names = {
        argument.name for launch in plan.launches for argument in launch.arguments if isinstance(argument, Workspace)
    }
    assert names == set(plan.workspaces)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_an_operand_that_begins_off_sixteen_bytes_is_copied_first(layout: str) -> None:
    """Though its lines are multiples of 16 bytes apart; B begins at another multiple and is read where it lies."""
    plain = gemm(256, 512, 128, layout=layout)
    a, b = (msgspec.structs.replace(operand, offset=offset) for operand, offset in ((plain.a, 11), (plain.b, 16)))
    problem = msgspec.structs.replace(plain, a=a, b=b)
    assert alignment.copied(problem) == ("a",)
    assert alignment.reasons(problem) == ("a is copied first: its first element is 6 bytes behind a multiple of 16",)
    for variant in STAGES:
        plan = variant.plan(problem, chosen(variant, problem), H200)  # type: ignore[misc]
        maps = (one for one in plan.launches[-1].arguments if isinstance(one, TensorMap))
        workspaces = {one.operand: one.workspace for one in maps}
        assert (workspaces["a"], workspaces["b"]) == ("aligned a", "")
        assert [launch.entry for launch in plan.launches[:-1]] == ["aligned_copy"]


def test_what_is_stored_through_the_copy_engine_is_whole_sixteen_bytes() -> None:
    assert tiling.output_of(gemm(64, 64, 64)) == tiling.BY_ENGINE
    assert tiling.output_of(gemm(64, 63, 64)) == tiling.BY_ROWS
    assert tiling.output_of(gemm(1, 1, 1)) == tiling.BY_ROWS
    assert tiling.output_of(gemm(64, 60, 64, out="f16")) == tiling.BY_ROWS
    assert tiling.output_of(gemm(64, 60, 64, out="f32")) == tiling.BY_ENGINE
    moved = msgspec.structs.replace(gemm(64, 64, 64), d=Operand(dtype="f16", offset=4))
    assert tiling.output_of(moved) == tiling.BY_ROWS


def test_what_is_quantised_is_stored_from_registers() -> None:
    for n in (63, 64):
        problem = gemm(64, n, 64, out="s8", epilogue=Epilogue(quantise="row"))
        assert tiling.output_of(problem) == tiling.FROM_REGISTERS


def test_a_matrix_that_is_stored_by_rows_gets_the_tile_and_ring_of_its_neighbour() -> None:
    rows, engine = (chosen(PERSISTENT, gemm(4096, n, 4096), COPY_AHEAD=0) for n in (4095, 4096))
    assert rows == {**engine, "SETMAXNREG": 1}


def test_the_clusters_of_the_grid_are_whole() -> None:
    for config, (m, n) in itertools.product(TILES, [(4096, 4096), (130, 70), (1, 1)]):
        problem = gemm(m, n, 512, layout="nt")
        full = {**PERSISTENT.defaults(), "CLUSTER_M": 1, **config}
        plan = PERSISTENT.plan(problem, full, H200)  # type: ignore[misc]
        launch = plan.launches[-1]
        assert launch.grid[0] % launch.cluster[0] == 0
        assert launch.cluster[0] == tiling.Tiling.of(problem, full, tiling.output_of(problem)).cluster


@pytest.mark.parametrize(
    ("m", "n", "k", "in_turn"),
    [
        (4096, 4096, 4096, True), (8192, 8192, 8192, True), (4096, 32768, 512, True), (4095, 4095, 4095, True),
        (128, 57344, 8192, False), (2048, 2048, 2048, False), (4096, 2112, 7168, False), (65536, 1024, 64, False),
    ],
)  # fmt: skip
def test_warpgroups_take_turns_at_large_problems_that_the_tensor_cores_bound(
    m: int, n: int, k: int, in_turn: bool
) -> None:
    """Not where DRAM bounds them, where CTAs have few tiles, or where other tiles cover D much better."""
    choice = selector.choose(gemm(m, n, k, layout="nt"), {}, H200)
    assert choice is not None
    assert choice.config["PINGPONG"] == in_turn
    assert any("take turns" in reason for reason in choice.reasons) == in_turn


def test_the_tile_of_warpgroups_that_take_turns_took_the_fewest_cycles_of_the_evidence() -> None:
    stored = json.loads((Path(__file__).parents[2] / "docs" / "h200" / "hopper.json").read_text(encoding="utf-8"))
    cycles: dict[tuple[object, ...], float] = {}
    for record in msgspec.convert(stored["parts"]["ablation"]["run"]["records"], list[Record]):
        found = record.number("elapsed_cycles")
        if found is not None and record.case.variant == PERSISTENT.id:
            tile = tuple(record.case.config[name] for name in ("PINGPONG", "BM", "BN"))
            cycles[tile] = min(found, cycles.get(tile, found))
    assert len(cycles) >= 5
    assert min(cycles, key=cycles.__getitem__) == (1, *selector.TURNS)


def test_the_selector_loses_little_among_the_candidates_that_were_timed() -> None:
    with gzip.open(Path(__file__).parents[1] / "data" / "hopper-candidates.json.gz") as file:
        timed = json.load(file)
    lost, moved = {}, {}
    for shape, found in timed["shapes"].items():
        moved[shape] = max(found["cublas"]) / min(found["cublas"])  # the same kernel before the candidates and after
        seconds = {tuple(row[:-1]): row[-1] for row in found["candidates"]}
        m, n, k = map(int, shape.split("x"))
        # out of the whole space where warpgroups share a tile: a pick that was not timed is a KeyError
        choice = selector.choose(gemm(m, n, k, layout="nt"), {"PINGPONG": 0}, H200)
        assert choice is not None
        lost[shape] = seconds[tuple(choice.config[name] for name in timed["tunables"])] / min(seconds.values())
    assert len(lost) >= 40
    assert geometric_mean(lost.values()) <= 1.02
    large = {shape: ratio / moved[shape] for shape, ratio in lost.items() if shape.startswith(("128x", "4096x"))}
    assert max(large.values()) <= 1.075, large
