"""Maps of sweeps: what a cell shows, and that every kind of cell looks unlike the others in every form."""

from __future__ import annotations

import csv as reader
import io
import itertools
import xml.etree.ElementTree as ET

import msgspec
import pytest

from dgw.errors import NotComparable
from dgw.model import Case, Check, Measurement, Record, gemm
from dgw.reports import heatmap_csv, heatmap_text
from dgw.reports.charts import heatmap as chart
from dgw.reports.charts import png
from dgw.reports.charts.drawing import Line, Rect, Text
from dgw.reports.charts.palette import DARK, HEAT, LIGHT, contrast
from dgw.reports.heatmap import Axes, Grid, grid, metrics_of, svg
from dgw.reports.heatmap_cells import Square, Value
from dgw.workbench.sweep import race
from tests.reports.samples import GPU, LAPTOP, counted

SCREEN = "screen/1 cold-graph/1"


def timed(seconds: float, protocol: str = SCREEN) -> tuple[Measurement, ...]:
    flops = gemm(512, 512, 512).flops
    return (
        Measurement(metric="time_cold", value=seconds, unit="s", collector="timing", protocol=protocol),
        Measurement(metric="tflops", value=flops / seconds, unit="FLOP/s", collector="timing", protocol=protocol),
    )


def record(seconds: float | None = 1e-3, outcome: str = "ok", verdict: str = "", **config: int) -> Record:
    measured = timed(seconds) if seconds else ()
    if verdict:
        said = Measurement(metric=race.VERDICT, value=verdict, collector="sweep", protocol=race.PROTOCOL)
        measured = (*timed((seconds or 1.0) * 0.9, "cold-graph/1"), said, *measured)
    return Record(
        case=Case(problem=gemm(512, 512, 512), variant="cuda/x", config=dict(config)), outcome=outcome,  # type: ignore[arg-type]
        environment=GPU, check=Check(passed=outcome == "ok", compared=1), reason="" if outcome == "ok" else "a reason",
        measurements=(*measured, counted("registers_per_thread", 100 + config.get("BM", 0), "register")),
    )  # fmt: skip


def sample() -> list[Record]:
    """Two by four cells: best, tied, plain, wrong; crashed, refused, not there, without a figure."""
    return [
        record(1.0e-3, verdict="best", BM=64, BN=32, WM=16),
        record(1.5e-3, BM=64, BN=32, WM=32),
        record(1.001e-3, verdict="tied", BM=64, BN=64, WM=16),
        record(2.0e-3, BM=64, BN=128, WM=16),
        record(None, "wrong", BM=64, BN=128, WM=32),
        record(None, "wrong", BM=64, BN=256, WM=16),
        record(None, "crashed", BM=128, BN=32, WM=16),
        record(None, "refused", BM=128, BN=64, WM=16),
        record(None, BM=128, BN=256, WM=16),
    ]


def cells(made: Grid) -> dict[tuple[Value, Value], Square]:
    (panel,) = made.panels
    at = itertools.product(made.y[1], made.x[1])
    return dict(zip(at, itertools.chain.from_iterable(panel.rows), strict=True))


def test_a_cell_shows_the_best_of_its_configs_and_every_other_says_why_it_is_empty() -> None:
    made = grid(sample())
    assert (made.x, made.y) == (("BN", (32, 64, 128, 256)), ("BM", (64, 128)))
    found = cells(made)
    assert found[64, 32].value == pytest.approx(gemm(512, 512, 512).flops / 1e-3)
    assert [s.state for s in found.values()] == [
        "ok", "ok", "ok", "wrong", "failed", "infeasible", "not-run", "absent",
    ]  # fmt: skip
    assert [s.standing for s in found.values()][:3] == ["best", "tied", ""]
    assert found[64, 128].bad == 1
    assert found[128, 32].reason == "a reason"


def test_figures_of_one_protocol_are_shown_and_the_race_decides_who_wins() -> None:
    made = grid(sample(), "time")
    assert made.protocol == SCREEN
    assert "winner (outlined) and ties (hatched): race/1" in made.caption
    assert cells(made)[64, 32].value == 1.0e-3


def test_the_title_says_what_where_and_under_which_protocol() -> None:
    made = grid(sample())
    assert made.title == "rate, GFLOP/s: cuda/x at 512x512x512, f16 -> f16, nn"
    assert made.caption.startswith("h200 (sm_90a), driver 580.159; each cell is the best over WM")
    assert SCREEN in made.caption


