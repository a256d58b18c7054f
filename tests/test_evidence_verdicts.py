"""The verdicts of the evidence scripts, drawn from records made here: what would not hold must say so."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from dgw.model import Case, Measurement, Record, Run, gemm

FOLDER = Path(__file__).resolve().parents[1] / "evidence"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Loads an evidence script by name."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name.replace("-", "_"), FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in ("parts", "topic"):
        sys.modules.pop(name, None)


def measured(values: dict[str, float], collector: str, tiers: dict[str, str] | None = None) -> tuple[Measurement, ...]:
    return tuple(
        Measurement(metric=name, value=value, collector=collector, protocol="p", tier=(tiers or {}).get(name, "exact"))
        for name, value in values.items()
    )


def record(*measurements: Measurement, variant: str = "cuda/naive") -> Record:
    return Record(case=Case(problem=gemm(512, 512, 512), variant=variant), outcome="ok", measurements=measurements)


def run(*records: Record) -> Run:
    return Run(id="r", created="2026-01-01", command=("dgw",), version="0", records=records)


EXACT = {"mma_inst": 0, "global_sectors_ld": 64, "global_sectors_st": 8, "global_requests_st": 2,
         "smem_wavefronts_actual": 0}  # fmt: skip


def test_only_exact_counters_are_compared_with_ncu_and_the_others_are_named(script) -> None:
    module = script("emulator-vs-ncu")
    here = measured({**EXACT, "tensor_inst": 0}, "emulator", {"tensor_inst": "ptx-level"})
    row = module.compare(record(*measured({**EXACT, "tensor_inst": 16384}, "ncu")), record(*here))
    assert (row["compared"], row["differing"], row["missing"]) == (5, {}, [])
    assert row["not_exact"] == {"tensor_inst": [16384, 0]}


def test_an_exact_counter_that_differs_or_is_missing_fails_its_claim(script) -> None:
    module = script("emulator-vs-ncu")
    topic = module.Topic("t")
    there = {**EXACT, "global_sectors_ld": 65}
    del there["global_requests_st"]
    module.judge(topic, run(record(*measured(there, "ncu"))), run(record(*measured(EXACT, "emulator"))))
    values = {show["claim"]: (show["value"], show["holds"]) for show in topic.shows}
    assert values["of them those that differ from ncu's"] == (1, False)
    assert values["counters that ought to be exact for every case and are not"] == ("global_requests_st", False)


def test_replays_that_were_not_recorded_fail_their_claim_with_the_reason(
    script, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("nsight")
    values = {"replay_agreement": 0.98, "replay_time": 3e-4}
    absent = Measurement(metric="replay_agreement", collector="nsys", absent="no replay was recorded")
    answer = run(record(*measured(values, "nsys")), record(absent, variant="cuda/tensor-core"))
    topic = module.Topic("t")
    monkeypatch.setattr(topic, "dgw", lambda *_, **__: SimpleNamespace(run=answer))
    module.timelines(topic)
    rows = [(show["value"], show["holds"]) for show in topic.shows]
    assert rows == [("nsys", True), (3e-4, True), (pytest.approx(0.02), True), ("no replay was recorded", False)]
