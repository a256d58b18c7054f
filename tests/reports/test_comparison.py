from __future__ import annotations

import csv as reader
import io
import json
import math

import msgspec
import pytest

from dgw.errors import NotComparable
from dgw.model import Environment, Record, Run
from dgw.reports import comparison_text
from dgw.reports.charts import forest, svg
from dgw.reports.comparison import ALIKE, FASTER, SLOWER, UNTIMED, compare, quotient, refusal, table
from dgw.reports.html.comparison import render
from tests.reports.samples import GPU, LAPTOP, counted, full_record, timed
from tests.reports.test_html import HOSTILE, Reader, cells

OTHER = msgspec.structs.replace(GPU, device="h100", driver="570.1")


def run(name: str, records: list[Record]) -> Run:
    return Run(id=name, created="2026-01-01T10:00:00+00:00", command=("dgw",), version="0.1", records=tuple(records))


def pair(**changes: object) -> tuple[Run, Run]:
    """Three cases of which the second run has one faster, one slower, one alike."""
    times = {"naive": (4e-3, 3e-3), "tiled": (2e-3, 2.5e-3), "swizzled": (1e-3, 1e-3)}
    return tuple(
        run(f"r{side}", [full_record(name, both[side], **(changes if side else {})) for name, both in times.items()])
        for side in (0, 1)
    )  # type: ignore[return-value]


def test_a_ratio_above_one_says_that_the_second_run_is_faster() -> None:
    found = compare(*pair())
    assert [(p.title, p.verdict) for p in found.pairs] == [
        ("cuda/naive", FASTER), ("cuda/tiled", SLOWER), ("cuda/swizzled", ALIKE),
    ]  # fmt: skip
    assert found.pairs[0].ratio == pytest.approx(4 / 3)
    assert found.mean == pytest.approx((4 / 3 * 2 / 2.5) ** (1 / 3))


def test_the_interval_of_a_ratio_adds_the_squares_of_both_spreads() -> None:
    ratio, low, high = quotient(timed("time_cold", 2.0, spread=0.03), timed("time_cold", 1.0, spread=0.04))
    assert ratio == 2.0
    assert low is not None
    assert high is not None
    assert math.log(ratio / low) == pytest.approx(0.05, rel=0.05)
    assert math.log(high / ratio) == pytest.approx(0.05, rel=0.05)


def test_without_an_interval_no_difference_is_claimed() -> None:
    bare = msgspec.structs.replace(timed("time_cold", 1e-3), low=None, high=None)
    first = run("a", [full_record(measurements=(bare,))])
    second = run("b", [full_record(measurements=(timed("time_cold", 5e-4),))])
    (one,) = compare(first, second).pairs
    assert (one.ratio, one.low, one.verdict) == (2.0, None, ALIKE)


def test_two_devices_are_compared_and_named_by_their_devices() -> None:
    found = compare(*pair(environment=OTHER))
    assert found.names == ("h200", "h100")
    assert found.title == "h100 against h200"


