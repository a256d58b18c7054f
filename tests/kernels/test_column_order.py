"""Columns whose lines of B were read in phases come out in the order of D: run in the emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dgw.kernels.declaring import INCLUDE
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from tests.workbench.emulator.compiling import ptx_of

SOURCE = (Path(__file__).parent / "column_order.cu").read_text()


@pytest.mark.parametrize("phases", [1, 2, 4, 8])
@pytest.mark.parametrize("columns", [64, 128, 192, 256])
def test_lines_of_one_phase_that_lie_together_are_spread_over_the_columns_of_d(columns: int, phases: int) -> None:
    wanted = np.arange(16 * columns, dtype=np.float32).reshape(16, columns)
    # column x of the tile is line phases * (x % lines) + x // lines of B, as TileB::place says
    x, lines = np.arange(columns), columns // phases
    multiplied = np.ascontiguousarray(wanted[:, phases * (x % lines) + x // lines])
    memory, found = Memory(), np.zeros_like(wanted)
    at = [memory.register("sums", multiplied, writable=False), memory.register("ordered", found)]
    options = (f"-I{INCLUDE}", f"-DTILE_PHASES={phases}", f"-DTILE_EIGHTS={columns // 8}")
    ran = EmulatedLaunch(ptx_of(SOURCE, "sm_90", options), "put_in_order", (1, 1, 1), (32, 1, 1), at, memory).run()
    assert ran.findings == ()
    assert np.array_equal(found, wanted)