def test_fixed_tunables_are_named_and_the_others_left_out() -> None:
    made = grid(sample(), axes=Axes(fixed={"WM": 32}, values={"BM": (64, 128)}, x="BN", y="BM"))
    assert "at WM=32" in made.caption
    assert cells(made)[64, 32].value == pytest.approx(gemm(512, 512, 512).flops / 1.5e-3)
    assert cells(made)[128, 32].state == "not-run"


def test_facets_share_axes_and_scale() -> None:
    records = [record(1e-3 * (1 + n), BM=bm, BN=bn, BK=bk)
               for n, (bm, bn, bk) in enumerate(itertools.product((64, 128), (64, 128), (32, 64)))]  # fmt: skip
    made = grid(records, axes=Axes("BN", "BM", ("BK",)))
    assert [panel.title for panel in made.panels] == ["BK=32", "BK=64"]
    assert made.low == min(s.value for s in made.squares if s.value is not None)


def test_good_is_bright_whichever_way_is_better() -> None:
    rate, time = grid(sample()), grid(sample(), "time")
    assert rate.share(rate.high) == time.share(time.low) == 1.0
    assert rate.share(rate.low) == time.share(time.high) == 0.0


def test_without_times_the_best_figure_is_marked_but_nobody_wins() -> None:
    emulated = [
        msgspec.structs.replace(r, environment=LAPTOP, measurements=r.measurements[-1:])
        for r in sample() if r.outcome == "ok"
    ]  # fmt: skip
    made = grid(emulated, "registers")
    assert made.better == "lower"
    assert "equal to the last digit" in made.caption or "most cells" in made.caption
    assert "winner" not in made.standings.values()


def even(verdict: str = "", *more: Record) -> Grid:
    """Two by two cells of the same time: one of their configs is worse, as it is in every cell."""
    cells = list(itertools.product((64, 128), (32, 64)))
    best = [record(1e-3, verdict=verdict if (bm, bn) == (64, 32) else "", BM=bm, BN=bn, WM=16) for bm, bn in cells]
    rest = [record(2e-3, BM=bm, BN=bn, WM=32) for bm, bn in cells]
    return grid([*best, *rest, *more], "time", Axes("BN", "BM"))


def test_a_map_of_equal_cells_says_that_they_are_equal_and_names_no_best() -> None:
    made = even()
    assert {square.value for square in made.squares} == {1e-3}
    assert made.judged == "all cells are equal"
    assert made.standings == {}
    picture = texts(made)
    assert picture.count("1.000 ms") == 1  # the scale has one colour
    assert not [s for s in chart.build(made).drawing.shapes if isinstance(s, Line) and s.thick in (5.0, 0.9)]
    for said in (heatmap_text.render(made), chart.build(made).caption, svg(made)):
        assert "all cells are equal" in " ".join(said.split())
        assert not any(
            word in said for word in ("most cells", "winner", "best;", "equal to the last digit", "outlined")
        )
    assert {row["standing"] for row in reader.DictReader(io.StringIO(heatmap_csv.render(made)))} == {""}


def test_equal_cells_beside_some_without_a_figure_are_told_from_all_and_a_race_still_has_its_winner() -> None:
    some = even("", record(None, "crashed", BM=256, BN=32, WM=16))
    assert some.judged == "all cells with a figure are equal"
    sampled = [record(1e-3, BM=bm, BN=bn) for bm in (64, 128) for bn in (32, 64)]
    one_worse = [record(2e-3, BM=64, BN=128), *sampled]
    assert grid(one_worse, "time").judged == "most cells are equally good"
    raced = grid([msgspec.structs.replace(r, measurements=r.measurements[-1:] + r.measurements[:-1]) for r in
                  [record(1e-3, verdict="best", BM=64, BN=32), *sampled[1:]]], "time")  # fmt: skip
    assert raced.judged == "winner (outlined) and ties (hatched): race/1; all cells are equal"
    assert raced.standings == {"best": "winner"}


def test_an_impossible_figure_is_no_figure() -> None:
    impossible = msgspec.structs.replace(record(1e-9, BM=64, BN=64), flags=("above the roofline: 1 ns",))
    made = grid([impossible, record(BM=64, BN=32), record(BM=128, BN=32)])
    assert cells(made)[64, 64].state == "failed"
    assert "above the roofline" in cells(made)[64, 64].reason


def test_short_names_stand_for_metrics() -> None:
    assert metrics_of("cublas") == ("ratio_to_cublas",)
    assert metrics_of("occupancy")[0] == "theoretical_occupancy"
    assert metrics_of("l2_hit_rate") == ("l2_hit_rate",)
    assert metrics_of("coalescing")[0] == "gld_sectors_per_request"


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([], "no record"),
        ([record(BM=64, BN=64)], "two tunables"),
        ([record(BM=64, BN=64), msgspec.structs.replace(record(BM=64, BN=32), case=Case(problem=gemm(8, 8, 8),
          variant="cuda/x", config={"BM": 64, "BN": 32}))], "one problem"),
    ],
)  # fmt: skip
def test_what_spans_no_map_is_refused_with_the_reason(records: list[Record], text: str) -> None:
    with pytest.raises(NotComparable, match=text) as caught:
        grid(records)
    assert caught.value.hint


