"""What the parent knows of a case before any GPU sees it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dgw.kernels.loader import load
from dgw.model import Case, Plan, Variant, gemm
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device
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
    expected = "compile-failed" if name == "cheats/does-not-compile" else "ok"
    assert made.record.outcome == expected
    if expected == "compile-failed":
        assert "undeclared_name" in made.record.reason
        assert made.record.number("flops") is not None


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
