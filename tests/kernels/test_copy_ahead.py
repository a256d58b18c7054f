"""Operands that the copy engine cannot reach, copied by the kernel that multiplies them: when, and when not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.kernels.hopper import alignment, s04_persistent, tiling
from dgw.kernels.loader import load
from dgw.model import Config, Epilogue, Operand, Problem, Workspace, gemm
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device
from tests.kernels.test_hopper import compiles

H200 = device("h200")
PERSISTENT = load()["hopper/persistent"]


def cube(size: int, layout: str = "nt", **fields: Any) -> Problem:
    return gemm(size, size, size, layout=layout, **fields)


@pytest.mark.parametrize(("shape", "ahead"), [
    ((1001, 1001, 1001), 0), ((1501, 1501, 1501), 1), ((2047, 2047, 2047), 1), ((2048, 2048, 2048), 0),
    ((4095, 4095, 4095), 1), ((4095, 4095, 1001), 0), ((129, 4095, 4095), 1), ((17, 511, 8191), 0),
], ids=str)  # fmt: skip
def test_much_is_copied_ahead_where_the_first_tile_of_a_cta_is_a_large_part(
    shape: tuple[int, int, int], ahead: int
) -> None:
    """At 1001 there is little to copy, at 2048 nothing; of 4095x4095 a CTA has four tiles, which are short of k = 1001;
    17 rows by 511 columns are too few tiles for half of the SMs."""
    problem = gemm(*shape, layout="nt")
    config = PERSISTENT.config_for(problem, H200)
    assert config["COPY_AHEAD"] == ahead
    if ahead:
        assert int(config["CLUSTER_M"]) * int(config["CLUSTER_N"]) == 2
        assert config["PINGPONG"] == 0
        assert PERSISTENT.config_for(problem, H200, {"COPY_AHEAD": 1}) == config


def test_a_pinned_way_is_kept() -> None:
    for size, ahead in ((1001, 1), (2047, 0), (4095, 1)):
        config = PERSISTENT.config_for(cube(size), H200, {"COPY_AHEAD": ahead})
        assert config["COPY_AHEAD"] == ahead
        assert PERSISTENT.refuses(cube(size), config, H200) is None


def test_a_plan_that_copies_ahead_is_one_launch_of_ctas_that_run_together() -> None:
    problem = cube(2047)
    config = PERSISTENT.config_for(problem, H200)
    plan = PERSISTENT.plan(problem, config, H200)  # type: ignore[misc]
    (launch,) = plan.launches
    assert plan.kernels == 1
    assert launch.together
    assert not launch.overlaps
    assert launch.block[0] == 384
    assert launch.grid[0] <= H200.sms
    assert {one.name for one in launch.arguments if isinstance(one, Workspace)} <= plan.workspaces.keys()
    assert alignment.PROGRESS in plan.workspaces


@pytest.mark.parametrize(("problem", "config", "why"), [
    (cube(2048), {}, "nothing to copy"),
    (cube(2047), {"SPLIT": 2, "CLUSTER_M": 1}, "SPLIT=1, and clusters of two"),
    (cube(2047), {"BM": 64, "BN": 128, "CLUSTER_M": 2, "CLUSTER_N": 2}, "SPLIT=1, and clusters of two"),
    (cube(2047, out="s8", epilogue=Epilogue(quantise="row")), {"BM": 128, "BN": 128}, "D in s8"),
    (cube(2047), {"BM": 128, "BN": 128, "SETMAXNREG": 0}, "without SETMAXNREG=1"),
    (cube(2047), {"BM": 64, "BN": 16, "STAGES": 2, "PINGPONG": 1}, "2 tiles of 64x16 are too few"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_what_cannot_copy_ahead_is_refused_with_the_reason(problem: Problem, config: Config, why: str) -> None:
    asked = {"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT": 1, "STAGES": 4, "SETMAXNREG": 1, "GROUP_M": 8, "PINGPONG": 0}
    full: Config = {"BM": 128, "BN": 128, **asked, **config, "COPY_AHEAD": 1}
    assert why in str(PERSISTENT.refuses(problem, full, H200))
    assert PERSISTENT.refuses(problem, {**full, "COPY_AHEAD": 0}, H200) is None


def test_the_last_bytes_of_shared_memory_are_not_taken_twice() -> None:
    problem = cube(2047)
    config = PERSISTENT.config_for(problem, H200, {"COPY_AHEAD": 1, "BM": 128, "BN": 128, "PINGPONG": 0})
    tile = tiling.Tiling.of(problem, config, tiling.output_of(problem))
    narrow = msgspec.structs.replace(H200, shared_per_block=tile.shared_bytes + tiling.BARRIER_BYTES - 1)
    assert "16 bytes of shared memory" in str(PERSISTENT.refuses(problem, config, narrow))
    assert PERSISTENT.refuses(problem, {**config, "COPY_AHEAD": 0}, narrow) is None


@pytest.mark.parametrize("tile", [
    {"BM": 256, "BN": 128}, {"BM": 128, "BN": 256}, {"BM": 128, "BN": 192}, {"BM": 128, "BN": 128, "PINGPONG": 1},
    {"BM": 64, "BN": 192},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_copies_leave_registers_to_the_sums(tile: Config, layout: str, cache: CompileCache) -> None:
    epilogue, bias = Epilogue(activation="gelu"), Operand(dtype="f16")
    for problem in (cube(2047, layout), cube(2047, layout, epilogue=epilogue, bias=bias)):
        config = PERSISTENT.config_for(problem, H200, {**tile, "COPY_AHEAD": 1})
        compiles(PERSISTENT, problem, config, cache)


@pytest.mark.parametrize("cluster", [{}, {"CLUSTER_M": 1, "CLUSTER_N": 1}, {"CLUSTER_M": 1, "CLUSTER_N": 2}], ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_copies_leave_registers_to_each_other(layout: str, cluster: Config, cache: CompileCache) -> None:
    """As chosen, and with other clusters, where both operands lie along k, across it, and one each way."""
    problem = cube(2047, layout)
    compiles(PERSISTENT, problem, PERSISTENT.config_for(problem, H200, {**cluster, "COPY_AHEAD": 1}), cache)


def test_copies_pay_ahead_between_the_sizes_of_which_a_stored_run_has_both_ways() -> None:
    stored = json.loads((Path(__file__).resolve().parents[2] / "docs/h200/hopper-2.json").read_text())
    times = {row["claim"]: row["value"] for row in stored["shows"] if "COPY_AHEAD" in row["claim"]}
    both = {
        shape: [times[f"persistent at {shape}, nt, COPY_AHEAD={way}: time"] for way in (0, 1)]
        for shape in ("1301x1301x1301", "1501x1501x1501", "2047x2047x2047", "4095x4095x1001", "4095x4095x4095")
    }
    assert [ahead < before for before, ahead in both.values()] == [False, True, True, False, True]
    copied = [sum(alignment.workspaces(cube(size)).values()) for size in (1301, 1501)]
    assert copied[0] < s04_persistent.LEAST_COPIED < copied[1]
    assert 1001 < s04_persistent.LONGEST_FIRST * alignment.CHUNK < 4095
