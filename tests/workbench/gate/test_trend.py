"""Series of stored runs, and where they step."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dgw.model import Case, Environment, Measurement, Record, Run, gemm
from dgw.workbench.gate.trend import Series, series_of, steps, with_steps

GPU = Environment(device="h200", driver="580", cublas="13.0.1")


def night(number: int, value: float, environment: Environment = GPU, **more: Any) -> Run:
    ratio = Measurement(metric="ratio_to_cublas", value=value, unit="ratio", collector="timing", protocol="paired/1")
    record = Record(
        case=Case(problem=gemm(64, 64, 64), variant="cuda/tiled"), outcome="ok", environment=environment,
        measurements=(ratio,), **more,
    )  # fmt: skip
    created = f"2027-01-{number + 1:02}T01:00:00+00:00"
    return Run(
        id=f"r{number:03}", created=created, command=("dgw",), version="0", commit=f"c{number}", records=(record,)
    )


def noisy(levels: list[tuple[float, int]], sigma: float = 0.004, seed: int = 0) -> list[float]:
    rng = np.random.default_rng(seed)
    return [level * (1 + sigma * rng.standard_normal()) for level, count in levels for _ in range(count)]


def test_nights_make_a_series_in_the_order_of_time() -> None:
    (series,) = series_of([night(2, 0.9), night(0, 0.7), night(1, 0.8)])
    assert [point.value for point in series.points] == [0.7, 0.8, 0.9]
    assert series.label == "cuda/tiled 64x64x64 f16 nn"
    assert series.library == "13.0.1"


@pytest.mark.parametrize("change", [{"cublas": "13.1"}, {"driver": "590"}, {"device": "h100"}])
def test_another_library_driver_or_gpu_begins_another_series(change: dict[str, Any]) -> None:
    other = msgspec.structs.replace(GPU, **change)
    assert [len(one.points) for one in series_of([night(0, 0.7), night(1, 0.7, other), night(2, 0.7)])] == [2, 1]


def test_what_failed_is_no_point() -> None:
    failed = night(1, 0.7)
    failed = msgspec.structs.replace(failed, records=(msgspec.structs.replace(failed.records[0], outcome="wrong"),))
    assert [len(one.points) for one in series_of([night(0, 0.7), failed])] == [1]


def test_a_step_is_found_where_it_is() -> None:
    values = noisy([(0.9, 20), (0.87, 10)])
    ((index, p),) = steps(values)
    assert index == 20
    assert p <= 1e-4


def test_two_steps_are_both_found() -> None:
    assert [index for index, _ in steps(noisy([(0.9, 15), (0.8, 15), (0.9, 15)]))] == [15, 30]


def test_a_step_below_one_per_cent_is_none_however_certain() -> None:
    assert steps(noisy([(0.9, 20), (0.895, 20)], sigma=0.0005)) == []


@pytest.mark.parametrize("values", [[], [0.9], [0.9] * 30, [0.9, 0.8, 0.9]])
def test_too_little_or_too_even_has_no_step(values: list[float]) -> None:
    assert steps(values) == []


def test_pure_noise_steps_in_less_than_one_series_of_a_hundred() -> None:
    assert sum(bool(steps(noisy([(0.9, 50)], seed=seed))) for seed in range(100)) <= 1


def stepped(values: list[float], otava: Path | None, folder: Path) -> tuple[Series, str]:
    (series,) = series_of([night(number, value) for number, value in enumerate(values)])
    (found,), rule = with_steps([series], otava, folder)
    return found, rule


def test_a_series_knows_its_levels_and_whether_it_recovered(tmp_path: Path) -> None:
    dropped, rule = stepped(noisy([(0.9, 12), (0.8, 8)]), None, tmp_path)
    assert "otava was not found" in rule
    assert dropped.open_drop is not None
    assert dropped.open_drop.change == pytest.approx(-0.111, abs=0.01)
    assert dropped.open_drop.commit == "c12"
    recovered, _ = stepped(noisy([(0.9, 9), (0.8, 8), (0.9, 8)]), None, tmp_path)
    assert len(recovered.steps) == 2
    assert recovered.open_drop is None


def an_otava(folder: Path, answer: str, status: int = 0) -> Path:
    """A program that answers as version 0.8 does, after it has looked at its configuration."""
    program = folder / "otava"
    program.write_text(
        "#!/bin/sh\ntest \"$1\" = analyze || exit 2\ntest \"$3\" = --config-file || exit 3\n"
        f'grep -q "metrics: .ratio." "$4" || exit 4\necho \'{answer}\'\necho "it broke" >&2\nexit {status}\n'
    )  # fmt: skip
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_otava_is_asked_where_it_is_there(tmp_path: Path) -> None:
    answer = '{"s0": [{"time": 1, "changes": [{"metric": "ratio", "index": 3, "pvalue": "0.000010"}]}]}'
    found, rule = stepped([0.9, 0.9, 0.9, 0.8, 0.8, 0.8], an_otava(tmp_path, answer), tmp_path)
    assert rule == "apache-otava"
    assert [(step.index, step.rule) for step in found.steps] == [(3, "otava")]


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [("", 1, "ended with status 1: it broke"), ("{nonsense}", 0, "not what version 0.8"), ("", 0, "said nothing")],
)
def test_where_otava_fails_the_simple_rule_decides_and_the_reason_is_said(
    tmp_path: Path, answer: str, status: int, said: str
) -> None:
    found, rule = stepped(noisy([(0.9, 12), (0.8, 8)]), an_otava(tmp_path, answer, status), tmp_path)
    assert rule.startswith("simple rule: ")
    assert said in rule
    assert found.open_drop is not None