REFUSED = {
    "drivers": {"environment": msgspec.structs.replace(GPU, driver="570.1")},
    "engine": {"environment": LAPTOP},
    "wrong": {"outcome": "wrong", "reason": "D[0, 0] is 1"},
    "protocols": {"measurements": (msgspec.structs.replace(timed("time_cold", 1e-3), protocol="screen/1"),)},
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_comparable_is_refused_with_the_reason(why: str) -> None:
    assert why in refusal(full_record(), full_record(**REFUSED[why]))
    with pytest.raises(NotComparable, match=why) as raised:
        compare(*pair(**REFUSED[why]))
    assert raised.value.hint


def test_runs_without_a_common_case_are_not_compared() -> None:
    with pytest.raises(NotComparable, match="no case in common"):
        compare(run("a", [full_record("naive")]), run("b", [full_record("tiled")]))


def test_what_cannot_be_compared_stands_beside_what_can() -> None:
    first = run("a", [full_record("naive"), full_record("tiled"), full_record("gone")])
    broken = full_record("tiled", outcome="crashed", reason="no such luck")
    second = run("b", [full_record("naive"), broken, full_record("new")])
    found = compare(first, second)
    assert [p.title for p in found.pairs] == ["cuda/naive"]
    assert found.refused == (("cuda/tiled", "crashed: no such luck"),)
    assert (found.only_base, found.only_head) == (("cuda/gone",), ("cuda/new",))
    for text in (comparison_text.terminal(found), comparison_text.markdown(found), render(found)):
        for word in ("no such luck", "cuda/gone", "cuda/new"):
            assert word in text


def test_emulated_runs_are_compared_by_their_counters() -> None:
    first, second = (
        run(str(value), [full_record(environment=LAPTOP, measurements=(counted("smem_wavefronts_actual", value),))])
        for value in (100, 300)
    )
    (one,) = compare(first, second).pairs
    assert one.verdict == UNTIMED
    assert [change.text for change in one.changes] == ["wavefronts 100 -> 300"]
    assert forest.build(compare(first, second)) is None


def test_small_changes_and_figures_of_other_protocols_are_not_listed() -> None:
    more = (counted("dram_bytes", 100e6, "B"), counted("registers_per_thread", 128))
    less = (counted("dram_bytes", 100.5e6, "B"),
            msgspec.structs.replace(counted("registers_per_thread", 64), collector="static"))  # fmt: skip
    (one,) = compare(run("a", [full_record(measurements=more)]), run("b", [full_record(measurements=less)])).pairs
    assert one.changes == ()


def test_another_version_of_a_declaration_is_a_change() -> None:
    newer = full_record()
    newer = msgspec.structs.replace(newer, case=msgspec.structs.replace(newer.case, version=2))
    (one,) = compare(run("a", [full_record()]), run("b", [newer])).pairs
    assert one.changes[0].text == "declared version 1 -> 2"


def test_every_renderer_of_a_comparison_shows_the_same_cells() -> None:
    found = compare(*pair())
    shown = table(found)
    page, wide, down = cells(render(found)), comparison_text.terminal(found, 200), comparison_text.markdown(found)
    for row in shown.rows:
        for cell in row:
            assert cell in page
            assert cell in wide
            assert f" {cell} |" in down
    plain = list(reader.DictReader(io.StringIO(comparison_text.csv(found))))
    parsed = json.loads(comparison_text.json(found))
    assert parsed["schema"] == comparison_text.SCHEMA
    for row, case, one in zip(plain, parsed["cases"], found.pairs, strict=True):
        assert float(row["ratio"]) == case["ratio"] == one.ratio
        assert row["verdict"] == case["verdict"] == one.verdict


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_of_a_comparison_is_wider_than_the_terminal(width: int) -> None:
    lines = comparison_text.terminal(compare(*pair(environment=OTHER)), width).splitlines()
    assert max(map(len, lines)) <= max(width, 78)


def test_hostile_text_of_a_comparison_stays_text() -> None:
    environment = Environment(device="h200", driver=HOSTILE, engine="gpu")
    records = [full_record(HOSTILE, environment=environment), full_record("x", outcome="wrong", reason=HOSTILE)]
    found = compare(run(HOSTILE, records), run(HOSTILE, records))
    assert render(found).count("<script") == 1
    assert "<script" not in comparison_text.markdown(found)


def test_the_page_of_a_comparison_is_complete_and_named() -> None:
    reader_ = Reader(render(compare(*pair(environment=OTHER))))
    assert any(figure.get("data-chart") == "forest" for figure in reader_.all("figure"))
    assert [tag for tag, _ in reader_.tags].count("h1") == 1
    ids = [attributes["id"] for _, attributes in reader_.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_chart_of_a_comparison_leaves_many_cases_to_the_table() -> None:
    records = [full_record(f"k{i}") for i in range(50)]
    chart = forest.build(compare(run("a", records), run("b", records)))
    assert chart is not None
    assert "10 more cases" in chart.caption
    assert svg.standalone(chart).count("<circle") == forest.MOST + 3


def test_only_differences_in_time_are_explained_and_every_renderer_says_why() -> None:
    first, second = pair()
    found = compare(first, second, lambda base, head: (f"{base.case.variant} waits.", f"<{HOSTILE}>"))
    assert [bool(one.because) for one in found.pairs] == [True, True, False]
    for text in (comparison_text.terminal(found), comparison_text.markdown(found), comparison_text.json(found)):
        assert "cuda/naive waits." in text
        assert "cuda/swizzled waits." not in text
    page = render(found)
    assert "<p>cuda/tiled waits.</p>" in page
    assert page.count("<script") == 1
