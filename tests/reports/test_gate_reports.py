from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from dgw.reports import gate_annotations, gate_junit, gate_markdown, gate_schema, gate_terminal
from dgw.workbench.gate.figures import FIGURES
from dgw.workbench.gate.verdict import SEVERITY, GateReport, encode, exit_code
from tests.reports.gate_samples import CONFLICT, HOSTILE, SAMPLES, case, everything, many, regressed, report

RENDERERS: dict[str, Callable[[GateReport], str]] = {
    "terminal": lambda found: gate_terminal.render(found, 120),
    "markdown": gate_markdown.render,
    "junit": gate_junit.render,
    "annotations": gate_annotations.render,
    "json": lambda found: encode(found).decode(),
}
PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "gate.schema.json"
FORMS = [name for name in RENDERERS if name != "annotations"]
each_form = pytest.mark.parametrize("form", RENDERERS)
each_report = pytest.mark.parametrize("name", SAMPLES)


@each_form
def test_every_form_says_which_case_regressed_why_and_where(form: str) -> None:
    text = RENDERERS[form](report(regressed(), case("identical")))
    assert "cuda/regressed" in text
    assert "bank conflicts appeared" in text
    assert "s03_swizzled.cu" in text
    assert "61" in text


@pytest.mark.parametrize("form", ["terminal", "markdown", "junit"])
def test_every_form_for_people_shows_the_figures_that_changed_and_the_explanation(form: str) -> None:
    text = RENDERERS[form](report(regressed()))
    for word in ("bank conflicts of shared loads", "1,024", "registers per thread", "128", "96", "50.0 %", "same bank"):
        assert word in text


@pytest.mark.parametrize("form", FORMS)
def test_every_form_names_every_case_that_is_not_fine(form: str) -> None:
    text = RENDERERS[form](everything())
    for status in SEVERITY:
        assert status in text


@each_form
@each_report
def test_every_form_takes_every_report(form: str, name: str) -> None:
    assert isinstance(RENDERERS[form](SAMPLES[name]), str)


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_the_worst_case_stands_first_and_what_is_fine_last(form: str) -> None:
    text = RENDERERS[form](everything())
    places = [text.index(word) for word in ("cuda/wrong2", "cuda/regressed", "cuda/failed", "cuda/inconclusive")]
    assert places == sorted(places)


@pytest.mark.parametrize("form", ["terminal", "markdown", "junit"])
def test_the_verdict_with_its_exit_code_is_in_every_form(form: str) -> None:
    for found in SAMPLES.values():
        assert f"(exit {int(exit_code(found))})" in RENDERERS[form](found)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_of_the_terminal_is_too_wide(width: int) -> None:
    assert max(map(len, gate_terminal.render(everything(), width).splitlines())) <= width


def test_colour_changes_no_character() -> None:
    plain, painted = (gate_terminal.render(everything(), 100, colour) for colour in (False, True))
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", painted) == plain


def test_an_improvement_asks_for_approval_in_words_and_costs_nothing() -> None:
    found = report(case("improved", reasons=("registers per thread 128 -> 96: approve it",)))
    assert exit_code(found) == 0
    assert "approve it" in gate_terminal.render(found)


# -- JSON


@each_report
def test_the_json_of_every_report_is_what_the_published_schema_describes(name: str) -> None:
    schema = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(encode(SAMPLES[name])), schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "spoil", [{"schema": "dgw.gate/0"}, {"cases": [{"key": "a", "label": "b", "status": "fine"}]}, {"gate": "quick"}]
)
def test_the_schema_refuses_what_is_no_report(spoil: dict[str, object]) -> None:
    content = json.loads(encode(everything())) | spoil
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, json.loads(PUBLISHED.read_text(encoding="utf-8")))


def test_the_published_schema_is_the_one_that_the_nouns_make() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == gate_schema.render(), "run `make docs`"


# -- Markdown


def test_markdown_is_capped_and_says_how_many_cases_it_left_out() -> None:
    text = gate_markdown.render(many(300))
    assert text.count("| regressed |") == gate_markdown.ROWS
    assert "280 more in the JSON report" in text
    assert len(text.encode()) <= gate_markdown.LARGEST


