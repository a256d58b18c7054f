from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgw.commands.without_gpu import COUNTERS, FOREIGN, TIMES, CpuEngine
from dgw.errors import CompileError, DgwError
from dgw.kernels.loader import load
from dgw.model import Case, Check, Measurement, Record, gemm
from dgw.reports.tables import SPECS
from dgw.toolchain.devices import device

RIGHT = Check(passed=True, compared=4, error=0.0, bound=1.0, collector="emulator")
WRONG = Check(passed=False, compared=4, error=2.0, bound=1.0, collector="emulator", detail="D[0, 0] is 2, not 0")

Emulate = Callable[..., Any]


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let the emulator answer with a check, or raise."""

    def answer(with_what: Any) -> None:
        def emulate(case: Any, plan: Any, ptx_of: Any, cubin_of: Any, *_: Any) -> Any:
            (launch,) = plan.launches
            assert ".entry" in ptx_of(launch.source)
            assert cubin_of(launch.source).startswith(b"\x7fELF")
            if isinstance(with_what, Exception):
                raise with_what
            counted = Measurement(metric="conflict_ratio_ld", value=0.0, unit="ratio", collector="emulator")
            stores = Measurement(metric="smem_wavefronts_st", value=0, unit="wavefront", collector="emulator")
            return SimpleNamespace(check=with_what, measurements=(counted, stores))

        fake = SimpleNamespace(emulate=emulate)
        monkeypatch.setitem(sys.modules, "dgw.workbench.collectors.emulator", fake)

    return answer


def run(tmp_path: Path, *names: str, problem: Any = None, **options: Any) -> list[Record]:
    variants = load()
    fields = {"kind": "emulator", "reason": "there is no GPU", **options}
    engine = CpuEngine(variants, device("h200"), tmp_path, **fields)
    cases = [
        Case(problem=problem or gemm(8, 8, 8), variant=name, config=variants[name].defaults()) for name in names
    ]  # fmt: skip
    records: list[Record] = []
    engine.run(cases, records.append, lambda *_: None)
    return records


def test_a_checked_case_has_counts_static_facts_and_a_reason_for_every_missing_time(
    tmp_path: Path, emulated: Callable[[Any], None]
) -> None:
    emulated(RIGHT)
    (record,) = run(tmp_path, "cuda/swizzled")
    assert record.outcome == "ok"
    assert record.environment.engine == "emulator"
    assert record.check == RIGHT
    assert record.number("conflict_ratio_ld") == 0.0
    assert record.number("registers_per_thread")
    for name in TIMES:
        found = record.get(name)
        assert found is not None
        assert found.value is None
        assert found.absent == "not measured because there is no GPU"


def test_nothing_that_the_card_promises_is_left_without_a_value_or_a_reason(
    tmp_path: Path, emulated: Callable[[Any], None]
) -> None:
    from dgw.reports.tables import build

    emulated(RIGHT)
    (block,) = build(run(tmp_path, "cuda/swizzled"))
    lines = (*block.lines, *block.hidden)
    assert {spec.key for spec in SPECS if spec.always} <= {line.key for line in lines}
    assert all(line.cells[0].value is not None for line in block.lines)
    unknown = {line.key: line.cells[0].absent for line in lines if line.cells[0].value is None}
    assert unknown.pop("conflict_ratio_st") == "the kernel makes no shared-memory stores"
    assert set(unknown.values()) == {"not measured because there is no GPU"}


@pytest.mark.parametrize(("counted", "kept"), [(1.0, ("emulator", 1.0)), (1e-12, ("static", None))])
def test_one_lower_bound_is_kept_the_larger_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: float, kept: tuple[str, float | None]
) -> None:
    found = (
        Measurement(metric="bound_time", value=counted, unit="s", collector="emulator"),
        Measurement(metric="bound_pipe", value="lsu", unit="text", collector="emulator"),
    )
    fake = SimpleNamespace(emulate=lambda *_: SimpleNamespace(check=RIGHT, measurements=found))
    monkeypatch.setitem(sys.modules, "dgw.workbench.collectors.emulator", fake)
    (record,) = run(tmp_path, "cuda/swizzled")
    for metric in ("bound_time", "bound_pipe"):
        assert [m.collector for m in record.measurements if m.metric == metric] == [kept[0]]
    assert kept[1] is None or record.number("bound_time") == kept[1]


def test_a_wrong_result_is_a_row_with_what_is_wrong(tmp_path: Path, emulated: Callable[[Any], None]) -> None:
    emulated(WRONG)
    (record,) = run(tmp_path, "cuda/swizzled")
    assert (record.outcome, record.reason) == ("wrong", "D[0, 0] is 2, not 0")


def test_what_the_emulator_cannot_execute_still_has_its_static_facts(
    tmp_path: Path, emulated: Callable[[Any], None]
) -> None:
    emulated(DgwError("PTX line 7: no such instruction", "dgw show"))
    (record,) = run(tmp_path, "cuda/swizzled")
    assert record.outcome == "ok"
    assert record.check is None
    assert any("PTX line 7" in flag for flag in record.flags)
    assert record.number("registers_per_thread")


def test_a_check_refuses_what_the_emulator_cannot_execute(tmp_path: Path, emulated: Callable[[Any], None]) -> None:
    emulated(DgwError("PTX line 7: no such instruction", "dgw show"))
    (record,) = run(tmp_path, "cuda/swizzled", strict=True)
    assert record.outcome == "refused"


def test_a_fault_of_the_emulator_costs_its_case_only(tmp_path: Path, emulated: Callable[[Any], None]) -> None:
    emulated(ZeroDivisionError("oh"))
    records = run(tmp_path, "cuda/naive", "cuda/swizzled")
    assert [record.outcome for record in records] == ["crashed", "crashed"]
    assert "ZeroDivisionError: oh" in records[0].reason


def test_foreign_code_is_refused_because_it_needs_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: object())
    (record,) = run(tmp_path, "baselines/cublas")
    assert (record.outcome, record.reason) == ("refused", FOREIGN)


def test_a_refused_case_and_one_that_does_not_compile_are_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulated: Callable[[Any], None]
) -> None:
    def broken(*_: Any) -> Any:
        raise CompileError("line 3: no such thing", "dgw show")

    emulated(AssertionError("must not run"))
    (refused,) = run(tmp_path, "cuda/swizzled", problem=gemm(8, 8, 8, "s8"))
    monkeypatch.setattr("dgw.toolchain.build.build", broken)
    (failed,) = run(tmp_path, "cuda/swizzled")
    assert [refused.outcome, failed.outcome] == ["refused", "compile-failed"]
    assert "line 3" in failed.reason


def test_the_static_engine_executes_nothing(tmp_path: Path, emulated: Callable[[Any], None]) -> None:
    emulated(AssertionError("must not run"))
    (record,) = run(tmp_path, "cuda/swizzled", kind="static")
    assert record.outcome == "ok"
    assert record.environment.engine == "none"
    assert all(m.value is None for m in record.measurements if m.metric in COUNTERS)