def texts(made: Grid) -> list[str]:
    return [shape.text for shape in chart.build(made).drawing.shapes if isinstance(shape, Text)]


def test_every_kind_of_cell_has_a_word_of_its_own_in_picture_and_terminal() -> None:
    assert len(set(chart.WORDS.values())) == len(chart.WORDS) == 5
    made = grid(sample())
    plain = heatmap_text.render(made)
    for word in chart.WORDS.values():
        assert word in texts(made)
        assert word in plain
    assert "[" in plain
    assert "/" in plain
    assert "* some configs there are wrong" in plain


def test_the_winner_is_outlined_and_ties_are_hatched() -> None:
    drawn = chart.build(grid(sample())).drawing.shapes
    outlines = [s for s in drawn if isinstance(s, Line) and s.thick == 5.0]
    assert len(outlines) == 2  # the cell, and the sign in the legend
    hatches = [s for s in drawn if isinstance(s, Line) and s.thick == 0.9]
    assert len(hatches) > 6


def many(columns: int, rows: int) -> Grid:
    records = [record(1e-3 * (1 + x + y / 50), BM=y + 1, BN=x + 1) for x in range(columns) for y in range(rows)]
    return grid(records, axes=Axes("BN", "BM"))


@pytest.mark.parametrize(("columns", "rows"), [(2, 2), (4, 4), (10, 10), (20, 20)])
def test_from_4_to_400_cells_no_text_leaves_its_cell(columns: int, rows: int) -> None:
    made = many(columns, rows)
    assert len(list(made.squares)) == columns * rows
    drawn = chart.build(made).drawing
    boxes = [s for s in drawn.shapes if isinstance(s, Rect) and s.role.startswith("heat-") and s.title]
    assert len(boxes) == columns * rows
    longest = max(len(square.text) for square in made.squares)
    assert min(box.width for box in boxes) >= longest * 6.9
    for shape in drawn.shapes:
        if isinstance(shape, Rect):
            assert shape.x >= 0
            assert shape.x + shape.width <= drawn.width
            assert shape.y + shape.height <= drawn.height


def test_text_is_legible_on_every_step_and_the_steps_grow_brighter() -> None:
    from dgw.reports.charts.palette import luminance

    for colours in (LIGHT, DARK):
        for number in range(len(HEAT)):
            role = f"heat-{number}"
            assert contrast(colours[role], colours[chart.ink(role)]) >= 4.5
    shades = [luminance(colour) for colour in HEAT]
    assert shades == sorted(shades)
    assert max(later - earlier for earlier, later in itertools.pairwise(shades)) < 0.25


def test_the_svg_is_well_formed_and_tells_each_cell() -> None:
    root = ET.fromstring(svg(grid(sample())))
    titles = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any("BM=64,BN=32,WM=16" in text and "best" in text for text in titles)
    assert any("a reason" in text for text in titles)


def test_the_png_is_one() -> None:
    assert png.render(chart.build(grid(sample()))).startswith(b"\x89PNG")


def test_the_csv_has_a_row_for_each_cell_in_base_units() -> None:
    rows = list(reader.DictReader(io.StringIO(heatmap_csv.render(grid(sample(), "time")))))
    assert len(rows) == 8
    assert float(rows[0]["time_cold"]) == 1.0e-3
    assert [row["state"] for row in rows] == [s.state for s in grid(sample()).squares]
    assert rows[0]["config"] == "BM=64,BN=32,WM=16"
    assert rows[3]["reason"] == "a reason"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_on_a_terminal_panels_go_below_each_other_where_it_is_narrow(width: int) -> None:
    records = [record(1e-3, BM=bm, BN=bn, BK=bk) for bm in (64, 128) for bn in (32, 64) for bk in (16, 32, 64, 128)]
    text = heatmap_text.render(grid(records, axes=Axes("BN", "BM", ("BK",))), width)
    assert max(map(len, text.splitlines())) <= width


def test_colour_changes_no_character_on_a_terminal() -> None:
    import re

    made = grid(sample())
    coloured = heatmap_text.render(made, 100, True)
    assert "\x1b[" in coloured
    bare = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()]
    assert bare == heatmap_text.render(made, 100).splitlines()
