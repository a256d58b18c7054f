from __future__ import annotations

import csv as reader
import io
import re

import msgspec
import pytest

from dgw.model import Case, Measurement, Record, Run, gemm
from dgw.reports import csv, json, lines, markdown, terminal
from dgw.reports.tables import build
from tests.reports.samples import full_record, ladder

RENDERERS = {
    "terminal": lambda blocks: terminal.render(blocks, 200),
    "markdown": markdown.render,
    "csv": csv.render,
}


@pytest.mark.parametrize("name", RENDERERS)
def test_every_renderer_shows_every_case_with_its_outcome_and_reason(name: str) -> None:
    text = RENDERERS[name](build(ladder()))
    for word in ("naive", "tiled", "swizzled", "broken", "wrong", "greedy", "refused", "needs 260 KB of shared memory"):
        assert word in text


@pytest.mark.parametrize("name", ["terminal", "markdown"])
def test_every_renderer_shows_the_same_numbers(name: str) -> None:
    (block,) = build(ladder())
    text = RENDERERS[name]((block,))
    for line in block.lines:
        assert line.heading.strip() in text
        for column in range(len(block.columns)):
            assert line.text(column) in text


@pytest.mark.parametrize("name", RENDERERS)
def test_every_renderer_takes_no_cases_at_all(name: str) -> None:
    assert isinstance(RENDERERS[name](()), str)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("copies", [1, 4], ids=["in full", "one row per case"])
def test_no_line_is_wider_than_the_terminal(width: int, copies: int) -> None:
    records = [
        full_record(r.case.variant.partition("/")[2], case=Case(problem=gemm(64 + i, 64, 64), variant=r.case.variant),
                    outcome=r.outcome, reason=r.reason)
        for i in range(copies)
        for r in ladder()
    ]  # fmt: skip
    assert max(map(len, terminal.render(build(records), width).splitlines())) <= width


def test_colour_only_appears_when_asked_for_and_changes_no_character() -> None:
    blocks = build(ladder())
    plain, coloured = terminal.render(blocks, 100), terminal.render(blocks, 100, colour=True)
    assert "\x1b" not in plain
    assert "\x1b" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_three_variants_and_a_baseline_stand_side_by_side_in_100_columns() -> None:
    records = [full_record(name) for name in ("naive", "tiled", "swizzled", "cublas")]
    text = terminal.render(build(records), 100)
    assert sum("occupancy achieved" in line for line in text.splitlines()) == 1


def test_many_problems_are_one_row_per_case_and_each_reason_is_said_once() -> None:
    records = [
        full_record(case=Case(problem=gemm(64, 64, k), variant="cuda/tiled"), outcome="crashed", reason="no such luck")
        for k in range(1, 11)
    ]
    text = terminal.render(build(records), 120)
    assert text.count("crashed: cuda/tiled") == 1
    assert "and 9 more: no such luck" in text
    assert len(text.splitlines()) == 2 + 1 + 10 + 2


def test_markdown_takes_hostile_text_as_text() -> None:
    hostile = full_record(outcome="crashed", reason="a | b </td><script>alert(1)</script>\nnext")
    text = markdown.render(build([hostile]))
    assert "<script>" not in text
    assert "a \\| b" in text


def test_csv_holds_base_units_and_leaves_unknown_values_empty() -> None:
    rows = list(reader.DictReader(io.StringIO(csv.render(build(ladder())))))
    swizzled = next(row for row in rows if row["variant"] == "cuda/swizzled")
    assert float(swizzled["time_cold [s]"]) == 2.124e-3
    assert float(swizzled["time_cold low"]) < 2.124e-3
    assert swizzled["tensor_pipe_util [ratio]"] == ""
    assert {row["outcome"] for row in rows} == {"ok", "wrong", "refused"}


def test_csv_never_hands_a_formula_to_a_spreadsheet() -> None:
    text = csv.render(build([full_record(outcome="crashed", reason="=HYPERLINK(1)")]))
    assert "'=HYPERLINK(1)" in text


def test_a_run_as_json_names_its_schema_and_comes_back_the_same() -> None:
    run = Run(id="r", created="2026-01-01T00:00:00+00:00", command=("dgw",), version="0", records=tuple(ladder()))
    text = json.render(run)
    assert msgspec.json.decode(text)["schema"] == "dgw.run/1"
    assert msgspec.json.decode(text, type=Run) == run


def test_a_listing_wraps_its_last_column_and_cuts_nothing_off() -> None:
    words = " ".join(f"word{i}" for i in range(40))
    text = terminal.listing(("name", "meaning"), [("a", words), ("b" * 70, words)], 80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("word39") == 2


def _by_line() -> Record:
    costs = {"swizzled.cu:12": 300.0, "swizzled.cu:40": 100.0, "swizzled.cu:7": 0.0}
    return full_record(measurements=tuple(
        Measurement(metric="smem_wavefronts_actual", value=v, scope=f"line {k}", collector="emulator")
        for k, v in costs.items()
    ))  # fmt: skip


def test_source_lines_are_ranked_by_cost_with_their_share() -> None:
    assert lines.costly(_by_line(), "smem_wavefronts_actual") == [("swizzled.cu:12", 300.0), ("swizzled.cu:40", 100.0)]
    text = lines.render([_by_line()])
    assert "75.0 %" in text


def test_stalls_of_a_line_stand_beside_what_the_emulator_counts_there() -> None:
    def by(collector: str, metric: str, place: str, value: float | str) -> Measurement:
        return Measurement(metric=metric, value=value, scope=f"line {place}", collector=collector)

    record = full_record(measurements=(
        by("ncu", "stall_samples", "async.cuh:39", 300.0), by("ncu", "stall_reason", "async.cuh:39", "long_scoreboard"),
        by("ncu", "stall_samples", "k.cu:5", 100.0), by("ncu", "smem_wavefronts_actual", "async.cuh:39", 96.0),
        by("emulator", "smem_wavefronts_actual", "k.cu:73 (async.cuh:39)", 64.0),
        by("emulator", "inst_executed", "k.cu:5", 7.0), by("emulator", "inst_executed", "k.cu:8", 9.0),
    ))  # fmt: skip
    assert lines.costly(record, "smem_wavefronts_actual") == [("async.cuh:39", 96.0)]
    text = lines.render([record], 160)
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "line stall_samples share mostly smem_wavefronts_actual, emulated inst_executed, emulated" in rows
    assert "k.cu:73 (async.cuh:39) 300 75.0 % long scoreboard 64 -" in rows
    assert "k.cu:5 100 25.0 % - - 7" in rows
    assert "line smem_wavefronts_actual share smem_wavefronts_actual, emulated" in rows
    assert "k.cu:73 (async.cuh:39) 96 100 % 64" in rows
    assert lines.own_line("k.cu:73 (async.cuh:39)") == lines.own_line("k.cu:73") == "k.cu:73"


def test_without_figures_by_line_the_report_says_so() -> None:
    assert lines.render([full_record()]) == "No figure is known by source line."


def test_what_no_column_knows_is_shown_once_when_the_columns_do_not_fit_side_by_side() -> None:
    records = [full_record(name) for name in ("naive", "tiled", "swizzled", "double-buffered", "tensor-core")]
    lines = terminal.render(build(records), 80).splitlines()
    assert sum(line.startswith("tensor pipe active ") for line in lines) == 1
    assert sum(line.startswith("load conflicts ") for line in lines) > 1
