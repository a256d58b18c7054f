from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dgw.kernels.loader import load
from dgw.model import Case, Claim, Config, Environment, Epilogue, Measurement, Operand, Problem, Record, gemm
from dgw.recipes.claims import check
from dgw.recipes.ladder import ladder
from dgw.toolchain.devices import device
from dgw.workbench.metrics import METRICS

H200 = device("h200")
GPU = Environment(device="NVIDIA H200", driver="580", engine="gpu")
PROBLEM = gemm(4096, 4096, 4096)
CONFIG: Config = {"BM": 128, "BN": 128}


def measured(metric: str, value: float | str | None, collector: str = "ncu", **fields: Any) -> Measurement:
    return Measurement(metric=metric, value=value, collector=collector, **fields)


def record(variant: str, *measurements: Measurement, problem: Problem = PROBLEM, **fields: Any) -> Record:
    case = Case(problem=problem, variant=variant, config=CONFIG)
    return Record(case=case, outcome=fields.pop("outcome", "ok"), environment=GPU, measurements=measurements, **fields)


def verdict(claim: Claim, *records: Record, **fields: Any) -> str:
    """The verdict on a claim of the last record."""
    (finding,) = check(records, {records[-1].case.variant: [claim]}, fields.get("device", H200))
    assert finding.recipe == "claims"
    assert finding.evidence[0].metric == claim.metric
    return finding.verdict


@pytest.mark.parametrize(
    ("relation", "value", "before", "after", "holds"),
    [
        ("is", 0.0, 0.8, 0.0, True),
        ("is", 0.0, 0.8, 0.01, False),
        ("above", 0.3, 0.0, 0.31, True),
        ("above", 0.3, 0.0, 0.3, False),
        ("below", 0.3, 0.0, 0.29, True),
        ("falls", 2.0, 0.4, 0.2, True),
        ("falls", 2.0, 0.4, 0.21, False),
        ("falls", 0.0, 0.4, 0.399, True),
        ("falls", 0.0, 0.4, 0.4, False),
        ("rises", 1.0, 0.4, 0.41, True),
        ("rises", 1.0, 0.4, 0.4, False),
        ("rises", 1.5, 0.0, 0.1, True),
        ("keeps", 0.001, 1000, 1001, True),
        ("keeps", 0.001, 1000, 1002, False),
        ("keeps", 0.0, 0.0, 0.0, True),
    ],
)
def test_a_claim_is_held_exactly_when_its_relation_is(
    relation: Any, value: float, before: float, after: float, holds: bool
) -> None:
    claim = Claim(metric="x", relation=relation, value=value)
    found = verdict(claim, record("f/one", measured("x", before)), record("f/two", measured("x", after)))
    assert found.startswith("held: f/two: x" if holds else "did not hold: f/two: x")


def test_the_verdict_names_both_rungs_and_both_figures() -> None:
    claim = Claim(metric="x", relation="falls", value=2.0)
    found = verdict(claim, record("f/one", measured("x", 8.0)), record("f/two", measured("x", 2.0)))
    assert found == "held: f/two: x falls by a factor of 2 against f/one (from 8 to 2, 0.25 of it)"


