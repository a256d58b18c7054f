"""Facts as the exact gate compares them, without a compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgw.model import Case, Variant, gemm
from dgw.workbench.gate.facts import Facts, Known
from dgw.workbench.gate.figures import FIGURES

PROBLEM = gemm(64, 64, 64)
VARIANT = Variant(id="cuda/swizzled", version=1, idea="for tests", dtypes=("f16",))
FIGURED = dict.fromkeys(FIGURES, 100) | {"theoretical_occupancy": 0.5}


def facts(**changes: Any) -> Facts:
    fields: dict[str, Any] = {
        "device": "h200", "problem": PROBLEM, "variant": VARIANT.id, "version": 1, "config": {"BM": 128},
        "code": ("aaaa",), "launch": "bbbb", "launches": ("swizzled grid 1x1x1",), "figures": FIGURED,
        "protocol": "emulator/1",
    }  # fmt: skip
    return Facts(**{**fields, **changes})


def known(
    outcome: Any = "ok", reason: str = "", lines: Mapping[str, tuple[str, int]] | None = None, **changes: Any
) -> Known:
    found = facts(**changes)
    case = Case(problem=PROBLEM, variant=VARIANT.id, config=found.config)
    return Known(case, VARIANT, outcome, reason, "nvrtc-1", "nvrtc 1", found, lines=lines or {})
