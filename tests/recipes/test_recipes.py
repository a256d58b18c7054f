from __future__ import annotations

import importlib
import json
from pathlib import Path

import msgspec
import pytest

from dgw.model import Record, Run, gemm
from dgw.recipes import uncoalesced
from dgw.recipes.diagnosis import diagnose, untold
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import Recipe
from dgw.recipes.registry import recipes
from dgw.toolchain.devices import device
from dgw.workbench.metrics import METRICS, resolve
from tests.recipes.making import record, without

ROOT = Path(__file__).resolve().parents[2]
H200 = device("h200")
by_name = pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.name)
with_needs = pytest.mark.parametrize("recipe", [r for r in recipes() if r.needs], ids=lambda recipe: recipe.name)


def sample(recipe: Recipe, which: str) -> Record:
    module = importlib.import_module(f"tests.recipes.cases.{recipe.name.replace('-', '_')}")
    found = getattr(module, which)
    assert isinstance(found, Record)
    return found


def test_there_are_as_many_as_the_design_names() -> None:
    assert len(recipes()) >= 25


@by_name
def test_it_fires_on_a_record_that_has_the_cause(recipe: Recipe) -> None:
    (finding,) = [f for f in diagnose(sample(recipe, "FIRES"), H200) if f.recipe == recipe.name]
    assert not untold(finding)
    assert finding.evidence
    assert finding.next_step
    assert any(character.isdigit() for character in finding.verdict)


@by_name
def test_it_is_silent_on_a_near_miss(recipe: Recipe) -> None:
    """By its rule: it concerns the record, and has all that it needs to tell."""
    near = sample(recipe, "NEAR_MISS")
    assert recipe.applies(Facts(near, H200))
    assert [f.verdict for f in diagnose(near, H200) if f.recipe == recipe.name] == []


@with_needs
def test_without_its_metrics_it_says_what_it_needs_and_how_to_get_it(recipe: Recipe) -> None:
    names = tuple(name for need in recipe.needs for name in need.split("|"))
    found = [f for f in diagnose(without(sample(recipe, "FIRES"), names), H200) if f.recipe == recipe.name]
    assert len(found) == 1
    assert untold(found[0])
    assert found[0].verdict.startswith(f"cannot tell {recipe.name}: needs ")
    assert all(need.split("|")[0] in found[0].verdict for need in recipe.needs)
    assert found[0].next_step.startswith("dgw profile --variant mine/kernel --shape ")
    assert found[0].cost is None


@by_name
def test_its_metrics_are_in_the_table(recipe: Recipe) -> None:
    assert [name for need in recipe.needs for name in need.split("|") if name not in METRICS] == []


@by_name
def test_the_command_for_missing_metrics_asks_for_metrics_that_exist(recipe: Recipe) -> None:
    names = tuple(name for need in recipe.needs for name in need.split("|"))
    for finding in diagnose(without(record(), names), H200):
        words = finding.next_step.split()
        if "--counters" in words:
            resolve(words[words.index("--counters") + 1])


@pytest.mark.parametrize(("dtype", "size"), [("f16", 2), ("f32", 4), ("f64", 8)])
def test_stores_need_the_sectors_that_the_type_of_d_fills(dtype: str, size: int) -> None:
    stored = record({"global_requests_st": 1}, problem=gemm(1024, 1024, 1024, dtype))
    assert uncoalesced.stores(Facts(stored, H200))[1] == 1024 * 1024 * size / 32


def test_a_good_kernel_raises_nothing_of_high_confidence() -> None:
    assert [f.recipe for f in diagnose(record(), H200) if f.confidence == "high"] == []


def test_what_is_not_right_is_not_diagnosed() -> None:
    assert diagnose(msgspec.structs.replace(record(), outcome="wrong"), H200) == ()


