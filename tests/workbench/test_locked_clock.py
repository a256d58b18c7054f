"""Figures taken at a locked clock say so, are flagged where it did not hold, and are compared with their like only."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dgw.commands.options import Ask
from dgw.commands.resume import complete
from dgw.commands.session import Machine, Session
from dgw.errors import NotComparable
from dgw.model import Case, Check, Measurement, Record, gemm
from dgw.recipes import ladder, throttled
from dgw.recipes.explain import explain
from dgw.recipes.facts import Facts
from dgw.reports import comparison
from dgw.reports.html.provenance import meaning
from dgw.reports.tables import build
from dgw.toolchain.devices import device
from dgw.workbench import locked_clock
from dgw.workbench.collectors import timing
from dgw.workbench.gate.trend import series_of
from dgw.workbench.plausibility import clock_flags, flags, ranked
from dgw.workbench.protocol import SCREEN, Policy
from dgw.workbench.store import open_store
from tests.commands.test_gate_more import night
from tests.reports.samples import GPU, full_record
from tests.reports.test_comparison import run

H200 = device("h200")
LOCKED = Policy(locked_hz=1.5e9)


def at(hertz: float, record: Record | None = None) -> Record:
    """The record as if its clock had been locked."""
    one = record or full_record()
    return msgspec.structs.replace(one, measurements=locked_clock.named(one.measurements, hertz))


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (Policy(), "cold-graph/1"),
        (LOCKED, "cold-graph/1 at 1500 MHz"),
        (msgspec.structs.replace(SCREEN, locked_hz=1.98e9), "screen/1 cold-graph/1 at 1980 MHz"),
    ],
)
def test_a_protocol_ends_with_the_clock_that_was_locked(policy: Policy, name: str) -> None:
    assert timing.protocol_name("cold", policy) == name
    assert locked_clock.locked_at(name) == policy.locked_hz


def test_a_ratio_to_a_baseline_names_the_locked_clock_even_where_there_is_none() -> None:
    series = timing.Series(cold={0: 1.0, 1: 1.0})
    assert timing.ratio_measurement("b", series, series, LOCKED).protocol == "paired/1 cold-graph/1 at 1500 MHz"
    assert timing.ratio_measurement("b", series, None, LOCKED).protocol == "paired/1 at 1500 MHz"
    assert timing.ratio_measurement("b", series, series, Policy()).protocol == "paired/1 cold-graph/1"


@pytest.mark.parametrize(
    ("collector", "protocol", "expected"),
    [
        ("timing", "nvml-energy-counter/1", "nvml-energy-counter/1 at 1500 MHz"),
        ("ncu", "ncu-kernel-replay-cold/1", "ncu-kernel-replay-cold/1 at 1500 MHz"),
        ("nsys", "timeline/1", "timeline/1 at 1500 MHz"),
        ("timing", "cold-graph/1 at 1500 MHz", "cold-graph/1 at 1500 MHz"),
        ("timing", "nvml/1", "nvml/1"),
        ("emulator", "whole grid", "whole grid"),
        ("static", "", ""),
    ],
)
def test_what_the_clock_reaches_names_it_once_and_nothing_else_does(
    collector: str, protocol: str, expected: str
) -> None:
    measured = Measurement(metric="m", value=1, collector=collector, protocol=protocol)
    assert locked_clock.named([measured], 1.5e9)[0].protocol == expected
    assert locked_clock.named([measured], 0.0) == (measured,)


def read(median: float, low: float, high: float, hertz: float = 1.5e9) -> tuple[Measurement, ...]:
    time = Measurement(
        metric="time_cold", value=1e-3, unit="s", collector="timing",
        protocol=timing.protocol_name("cold", Policy(locked_hz=hertz)),
    )  # fmt: skip
    clock = Measurement(
        metric="sm_clock", value=median, unit="Hz", collector="timing", protocol="nvml/1", low=low, high=high
    )
    return time, clock, Measurement(metric="throttle", value="SwPowerCap", collector="timing", protocol="nvml/1")


def test_a_clock_that_left_the_locked_one_is_said_with_the_figures_and_keeps_its_place() -> None:
    record = Record(case=Case(problem=gemm(64, 64, 64), variant="t/a"), outcome="ok",
                    measurements=read(1.47e9, 1.35e9, 1.5e9))  # fmt: skip
    (flag,) = flags(record, H200)
    assert flag == (
        "left the locked clock of cold-graph/1 at 1500 MHz: the SM clock was 1350 .. 1500 MHz, median 1470, while "
        "sampling: the power or heat limit took over (limits by NVML: SwPowerCap)"
    )
    assert ranked(msgspec.structs.replace(record, flags=(flag,)))
    (above,) = clock_flags(read(1.6e9, 1.5e9, 1.98e9))
    assert "1500 .. 1980 MHz" in above
    assert "it was not held" in above


@pytest.mark.parametrize(
    "measured",
    [
        read(1.5e9, 1.5e9, 1.5e9),
        read(1.5e9, 1.485e9, 1.515e9),  # one step of 15 MHz
        read(1.2e9, 1.1e9, 1.9e9, hertz=0.0),
        read(1.2e9, 1.1e9, 1.9e9)[:1],
        read(1.2e9, 1.1e9, 1.9e9)[1:],
    ],
    ids=["held", "1 % off", "not locked", "no reading", "no time"],
)
def test_a_clock_that_held_or_that_nobody_locked_is_no_flag(measured: tuple[Measurement, ...]) -> None:
    assert clock_flags(measured) == ()


def test_locked_and_unlocked_times_refuse_to_be_compared() -> None:
    for base, head in ((full_record(), at(1.5e9)), (at(1.5e9), full_record()), (at(1.5e9), at(1.2e9))):
        assert "measured under different protocols, graph/1" in comparison.refusal(base, head)
        with pytest.raises(NotComparable, match="at 1500 MHz"):
            comparison.compare(run("a", [base]), run("b", [head]))
        with pytest.raises(NotComparable, match=r"SM clocks .*locked at 1500 MHz"):
            explain(base, head, H200)
    assert comparison.refusal(at(1.5e9), at(1.5e9)) == ""
    assert "SM clock locked at 1500 MHz" in comparison.compare(run("a", [at(1.5e9)]), run("b", [at(1.5e9)])).machines(0)
    first, second = ladder.ladder([full_record("naive"), at(1.5e9)])
    assert [one.value for one in second.evidence if one.metric == ladder.PREVIOUS] == [None]
    assert first.recipe == ladder.RECIPE


def test_nights_at_a_locked_clock_are_a_series_of_their_own() -> None:
    nights = [night(0, 0.9), night(1, 0.8)]
    locked = msgspec.structs.replace(nights[1], records=tuple(at(1.5e9, one) for one in nights[1].records))
    assert [one.protocol for one in series_of([nights[0], locked])] == ["paired/1", "paired/1 at 1500 MHz"]


def test_reports_say_the_locked_clock_where_they_say_the_machine() -> None:
    broken = full_record("broken", outcome="crashed", measurements=(), check=None)
    (block,) = build([at(1.5e9), broken])
    assert block.title.endswith(", driver 580.159, SM clock locked at 1500 MHz")
    assert len(block.columns) == 2
    (mixed,) = build([at(1.5e9), full_record("naive")])
    assert mixed.title.endswith("SM clock locked at 1500 MHz for some")
    (free,) = build([full_record(), broken])
    assert "locked" not in free.title
    assert meaning("timing", "cold-graph/1 at 1500 MHz").endswith("The SM clock was locked at 1500 MHz.")


@pytest.mark.parametrize(("hertz", "clock", "found"), [(1.5e9, 1.5e9, False), (1.5e9, 1.4e9, True), (0, 1.5e9, True)])
def test_a_clock_that_the_user_locked_is_no_cause_but_one_below_it_is(hertz: float, clock: float, found: bool) -> None:
    measured = read(clock, clock, clock, hertz)
    record = Record(case=Case(problem=gemm(64, 64, 64), variant="t/a"), outcome="ok", environment=GPU,
                    measurements=measured)  # fmt: skip
    told = throttled.judge(Facts(record, H200))
    assert (told is not None) == found
    if told is not None:
        assert f"MHz of {'1500 locked' if hertz else '1980'} (SwPowerCap)" in told.verdict


def test_a_next_step_measures_at_the_same_locked_clock() -> None:
    free, locked = Facts(full_record(), H200), Facts(at(1.5e9), H200)
    assert locked.command(("std",)) == f"{free.command(('std',))} --lock-clocks 1500"


CHECKED = full_record(measurements=())
COUNTED = full_record(measurements=(Measurement(metric="m", value=1, collector="ncu", protocol="std"),))


@pytest.mark.parametrize(
    ("mhz", "lanes", "record", "taken"),
    [
        (0, {"time"}, full_record(), True),
        (0, {"time"}, at(1.5e9), False),
        (1500, {"time"}, full_record(), False),
        (1500, {"time"}, at(1.5e9), True),
        (1500, {"time"}, at(1.2e9), False),
        (1500, {"counters"}, COUNTED, False),
        (1500, {"counters"}, at(1.5e9, COUNTED), True),
        (0, {"counters"}, at(1.5e9, COUNTED), False),
        (1500, {"time"}, CHECKED, False),
        (0, set(), at(1.5e9), True),  # a check knows no clocks
    ],
)
def test_only_a_record_at_the_clock_that_is_asked_for_is_complete(
    mhz: int, lanes: set[str], record: Record, taken: bool
) -> None:
    record = msgspec.structs.replace(record, check=Check(passed=True, compared=1))
    session = Session(Ask(), (), {}, Machine("gpu", H200), lanes=frozenset({"check", *lanes}), lock_mhz=mhz)
    assert complete(session, record) == taken


def test_an_older_record_that_fits_is_found_behind_a_newer_one_that_does_not(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "dgw.db"))
    for name, hertz in (("a", 0.0), ("b", 1.5e9)):
        store.begin(run(name, [msgspec.structs.replace(at(hertz), resume_key="same")]))
    newest, free = store.finished(["same"]), store.finished(["same"], lambda one: not locked_clock.clock_of(one))
    assert locked_clock.clock_of(newest["same"]) == 1.5e9
    assert locked_clock.clock_of(free["same"]) == 0.0
