from __future__ import annotations

from typing import Any

import pytest

from dgw.errors import Exit, UsageError
from dgw.model import gemm
from dgw.workbench.gate.verdict import (
    SEVERITY,
    Change,
    GateCase,
    GateReport,
    GeometricMean,
    Ratio,
    SelfTest,
    Side,
    decode,
    encode,
    exit_code,
    sentence,
)

ALONE = {
    "identical": 0, "unchanged": 0, "improved": 0, "regressed": 1, "wrong": 1, "failed": 5, "inconclusive": 3,
    "not-comparable": 4, "new": 4, "missing": 4, "refused": 4,
}  # fmt: skip


def case(status: Any, **more: Any) -> GateCase:
    return GateCase(key=f"{status}-{len(more)}", label=f"a {status} case", status=status, **more)


def report(*cases: GateCase, **more: Any) -> GateReport:
    return GateReport(
        id="1", created="2027-01-01T00:00:00+00:00", command=("dgw", "gate"), dgw="0", gate="time",
        base=Side(label="main"), head=Side(label="here"), cases=cases, **more,
    )  # fmt: skip


def test_every_status_has_a_place_in_the_order() -> None:
    assert set(SEVERITY) == set(ALONE)


@pytest.mark.parametrize("status", SEVERITY)
def test_a_single_case_of_each_status_gives_its_exit_code(status: str) -> None:
    assert exit_code(report(case(status))) == ALONE[status]


@pytest.mark.parametrize("status", ["new", "refused", "improved", "identical"])
def test_a_case_that_is_no_failure_changes_nothing_beside_one_that_was_compared(status: str) -> None:
    assert exit_code(report(case("unchanged"), case(status))) == Exit.OK


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (("failed", "wrong"), 1),
        (("failed", "regressed"), 1),
        (("failed", "missing"), 5),
        (("missing", "inconclusive", "unchanged"), 4),
        ((), 4),
    ],
)
def test_several_statuses_give_the_code_that_comes_first(statuses: tuple[str, ...], code: int) -> None:
    assert exit_code(report(*map(case, statuses))) == code


def test_an_interrupted_gate_is_that_before_anything_else() -> None:
    assert exit_code(report(case("wrong"), interrupted=True)) == 130


def test_a_fault_of_the_gate_itself_is_a_fault() -> None:
    assert exit_code(report(case("unchanged"), faults=("base does not load",))) == 5


def test_lenience_lets_pass_only_what_it_is_for() -> None:
    cases = (case("unchanged"), case("inconclusive"), case("missing"))
    assert exit_code(report(*cases, on_inconclusive="warn")) == 4
    assert exit_code(report(*cases, on_missing="record")) == 3
    assert exit_code(report(*cases, on_missing="record", on_inconclusive="warn")) == 0


def test_a_slower_geometric_mean_fails_although_no_case_does() -> None:
    mean = GeometricMean(
        ratio=Ratio(value=1.01, low=1.005, high=1.015), p=0.001, floor=0.005, shapes=4, pairs=4, status="regressed"
    )
    assert exit_code(report(case("unchanged"), geometric_mean=mean)) == 1


def test_a_report_survives_a_round_trip_and_names_its_schema_first() -> None:
    full = case(
        "regressed", problem=gemm(1, 2, 3), ratio=Ratio(value=1.02, low=1.01, high=1.03), p=0.001, reasons=("slower",),
        changed=(Change(metric="spill_store_bytes", base=0, head=16, unit="B", worse=True),), variant="cuda/tiled",
    )  # fmt: skip
    made = report(full, self_test=SelfTest(runs=10, false_fails=0, inconclusive=1, upper_bound=0.26), seconds=3.5)
    text = encode(made)
    assert text.startswith(b'{\n "schema": "dgw.gate/1",')
    assert decode(text) == made
    assert made.cases[0].family == "cuda"


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"schema": "dgw.gate/9"}'])
def test_what_is_no_report_is_refused_in_words(text: bytes) -> None:
    with pytest.raises(UsageError, match=r"gate\.json is not a report"):
        decode(text, "gate.json")


def test_a_report_of_a_newer_schema_is_refused() -> None:
    with pytest.raises(UsageError, match=r"dgw\.gate/2"):
        decode(encode(report()).replace(b"dgw.gate/1", b"dgw.gate/2"))


def test_the_verdict_counts_the_worst_first() -> None:
    assert sentence(report(case("unchanged"), case("wrong"), case("unchanged"))) == "1 wrong, 2 unchanged (exit 1)"


def test_the_slowest_of_equal_severity_comes_first() -> None:
    slow, slower = (case("regressed", ratio=Ratio(value=v, low=v, high=v)) for v in (1.02, 1.2))
    assert report(case("identical"), slow, slower).worst_first[:2] == (slower, slow)