def test_the_costliest_cause_comes_first_and_what_cannot_be_told_last() -> None:
    stored = json.loads((ROOT / "docs" / "h200" / "first-profile.json").read_text())["run"]
    run = msgspec.convert(stored, type=Run)
    tiled = next(one for one in run.records if one.case.variant == "cuda/tiled")
    found = diagnose(tiled, others=run.records)
    costs = [finding.cost for finding in found if finding.cost is not None]
    places = [untold(finding) for finding in found]
    assert found[0].recipe == "bank-conflicts"
    assert costs == sorted(costs, reverse=True)
    assert places == sorted(places)
    assert any(places)


def emulated(lead: float | None, tiles: int = 64, **numbers: float | None) -> list[str]:
    """What is found in the emulator of a kernel without tunables, by name."""
    unmeasured = ("elapsed_cycles", "sm_active_cycles", "time_cold", "time_hot", "issued", "tensor_pipe_util")
    figures = {**dict.fromkeys(unmeasured), "k_tiles": tiles, "copy_lead": lead, **numbers}
    made = record({**figures, "occ_limit_registers": 2, "occ_limit_shared_mem": 2, "blocks_per_sm": 1}, config={})
    environment = msgspec.structs.replace(made.environment, engine="emulator")
    return [f.recipe for f in diagnose(msgspec.structs.replace(made, environment=environment), H200) if not untold(f)]


def test_the_emulator_sees_copies_that_are_needed_when_they_are_asked_for() -> None:
    assert "not-overlapped" in emulated(0.0)
    assert "not-overlapped" not in emulated(1.0)
    assert "not-overlapped" not in emulated(0.0, tiles=3)
    assert "not-overlapped" not in emulated(None)


def test_shared_memory_that_is_no_tile_is_blamed_for_latency_that_more_blocks_would_fill() -> None:
    held = {"occ_limit_shared_mem": 1.0, "occ_limit_registers": 8.0, "occ_limit_warps": 8.0, "occ_limit_blocks": 8.0}
    own = record({**dict.fromkeys(("elapsed_cycles", "time_cold", "time_hot")), "k_tiles": 256, "copy_lead": 0.0,
                  "shared_mem_per_block": 200_000, "blocks_per_sm": 1, **held}, config={})  # fmt: skip
    own = msgspec.structs.replace(own, environment=msgspec.structs.replace(own.environment, engine="emulator"))
    names = [f.recipe for f in diagnose(own, H200) if not untold(f)]
    assert "not-overlapped" not in names
    assert "shared-memory-limits-occupancy" in names


def test_the_depth_of_k_tiles_is_seen_and_not_guessed_from_barriers() -> None:
    assert "bk-too-small" in emulated(1.0, tiles=256)
    assert "bk-too-small" not in emulated(3.0, tiles=64)
    # as many barriers as a kernel with thin tiles has, and nothing else that tells
    assert "bk-too-small" not in emulated(None, tiles=0, barrier_inst=528 * 8 * 256, ldgsts_inst=3.1e6)


def test_a_depth_that_is_guessed_on_a_gpu_is_said_to_be_and_never_sure() -> None:
    made = record(
        {"tensor_pipe_util": 0.5, "tensor_inst": 1.7e7, "barrier_inst": 528 * 8 * 256},
        config={}, stalls={"long_scoreboard": 0.4, "barrier": 0.2},
    )  # fmt: skip
    (finding,) = [f for f in diagnose(made, H200) if f.recipe == "bk-too-small"]
    assert finding.confidence == "medium"
    assert any("guessed" in one.why and one.value == 16 for one in finding.evidence)


@pytest.mark.parametrize(
    ("copies", "said"), [(0.0, "(plain loads)"), (9e5, "(asynchronous copies"), (None, "products: 35 %")]
)
def test_how_a_kernel_copies_is_said_only_where_it_was_counted(copies: float | None, said: str) -> None:
    found = record(
        {"tensor_pipe_util": 0.4, "tensor_inst": 1.3e7, "ldgsts_inst": copies or 0.0},
        stalls={"long_scoreboard": 0.6, "barrier": 0.3},
    )
    found = without(found, ("ldgsts_inst",)) if copies is None else found
    (verdict,) = [f.verdict for f in diagnose(found, H200) if f.recipe == "not-overlapped"]
    assert said in verdict
