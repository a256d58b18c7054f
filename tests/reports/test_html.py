from __future__ import annotations

import csv as reader
import dataclasses
import html
import io
from html.parser import HTMLParser

import pytest

from dgw.model import Case, Evidence, Finding, Measurement, Record, Run, gemm
from dgw.reports import csv, markdown, terminal
from dgw.reports.charts import heatmap
from dgw.reports.charts.catalogue import KINDS
from dgw.reports.heatmap import grid
from dgw.reports.html import cases
from dgw.reports.html.page import Extras, render
from dgw.reports.html.provenance import meaning
from dgw.reports.tables import build
from dgw.reports.units import show_in
from tests.reports.samples import LAPTOP, counted, full_record, ladder
from tests.reports.test_charts import rich
from tests.reports.test_heatmap import sample

HOSTILE = "</td><script>alert(1)</script><b onload='x'>"


def page(records: list[Record], extras: Extras | None = None) -> str:
    run = Run(id="r-1", created="2026-01-01T10:00:00+00:00", command=("dgw", "profile", HOSTILE), version="0.1",
              records=tuple(records))  # fmt: skip
    return render(run, build(records), extras)


class Reader(HTMLParser):
    """Tags with their attributes, and the text of every cell."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("td", "th", "dt", "dd"):
            self._cell = True
            self.cells.append("")
        elif tag in ("tr", "tbody", "thead"):
            self._cell = False

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag not in ("td", "th", "tr", "tbody", "thead", "table", "dt", "dd", "dl")

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.cells[-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def cells(text: str) -> set[str]:
    return {" ".join(cell.split()) for cell in Reader(text).cells}


def test_every_renderer_shows_the_same_text_in_every_cell() -> None:
    records = ladder()
    (block,) = build(records)
    shown, down, wide = cells(page(records)), markdown.render((block,)), terminal.render((block,), 200)
    rows = list(reader.DictReader(io.StringIO(csv.render((block,)))))
    compared = 0
    for line in block.lines:
        heading = next((name for name in rows[0] if name == line.key or name.startswith(f"{line.key} [")), "")
        for column in range(len(block.columns)):
            text = line.text(column)
            assert text in shown
            assert f"| {markdown.escape(text)} |" in down
            assert text in wide
            if line.style != "text" and rows[column].get(heading) and text != "exact":
                assert show_in(float(rows[column][heading]), line.style, line.unit[0]) == text
                compared += 1
    assert compared > 20


def test_the_table_of_cases_shows_what_the_card_shows() -> None:
    blocks = build(ladder())
    (block,) = blocks
    table = cases.build(blocks)
    for index, row in enumerate(table.rows):
        shown = {head: cell.text for (head, _), cell in zip(table.head[1:], row.cells, strict=True)}
        for line in (block.line(key) for key in cases.COLUMNS):
            if line is not None and line.heading.strip() in shown:
                assert shown[line.heading.strip()] == line.text(index)


def test_all_problems_share_one_unit_a_column_and_sort_by_base_values() -> None:
    table = cases.build(build([rich("naive", 1024, 3e-6), rich("tiled", 4096, 40e-3)]))
    column = [head for head, _ in table.head].index("time cold, us")
    assert [row.cells[column - 1].text for row in table.rows] == ["3.000", "40,000"]
    assert [row.cells[column - 1].value for row in table.rows] == [3e-6, 40e-3]


def test_cases_that_differ_in_their_data_only_are_told_apart() -> None:
    problems = [gemm(64, 64, 64, data=data) for data in ("normal", "integer")]
    table = cases.build(build([full_record(case=Case(problem=problem, variant="cuda/x")) for problem in problems]))
    column = [head for head, _ in table.head].index("data")
    assert [row.cells[column - 1].text for row in table.rows] == ["normal, seed 0", "integer, seed 0"]


def test_hostile_text_stays_text_wherever_it_comes_from() -> None:
    found = Finding(recipe=HOSTILE, verdict=HOSTILE, next_step=HOSTILE,
                    evidence=(Evidence(metric=HOSTILE, value=HOSTILE, why=HOSTILE),))  # fmt: skip
    line = Measurement(metric="inst_executed", value=5, scope="line x.cu:1", collector="emulator")
    odd = Measurement(metric=HOSTILE, value=HOSTILE, unit=HOSTILE, collector=HOSTILE, protocol=HOSTILE)
    why = Measurement(metric="energy", collector="x", absent=HOSTILE)
    bad = full_record(HOSTILE, outcome="crashed", reason=HOSTILE, flags=(HOSTILE,), measurements=(line, odd, why))
    extras = Extras({bad.case.key: [found]}, [found], {(bad.case.variant, "x.cu"): [HOSTILE]})
    text = page([bad, rich(HOSTILE)], extras)
    assert text.count("<script") == 1
    assert "<b onload" not in text
    assert html.escape(HOSTILE, quote=False) in text.replace("&#39;", "'").replace("&#x27;", "'")


def test_the_page_names_no_other_file_and_forbids_the_network() -> None:
    found = Reader(page([rich()]))
    assert not any(tag in ("img", "iframe", "object", "embed", "base") for tag, _ in found.tags)
    links = [value for _, attributes in found.tags for name, value in attributes.items() if name in ("href", "src")]
    assert links
    assert all(value is not None and value.startswith(("#", "data:,")) for value in links)
    (policy,) = (meta["content"] for meta in found.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert not any("style" in attributes for _, attributes in found.tags)


def test_every_link_inside_the_page_has_a_target_and_no_id_is_used_twice() -> None:
    found = Reader(page([rich("naive"), rich("tiled"), rich("tiled", 1024)]))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in found.all("a"):
        assert (link["href"] or "").removeprefix("#") in ids


def test_a_screen_reader_is_told_what_everything_is() -> None:
    found = Reader(page([rich("naive"), rich("tiled")]))
    tags = [tag for tag, _ in found.tags]
    assert tags.count("h1") == 1
    assert tags.count("table") == tags.count("caption")
    ids = {attributes.get("id") for _, attributes in found.tags}
    assert all(svg.get("role") == "img" for svg in found.all("svg"))
    assert all({svg.get("aria-labelledby"), svg.get("aria-describedby")} <= ids for svg in found.all("svg"))
    assert all("scope" in th for th in found.all("th"))
    assert all(div.get("aria-label") for div in found.all("div") if div.get("tabindex"))
    assert ("html", {"lang": "en"}) in found.tags


@pytest.mark.parametrize("name", KINDS)
def test_every_chart_is_on_the_page_with_its_figures_as_a_table(name: str) -> None:
    found = Reader(page([rich(name, k) for name in ("naive", "tiled") for k in (512, 1024)]))
    assert any(figure.get("data-chart") == name for figure in found.all("figure"))


def test_a_chart_that_cannot_be_drawn_says_what_it_needs() -> None:
    text = page([full_record(measurements=(), environment=LAPTOP)])
    assert "<figure" not in text
    for kind in KINDS.values():
        assert html.escape(f"{kind.title}: needs {kind.needs}") in text


def test_findings_stand_at_the_top_the_costliest_first_with_their_evidence() -> None:
    records = [rich("naive"), rich("tiled")]
    seen = Evidence(metric="conflict_ratio_ld", value=0.82, threshold=0.1, why="rows lie apart")
    told = [Finding(recipe="conflicts", verdict=f"case {i}", cost=0.2 * i, evidence=(seen,), next_step="dgw show x")
            for i in range(2)]  # fmt: skip
    untold = Finding(recipe="other", verdict="cannot tell: needs more")
    by_case = {r.case.key: [f, untold] for r, f in zip(records, told, strict=True)}
    text = page(records, Extras(by_case))
    top = text[text.index('id="findings"') : text.index('id="cases"')]
    assert top.index("case 1") < top.index("case 0")
    assert "82.0 % against 10.0 %" in top
    assert "rows lie apart" in top
    assert "cannot tell" not in top


def test_without_findings_there_is_no_section_of_them() -> None:
    assert 'id="findings"' not in page([rich()])


def test_lines_of_code_are_quoted_beside_their_figures() -> None:
    lines = tuple(Measurement(metric="inst_executed", value=v, scope=f"line x.cu:{n}", collector="emulator")
                  for n, v in ((2, 30), (9, 10)))  # fmt: skip
    record = full_record(measurements=lines)
    text = page([record], Extras(sources={("cuda/swizzled", "x.cu"): ["first", "  sum += a * b;"]}))
    assert "<code>sum += a * b;</code>" in text
    assert {"x.cu:2", "x.cu:9", "75.0 %", "25.0 %"} <= cells(text)


def test_details_have_every_figure_of_a_case_and_name_the_absent_ones() -> None:
    record = rich()
    shown = cells(page([record]))
    for measurement in record.measurements:
        if measurement.value is not None and not measurement.metric.endswith("_per_issue"):
            assert measurement.metric in shown
    assert "tensor_pipe_util: ncu has no permission to read counters" in page([record])


def test_figures_of_single_kernels_are_shown_where_there_are_several() -> None:
    kernels = tuple(Measurement(metric="inst_executed", value=7 + i, unit="inst", scope=f"kernel {i}", collector="ncu")
                    for i in range(2))  # fmt: skip
    assert {"7 inst", "8 inst"} <= cells(page([full_record(measurements=kernels)]))
    assert "7 inst" not in cells(page([full_record(measurements=kernels[:1])]))


def test_every_machine_has_a_column_and_every_protocol_a_sentence() -> None:
    text = page([rich(), full_record("tiled", environment=LAPTOP)])
    assert {"1 case", "580.159", "emulator"} <= cells(text)
    for collector, protocol in (("timing", "cold-graph/1"), ("ncu", "ncu-kernel-replay-cold/1"), ("static", "")):
        assert meaning(collector, protocol)


def test_a_run_without_cases_is_a_page_all_the_same() -> None:
    assert "A run without cases" in page([])


def test_many_cases_of_one_problem_are_not_put_side_by_side() -> None:
    text = page([full_record(f"kernel{i}") for i in range(17)])
    assert "More cases than stand side by side" in text
    assert text.count('class="detail"') == 17


def test_a_long_list_of_counters_is_worth_a_row_not_a_page() -> None:
    records = [full_record(f"k{i}", measurements=(counted("stall_wait_per_issue", 1.0, "warp/issue"),)) for i in (1, 2)]
    assert "stall_wait_per_issue" not in page(records)


def test_the_same_finding_on_several_problems_is_said_once_with_links_to_the_others() -> None:
    records = [rich("tiled", k) for k in (512, 1024, 2048)]
    by_case = {r.case.key: [Finding(recipe="conflicts", verdict=f"k is {r.case.problem.k}")] for r in records}
    text = page(records, Extras(by_case))
    top = text[text.index('id="findings"') : text.index('id="cases"')]
    assert "k is 512" in top
    assert "k is 1024" not in top
    assert '<a href="#case-2-1">4096x4096x1024</a>, <a href="#case-3-1">4096x4096x2048</a>' in top


def test_a_map_is_drawn_in_the_page_with_its_figures_as_a_table() -> None:
    chart = dataclasses.replace(heatmap.build(grid(sample())), title=f"Tiles {HOSTILE}", caption="Best: 128 x 256.")
    reader = Reader(page([rich()], Extras(maps=[chart])))
    (figure,) = [one for one in reader.all("figure") if one["data-chart"] == "heatmap"]
    assert figure
    text = page([rich()], Extras(maps=[chart]))
    assert "Best: 128 x 256." in text
    assert HOSTILE not in text
    assert text.count("<script") == 1
