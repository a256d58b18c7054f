from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from dgw.model import Case, Measurement, Record, Run, gemm
from dgw.reports.charts import drawing, png, svg
from dgw.reports.charts.catalogue import KINDS, available, picture
from dgw.reports.charts.drawing import Chart, Rect, Text
from dgw.reports.charts.palette import DARK, LIGHT, SERIES, contrast, series
from dgw.reports.charts.roofs import roofs
from dgw.reports.charts.scales import linear, logarithmic
from dgw.reports.charts.timeline import GPU as GPU_PARTS
from dgw.reports.tables import Block, build
from dgw.toolchain.devices import device
from tests.reports.samples import LAPTOP, counted, full_record

HOSTILE = "</text><script>alert('x')</script>&\""


def rich(name: str = "swizzled", k: int = 4096, seconds: float = 2e-3) -> Record:
    """A record with a figure for every chart."""
    more = [
        counted("dram_read_bytes", 120e6, "B"), counted("dram_write_bytes", 28e6, "B"), counted("l2_sectors", 3e7),
        counted("l2_hit_rate", 0.75, "ratio"), counted("conflict_ratio_hw_ld", 0.001, "ratio"),
        counted("compulsory_bytes", 100e6, "B"), counted("bound_time", 1.3e-4, "s"),
        counted("occ_limit_registers", 2, "block"), counted("occ_limit_shared_mem", 5, "block"),
        counted("occ_limit_warps", 8, "block"), counted("occ_limit_blocks", 32, "block"),
        counted("range_time", 3e-3, "s"), counted("api_time", 2e-3, "s"), counted("launch_api_time", 1e-3, "s"),
        counted("timeline_kernels", 3, "count"), *(counted(metric, 1e-3, "s") for metric, _, _ in GPU_PARTS),
    ]  # fmt: skip
    plain = full_record(name, seconds)
    case = Case(problem=gemm(4096, 4096, k), variant=plain.case.variant, config=plain.case.config)
    return full_record(name, seconds, case=case, measurements=(*plain.measurements, *more))


def blocks(names: tuple[str, ...] = ("naive", "tiled", "swizzled")) -> tuple[Block, ...]:
    return build([rich(name, k, 1e-3 * (1 + i)) for k in (1024, 4096) for i, name in enumerate(names)])


@pytest.mark.parametrize("name", KINDS)
def test_every_chart_is_drawn_from_stored_records_and_says_what_it_needs(name: str) -> None:
    chart = picture(name, blocks())
    assert chart is not None
    assert chart.caption
    assert all(len(row) == len(chart.head) for row in chart.rows)
    assert any("swizzled" in row[0] for row in chart.rows)
    assert KINDS[name].needs


@pytest.mark.parametrize("name", KINDS)
def test_a_chart_without_its_figures_is_not_drawn(name: str) -> None:
    assert picture(name, build([full_record(measurements=(), environment=LAPTOP)])) is None


@pytest.mark.parametrize("name", KINDS)
def test_every_chart_is_well_formed_svg_that_is_told_to_a_screen_reader(name: str) -> None:
    chart = picture(name, blocks((HOSTILE, "tiled")))
    assert chart is not None
    for text in (svg.standalone(chart), svg.inline(chart, "chart-1")):
        root = ET.fromstring(text)
        assert root.get("role") == "img"
        titles = {element.get("id"): element.text for element in root if element.get("id")}
        assert titles[root.get("aria-labelledby")] == chart.title
        assert titles.get(root.get("aria-describedby"), chart.caption) == chart.caption
        assert "<script" not in text
    assert HOSTILE in " ".join(row[0] for row in chart.rows)


@pytest.mark.parametrize("name", KINDS)
def test_everything_of_a_chart_lies_inside_of_it(name: str) -> None:
    chart = picture(name, blocks())
    assert chart is not None
    for shape in chart.drawing.shapes:
        if isinstance(shape, Rect):
            assert -0.5 <= shape.x <= shape.x + shape.width <= chart.drawing.width + 0.5
            assert -0.5 <= shape.y <= shape.y + shape.height <= chart.drawing.height + 0.5
        elif isinstance(shape, Text):
            assert 0 <= shape.x <= chart.drawing.width
            assert 0 <= shape.y <= chart.drawing.height