@pytest.mark.parametrize(
    ("before", "after", "needs"),
    [
        (record("f/one", measured("x", 1.0)), record("f/two"), "needs x of f/two"),
        (record("f/one"), record("f/two", measured("x", 1.0)), "needs x of f/one"),
        (
            record("f/one", measured("x", 1.0)),
            record("f/two", measured("x", None, absent="not measured because there is no GPU")),
            "needs x of f/two (not measured because there is no GPU)",
        ),
        (
            record("f/one", measured("x", 1.0, "emulator")),
            record("f/two", measured("x", 1.0)),
            "needs x of f/one by ncu",
        ),
        (
            record("f/one", measured("x", 1.0), outcome="wrong"),
            record("f/two", measured("x", 1.0)),
            "needs a right result of f/one, which is wrong",
        ),
        (
            record("f/one", measured("x", 1.0)),
            record("f/two", measured("x", 1.0), outcome="timed-out"),
            "needs a right result of f/two",
        ),
        (
            msgspec.structs.replace(
                record("f/one", measured("x", 1.0)), environment=Environment(device="NVIDIA H100", driver="580")
            ),
            record("f/two", measured("x", 1.0)),
            "needs both records of one device",
        ),
        (
            record("f/one", measured("x", 1.0), outcome="refused"),
            record("f/two", measured("x", 1.0)),
            "needs a record of the rung before it",
        ),
        (record("f/one", measured("x", 0.0)), record("f/two", measured("x", 1.0)), "needs a x above 0"),
        (
            record("g/one", measured("x", 2.0)),
            record("f/two", measured("x", 1.0)),
            "needs a record of the rung before it",
        ),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_judged(before: Record, after: Record, needs: str) -> None:
    claim = Claim(metric="x", relation="falls")
    (finding,) = check([before, after], {"f/two": [claim]}, H200)
    assert finding.verdict.startswith("cannot tell: needs ")
    assert needs in finding.verdict
    assert finding.next_step.startswith("dgw compare")


def test_a_claim_on_one_rung_alone_needs_no_other() -> None:
    assert verdict(Claim(metric="x", relation="is"), record("f/two", measured("x", 0))).startswith("held")


def test_a_claim_against_a_baseline_is_judged_against_it() -> None:
    problem = msgspec.structs.replace(PROBLEM, bias=Operand(dtype="f16"), epilogue=Epilogue(activation="gelu"))
    claim = Claim(metric="x", relation="falls", against="baselines/unfused", when=("epilogue",))
    mine = record("f/two", measured("x", 1.0), problem=problem)
    base = record("baselines/unfused", measured("x", 3.0), problem=problem)
    (finding,) = check([mine, base], {"f/two": [claim]}, H200)
    assert finding.verdict.startswith("held: f/two: x falls against baselines/unfused")
    (finding,) = check([mine], {"f/two": [claim]}, H200)
    assert "needs a record of baselines/unfused" in finding.verdict


@pytest.mark.parametrize(
    ("fields", "problem", "made"),
    [
        ({"when": ("epilogue",)}, PROBLEM, False),
        ({"when": ("epilogue",)}, msgspec.structs.replace(PROBLEM, bias=Operand(dtype="f16")), True),
        ({"when": ("short-k",)}, gemm(4096, 4096, 1024), True),
        ({"when": ("short-k",)}, gemm(4096, 4096, 1025), False),
        ({"when": ("many-tiles",)}, PROBLEM, True),
        ({"when": ("many-tiles",)}, gemm(1024, 1024, 64), False),
        ({"when": ("many-tiles", "short-k")}, PROBLEM, False),
        ({"when": ("beyond-l2",)}, PROBLEM, False),
        ({"when": ("beyond-l2",)}, gemm(8192, 8192, 8192), True),
        ({"when": ("beyond-l2",)}, gemm(4096, 4096, 4096, op="batched", batch=4), False),
        ({"when": ("beyond-l2",)}, gemm(16384, 16384, 8192, "s4", out="s32"), True),
        ({"dtypes": ("bf16",)}, PROBLEM, False),
        ({"layouts": ("tt", "nn")}, PROBLEM, True),
    ],
)
def test_a_claim_is_made_only_where_its_conditions_hold(fields: dict[str, Any], problem: Problem, made: bool) -> None:
    claim = Claim(metric="x", relation="is", **fields)
    assert bool(check([record("f/two", problem=problem)], {"f/two": [claim]}, H200)) is made


def test_a_refused_stage_is_held_to_no_claim() -> None:
    assert check([record("f/two", outcome="refused")], {"f/two": [Claim(metric="x", relation="is")]}, H200) == ()


def test_every_claim_of_every_stage_names_a_metric_and_a_variant_that_exist() -> None:
    variants = load()
    for variant in variants.values():
        for claim in variant.claims:
            assert claim.metric in METRICS, (variant.id, claim.metric)
            assert claim.why
            assert not claim.against or claim.against in variants


def test_a_ladder_says_speed_up_share_of_the_baseline_and_share_of_the_instruction() -> None:
    flops = PROBLEM.flops
    first = record("f/one", measured("time_cold", flops / 100e12, "timing"))
    second = record("f/two", measured("time_cold", flops / 320e12, "timing"))
    base = record("baselines/cublas", measured("time_cold", flops / 640e12, "timing"))
    one, two = ladder([first, second, base], H200)
    assert one.evidence[0].value is None
    assert "first rung" in one.evidence[0].why
    assert [e.value for e in two.evidence] == pytest.approx([3.2, 0.5, 0.5])
    assert two.verdict == "f/two: 3.20 x f/one, 0.500 of baselines/cublas, 0.500 of the mma.sync rate"
    (_, two) = ladder([first, second, base], H200, mma_rate=400e12)
    assert two.evidence[2].value == pytest.approx(0.8)


def test_a_paired_ratio_to_cublas_is_preferred_to_a_quotient_of_medians() -> None:
    mine = record("f/one", measured("time_cold", 2e-4, "timing"), measured("ratio_to_cublas", 0.93, "timing"))
    base = record("baselines/cublas", measured("time_cold", 1e-4, "timing"))
    assert ladder([mine, base], H200)[0].evidence[1].value == 0.93


def test_a_time_that_is_not_known_or_not_comparable_is_no_speed_up() -> None:
    slow = record("f/one", measured("time_cold", 1e-3, "timing", protocol="screening"))
    fast = record("f/two", measured("time_cold", 1e-4, "timing", protocol="final"))
    wrong = record("f/three", measured("time_cold", 1e-5, "timing", protocol="final"), outcome="wrong")
    absent = record("f/four", measured("time_cold", None, "emulator", absent="not measured because there is no GPU"))
    _, two, three, four = ladder([slow, fast, wrong, absent])
    assert two.evidence[0].value is None
    assert "same protocol" in two.evidence[0].why
    assert "f/three is wrong" in three.evidence[0].why
    assert "no GPU" in four.evidence[0].why
    assert "mma.sync rate" in two.evidence[2].why
    assert four.verdict == "f/four: no time is known"
