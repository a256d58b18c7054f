"""From values to pixels, with the ticks that people expect."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

NARROW = 6
"""Below this ratio of its ends a logarithmic scale has the ticks of a linear one, else it would have too few."""


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` on the pixels from `start` to `end`; logarithmic or not."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value; values outside are put on the nearer end."""
        bounded = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(bounded / self.low) / math.log(self.high / self.low)
        else:
            share = (bounded - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def value(self, pixel: float) -> float:
        """The value that lies on a pixel."""
        share = (pixel - self.start) / (self.end - self.start)
        return self.low * (self.high / self.low) ** share if self.log else self.low + share * (self.high - self.low)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values inside, few enough to be read."""
        powers = self.log and self.high / self.low > NARROW
        return _powers(self.low, self.high, most) if powers else _steps(self.low, self.high, most)


def linear(values: Iterable[float], start: float, end: float, at_least: float = 0.0) -> Scale:
    """From 0 to a round value that none of `values` exceeds (nor `at_least`)."""
    high = max([*values, at_least])
    step = _step(high or 1.0, 5)
    return Scale(0.0, math.ceil((high or 1.0) / step - 1e-9) * step, start, end)


def logarithmic(values: Iterable[float], start: float, end: float, room: float = 1.25) -> Scale:
    """A logarithmic scale that holds every positive value, with a factor of `room` on both sides."""
    known = [value for value in values if value > 0 and math.isfinite(value)]
    low, high = min(known, default=1.0) / room, max(known, default=10.0) * room
    return Scale(low, high, start, end, log=True)


def _step(span: float, most: int) -> float:
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * (1 - 1e-9))


def _steps(low: float, high: float, most: int) -> list[float]:
    step = _step(high - low, most)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _powers(low: float, high: float, most: int) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [f * 10.0**d for d in decades for f in factors if low <= f * 10.0**d <= high]
        if len(found) <= most:
            return found
    every = -(-len(found) // most)
    return found[::every]


def tick_text(show: Callable[[float], str], value: float) -> str:
    """A tick without the zeros that precision would add: `5 us`, not `5.000 us`."""
    number, space, unit = show(value).partition(" ")
    if "." in number and "," not in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number}{space}{unit}"