def test_a_chart_as_png_is_a_picture_of_twice_its_size() -> None:
    chart = picture("times", blocks())
    assert chart is not None
    data = png.render(chart)
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20]) == 2 * chart.drawing.width


def test_charts_of_several_problems_stand_below_each_other_in_one_picture() -> None:
    both = picture("stalls", blocks())
    one = picture("stalls", blocks()[:1])
    assert both is not None
    assert one is not None
    assert both.drawing.height > 2 * one.drawing.height
    assert len(both.rows) == 2 * len(one.rows)


def test_a_case_that_is_refused_is_in_no_chart_of_times() -> None:
    refused = full_record("greedy", outcome="refused", measurements=(counted("bound_time", 1e-5, "s"),))
    chart = picture("times", build([rich(), refused]))
    assert chart is not None
    assert [row[0] for row in chart.rows] == ["cuda/swizzled"]
    assert picture("times", build([refused])) is None


def test_only_charts_with_figures_are_available() -> None:
    assert available(blocks()) == list(KINDS)
    assert "timeline" not in available(build([full_record()]))


def test_the_bars_of_stalls_fill_the_width_and_issuing_is_among_them() -> None:
    chart = picture("stalls", build([rich()]))
    assert chart is not None
    assert chart.head[1] == "issuing"
    bars = [shape for shape in chart.drawing.shapes if isinstance(shape, Rect) and shape.title]
    assert sum(bar.width + 1 for bar in bars) == pytest.approx(bars[-1].x + bars[-1].width - bars[0].x + 1)


def test_the_limit_of_occupancy_is_the_shortest_bar_and_is_marked() -> None:
    chart = picture("occupancy", build([rich()]))
    assert chart is not None
    marked = [shape.title for shape in chart.drawing.shapes if isinstance(shape, Rect) and shape.role == "ink"]
    assert marked == ["cuda/swizzled: registers allow 2 blocks an SM: the limit"]


def test_roofs_name_their_sources_and_a_rate_of_the_run_goes_before_the_table() -> None:
    h200 = device("h200")
    table = {roof.name: roof for roof in roofs([rich()], h200)}
    assert table["DRAM"].value == h200.dram_bytes_per_s
    assert table["mma.sync f16"].source == "device table: measured on h200"
    here = Measurement(metric="mma_sync_rate", value=6.1e14, unit="FLOP/s", collector="timing")
    record = rich()
    run = {roof.name: roof for roof in roofs([full_record(measurements=(*record.measurements, here))], h200)}
    assert (run["mma.sync f16"].value, run["mma.sync f16"].source) == (6.1e14, "measured in this run")
    assert all(roof.source for roof in table.values())


@pytest.mark.parametrize("topic", ["ladder", "hopper"])
def test_names_of_points_that_lie_together_are_written_beside_each_other(topic: str) -> None:
    """On runs of an H200 whose best stages are as good as equal."""
    stored = json.loads((Path(__file__).parents[2] / "docs" / "h200" / f"{topic}.json").read_text(encoding="utf-8"))
    run = stored["run"] if topic == "ladder" else stored["parts"]["pipe"]["run"]
    records = msgspec.convert(run, Run).records
    first = [record for record in records if record.case.problem == records[0].case.problem]
    chart = picture("roofline", build(first))
    assert chart is not None
    titles = {column.title for block in build(first) for column in block.columns}
    boxes = [
        (left, left + len(text.text) * drawing.CHARACTER, text.y)
        for text in chart.drawing.shapes
        if isinstance(text, Text) and text.text in titles
        for left in [text.x if text.anchor == "start" else text.x - len(text.text) * drawing.CHARACTER]
    ]
    assert len(boxes) == len(titles) >= 5
    for (left, right, y), (other, end, below) in itertools.combinations(boxes, 2):
        assert abs(y - below) >= 12 or right <= other or end <= left


def rated(dtype: str, rate: float | None) -> Record:
    """A record of an input type, with the rate of mma.sync that was measured beside it."""
    here = [Measurement(metric="mma_sync_rate", value=rate, unit="FLOP/s", collector="timing")] if rate else []
    case = Case(problem=gemm(4096, 4096, 4096, dtype), variant="cuda/tensor-core")
    return full_record(case=case, measurements=(*rich().measurements, *here))


