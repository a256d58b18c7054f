"""The time lane's sampling policy and statistics: pure, so that a device that carries its own time can test it.

Protocols (a figure is only ever compared with one of the same protocol):

`cold-graph/1`  median of replays of a CUDA graph of k launches, divided by k; the launches walk round buffer sets that
                hold at least twice the L2 cache together, so every launch finds cold inputs.
`hot-graph/1`   the same on one buffer set.
`screen/1`      few short replays, to order candidates; the prefix `screen/1 ` stands before either of the above.
`paired/1`      median over turns of baseline time / own time, both measured in the same turn.

Where the SM clock was locked (`--lock-clocks`), each of them ends with it: `cold-graph/1 at 1500 MHz`,
`paired/1 cold-graph/1 at 1500 MHz`. The runner says the same of all else that the clock reaches, such as energy.

The members of a group take turns in random order, so that drifts of clock and power meet all of them alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, Protocol

from dgw.model import Measurement
from dgw.workbench.locked_clock import at
from dgw.workbench.protocol import Policy

Cache = Literal["cold", "hot"]
COLLECTOR = "timing"
NOT_HOT = "a sweep takes cold samples only"


@dataclass(frozen=True)
class Telemetry:
    """One reading of the GPU's sensors; None: this GPU does not tell. Hz, W, degrees Celsius, names of NVML reasons."""

    sm_clock: float | None = None
    power: float | None = None
    temperature: float | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replay:
    """One replay of a graph: seconds between the events around it, and a reading taken while it ran."""

    seconds: float
    telemetry: Telemetry | None = None


class Bench(Protocol):
    """What the policy needs of a device. `replay` runs a member's graph once and waits for it."""

    def replay(self, key: str, cache: Cache, sensors: bool) -> Replay:
        """Run the graph of `key` for `cache` once; read the sensors meanwhile when asked."""

    def now(self) -> float:
        """Seconds of a steady clock."""

    def announce(self, key: str, phase: str) -> None:
        """Say what comes next, so that a fault is laid at the right door."""


@dataclass(frozen=True)
class Rotation:
    """How many buffer sets a problem rotates over, or why it cannot (`absent`; then one set, hot only)."""

    sets: int
    absent: str = ""


