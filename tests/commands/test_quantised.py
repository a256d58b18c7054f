"""Quantised outputs through the commands, in the emulator."""

from __future__ import annotations

import msgspec
import pytest

from dgw.model import Run
from tests.commands.conftest import Dgw

ASKED = {
    "s8 a tensor": ("--quantise", "tensor", "--out", "s8"),
    "s8 a row, zero point": ("--quantise", "row", "--out", "s8", "--zero-point", "-9"),
    "e4m3 a tensor": ("--quantise", "tensor", "--out", "e4m3"),
    "e4m3 a row": ("--quantise", "row", "--out", "e4m3"),
}
SMALL = ("--config", "BM=64,BN=64,BK=32,WM=32,WN=32", "--shape", "67x41x45", "--bias", "--activation", "gelu")


QUICK = (("fused-epilogue", "s8 a row, zero point"), ("persistent", "e4m3 a tensor"))
PAIRS = [
    pytest.param(stage, name, id=f"{stage}, {name}", marks=() if (stage, name) in QUICK else pytest.mark.slow)
    for stage in ("fused-epilogue", "persistent")
    for name in ASKED
]


@pytest.mark.parametrize(("stage", "name"), PAIRS)
def test_a_stage_that_quantises_is_right_on_the_first_device_that_can(dgw: Dgw, stage: str, name: str) -> None:
    ended = dgw("check", "-v", stage, *SMALL, *ASKED[name], "--device", "l4", "--json")
    assert ended.code == 0, ended.err
    (record,) = msgspec.json.decode(ended.out, type=Run).records
    assert (record.outcome, record.check and record.check.compared) == ("ok", 67 * 41)
    assert record.environment.engine == "emulator"


def test_e4m3_is_refused_where_no_instruction_makes_it(dgw: Dgw) -> None:
    ended = dgw("check", "-v", "persistent", *SMALL, *ASKED["e4m3 a row"], "--device", "a100")
    assert ended.code == 2
    assert "sm_89 is the first" in ended.err
