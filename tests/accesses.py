"""Compare the cost model with a table of measured accesses: `python tests/accesses.py FILE`.

A table (`"schema": "accesses/1"`, plain or gzip) holds cases: one warp, one instruction `op`, 32 byte `addresses`, the
`mask` of active lanes, for copies the global byte offsets `sources` (lane after lane where absent), and the counters
measured (a counter that is absent was 0). Every probe kernel also loads its 32 addresses and stores 32 results.
`unmeasured` of a case names counters that say nothing about it. ncu also leaves out all wavefronts of a cp.async whose
predicate is P0, though it counts the instruction: then these columns say nothing either.

Exit status: 0 when every case is equal, 1 when some differ (they are named), 2 when FILE is no table or has an op that
is not known here.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it also runs where dgw is not installed

from dgw.workbench.emulator.costs import Kind, SharedCost, bypass_global_cost, copy_cost, global_cost, shared_cost

Case = Mapping[str, Any]

WAVEFRONTS: Final = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}"
HARDWARE_CONFLICTS: Final = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}"
SASS_CONFLICTS: Final = "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_{}"
SECTORS: Final = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}"
SASS_SECTORS: Final = "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_{}"
REQUESTS: Final = "l1tex__t_requests_pipe_lsu_mem_global_op_{}"
ACTUAL, IDEAL = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"

COPIES_ISSUED: Final = "smsp__sass_inst_executed_op_ldgsts"

# name of an op without digits -> kind, name of the SASS wavefront column, names of the conflict counters
SHARED_OPS: Final[dict[str, tuple[Kind, str, tuple[str, ...]]]] = {
    "lds": ("ld", "ld", (HARDWARE_CONFLICTS.format("ld"),)),
    "sts": ("st", "st", (HARDWARE_CONFLICTS.format("st"),)),
    "ldsm": ("ldmatrix", "ldsm", (HARDWARE_CONFLICTS.format("ld"), SASS_CONFLICTS.format("ldsm"))),
    "stsm": ("stmatrix", "stsm", (HARDWARE_CONFLICTS.format("st"), SASS_CONFLICTS.format("stsm"))),
    "reds": ("atom", "atom", (HARDWARE_CONFLICTS.format("atom"),)),
    "atoms": ("atom", "atom", (HARDWARE_CONFLICTS.format("atom"),)),
}
# cp.async: past L1 when 16 bytes wide, but for `cpca` -> lanes that read their source, the others write zeros
COPY_OPS: Final = {
    "cpa": np.ones(32, dtype=np.bool_), "cpca": np.ones(32, dtype=np.bool_),
    "cpx": np.ones(32, dtype=np.bool_),  # source size in a register: the whole width
    "cpy": np.zeros(32, dtype=np.bool_),  # source size in a register: 0
    "cpz": np.arange(32) & 4 == 0,  # every other four lanes write zeros
}  # fmt: skip
GLOBAL_OPS: Final = ("ldg", "stg")
LOADS_ALL_ADDRESSES: Final = ("ldg32", "ldg64", "ldg128", "stg", "ldsm", "stsm")  # the other probes load active lanes'


def name_of(op: str) -> str:
    """`ldsm` of `ldsm4t`. Raises ValueError for an op that is not known here."""
    found = re.fullmatch(r"([a-z]+?)\d*t?", op)
    name = found[1] if found else ""
    if name not in SHARED_OPS and name not in COPY_OPS and name not in GLOBAL_OPS:
        known = ", ".join((*SHARED_OPS, *COPY_OPS, *GLOBAL_OPS))
        raise ValueError(f"unknown op {op!r}; known are {known}, each with its width")
    return name


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
    name, width = name_of(case["op"]), case["bytes"]
    address, active = lanes(case)
    counts = overhead(case)
    if name in GLOBAL_OPS:
        cost = global_cost(width, address, active)
        for pattern in (REQUESTS, SECTORS, SASS_SECTORS):
            counts[pattern.format(name[:2])] += int((cost.requests if pattern is REQUESTS else cost.sectors)[0])
    elif name in COPY_OPS:
        sources = np.array([case["sources"]], dtype=np.int64) if "sources" in case else np.arange(32)[None, :] * width
        bypass, reading = width == 16 and name != "cpca", active & COPY_OPS[name]
        copied = bypass_global_cost(sources, address, reading) if bypass else global_cost(width, sources, reading)
        counts[REQUESTS.format("ld")] += int(copied.requests[0])
        counts[SECTORS.format("ld")] += int(copied.sectors[0])
        shared = copy_cost(width, address, active, sources, reading, bypass)
        counts |= _shared(shared, "ldgsts")
        counts[HARDWARE_CONFLICTS.format("ldgsts")] = int(shared.hardware[0])
        counts[SASS_CONFLICTS.format("ldgsts")] = int(shared.conflicts[0])
    else:
        kind, column, conflict_names = SHARED_OPS[name]
        matrices = int(case["op"].rstrip("t")[-1]) if "matrix" in kind else 4
        shared = shared_cost(kind, width, address, active, matrices)
        counts |= _shared(shared, column)
        counts |= {counter: int(shared.conflicts[0]) for counter in conflict_names}
    return {counter: value for counter, value in counts.items() if value}


def _shared(cost: SharedCost, column: str) -> dict[str, int]:
    wavefronts, ideal = int(cost.wavefronts[0]), int(cost.ideal[0])
    return {WAVEFRONTS.format(column): wavefronts, ACTUAL: wavefronts, IDEAL: ideal}


def unmeasured(case: Case) -> set[str]:
    """Counters that say nothing about a case."""
    measured = case["measured"]
    column = WAVEFRONTS.format("ldgsts")
    missing = {column, SASS_CONFLICTS.format("ldgsts"), ACTUAL, IDEAL}
    lost = measured.get(COPIES_ISSUED) and not measured.get(column)
    return set(case.get("unmeasured", ())) | (missing if lost else set())


def judged(measured: Mapping[str, int]) -> dict[str, int]:
    """The counters of a case that are compared: wavefronts per kind, ideal wavefronts, conflicts, sectors, requests."""
    patterns = (WAVEFRONTS, HARDWARE_CONFLICTS, SASS_CONFLICTS, SECTORS, SASS_SECTORS, REQUESTS, ACTUAL, IDEAL)
    starts = tuple(pattern.removesuffix("{}") for pattern in patterns)
    return {name: value for name, value in measured.items() if value and name.startswith(starts)}


def differences(case: Case) -> list[str]:
    """What differs between the measured and the expected counters of one case, in words."""
    measured, wanted = judged(case["measured"]), expected(case)
    names = sorted((measured.keys() | wanted.keys()) - unmeasured(case))
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
