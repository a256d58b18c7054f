"""Values in base units become text that people read; nothing else in dgw formats a number."""

from __future__ import annotations

import math
from collections.abc import Iterable

Style = str
"""How a row is shown: `seconds rate work times percent bytes bandwidth count energy frequency power text`."""

UNKNOWN = "-"

_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p"))
_LARGE = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_FRACTIONS = ("seconds", "energy")
_SUFFIX = {
    "seconds": "s",
    "energy": "J",
    "bytes": "B",
    "bandwidth": "B/s",
    "frequency": "Hz",
    "rate": "FLOP/s",
    "work": "FLOP",
}

UNIT_STYLE: dict[str, Style] = {
    "s": "seconds", "B": "bytes", "byte": "bytes", "B/s": "bandwidth", "byte/s": "bandwidth", "FLOP/s": "rate",
    "FLOP": "work", "J": "energy", "Hz": "frequency", "W": "power", "ratio": "percent", "%": "percent", "x": "times",
}  # fmt: skip
"""The style in which a value is shown when only its unit is known."""


def significant(value: float, digits: int = 4) -> str:
    """`value` rounded to `digits` significant digits, without an exponent and without a trailing point."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(places, 0)}f}"


def _prefix(value: float, style: Style, digits: int = 4) -> tuple[float, str]:
    """The factor and the unit in which `value` reads best: at least 1 and below 1000 where a prefix exists for that."""
    steps = _SMALL if style in _FRACTIONS else _LARGE
    for factor, prefix in steps:
        # 999.96 would round to 1000 in this prefix: it belongs to the next one up
        if abs(value) >= factor * (1 - 10.0**-digits / 2):
            return factor, prefix + _SUFFIX[style]
    return (1.0 if not value else steps[-1][0]), ("" if not value else steps[-1][1]) + _SUFFIX[style]


def shared_unit(values: Iterable[float | int | str | None], style: Style) -> tuple[float, str]:
    """One factor and unit for a whole row, so that its numbers compare at sight: the smallest one decides.

    Styles without prefixes (percent, counts, text) have factor 1 and no unit of their own.
    """
    numbers = [abs(v) for v in values if isinstance(v, int | float) and math.isfinite(v) and v]
    return _prefix(min(numbers, default=0.0), style) if style in _SUFFIX else (1.0, "")


def percent(ratio: float) -> str:
    """A ratio as a percentage: two digits after the point below 1 %, one above, none at 0 and 100."""
    value = 100 * ratio
    if value == 0:
        return "0 %"
    if value == 100:
        return "100 %"
    return f"{value:.2f} %" if abs(value) < 1 else f"{value:.1f} %"


def count(value: float) -> str:
    """A count with thousands separators; counts that are not whole (an average) keep two digits."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def plain(value: float | int) -> str:
    """A number of no unit beside others: whole and separated from 1,000 on, four significant digits below, no zeros at
    their end."""
    if float(value).is_integer() or abs(value) >= 1000:
        return count(round(value))
    text = significant(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def show(value: float | int | str | None, style: Style) -> str:
    """One value in the style of its row; `-` for None and for what is not a finite number."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value or UNKNOWN
    if not math.isfinite(value):
        return UNKNOWN
    if style == "percent":
        return percent(value)
    if style == "times":
        return f"{significant(value, 3)} x" if abs(value) < 0.9995 else f"{value:.3f} x"
    if style == "power":
        return f"{value:.0f} W"
    if style in _SUFFIX:
        factor, unit = _prefix(value, style)
        return f"{significant(value / factor)} {unit}"
    return count(value)


def show_in(value: float | int | str | None, style: Style, factor: float) -> str:
    """As `show`, in a row whose unit stands beside its label: thousands separated, no unit in the cell."""
    if style not in _SUFFIX or not isinstance(value, int | float) or not math.isfinite(value):
        return show(value, style)
    text = significant(value / factor)
    return f"{float(text):,.0f}" if "." not in text else text
