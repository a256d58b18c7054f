from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dgw.workbench.gate.exact import judge
from dgw.workbench.gate.figures import FIGURES
from tests.workbench.gate.exact_samples import FIGURED, VARIANT, facts, known

OTHER = {"code": ("cccc",)}


def changed(key: str, factor: float) -> dict[str, float]:
    return FIGURED | {key: FIGURED[key] * factor}


def test_the_same_code_launched_alike_is_identical_whatever_else_is_said_of_it() -> None:
    found = judge(facts(), known(figures={}, protocol=""), {})
    assert found.status == "identical"
    assert found.changed == ()


@pytest.mark.parametrize("key", [key for key, figure in FIGURES.items() if figure.worse])
def test_a_judged_figure_that_is_worse_fails_and_one_that_is_better_passes(key: str) -> None:
    worse = 2 if FIGURES[key].worse == "higher" else 0.5
    bad = judge(facts(), known(**OTHER, figures=changed(key, worse)), {})
    assert bad.status == "regressed"
    assert [change.metric for change in bad.changed if change.worse] == [key]
    assert FIGURES[key].label in bad.reasons[0]
    good = judge(facts(), known(**OTHER, figures=changed(key, 1 / worse)), {})
    assert good.status == "improved"
    assert "dgw baseline approve" in good.reasons[-1]


@pytest.mark.parametrize("key", [key for key, figure in FIGURES.items() if not figure.worse])
def test_a_figure_that_is_only_reported_is_listed_and_fails_nothing(key: str) -> None:
    for factor in (0.5, 2):
        found = judge(facts(), known(**OTHER, figures=changed(key, factor)), {})
        assert found.status == "unchanged"
        assert [change.metric for change in found.changed] == [key]


@pytest.mark.parametrize("key", ["smem_bank_conflicts_ld", "spill_store_bytes"])
def test_a_conflict_or_a_spill_where_there_was_none_fails(key: str) -> None:
    found = judge(facts(figures=FIGURED | {key: 0}), known(**OTHER, figures=FIGURED | {key: 1}), {})
    assert found.status == "regressed"
    assert f"{FIGURES[key].label} 0 -> 1" in found.reasons[0]


def test_other_code_with_the_same_figures_asks_for_approval_and_passes() -> None:
    found = judge(facts(), known(**OTHER), {})
    assert found.status == "unchanged"
    assert "the code changed" in found.reasons[0]
    assert "the launch changed" in judge(facts(), known(launch="dddd"), {}).reasons[0]


def test_one_thing_worse_is_not_made_up_for_by_ten_that_are_better() -> None:
    better = {key: 50 for key, figure in FIGURES.items() if figure.worse == "higher"}
    found = judge(facts(), known(**OTHER, figures=FIGURED | better | {"registers_per_thread": 101}), {})
    assert found.status == "regressed"


def test_another_choice_of_tunables_has_to_be_approved_even_where_all_is_better() -> None:
    found = judge(facts(), known(**OTHER, config={"BM": 64}, figures=changed("inst_executed", 0.5)), {})
    assert found.status == "regressed"
    assert "config BM 128 -> 64" in found.reasons[0]


@pytest.mark.parametrize(("now", "status"), [(101, "improved"), (102, "regressed")])
def test_a_floor_of_the_suite_lets_small_changes_pass(now: int, status: str) -> None:
    figures = FIGURED | {"inst_executed": now, "registers_per_thread": 99}
    assert judge(facts(), known(**OTHER, figures=figures), {"inst_executed": 0.01}).status == status


def test_a_count_that_is_not_known_any_more_is_not_comparable_and_never_a_pass() -> None:
    figures = {key: value for key, value in FIGURED.items() if key != "inst_executed"}
    found = judge(facts(), known(**OTHER, figures=figures, absent={"inst_executed": "no such PTX"}), {})
    assert found.status == "not-comparable"
    assert found.reasons == ("instructions executed: no such PTX",)


def test_a_count_that_was_not_known_before_is_no_change_for_the_worse() -> None:
    figures = {key: value for key, value in FIGURED.items() if key != "inst_executed"}
    assert judge(facts(figures=figures), known(**OTHER), {}).status == "unchanged"


def test_counts_of_two_versions_of_the_emulator_are_not_compared() -> None:
    found = judge(facts(), known(**OTHER, protocol="emulator/2"), {})
    assert found.status == "not-comparable"
    assert "emulator/1" in found.reasons[0]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("wrong", "wrong"), ("compile-failed", "failed"), ("crashed", "failed"), ("timed-out", "failed")],
)
def test_what_is_wrong_or_does_not_run_is_so_whatever_was_approved(outcome: str, status: str) -> None:
    for base in (None, facts()):
        found = judge(base, known(outcome, "it said so"), {})
        assert found.status == status
        assert "it said so" in found.reasons[0]


def test_a_case_of_which_nothing_was_approved_is_missing_for_the_reason_given() -> None:
    assert judge(None, known(), {}, "another compiler").reasons == ("another compiler",)
    assert judge(None, known(), {}).status == "missing"


def test_a_refusal_is_a_row_where_nothing_was_approved_and_a_regression_where_something_was() -> None:
    assert judge(None, known("refused", "too wide"), {}).status == "refused"
    found = judge(facts(), known("refused", "too wide"), {})
    assert found.status == "regressed"
    assert "too wide" in found.reasons[0]


def test_a_package_that_is_not_installed_is_nobodys_regression() -> None:
    lacking = known("refused", "it needs the Python package triton, which is not installed")
    lacking = replace(lacking, variant=replace(VARIANT, needs=("triton",)))
    assert judge(facts(), lacking, {}).status == "not-comparable"


def test_the_line_with_most_of_what_became_worse_is_named() -> None:
    lines = {"smem_bank_conflicts_ld": ("folder/s03_swizzled.cu", 61)}
    head = known(lines=lines, **OTHER, figures=changed("smem_bank_conflicts_ld", 2))
    found = judge(facts(), replace(head, source=Path("s03_swizzled.cu")), {})
    assert found.line == 61
    assert "most at s03_swizzled.cu:61" in found.reasons[0]
    elsewhere = judge(facts(), replace(head, source=Path("other.cu")), {})
    assert elsewhere.line is None
    assert "most at s03_swizzled.cu:61" in elsewhere.reasons[0]


def test_the_key_of_a_case_does_not_depend_on_what_its_code_chose() -> None:
    assert facts().key == facts(config={"BM": 64}, code=("x",), version=2, figures={}).key
    assert facts().key != facts(asked={"BM": 64}).key
    assert facts().key != facts(device="h100").key


def test_what_only_compiles_here_says_that_its_result_and_its_counts_are_not_compared() -> None:
    static = {key: 100 for key, figure in FIGURES.items() if figure.lane == "static"}
    unseen = {"inst_executed": "the emulator cannot run it: tensor maps are not emulated"}
    fields: dict[str, Any] = {"figures": static, "absent": unseen}
    found = judge(facts(**fields), known(code=("cccc",), **fields), {})
    assert found.status == "unchanged"
    assert "not the result and not what runs: the emulator cannot run it" in found.reasons[-1]
    worse = {**fields, "figures": static | {"registers_per_thread": 168}}
    assert judge(facts(**fields), known(code=("cccc",), **worse), {}).status == "regressed"
    assert judge(facts(**fields), known(**fields), {}).reasons == ()
