"""Reports of gates in which everything that can happen happens, with texts that try to break every form."""

from __future__ import annotations

from typing import Any

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
    Status,
)

HOSTILE = "a|b <i>50 %</i>\n::error::two,\r three \x1b[31m\x00 end"


def case(status: Status, number: int = 0, **more: Any) -> GateCase:
    fields: dict[str, Any] = {
        "key": f"{status}-{number}", "label": f"cuda/{status}{number} 64x64x64 f16 nn", "status": status,
        "variant": f"cuda/{status}", "problem": gemm(64, 64, 64), "source": "dgw/kernels/cuda/s03_swizzled.cu",
    }  # fmt: skip
    return GateCase(**{**fields, **more})


CONFLICT = Change(
    metric="smem_bank_conflicts_ld", base=0, head=1024, unit="conflict", worse=True
)  # fmt: skip
LEANER = Change(metric="registers_per_thread", base=128, head=96, unit="register")
FORGOTTEN = Change(metric="inst_executed", base=5000, head=None, unit="inst")
OCCUPANCY = Change(metric="theoretical_occupancy", base=0.5, head=0.25, unit="ratio", worse=True)
SLOWER = Ratio(value=1.021, low=1.015, high=1.027)


def report(*cases: GateCase, **more: Any) -> GateReport:
    fields: dict[str, Any] = {
        "id": "20270101-000000-abcd", "created": "2027-01-01T00:00:00+00:00", "command": ("dgw", "gate", "--exact"),
        "dgw": "0.1.0", "gate": "exact", "base": Side(label="perf/baselines", kind="baseline"),
        "head": Side(label="this tree", commit="0123456789abcdef"), "suite": "seeds", "device": "h200",
        "toolchain": "nvrtc 13.5.37", "cases": cases,
    }  # fmt: skip
    return GateReport(**{**fields, **more})


def regressed() -> GateCase:
    return case(
        "regressed", changed=(LEANER, CONFLICT, OCCUPANCY), line=61, reasons=("bank conflicts appeared",),
        explanation=("rows of the tile start in the same bank",),
    )  # fmt: skip


def everything() -> GateReport:
    timed = case(
        "regressed", 1, ratio=SLOWER, time_base=1e-3, time_head=1.021e-3, mde=0.012, p=1e-4, p_adjusted=3e-4, pairs=8,
        stage="confirm",
    )  # fmt: skip
    others = [case(status, 2) for status in SEVERITY if status != "regressed"]
    return report(
        *reversed(others), timed, regressed(), case("not-comparable", 3, changed=(FORGOTTEN,)),
        case("wrong", 4, label=HOSTILE, reasons=(HOSTILE,), explanation=(HOSTILE,), source="a:b,c%.cu"),
        gate="time",
        geometric_mean=GeometricMean(ratio=SLOWER, p=0.001, floor=0.005, shapes=4, pairs=4, status="regressed"),
        self_test=SelfTest(runs=10, false_fails=0, inconclusive=1, upper_bound=0.26),
        policy={"alpha": 0.01, "pairs": 4}, notes=(HOSTILE,), faults=("the driver left",), seconds=42.1,
    )  # fmt: skip


def many(count: int) -> GateReport:
    return report(
        *(case("regressed", number, changed=(CONFLICT,), reasons=("it is worse",)) for number in range(count))
    )


SAMPLES = {
    "everything": everything(),
    "one regressed": report(regressed(), case("identical")),
    "clean": report(case("identical"), case("unchanged")),
    "nothing": report(),
    "many": many(300),
}
