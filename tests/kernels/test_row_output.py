"""Sums on the way to a D that the copy engine cannot reach: every bit, nothing beside D, and few stores."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from dgw.kernels.declaring import INCLUDE
from dgw.workbench.emulator.counters import Counters
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.measures import tabulate
from dgw.workbench.emulator.memory import Memory
from tests.workbench.emulator.compiling import ptx_of

SOURCE = (Path(__file__).parent / "row_output.cu").read_text()
DTYPES = {"F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16), "F32": np.dtype(np.float32)}
WARPS = 2
ROWS = WARPS * 32  # each warp stores its 16 rows twice, one below the other
STAGING_BYTES = 2 * 16 * 128
POISON = 0xA5


@dataclass(frozen=True)
class Part:
    """Where the sums are stored: D has `m` x `n` elements, rows `ld` apart, `offset` elements behind the poison."""

    m: int
    n: int
    ld: int
    offset: int = 0
    row0: int = 0
    col0: int = 0


@dataclass(frozen=True)
class Finish:
    """What happens to the sums first. Operands other than D have rows of odd length."""

    c: bool = False
    bias: bool = False
    residual: bool = False
    relu: bool = False


PLAIN, ALL = Finish(), Finish(c=True, bias=True, residual=True, relu=True)


def stored(columns: int, dtype: str, part: Part, finish: Finish = PLAIN, by_rows: bool = True) -> dict[str, int]:
    """Store random sums in the emulator, compare every byte of D and around it, and return the counts."""
    random = np.random.default_rng(columns * part.n + part.m)
    kind = DTYPES[dtype]

    def values(*shape: int) -> NDArray[np.float32]:  # so short that sums of them are exact
        return (random.integers(-64, 65, shape) / 8).astype(np.float32)

    sums, lines = values(WARPS * 16, columns), part.n | 1
    c, residual = (values(part.m, lines).astype(kind) for _ in range(2))
    bias = values(part.n).astype(kind)
    room = np.full((part.offset + part.m * part.ld + 64) * kind.itemsize, POISON, np.uint8)
    expected = room.copy()
    d = expected.view(kind)[part.offset : part.offset + part.m * part.ld].reshape(part.m, part.ld)
    rows, cols = slice(part.row0, min(part.m, part.row0 + ROWS)), slice(part.col0, min(part.n, part.col0 + columns))
    found = np.tile(sums, (2, 1))[: max(0, rows.stop - part.row0), : max(0, cols.stop - part.col0)] * np.float32(0.5)
    found = found + (c[rows, cols].astype(np.float32) * 2 if finish.c else 0)
    found = found + (bias[cols].astype(np.float32) if finish.bias else 0)
    found = np.maximum(found, 0) if finish.relu else found
    found = found + (residual[rows, cols].astype(np.float32) if finish.residual else 0)
    d[rows, cols] = found.astype(kind)

    memory = Memory()
    at = {
        name: memory.register(name, array, writable=name == "d")
        for name, array in (("sums", sums), ("c", c), ("d", room), ("bias", bias), ("residual", residual))
    }
    ptx = ptx_of(SOURCE, "sm_90", options(columns, dtype, finish, by_rows))
    launch = EmulatedLaunch(
        ptx, "store_sums", (1, 1, 1), (WARPS * 32, 1, 1),
        [
            at["sums"], at["c"], at["d"] + part.offset * kind.itemsize, at["bias"], at["residual"], part.m, part.n,
            part.row0, part.col0, lines, part.ld, lines, struct.pack("f", 0.5), struct.pack("f", 2.0),
        ],
        memory, WARPS * STAGING_BYTES,
    )  # fmt: skip
    counters = Counters()
    outcome = launch.run(observer=counters)
    assert outcome.findings == ()
    assert np.array_equal(room, expected)
    return tabulate(counters.finish()).totals()


def options(columns: int, dtype: str, finish: Finish, by_rows: bool) -> tuple[str, ...]:
    defines = {
        "STORED_COLUMNS": columns, "TYPE_D": dtype, "TYPE_C": dtype, "TYPE_BIAS": dtype, "TYPE_RESIDUAL": dtype,
        "VEC_C": 1, "VEC_D": 1, "VEC_BIAS": 1, "VEC_RESIDUAL": 1, "USE_C": finish.c, "USE_BIAS": finish.bias,
        "USE_RESIDUAL": finish.residual, "ACTIVATION": "RELU" if finish.relu else "NO_ACTIVATION",
        "QUANTISATION": "NO_SCALE", "BY_ROWS": int(by_rows),
        "KEEP_BIAS": not (finish.c and finish.residual),
    }  # fmt: skip
    said = {name: str(value).lower() if isinstance(value, bool) else value for name, value in defines.items()}
    return (f"-I{INCLUDE}", *(f"-D{name}={value}" for name, value in said.items()))


def parts(columns: int) -> list[Part]:
    """Rows that begin anywhere in a word, edges within the sums, next to their ends, before them, and beside them."""
    whole = [Part(ROWS, columns + 3, columns + 4 + odd, offset, col0=offset) for odd in (0, 1) for offset in (0, 1, 3)]
    edges = [Part(37 + n % 3, n, n + pad, pad) for n in (1, 2, 3, columns - 1, columns // 2 + 1) for pad in (0, 1, 2)]
    return [*whole, *edges, Part(70, columns + 20, columns + 21, 1, row0=33, col0=17), Part(5, 9, 11, 2, 16, 16)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [16, 32, 48, 64, 80, 256])
def test_every_bit_of_d_is_stored_and_nothing_beside_it(columns: int, dtype: str) -> None:
    for part in parts(columns):
        stored(columns, dtype, part)


@pytest.mark.parametrize("finish", [ALL, Finish(bias=True), Finish(c=True), Finish(residual=True, relu=True)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_are_finished_on_the_way(dtype: str, finish: Finish) -> None:
    for columns in (48, 128):
        for part in (Part(50, columns + 9, columns + 9, 1, row0=2, col0=3), Part(64, columns - 5, columns, 0)):
            stored(columns, dtype, part, finish)


@pytest.mark.parametrize(("dtype", "sectors", "stores"), [("F16", 19, 1.05), ("F32", 31, 2)])
def test_rows_of_odd_length_take_few_stores_of_neighbouring_sectors(dtype: str, sectors: float, stores: float) -> None:
    part = Part(ROWS, 4095, 4095, col0=256)
    before, after = (stored(256, dtype, part, by_rows=by_rows) for by_rows in (False, True))
    assert before["global_inst_st"] == 2 * ROWS * 256 / 64
    assert after["global_inst_st"] <= stores * ROWS * 256 / 64
    assert before["global_sectors_st"] > sectors * before["global_inst_st"]
    assert after["global_sectors_st"] < 5 * after["global_inst_st"]
    assert after["smem_wavefronts_actual"] <= 1.03 * after["smem_wavefronts_ideal"]
