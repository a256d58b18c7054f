"""The planted slowdowns: right results, other code than the good kernel, and counters that show what was planted."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from dgw.kernels.loader import load
from dgw.model import Case, Epilogue, Operand, Problem, gemm
from dgw.toolchain.devices import device
from dgw.workbench.collectors.emulator import Emulation, emulate
from dgw.workbench.gate.counting import changes
from dgw.workbench.prepare import Prepared, prepare
from tests.slowdowns import SLOWDOWNS, side, write

H200 = device("h200")


def problem(name: str) -> Problem:
    if name == "unfused":
        return gemm(128, 256, 128, bias=Operand(dtype="f16"), epilogue=Epilogue(activation="gelu"))
    return gemm(128, 128, 32) if name == "dropped-swizzle" else gemm(128, 256, 128 if name == "spilled" else 64)


@cache
def emulated(name: str, which: str) -> tuple[Prepared, Emulation]:
    variant = side(name, which)
    case = Case(problem=problem(name), variant=variant.id, config=variant.defaults())
    made = prepare(case, variant, H200)
    assert made.runnable, made.record.reason
    assert made.plan is not None
    builds = made.builds
    return made, emulate(made.record.case, made.plan, lambda s: builds[s].ptx, lambda s: builds[s].cubin, H200)


ALL = [
    pytest.param(name, which, marks=() if (name, which) == ("extra-2", "head") else pytest.mark.slow)
    for name in SLOWDOWNS
    for which in ("base", "head")
]


@pytest.mark.parametrize(("name", "which"), ALL)
def test_both_sides_of_a_slowdown_compute_the_right_result(name: str, which: str) -> None:
    assert emulated(name, which)[1].check.passed


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOWDOWNS)
def test_a_slowdown_shows_in_the_counters_that_have_to_explain_it(name: str) -> None:
    both = [emulated(name, which) for which in ("base", "head")]
    measured = [(*made.record.measurements, *found.measurements) for made, found in both]
    rising = {change.metric for change in changes(*measured, None) if float(change.head or 0) > float(change.base or 0)}
    assert rising & set(SLOWDOWNS[name].explained_by), rising


def test_each_side_is_a_folder_that_dgw_takes(tmp_path: Path) -> None:
    write(tmp_path / "planted", "head")
    assert {f"planted/{name}" for name in SLOWDOWNS} <= set(load((tmp_path / "planted",)))
