"""Units and numbers of ncu turned into base units: s, B, Hz, ratio; counts stay as they are."""

from __future__ import annotations

import math
import re

_PREFIX = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SECOND = {"s": "", "second": "", "seconds": ""}
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?([eE][-+]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_NO_NUMBER = {"", "n/a", "nan", "-nan", "inf", "-inf", "+inf", "(!) nan", "(!) n/a", "(!) inf"}


def to_base(value: float, unit: str, expected: str = "") -> float:
    """`value` in the base unit; `expected` is the unit that ncu documents, used when a report names none.

    Percent becomes a ratio, us becomes s, Kbyte becomes B, Mhz becomes Hz; rates follow numerator and denominator.
    """
    unit = unit or expected
    if unit in ("%", "percent"):
        return value * 0.01
    numerator, _, denominator = unit.partition("/")
    scale = _scale(numerator)
    if denominator:
        scale /= _scale(denominator)
    return value if scale == 1.0 else value * scale


def _scale(unit: str) -> float:
    if unit in ("", "byte", "bytes", "B") or unit in _SECOND:
        return 1.0
    for word in ("seconds", "second", "sec", "s"):
        if unit.endswith(word) and unit[: -len(word)] in ("n", "u", "m"):
            return _PREFIX[unit[: -len(word)]]
    for word in ("bytes", "byte", "hz", "Hz", "B", "inst", "cycle", "sector", "request", "warp"):
        if unit.endswith(word) and unit[: -len(word)] in ("", "K", "k", "M", "G", "T", "P"):
            return _PREFIX[unit[: -len(word)]]
    return 1.0


def parse_number(text: str) -> float | int | None:
    """The number in a cell of ncu's CSV, or None for `n/a`, `nan`, `inf` and empty cells. ValueError for other text.

    Thousands separators are removed where groups have three digits; a comma that cannot be one is a decimal comma.
    Instance values in brackets behind the number are left out.
    """
    text = text.strip()
    if " (" in text and text.endswith(")"):
        text = text[: text.index(" (")].strip()
    if text.lower() in _NO_NUMBER:
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    elif _DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else None
