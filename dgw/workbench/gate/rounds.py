"""What a pair of processes measured: rounds, which of them count, and the value of a pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from dgw.model import Noun
from dgw.workbench.clocks import WITHIN
from dgw.workbench.gate.policy import GatePolicy
from dgw.workbench.gate.statistics import Floats, spreads, trimmed_mean

INVALID = ("HwSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown", "SwThermalSlowdown")
"""Reasons of NVML that make a round invalid. A power cap is normal work of a GPU and meets both sides alike."""
Stage = Literal["screen", "confirm"]


class Round(Noun, frozen=True, kw_only=True):
    """One turn of each side: seconds of one launch, the SM clock (Hz) seen meanwhile, throttle reasons of either."""

    base: float
    head: float
    base_clock: float | None = None
    head_clock: float | None = None
    throttle: tuple[str, ...] = ()


class PairRounds(Noun, frozen=True, kw_only=True):
    """What one pair measured of every case it lived for; `flagged` are the cases that the screen before it had flagged.

    `attempt` counts the gates over the same two sides, which pool their pairs.
    """

    stage: Stage
    number: int
    cases: dict[str, tuple[Round, ...]]
    flagged: tuple[str, ...] = ()
    attempt: int = 1


@dataclass(frozen=True)
class CaseRounds:
    """The valid log ratios of one case, a row for each pair (NaN: dropped), by stage."""

    screen: Floats
    confirm: Floats
    dropped: dict[str, int]
    total: int
    time_base: float
    time_head: float

    @property
    def all(self) -> Floats:
        """Both stages."""
        return np.concatenate([self.screen, self.confirm])

    @property
    def dropped_share(self) -> float:
        """Share of the rounds that do not count."""
        return sum(self.dropped.values()) / self.total if self.total else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of pair values around the mean of their stage."""
        left, freedom = 0.0, 0
        for values in (pair_values(self.screen), pair_values(self.confirm)):
            if len(values) >= 2:
                left += float(((values - values.mean()) ** 2).sum())
                freedom += len(values) - 1
        return math.sqrt(left / freedom) if freedom else math.nan

    @property
    def sigmas(self) -> tuple[float, float]:
        """Standard deviation of rounds, and of pairs beyond it."""
        return spreads(self.all)


def pair_values(rounds: Floats) -> Floats:
    """The trimmed mean of each row that has at least two valid rounds."""
    enough = (~np.isnan(rounds)).sum(axis=-1) >= 2 if rounds.size else np.zeros(len(rounds), np.bool_)
    return trimmed_mean(rounds[enough]) if enough.any() else np.empty(0)


def collect(pairs: Sequence[PairRounds], key: str, policy: GatePolicy) -> CaseRounds:
    """Everything measured of one case, invalid rounds dropped by both sides together."""
    mine = [(pair.stage, pair.cases[key]) for pair in pairs if pair.cases.get(key)]
    every = [one for _, rounds in mine for one in rounds]
    usual = _usual_clock_ratio(every)
    dropped: dict[str, int] = {}
    rows: dict[str, list[list[float]]] = {"screen": [], "confirm": []}
    valid: list[Round] = []
    for stage, rounds in mine:
        row = []
        for one in rounds:
            why = invalid(one, usual, policy)
            if why:
                dropped[why] = dropped.get(why, 0) + 1
            else:
                valid.append(one)
            row.append(math.nan if why else math.log(one.head / one.base))
        rows[stage].append(row)
    width = max((len(rounds) for _, rounds in mine), default=0)
    return CaseRounds(
        screen=_matrix(rows["screen"], width),
        confirm=_matrix(rows["confirm"], width),
        dropped=dropped,
        total=len(every),
        time_base=median(one.base for one in valid) if valid else math.nan,
        time_head=median(one.head for one in valid) if valid else math.nan,
    )


def invalid(one: Round, usual: float | None, policy: GatePolicy) -> str:
    """Why a round does not count; empty when it does. `usual` is the case's own ratio of SM clocks, head to base."""
    if one.base <= 0 or one.head <= 0:
        return "zero time"
    throttled = [reason for reason in one.throttle if reason in INVALID]
    if throttled:
        return throttled[0]
    clocks = [clock for clock in (one.base_clock, one.head_clock) if clock]
    if policy.locked_hz and any(abs(clock - policy.locked_hz) > WITHIN * policy.locked_hz for clock in clocks):
        return "the SM clock left the locked one"
    if usual and one.base_clock and one.head_clock:
        apart = abs(one.head_clock / one.base_clock / usual - 1)
        if apart > policy.clock_apart:
            return "SM clocks apart"
    return ""


def _usual_clock_ratio(rounds: Sequence[Round]) -> float | None:
    ratios = [one.head_clock / one.base_clock for one in rounds if one.base_clock and one.head_clock]
    return median(ratios) if ratios else None


def _matrix(rows: Sequence[Sequence[float]], width: int) -> Floats:
    return np.array([[*row, *[math.nan] * (width - len(row))] for row in rows], np.float64).reshape(len(rows), width)