def rotation(set_bytes: int, l2_bytes: int, free_bytes: int, max_sets: int = 256) -> Rotation:
    """The buffer sets whose bytes together reach twice the L2 cache; at least two, at most `max_sets`.

    `free_bytes` is what the device still has; at most half of it is used for sets beyond the first.
    """
    sets = max(2, -(-2 * l2_bytes // max(1, set_bytes)))
    if sets > max_sets:
        return Rotation(
            1, f"{max_sets} buffer sets of {set_bytes} B hold less than twice the L2 cache ({l2_bytes} B): hot only"
        )
    if (sets - 1) * set_bytes > free_bytes // 2:
        return Rotation(
            1, f"{sets} buffer sets of {set_bytes} B do not fit into {free_bytes} B of free memory: hot only"
        )
    return Rotation(sets)


def launches_per_replay(single_s: float, sets: int, replay_s: float, most: int = 20000) -> int:
    """k launches take about `replay_s`; a multiple of `sets`, so that every set is used alike."""
    wanted = max(1, round(replay_s / max(single_s, 1e-7)))
    return max(1, min(-(-wanted // sets), max(1, most // sets))) * sets


@dataclass(frozen=True)
class Entrant:
    """A member as the policy sees it: launches in its cold graph and in its hot graph (0: there is none).

    One that does not compete in a race runs beside it as long as it lasts.
    """

    key: str
    hot_launches: int
    cold_launches: int = 0
    competes: bool = True


@dataclass
class Series:
    """What was sampled of one member: per turn the seconds of one launch, and the sensor readings."""

    cold: dict[int, float] = field(default_factory=dict)
    hot: dict[int, float] = field(default_factory=dict)
    readings: list[Telemetry] = field(default_factory=list)
    spent: float = 0.0

    @property
    def best(self) -> tuple[Cache, dict[int, float]]:
        """The cold samples, or the hot ones where there are no cold ones."""
        return ("cold", self.cold) if self.cold else ("hot", self.hot)


def settle(bench: Bench, key: str, policy: Policy, cache: Cache = "hot") -> float:
    """Replay `key` until the SM clock holds still (five readings within 1 %) or `warm_up_s` is over; seconds spent."""
    start = bench.now()
    clocks: list[float] = []
    bench.announce(key, "warm-up")
    while bench.now() - start < policy.warm_up_s:
        telemetry = bench.replay(key, cache, True).telemetry
        if telemetry is None or telemetry.sm_clock is None:
            continue
        clocks = [*clocks[-4:], telemetry.sm_clock]
        settled = len(clocks) == 5 and max(clocks) - min(clocks) <= 0.01 * max(clocks)
        if settled and bench.now() - start >= policy.warm_up_s / 4:
            break
    return bench.now() - start


def sample(bench: Bench, entrants: Sequence[Entrant], policy: Policy) -> dict[str, Series]:
    """Take turns. A member leaves once it has spent its budget, or lost a race, but not before `min_turns` turns."""
    order = random.Random(policy.seed)
    series = {entrant.key: Series() for entrant in entrants}
    racing = list(entrants)
    for turn in range(policy.turns):
        playing = [e for e in racing if turn < policy.min_turns or series[e.key].spent < policy.budget_s]
        if policy.race and turn >= policy.min_turns:
            left = still_racing({e.key: series[e.key] for e in playing if e.competes}, policy.race)
            racing = playing = [e for e in playing if e.key in left or not e.competes]
            if len(left) < 2:
                break
        order.shuffle(playing)
        for entrant in playing:
            _take_turn(bench, entrant, turn, series[entrant.key], order)
    return series


def still_racing(series: Mapping[str, Series], confidence: float) -> set[str]:
    """The member with the smallest median, and those that are not slower than it with this confidence.

    Judged by the median over common turns of member / fastest, so that a drift of clock or power meets both alike.
    """
    medians = {key: median_interval(list(one.best[1].values()))[0] for key, one in series.items()}
    if not medians:
        return set()
    leader = min(medians, key=lambda key: medians[key])
    return {key for key, one in series.items() if key == leader or not slower(one, series[leader], confidence)}


def slower(one: Series, than: Series, confidence: float) -> bool:
    """Whether `one` takes longer than `than` in common turns: all of the interval of their ratio lies above 1."""
    ratios = paired(one, than)[1]
    if math.ldexp(2.0, -len(ratios)) > 1 - confidence:
        return False  # too few turns to tell anything with this confidence
    return median_interval(ratios, confidence)[1] > 1.0


def paired(one: Series, than: Series) -> tuple[Cache, list[float]]:
    """Time of `one` / time of `than` turn by turn: cold turns where both have them, otherwise hot ones."""
    cache: Cache = "cold" if one.cold and than.cold else "hot"
    mine, theirs = (one.cold, than.cold) if cache == "cold" else (one.hot, than.hot)
    turns = sorted(turn for turn in mine if turn in theirs and theirs[turn] > 0)
    return cache, [mine[turn] / theirs[turn] for turn in turns]


def _take_turn(bench: Bench, entrant: Entrant, turn: int, into: Series, order: random.Random) -> None:
    bench.announce(entrant.key, f"turn {turn + 1}")
    started = bench.now()
    lanes: list[tuple[Cache, int]] = [("hot", entrant.hot_launches)] if entrant.hot_launches else []
    if entrant.cold_launches:
        lanes.append(("cold", entrant.cold_launches))
    order.shuffle(lanes)
    for cache, launches in lanes:
        replay = bench.replay(entrant.key, cache, cache == "cold" or not entrant.cold_launches)
        (into.cold if cache == "cold" else into.hot)[turn] = replay.seconds / launches
        if replay.telemetry is not None:
            into.readings.append(replay.telemetry)
    into.spent += bench.now() - started


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Median and the order statistics that bound it with at least `confidence`, whatever the distribution.

    The interval is [x(l), x(n+1-l)] with the largest l such that P(Binomial(n, 1/2) < l) <= (1 - confidence) / 2
    (David and Nagaraja, Order Statistics, 7.1). Below six values no pair of them reaches 95 %: smallest and largest.
    """
    ordered = sorted(values)
    n = len(ordered)
    if not n:
        raise ValueError("a median needs at least one value")
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    tail, rank = 0.0, 0
    while rank < n // 2:
        tail += math.comb(n, rank) / 2**n
        if tail > (1 - confidence) / 2:
            break
        rank += 1
    rank = max(rank, 1)
    return middle, ordered[rank - 1], ordered[n - rank]


def protocol_name(cache: Cache, policy: Policy) -> str:
    """`cold-graph/1` or `hot-graph/1`, behind `screen/1` for short samples, before the clock where it was locked."""
    name = f"{cache}-graph/1{at(policy.locked_hz)}"
    return name if policy.name == "final" else f"screen/1 {name}"


def _timing(metric: str, unit: str, values: Sequence[float], protocol: str) -> Measurement:
    middle, low, high = median_interval(values)
    return Measurement(
        metric=metric, value=middle, unit=unit, collector=COLLECTOR, protocol=protocol, samples=tuple(values),
        low=low, high=high,
    )  # fmt: skip


def absent(metric: str, reason: str, protocol: str = "", unit: str = "") -> Measurement:
    """A figure of the time lane that there is not, and why."""
    return Measurement(metric=metric, unit=unit, collector=COLLECTOR, protocol=protocol, absent=reason)


def time_measurements(
    series: Series, flops: int, compulsory_bytes: int, policy: Policy, no_cold: str
) -> tuple[Measurement, ...]:
    """time_cold, time_hot (s); tflops (FLOP/s) and bandwidth (B/s) of the cold time, else the hot one; the sensors."""
    found: list[Measurement] = []
    for cache in ("cold", "hot"):
        values = list((series.cold if cache == "cold" else series.hot).values())
        protocol = protocol_name(cache, policy)
        if values:
            found.append(_timing(f"time_{cache}", "s", values, protocol))
        else:
            why = no_cold if cache == "cold" else NOT_HOT
            found.append(absent(f"time_{cache}", why, protocol, "s"))
    cache, best = series.best
    middle, low, high = median_interval(list(best.values()))
    protocol = protocol_name(cache, policy)
    for metric, amount, unit in (("tflops", flops, "FLOP/s"), ("bandwidth", compulsory_bytes, "B/s")):
        if low > 0:
            found.append(
                Measurement(
                    metric=metric, value=amount / middle, unit=unit, collector=COLLECTOR, protocol=protocol,
                    low=amount / high, high=amount / low,
                )
            )  # fmt: skip
        else:
            found.append(absent(metric, "the measured time is zero", protocol, unit))
    return (*found, *sensor_measurements(series.readings))


def sensor_measurements(readings: Sequence[Telemetry]) -> tuple[Measurement, ...]:
    """Median, lowest and highest of what NVML said while the samples ran; throttle reasons seen at any time."""
    found = []
    for metric, unit in (("sm_clock", "Hz"), ("power", "W"), ("temperature", "degC")):
        values = [value for value in (getattr(reading, metric) for reading in readings) if value is not None]
        if values:
            middle = median_interval(values)[0]
            found.append(
                Measurement(
                    metric=metric, value=middle, unit=unit, collector=COLLECTOR, protocol="nvml/1",
                    low=min(values), high=max(values),
                )
            )  # fmt: skip
        else:
            found.append(
                Measurement(
                    metric=metric, unit=unit, collector=COLLECTOR, protocol="nvml/1", absent="NVML gave no reading"
                )
            )
    if readings:
        seen = sorted({name for reading in readings for name in reading.throttle})
        found.append(
            Measurement(metric="throttle", value=" ".join(seen) or "none", collector=COLLECTOR, protocol="nvml/1")
        )
    return tuple(found)


def ratio_measurement(baseline: str, own: Series, other: Series | None, policy: Policy, why: str = "") -> Measurement:
    """`ratio_to_BASELINE`: median over common turns of baseline time / own time, with its 95 % interval.

    Cold turns where both have them, otherwise hot ones. Absent, with `why`, where the baseline was not timed.
    """
    metric, nothing = f"ratio_to_{baseline}", f"paired/1{at(policy.locked_hz)}"
    if other is None:
        return absent(metric, why or f"{baseline} was not timed in this group", nothing, "ratio")
    cache: Cache = "cold" if own.cold and other.cold else "hot"
    mine, theirs = (own.cold, other.cold) if cache == "cold" else (own.hot, other.hot)
    turns = sorted(turn for turn in mine if turn in theirs and mine[turn] > 0)
    if not turns:
        return absent(metric, "no turn in which both were timed", nothing, "ratio")
    protocol = f"paired/1 {protocol_name(cache, policy)}"
    return _timing(metric, "ratio", [theirs[turn] / mine[turn] for turn in turns], protocol)


def counter_power(readings: Sequence[tuple[float, float]]) -> float | None:
    """Mean power (W) between the first and the last update of an energy counter, or None with fewer than two updates.

    `readings` are (seconds, joules). The counter moves in steps of tens of milliseconds, so only the moments
    at which it was seen to change count.
    """
    edges = [later for earlier, later in pairwise(readings) if later[1] != earlier[1]]
    if len(edges) < 2 or edges[-1][0] <= edges[0][0]:
        return None
    return (edges[-1][1] - edges[0][1]) / (edges[-1][0] - edges[0][0])


def energy_measurement(
    from_counter: float | None, from_sensor: float | None, seconds: float, why: str = ""
) -> Measurement:
    """Energy of one GEMM (J) = mean power of the whole board over a loop of replays x median seconds of a launch.

    Power from the energy counter where it was seen to move, else the median of the power sensor. Idle power is part.
    """
    for power, protocol in ((from_counter, "nvml-energy-counter/1"), (from_sensor, "nvml-power-sensor/1")):
        if power is not None and power > 0 and seconds > 0:
            return Measurement(metric="energy", value=power * seconds, unit="J", collector=COLLECTOR, protocol=protocol)
    return Measurement(
        metric="energy", unit="J", collector=COLLECTOR, absent=why or "NVML tells neither energy nor power"
    )


def share_of_rate(series: Series, flops: int, ceiling: Measurement, policy: Policy) -> Measurement:
    """`share_of_mma_rate`: own rate over the rate of mma.sync that was measured after the same turns."""
    cache, best = series.best
    middle, low, high = median_interval(list(best.values()))
    rate = float(ceiling.value) if isinstance(ceiling.value, int | float) else 0.0
    protocol = f"{ceiling.protocol} {protocol_name(cache, policy)}"
    if rate <= 0 or low <= 0:
        return absent("share_of_mma_rate", "no rate of mma.sync", protocol, "ratio")
    return Measurement(
        metric="share_of_mma_rate", value=flops / middle / rate, unit="ratio", collector=COLLECTOR, protocol=protocol,
        low=flops / high / rate, high=flops / low / rate,
    )  # fmt: skip


def group_measurements(
    series: Mapping[str, Series], key: str, against: Mapping[str, str], policy: Policy
) -> tuple[Measurement, ...]:
    """The ratios of member `key` to each baseline in `against` (key of the baseline -> its name)."""
    return tuple(
        ratio_measurement(name, series[key], series.get(other), policy)
        for other, name in against.items()
        if other != key
    )
