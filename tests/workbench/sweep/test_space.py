from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dgw.errors import UsageError
from dgw.kernels.loader import load
from dgw.model import Problem, Tunable, gemm
from dgw.toolchain.devices import device
from dgw.workbench.sweep.space import MOST, configs, field, size
from tests.workbench.sweep.many import VARIANT

PROBLEM, HERE = gemm(64, 64, 64), device("h200")


def test_every_config_is_either_able_or_refused_with_a_sentence() -> None:
    found = field(PROBLEM, [VARIANT], {}, HERE)
    assert (len(found.cases), len(found.refused)) == (60, 10)
    assert {reason for _, reason in found.refused} == {"X=0 leaves nothing to do"}
    assert len({case.key for case in found.cases}) == 60


def test_a_narrowed_tunable_takes_only_these_values() -> None:
    narrow = {"X": (2, 3), "Y": (5,)}
    assert size(VARIANT, narrow) == 2
    assert list(configs(VARIANT, narrow)) == [{"X": 2, "Y": 5}, {"X": 3, "Y": 5}]


def test_a_sample_is_the_same_every_time_has_the_default_and_refuses_nothing() -> None:
    one = field(PROBLEM, [VARIANT], {}, HERE, sample=7, seed=3)
    assert one == field(PROBLEM, [VARIANT], {}, HERE, sample=7, seed=3)
    assert one != field(PROBLEM, [VARIANT], {}, HERE, sample=7, seed=4)
    assert len(one.cases) == 7
    assert VARIANT.defaults() in [case.config for case in one.cases]
    assert one.refused == ()


def test_a_sample_of_more_than_there_is_is_all_of_it() -> None:
    assert len(field(PROBLEM, [VARIANT], {}, HERE, sample=999).cases) == 60


def test_a_declaration_that_raises_costs_its_own_case_only() -> None:
    def refuses(problem: Problem, config: object, device: object) -> str | None:
        raise ZeroDivisionError("no tiles") if config["X"] == 4 else KeyError("Z")  # type: ignore[index]

    found = field(PROBLEM, [replace(VARIANT, refuses=refuses)], {"Y": (1,)}, HERE)  # type: ignore[arg-type]
    assert len(found.refused) == 7
    assert sum("ZeroDivisionError: no tiles" in reason for _, reason in found.refused) == 1


def test_a_space_without_end_is_refused() -> None:
    large = tuple(Tunable(name=f"T{n}", default=0, values=tuple(range(100)), meaning="") for n in range(4))
    with pytest.raises(UsageError, match="100,000,000 configs"):
        field(PROBLEM, [replace(VARIANT, space=large)], {}, HERE)


def test_the_command_with_which_the_ladder_page_measures_instead_of_estimating_is_not_too_large() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/ladder.md").read_text()
    assert "`dgw sweep --variant hopper/persistent`" in page
    assert size(load()["hopper/persistent"], {}) <= MOST