def test_two_rates_of_mma_sync_are_never_averaged() -> None:
    h200 = device("h200")
    alike = {r.name: r for r in roofs([rated("f16", 6.1e14), rated("f16", 6.2e14), rated("bf16", 6.0e14)], h200)}
    assert alike["mma.sync f16 bf16"].value == 6.2e14
    assert alike["mma.sync f16 bf16"].source.startswith("measured in this run (f16 620.0 TFLOP/s, bf16 600.0 TFLOP/s")
    apart = {r.name: r.value for r in roofs([rated("f16", 6.1e14), rated("tf32", 3.1e14), rated("bf16", None)], h200)}
    assert (apart["mma.sync f16"], apart["mma.sync tf32"]) == (6.1e14, 3.1e14)
    assert apart["mma.sync bf16"] == pytest.approx(6.4e14, rel=1e-3)  # from the table: another source, another line


def test_what_multiplies_by_wgmma_has_another_roof_than_what_multiplies_by_mma_sync() -> None:
    names = {roof.name: roof.value for roof in roofs([rated("f16", 6.1e14)], device("h200"))}
    assert names["wgmma f16"] > 1.5 * names["mma.sync f16"]
    chart = picture("roofline", build([rated("f16", 6.1e14)]))
    assert chart is not None
    assert "multiply by mma.sync end at its roof" in chart.caption
    older = {roof.name for roof in roofs([rated("f16", None)], device("a100"))}
    assert "tensor f16" in older
    assert not any(name.startswith("mma.sync") for name in older)


def test_cases_of_several_devices_have_no_roofs_and_the_roofline_says_so() -> None:
    other = full_record("tiled", environment=LAPTOP.__class__(device="a100", arch="sm_80", engine="gpu"))
    chart = picture("roofline", build([rich(), other]))
    assert chart is not None
    assert "No roofs" in chart.caption


def test_more_cases_than_fit_are_left_to_the_table_and_the_caption_counts_them() -> None:
    names = tuple(f"kernel{i}" for i in range(40))
    chart = picture("stalls", build([rich(name) for name in names]))
    assert chart is not None
    assert "16 of 40 cases are not drawn." in chart.caption


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_marks_stand_out_from_the_background(colours: dict[str, str]) -> None:
    for ground in ("paper", "raised"):
        for text in ("ink", "muted", "accent", "good", "bad"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for mark in ("line", *map(series, range(SERIES))):
        assert contrast(colours[mark], colours["paper"]) >= 3.0, mark
    assert LIGHT.keys() == DARK.keys()


def test_long_names_are_cut_in_the_middle_where_they_differ_least() -> None:
    cut = drawing.shortened("cuda/tiled BM=128,BN=256,BK=64,STAGES=4", 100)
    assert cut.startswith("cuda")
    assert cut.endswith("=4")
    assert len(cut) * drawing.CHARACTER <= 100


@pytest.mark.parametrize("low", [3e-9, 0.07, 1.0, 12345.0])
@pytest.mark.parametrize("span", [1.5, 40.0, 1e7])
def test_ticks_lie_inside_and_ascend(low: float, span: float) -> None:
    for scale in (logarithmic([low, low * span], 0, 100), linear([low * span], 0, 100)):
        ticks = scale.ticks()
        assert ticks
        assert all(scale.low <= tick <= scale.high * (1 + 1e-9) for tick in ticks)
        assert all(a < b for a, b in itertools.pairwise(ticks))
        assert all(-1e-6 <= scale.at(tick) <= 100 + 1e-6 for tick in ticks)


def test_a_picture_is_a_chart_of_its_own_kind() -> None:
    assert all(isinstance(found, Chart) and found.key == name for name in KINDS if (found := picture(name, blocks())))


def test_occupancy_that_was_not_measured_is_not_called_achieved() -> None:
    kept = tuple(one for one in rich().measurements if one.metric != "achieved_occupancy")
    said = []
    for record in (rich(), full_record(measurements=kept)):
        chart = picture("occupancy", build([record]))
        assert chart is not None
        said.append(next(t.text for t in chart.drawing.shapes if isinstance(t, Text) and "on the right" in t.text))
    assert "achieved" in said[0]
    assert "achieved" not in said[1]
