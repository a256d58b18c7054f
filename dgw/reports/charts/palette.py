"""The colours of reports, by role, by day and by night.

The series are the hues that Okabe and Ito chose to be told apart by eyes of every kind, darkened or lightened until
they stand out from the background (3:1 for areas and marks, 4.5:1 for text).
"""

from __future__ import annotations

LIGHT: dict[str, str] = {
    "paper": "#ffffff", "raised": "#f6f7f9", "ink": "#17202a", "muted": "#55606e", "line": "#7d8794", "grid": "#e3e6ea",
    "accent": "#0b5cad", "good": "#0a6b4b", "bad": "#b3261e",
    "series-1": "#0b5cad", "series-2": "#d55e00", "series-3": "#00876a", "series-4": "#a8477d",
    "series-5": "#a86f00", "series-6": "#3388bd", "series-7": "#6f7782", "series-8": "#4b3a9b",
}  # fmt: skip
DARK: dict[str, str] = {
    "paper": "#12161c", "raised": "#1a2028", "ink": "#e6eaf0", "muted": "#a3adba", "line": "#7f8a98", "grid": "#2b333e",
    "accent": "#6db6ff", "good": "#4fcf9e", "bad": "#ff8a80",
    "series-1": "#6db6ff", "series-2": "#ff944d", "series-3": "#35c99a", "series-4": "#e899c4",
    "series-5": "#f0b429", "series-6": "#a5ddff", "series-7": "#a0a8b3", "series-8": "#ad9ff5",
}  # fmt: skip
SERIES = 8
HEAT = (
    "#00224e", "#083370", "#35456c", "#4f576c", "#666970", "#7d7c78", "#948e77", "#aea371", "#c8b866", "#e5cf52",
    "#fee838",
)  # fmt: skip
"""The steps of a map from bad to good: cividis (Nunez, Anderton, Renslow 2018), which eyes of every kind see alike."""
for _colours in (LIGHT, DARK):
    _colours |= {f"heat-{number}": colour for number, colour in enumerate(HEAT)}
    _colours |= {"heat-dark": "#000000", "heat-light": "#ffffff"}


def series(index: int) -> str:
    """The role of a series; the last one (grey is the seventh) is not passed, so that none looks like another."""
    return f"series-{min(index, SERIES - 1) + 1}"


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, 0 to 1 (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
