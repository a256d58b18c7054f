"""What the parent knows of a case before any GPU sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from dgw.kernels.loader import load
from dgw.model import Argument, Case, Plan, Scalar, TensorMap, Variant, gemm
from dgw.toolchain.build import Build
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device
from dgw.toolchain.launches import unlaunchable
from dgw.workbench import prepare
from dgw.workbench.metrics import METRICS

H200 = device("h200")
CHEATS = Path(__file__).parent.parent / "cheats"
VARIANTS = load((CHEATS,))


def case(variant: Variant, dtype: str = "f32", **config: int) -> Case:
    return Case(problem=gemm(256, 256, 64, dtype), variant=variant.id, config={**variant.defaults(), **config})


def test_a_case_that_can_run_has_its_plan_its_code_and_its_static_figures(cache: CompileCache) -> None:
    naive = VARIANTS["cuda/naive"]
    made = prepare.prepare(case(naive), naive, H200, cache)
    assert made.runnable
    assert made.plan is not None
    assert set(made.builds) == {launch.source for launch in made.plan.launches}
    record = made.record
    assert record.number("flops") == 2 * 256 * 256 * 64
    assert record.number("compulsory_bytes") == 4 * (256 * 64 + 64 * 256 + 256 * 256)
    assert 0 < (record.number("registers_per_thread") or 0) < 256
    assert record.number("spill_store_bytes") == 0
    assert record.number("theoretical_occupancy") == pytest.approx(1.0)
    assert (record.number("bound_time") or 0) > 0
    assert len(record.resume_key) == 32


def test_every_static_figure_is_a_metric_of_the_table_in_its_unit(cache: CompileCache) -> None:
    tiled = VARIANTS["cuda/tiled"]
    made = prepare.prepare(case(tiled), tiled, H200, cache, mix=True)
    for measured in made.record.measurements:
        assert measured.collector == "static"
        assert METRICS[measured.metric].unit == measured.unit, measured.metric
        assert "static" in METRICS[measured.metric].collectors
    mix = made.record.get("inst_mix")
    assert mix is not None
    assert "FFMA" in str(mix.value)


@pytest.mark.parametrize("name", [n for n in VARIANTS if n.startswith("cheats/")])
def test_a_cheat_differs_from_an_honest_kernel_only_when_it_runs(name: str, cache: CompileCache) -> None:
    made = prepare.prepare(case(VARIANTS[name]), VARIANTS[name], H200, cache)
    stopped = {"cheats/does-not-compile": "compile-failed", "cheats/too-much-shared": "launch-failed"}
    expected = stopped.get(name, "ok")
    assert made.record.outcome == expected
    if expected == "compile-failed":
        assert "undeclared_name" in made.record.reason
        assert made.record.number("flops") is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shared_bytes": 266_240}, "266,240 bytes of shared memory a block, and sm_90a allows 232,448"),
        ({"block": (64, 32, 1)}, "2,048 threads a block, and no block has more than 1,024"),
        ({"block": (1, 1, 128)}, "no more than 64 may lie along z"),
        ({"grid": (1, 70_000, 1)}, "a grid of 1 x 70,000 x 1 blocks"),
        ({"grid": (0, 1, 1)}, "a grid of 0 x 1 x 1 blocks"),
        ({"registers": 128}, "1,024 threads of 128 registers a block"),
        ({"max_threads": 512}, "1,024 threads a block, and it is compiled for 512 (__launch_bounds__)"),
    ],
)
def test_a_launch_that_the_device_does_not_take_fails_without_a_gpu_too(
    change: dict[str, Any], words: str, cache: CompileCache
) -> None:
    """What fits in every respect (1,024 threads, all of the shared memory, 64 registers) is taken."""
    naive = VARIANTS["cuda/naive"]
    made = prepare.prepare(case(naive), naive, H200, cache)
    assert made.plan is not None
    (launch,), (built,) = made.plan.launches, made.builds.values()
    fits: dict[str, Any] = {"block": (32, 32, 1), "shared_bytes": H200.shared_per_block}
    needed: dict[str, Any] = {"registers": 64, "max_threads": 1024}

    def refused(asked: dict[str, Any]) -> str:
        def of(known: dict[str, Any]) -> dict[str, Any]:
            return {name: asked.get(name, value) for name, value in known.items()}

        needs = replace(built.resources(launch.entry), **of(needed))
        one = msgspec.structs.replace(launch, **of(fits | {"grid": launch.grid}))
        build = SimpleNamespace(resources=lambda entry: needs)
        return unlaunchable(Plan(steps=(one,)), {launch.source: cast("Build", build)}, H200)

    assert refused({}) == ""
    assert words in refused(change)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda all: all[:-1], "naive takes 13 parameters, and the Launch has 12 arguments"),
        (lambda all: (*all, all[0]), "naive takes 13 parameters, and the Launch has 14 arguments"),
        (lambda all: (*all[:7], Scalar(name="lda"), *all[8:]),
         'parameter 8 of naive has 8 bytes, and Scalar(name="lda", dtype="i32") passes 4'),
        (lambda all: (*all[:4], Scalar(name="m", dtype="i64"), *all[5:]),
         'parameter 5 of naive has 4 bytes, and Scalar(name="m", dtype="i64") passes 8'),
        (lambda all: (TensorMap(operand="a", box=(64, 64)), *all[1:]),
         "parameter 1 of naive has 8 bytes, and TensorMap passes 128"),
    ],
)  # fmt: skip
def test_arguments_that_are_not_the_parameters_fail_before_any_engine_has_the_kernel(
    arguments: Callable[[tuple[Argument, ...]], tuple[Argument, ...]], words: str, cache: CompileCache
) -> None:
    naive = VARIANTS["cuda/naive"]

    def plan(*asked: Any) -> Plan:
        assert naive.plan is not None
        told = naive.plan(*asked)
        (launch,) = told.launches
        return msgspec.structs.replace(
            told, steps=(msgspec.structs.replace(launch, arguments=arguments(launch.arguments)),)
        )

    made = prepare.prepare(case(naive), replace(naive, plan=plan), H200, cache)
    assert (made.runnable, made.record.outcome) == (False, "launch-failed")
    assert made.record.reason == f"the declaration does not fit the kernel: {words}"


def test_a_launch_that_cannot_be_keeps_what_says_so(cache: CompileCache) -> None:
    greedy = VARIANTS["cheats/too-much-shared"]
    record = prepare.prepare(case(greedy), greedy, H200, cache).record
    assert "bytes of shared memory a block, and sm_90a allows" in record.reason
    assert record.number("theoretical_occupancy") == 0
    assert (record.number("shared_mem_per_block") or 0) > H200.shared_per_block


def test_refusals_name_the_reason(cache: CompileCache) -> None:
    honest, hopper = VARIANTS["cheats/honest"], replace(VARIANTS["cheats/honest"], architectures=("sm_100a",))
    assert "takes f32, not f16" in prepare.prepare(case(honest, "f16"), honest, H200, cache).record.reason
    assert "sm_100a" in prepare.prepare(case(hopper), hopper, H200, cache).record.reason
    naive = VARIANTS["cuda/naive"]
    bare = Case(problem=gemm(8, 8, 8), variant=naive.id)
    assert "lacks BX" in prepare.prepare(bare, naive, H200, cache).record.reason


def test_a_declaration_that_raises_gives_a_record(cache: CompileCache) -> None:
    def plan(*_: object) -> Plan:
        raise KeyError("BK")

    broken = replace(VARIANTS["cheats/honest"], plan=plan)
    made = prepare.prepare(case(broken), broken, H200, cache)
    assert made.record.outcome == "launch-failed"
    assert "KeyError" in made.record.reason


def test_the_resume_key_changes_with_what_the_result_depends_on(cache: CompileCache) -> None:
    naive = VARIANTS["cuda/naive"]
    keys = {
        prepare.prepare(case(naive, **config), naive, on, cache).record.resume_key
        for config in ({}, {"BX": 64})
        for on in (H200, device("a100"))
    }
    assert len(keys) == 4
    again = prepare.prepare(case(naive), naive, H200, None).record.resume_key
    assert again in keys


def test_compiling_ahead_fills_the_cache(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    pairs = [(case(VARIANTS["cuda/naive"], BY=by), VARIANTS["cuda/naive"]) for by in (4, 8)]
    prepare.warm_cache(pairs, H200, cache)
    assert all(b.cached for c, v in pairs for b in prepare.prepare(c, v, H200, cache).builds.values())
