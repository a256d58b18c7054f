"""Compare the cost model with a table of measured accesses: `python tests/accesses.py FILE`.

A table (`"schema": "accesses/1"`) holds cases: one warp, one instruction `op`, 32 byte `addresses`, the `mask` of
active lanes, and the counters measured (a counter that is absent was 0). Every probe kernel also loads its 32 addresses
and stores 32 results. Exit status: 0 when every case is equal, 1 when some differ (they are named), 2 when FILE is no
table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it also runs where dgw is not installed

from dgw.workbench.emulator.costs import Kind, bypass_global_cost, global_cost, shared_cost

Case = Mapping[str, Any]

WAVEFRONTS: Final = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}"
HARDWARE_CONFLICTS: Final = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}"
SASS_CONFLICTS: Final = "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_{}"
SECTORS: Final = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}"
SASS_SECTORS: Final = "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_{}"
REQUESTS: Final = "l1tex__t_requests_pipe_lsu_mem_global_op_{}"
ACTUAL, IDEAL = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"

# op (digits and a trailing t dropped) -> kind, name of the SASS wavefront column, names of the conflict counters
SHARED_OPS: Final[dict[str, tuple[Kind, str, tuple[str, ...]]]] = {
    "lds": ("ld", "ld", (HARDWARE_CONFLICTS.format("ld"),)),
    "sts": ("st", "st", (HARDWARE_CONFLICTS.format("st"),)),
    "ldsm": ("ldmatrix", "ldsm", (HARDWARE_CONFLICTS.format("ld"), SASS_CONFLICTS.format("ldsm"))),
    "stsm": ("stmatrix", "stsm", (HARDWARE_CONFLICTS.format("st"), SASS_CONFLICTS.format("stsm"))),
    "reds": ("atom", "atom", (HARDWARE_CONFLICTS.format("atom"),)),
    "atoms": ("atom", "atom", (HARDWARE_CONFLICTS.format("atom"),)),
    "cpca": ("cp.async.ca", "ldgsts", (HARDWARE_CONFLICTS.format("ldgsts"), SASS_CONFLICTS.format("ldgsts"))),
    "cpz": ("cp.async.cg", "ldgsts", (HARDWARE_CONFLICTS.format("ldgsts"), SASS_CONFLICTS.format("ldgsts"))),
    "cpa": ("cp.async.ca", "ldgsts", (HARDWARE_CONFLICTS.format("ldgsts"), SASS_CONFLICTS.format("ldgsts"))),
}
LOADS_ALL_ADDRESSES: Final = ("ldg32", "ldg64", "ldg128", "stg", "ldsm", "stsm")  # the other probes load active lanes'


def lanes(case: Case) -> tuple[Any, Any]:
    """Addresses int64 [1, 32] and active lanes bool [1, 32]."""
    active = [bool(case["mask"] >> lane & 1) for lane in range(32)]
    return np.array([case["addresses"]], dtype=np.int64), np.array([active])


def overhead(case: Case) -> dict[str, int]:
    """Requests and sectors of the probe itself: 32 addresses loaded, 32 results stored, 4 bytes each."""
    slots = np.arange(32)[None, :] * 4
    _, active = lanes(case)
    everyone = case["op"].startswith(LOADS_ALL_ADDRESSES)
    loaded = int(global_cost(4, slots, np.ones_like(active) if everyone else active).sectors[0])
    return {
        REQUESTS.format("ld"): 1, REQUESTS.format("st"): 1, SECTORS.format("ld"): loaded, SECTORS.format("st"): 4,
        SASS_SECTORS.format("ld"): loaded, SASS_SECTORS.format("st"): 4,
    }  # fmt: skip


def expected(case: Case) -> dict[str, int]:
    """The counters that the cost model gives for one case (those that it speaks of; zeros left out)."""
    op, width = case["op"], case["bytes"]
    address, active = lanes(case)
    counts = overhead(case)
    if op.startswith(("ldg", "stg")):
        cost = global_cost(width, address, active)
        for name in (REQUESTS, SECTORS, SASS_SECTORS):
            counts[name.format(op[:2])] += int((cost.requests if name is REQUESTS else cost.sectors)[0])
        return counts
    kind, column, conflict_names = SHARED_OPS[op.rstrip("0123456789t")] if op[-1] == "t" else _shared(op)
    sources = np.array([case["sources"]], dtype=np.int64) if "sources" in case else np.arange(32)[None, :] * width
    if op.startswith("cp"):
        bypass = op in ("cpa16", "cpz16")
        kind = "cp.async.cg" if bypass else kind
        reading = active & (np.arange(32) & 4 == 0) if op == "cpz16" else active  # every other four lanes write zeros
        copied = bypass_global_cost(sources, address, reading) if bypass else global_cost(width, sources, reading)
        counts[REQUESTS.format("ld")] += int(copied.requests[0])
        counts[SECTORS.format("ld")] += int(copied.sectors[0])
    matrices = int(op.rstrip("t")[-1]) if "sm" in op[:4] else 0
    shared = shared_cost(kind, width, address, active, matrices, sources)
    counts[WAVEFRONTS.format(column)] = int(shared.wavefronts[0])
    counts |= {name: int(shared.conflicts[0]) for name in conflict_names}
    counts |= {ACTUAL: int(shared.wavefronts[0]), IDEAL: int(shared.ideal[0])}
    return {name: value for name, value in counts.items() if value}


def _shared(op: str) -> tuple[Kind, str, tuple[str, ...]]:
    return SHARED_OPS[op.rstrip("0123456789")]


def judged(measured: Mapping[str, int]) -> dict[str, int]:
    """The counters of a case that are compared: wavefronts per kind, ideal wavefronts, conflicts, sectors, requests."""
    patterns = (WAVEFRONTS, HARDWARE_CONFLICTS, SASS_CONFLICTS, SECTORS, SASS_SECTORS, REQUESTS, ACTUAL, IDEAL)
    starts = tuple(pattern.removesuffix("{}") for pattern in patterns)
    return {name: value for name, value in measured.items() if value and name.startswith(starts)}


def differences(case: Case) -> list[str]:
    """What differs between the measured and the expected counters of one case, in words."""
    measured, wanted = judged(case["measured"]), expected(case)
    names = sorted(measured.keys() | wanted.keys())
    return [
        f"{name}: measured {measured.get(name, 0)}, expected {wanted.get(name, 0)}"
        for name in names
        if measured.get(name, 0) != wanted.get(name, 0)
    ]


def read_table(path: Path) -> list[Case]:
    """The cases of a table, plain or gzip-compressed JSON. Raises ValueError when it is none."""
    raw = path.read_bytes()
    table = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    if not isinstance(table, dict) or table.get("schema") != "accesses/1" or not isinstance(table.get("cases"), list):
        raise ValueError('not a table of accesses ("schema": "accesses/1" with a list "cases")')
    return list(table["cases"])


def compare(cases: Iterable[Case]) -> dict[str, list[str]]:
    """The ids of the cases that differ and how."""
    found = {case["id"]: differences(case) for case in cases}
    return {name: how for name, how in found.items() if how}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare the emulator's cost model with measured accesses.")
    parser.add_argument("file", type=Path)
    path = parser.parse_args(arguments).file
    try:
        cases = read_table(path)
        wrong = compare(cases)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: {path}: {error}", file=sys.stderr)
        return 2
    for name, how in wrong.items():
        print(name, *how, sep="\n  ")
    print(f"{len(cases) - len(wrong)} of {len(cases)} cases equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