def test_markdown_stays_below_its_limit_whatever_it_is_given() -> None:
    long = "é" * 5000
    changed = tuple(CONFLICT for _ in range(500))
    cases = [case("wrong", n, label=long, reasons=(long,), explanation=(long,) * 9, changed=changed) for n in range(50)]
    for found in (report(*cases), report(*cases, notes=(long,) * 90), report(*cases, suite=long)):
        assert len(gate_markdown.render(found).encode()) <= gate_markdown.LARGEST


def test_markdown_keeps_tables_whole_and_html_out() -> None:
    text = gate_markdown.render(everything())
    assert "<i>" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}


# -- annotations


def test_there_are_never_more_than_ten_annotations_of_a_kind_and_the_tenth_counts_the_rest() -> None:
    lines = gate_annotations.render(many(300)).splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("::error::291 more: ")
    assert len(gate_annotations.render(many(10)).splitlines()) == 10
    assert "more:" not in gate_annotations.render(many(10))


def test_an_annotation_points_at_the_line_of_the_kernel() -> None:
    (line,) = gate_annotations.render(report(regressed())).splitlines()
    assert line.startswith(
        "::error file=dgw/kernels/cuda/s03_swizzled.cu,line=61,title=cuda/regressed0 64x64x64 f16 nn"
    )
    assert line.endswith("::bank conflicts appeared")


def test_annotations_escape_what_the_runner_would_take_for_its_own_syntax() -> None:
    hostile = case("wrong", label=HOSTILE, reasons=(HOSTILE,), source="a:b,c%.cu")
    (line,) = gate_annotations.render(report(hostile)).splitlines()
    properties, _, message = line.removeprefix("::error ").partition("::")
    assert dict(pair.split("=", 1) for pair in properties.split(","))["file"] == "a%3Ab%2Cc%25.cu"
    assert "%0A::error::two,%0D three" in message
    assert "50 %25" in message


@pytest.mark.parametrize(
    ("status", "kind"), [("regressed", "error"), ("inconclusive", "warning"), ("improved", "notice")]
)
def test_an_annotation_is_as_loud_as_its_case(status: str, kind: str) -> None:
    assert gate_annotations.render(report(case(status))).startswith(f"::{kind} ")  # type: ignore[arg-type]


def test_nothing_is_annotated_where_all_is_fine() -> None:
    assert gate_annotations.render(SAMPLES["clean"]) == ""


# -- JUnit


def parsed(found: GateReport) -> ElementTree.Element:
    return ElementTree.fromstring(gate_junit.render(found))


@pytest.mark.parametrize("name", SAMPLES)
def test_junit_has_a_test_case_for_every_comparison_and_one_for_the_gate(name: str) -> None:
    found = SAMPLES[name]
    assert len(list(parsed(found).iter("testcase"))) == len(found.cases) + 1


@pytest.mark.parametrize("status", SEVERITY)
def test_junit_says_of_every_status_what_it_is(status: str) -> None:
    (element,) = [one for one in parsed(report(case(status))).iter("testcase") if one.get("classname") != "dgw.gate"]
    expected = {"regressed": "failure", "wrong": "failure", "failed": "error", "unchanged": None, "improved": None}
    wanted = expected.get(status, "skipped")
    children = {child.tag for child in element} - {"properties"}
    assert children == ({wanted} if wanted else set())


def test_a_gate_that_compared_nothing_is_an_error_in_junit_although_no_case_is() -> None:
    for found in (report(), report(case("missing")), report(case("refused"))):
        (whole,) = [one for one in parsed(found).iter("testcase") if one.get("classname") == "dgw.gate"]
        assert whole.find("error") is not None


def test_junit_names_the_figures_of_a_timed_case() -> None:
    texts = {one.get("name"): one.get("value") for one in parsed(everything()).iter("property")}
    assert texts["ratio"] == "+2.10 % (+1.50 .. +2.70)"
    assert texts["mde"] == "0.0120"


# -- labels


@pytest.mark.parametrize("key", FIGURES)
def test_every_figure_of_the_exact_gate_has_a_label_of_its_own(key: str) -> None:
    from dgw.reports.gate_text import label

    assert label(key) == FIGURES[key].label
    assert [figure.label for figure in FIGURES.values()].count(label(key)) == 1
