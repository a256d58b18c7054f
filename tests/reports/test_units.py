from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgw.reports.units import UNIT_STYLE, percent, plain, shared_unit, show, show_in, significant


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (184.3e-6, "seconds", "184.3 us"),
        (0.99996e-3, "seconds", "1.000 ms"),
        (0.0, "seconds", "0 s"),
        (711e12, "rate", "711.0 TFLOP/s"),
        (3.2e12, "bandwidth", "3.200 TB/s"),
        (999.96, "bytes", "1.000 kB"),
        (129818, "count", "129,818"),
        (2.5, "count", "2.50"),
        (0.957, "times", "0.957 x"),
        (1.2345, "times", "1.234 x"),
        (0.0003, "percent", "0.03 %"),
        (1.0, "percent", "100 %"),
        (0.123, "energy", "123.0 mJ"),
        ("registers", "text", "registers"),
    ],
)
def test_a_value_is_shown_with_four_digits_and_the_unit_it_reads_best_in(value: float, style: str, text: str) -> None:
    assert show(value, style) == text


@pytest.mark.parametrize("value", [None, math.nan, math.inf, ""])
def test_what_is_not_known_or_not_finite_is_a_dash_and_never_a_zero(value: float | None) -> None:
    assert show(value, "seconds") == "-"


def test_one_unit_is_shared_by_a_row_and_the_smallest_value_decides() -> None:
    factor, unit = shared_unit([30.1e-3, 204e-6, None], "seconds")
    assert unit == "us"
    assert [show_in(value, "seconds", factor) for value in (30.1e-3, 204e-6)] == ["30,100", "204.0"]


def test_styles_without_prefixes_have_no_unit_of_their_own() -> None:
    assert shared_unit([0.5, 0.25], "percent") == (1.0, "")
    assert show_in(0.25, "percent", 1.0) == "25.0 %"


def test_every_unit_has_a_style_that_shows_it() -> None:
    assert all(show(1.5, style) != "-" for style in UNIT_STYLE.values())


@given(st.floats(min_value=1e-11, max_value=1e3, allow_nan=False))
def test_what_is_shown_reads_back_within_four_digits(value: float) -> None:
    number, unit = show(value, "seconds").split()
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}[unit]
    assert math.isclose(float(number) * scale, value, rel_tol=6e-4)
    assert float(number) < 1000 or unit == "s"


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_significant_digits_never_use_an_exponent(value: float) -> None:
    assert "e" not in significant(value)


def test_percentages_of_nothing_and_everything_are_exact() -> None:
    assert percent(0.0) == "0 %"
    assert percent(1.0) == "100 %"


@pytest.mark.parametrize(
    ("value", "text"),
    [(30_818_304, "30,818,304"), (14_058_496.4, "14,058,496"), (1, "1"), (0.7, "0.7"), (642.2496, "642.2"), (0, "0")],
)
def test_a_number_of_no_unit_is_written_in_one_way_beside_others(value: float, text: str) -> None:
    assert plain(value) == text
