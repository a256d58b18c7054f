"""Measure single accesses on a GPU and write a table of the format that `tests/accesses.py` reads.

On the GPU machine:   python tests/gpu/probe_accesses.py collect FOLDER     (needs ncu on PATH; FOLDER gets two files)
Anywhere afterwards:  python tests/gpu/probe_accesses.py table FOLDER TABLE.json && python tests/accesses.py TABLE.json

The cases are those that decide between readings of the cost model's rules: broadcast among wide loads with and without
inactive lanes, cp.async with random destinations and with the row-wise sources of GEMM tiles, 16-byte cp.async through
L1, bytes, and matrices that the first table left out. `sources` of a case are the global byte offsets of cp.async.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FULL, EVEN, ODD, HALF, QUADS = 0xFFFFFFFF, 0x55555555, 0xAAAAAAAA, 0xFFFF, 0xF0F0F0F0
L1 = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
SASS_L1 = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared"
METRICS = (
    *(f"{SASS_L1}_op_{op}" for op in ("ld", "st", "ldsm", "stsm", "ldgsts", "atom")),
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}" for op in ("ld", "st", "ldgsts", "atom")),
    *(f"smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_{op}" for op in ("ldsm", "stsm", "ldgsts")),
    *(f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}" for what in ("requests", "sectors") for op in ("ld", "st")),
    *(f"smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_{op}" for op in ("ld", "st")),
    *(f"smsp__sass_inst_executed_op_{op}" for op in ("shared_ld", "shared_st", "ldgsts")),
    "smsp__inst_executed_op_ldsm",
    L1, "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal", "memory_l2_theoretical_sectors_global",
)  # fmt: skip

KERNEL = """
extern __shared__ __align__(1024) unsigned char arena[];
#define PROBE(NAME, ALL, STATEMENT)                                                                           \\
extern "C" __global__ void NAME(const unsigned* packed, unsigned char* buffer, unsigned mask, unsigned* out) { \\
    [[maybe_unused]] unsigned lane = threadIdx.x, base, r = lane, r1 = 0, r2 = 0, r3 = 0, p = 0;              \\
    asm volatile("{.reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t;}" : "=r"(base) : "l"(arena));    \\
    if (ALL) asm volatile("ld.global.u32 %0, [%1];" : "=r"(p) : "l"(packed + lane));                          \\
    if (ALL || (mask >> lane & 1u)) {                                                                         \\
        if (!ALL) asm volatile("ld.global.u32 %0, [%1];" : "=r"(p) : "l"(packed + lane));                     \\
        unsigned s = base + (p & 0xffffu);                                                                    \\
        [[maybe_unused]] const unsigned char* g = buffer + (p >> 16) * 4u;                                    \\
        if (mask >> lane & 1u) { STATEMENT; }                                                                 \\
    }                                                                                                         \\
    asm volatile("cp.async.wait_all;" ::: "memory");                                                          \\
    out[lane] = r + r1 + r2 + r3;                                                                             \\
}
#define COPY(NAME, STATEMENT)                                                                                 \\
extern "C" __global__ void NAME(const unsigned* packed, unsigned char* buffer, unsigned mask, unsigned* out) { \\
    unsigned lane = threadIdx.x, base, p;                                                                     \\
    asm volatile("{.reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t;}" : "=r"(base) : "l"(arena));    \\
    out[lane] = lane;                                                                                         \\
    if (!(mask >> lane & 1u)) return; /* the copy has no predicate: ncu loses copies guarded by P0 */         \\
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(p) : "l"(packed + lane));                                   \\
    unsigned s = base + (p & 0xffffu);                                                                        \\
    const unsigned char* g = buffer + (p >> 16) * 4u;                                                         \\
    STATEMENT;                                                                                                \\
    asm volatile("cp.async.wait_all;" ::: "memory");                                                          \\
}
#define OUT4 "=r"(r), "=r"(r1), "=r"(r2), "=r"(r3)
#define IN4 "r"(r), "r"(r1), "r"(r2), "r"(r3)
PROBE(lds8, 0, asm volatile("ld.shared.u8 %0, [%1];" : "=r"(r) : "r"(s)))
PROBE(lds64, 0, asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(r), "=r"(r1) : "r"(s)))
PROBE(lds128, 0, asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : OUT4 : "r"(s)))
PROBE(sts8, 0, asm volatile("st.shared.u8 [%0], %1;" :: "r"(s), "r"(r) : "memory"))
PROBE(sts64, 0, asm volatile("st.shared.v2.u32 [%0], {%1,%2};" :: "r"(s), "r"(r), "r"(r1) : "memory"))
PROBE(sts128, 0, asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" :: "r"(s), IN4 : "memory"))
PROBE(ldsm2t, 1, asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
    : "=r"(r), "=r"(r1) : "r"(s)))
PROBE(stsm2, 1, asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};"
    :: "r"(s), "r"(r), "r"(r1) : "memory"))
PROBE(atoms32, 0, asm volatile("atom.shared.add.u32 %0, [%1], 1;" : "=r"(r) : "r"(s) : "memory"))
COPY(cpa4, asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(s), "l"(g) : "memory"))
COPY(cpa8, asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(s), "l"(g) : "memory"))
COPY(cpa16, asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(s), "l"(g) : "memory"))
COPY(cpca16, asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(s), "l"(g) : "memory"))
COPY(cpx16, asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
    :: "r"(s), "l"(g), "r"(mask ? 16u : 0u) : "memory"))
COPY(cpy16, asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
    :: "r"(s), "l"(g), "r"(mask ? 0u : 16u) : "memory"))
COPY(cpz16, asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
    :: "r"(s), "l"(g), "r"(lane & 4u ? 0u : 16u) : "memory"))
"""
WIDTHS = {"lds8": 1, "sts8": 1, "lds64": 8, "sts64": 8, "atoms32": 4, "cpa4": 4, "cpa8": 8}  # the others: 16


COPIES = (
    ("cpa16", 16), ("cpca16", 16), ("cpx16", 16), ("cpy16", 16), ("cpz16", 16), ("cpa8", 8), ("cpa4", 4),
)  # fmt: skip


def case(
    op: str, name: str, slots: Any, mask: int = FULL, sources: Any = None, unit: int | None = None
) -> dict[str, Any]:
    """A case whose addresses are `slots` times the access width (or `unit`)."""
    width = WIDTHS.get(op, 16)
    addresses = [int(slot) * width for slot in slots]
    made = {"id": f"{op}.{name}", "op": op, "bytes": width, "mask": mask, "addresses": addresses}
    return made if sources is None else made | {"sources": [int(source) for source in sources]}


def broadcasts() -> Iterator[dict[str, Any]]:
    """Wide accesses whose lanes read the same words, with and without inactive lanes."""
    lane = np.arange(32)
    shapes = {
        "same": lane * 0, "pairs": lane // 2, "pairs2": lane // 4 * 2 + lane % 2, "pairs4": lane // 8 * 4 + lane % 4,
        "quads": lane // 4, "mod4": lane % 4, "mod8": lane % 8, "mod16": lane % 16, "linear": lane,
        "farpairs": lane // 2 * 16, "firsthalf": np.where(lane < 16, lane // 2, lane),
        "mixed": np.where(lane < 16, lane // 2, lane // 4 * 2 + lane % 2),
    }  # fmt: skip
    for op in ("lds64", "lds128", "sts64", "sts128"):
        for name, slots in shapes.items():
            yield case(op, name, slots)
        for name, mask in (("even", EVEN), ("odd", ODD), ("oddquad", QUADS), ("first2of4", 0x33333333), ("one", 1)):
            yield case(op, name, lane, mask)
            yield case(op, f"{name}.pairs", lane // 2, mask)
        yield case(op, "half.pairs", lane // 2, HALF)
        yield case(op, "even.half", lane, EVEN & HALF)


def copies() -> Iterator[dict[str, Any]]:
    """cp.async: random destinations, GEMM tiles whose rows are narrower than a warp, shifted sources."""
    lane, random = np.arange(32), np.random.default_rng(7)
    for index in range(48):
        span = (16, 32, 64, 64, 128, 256)[index % 6]
        mask = FULL if index % 3 else int(random.integers(1, FULL))
        yield case("cpa16", f"rand{index}_{span * 16}", random.integers(0, span, 32), mask)
    yield case("cpa16", "pairs", lane // 2)
    for op, width in COPIES:
        for row in (32, 64, 128, 256):  # bytes of a tile row, from global rows that are 4096 bytes apart
            per = row // width
            sources = lane // per * 4096 + lane % per * width
            for pad in (0, 16):
                slots = (lane // per * (row + pad) + lane % per * width) // width
                yield case(op, f"row{row}pad{pad}", slots, FULL, sources)
            swizzled = lane // per * per + (lane % per ^ lane // per % min(per, 8))
            yield case(op, f"row{row}swizzle", swizzled, FULL, sources)
        for shift in (width, 32, 64):
            yield case(op, f"shift{shift}", lane, FULL, lane * width + shift)
            yield case(op, f"both{shift}", lane + shift // width, FULL, lane * width + shift)
        yield case(op, "onesource", lane, FULL, lane * 0)
        yield case(op, "reversesource", lane, FULL, (31 - lane) * width)
        yield case(op, "spread", lane * 5, FULL, lane * 256)
    for index in range(8):
        yield case("cpca16", f"rand{index}", random.integers(0, 64, 32))
        yield case("cpa8", f"rand{index}", random.integers(0, 64, 32), int(random.integers(1, FULL)))
    for index in range(12):  # conflicts on both sides at once
        for op, width in COPIES:
            mask = FULL if index % 2 else int(random.integers(1, FULL))
            sources = random.integers(0, 1024 >> index % 3, 32) * width
            yield case(op, f"both_rand{index}", random.permutation(64 << index % 2)[:32], mask, sources)


def cases() -> list[dict[str, Any]]:
    """Every case of the probe."""
    lane, random = np.arange(32), np.random.default_rng(11)
    made = [*broadcasts(), *copies()]
    for op in ("lds8", "sts8"):
        for name, slots in (("linear", lane), ("stride3", lane * 3), ("stride128", lane * 128), ("same", lane * 0)):
            made.append(case(op, name, slots))
    for op in ("ldsm2t", "stsm2"):
        for name, slots in (("linear", lane), ("stride8", lane * 8), ("stride5", lane * 5), ("same", lane * 0)):
            made.append(case(op, name, slots))
    for index in range(6):
        mask = FULL if index % 2 else int(random.integers(1, FULL))
        made.append(case("atoms32", f"rand{index}", random.integers(0, 64, 32), mask))
    return made


def launch(folder: Path) -> None:
    """Launch every case once, in order (the process that ncu watches)."""
    from cuda.bindings import driver
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions
    from cuda.core import launch as start

    device = Device()
    device.set_current()
    stream = device.create_stream()
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    module = Program(KERNEL, code_type="c++", options=options).compile("cubin")
    table = json.loads((folder / "cases.json").read_text())["cases"]
    packed, out = device.allocate(128 * len(table), stream=stream), device.allocate(128, stream=stream)
    buffer = device.allocate(1 << 18, stream=stream)
    host = np.zeros((len(table), 32), dtype=np.uint32)
    for index, entry in enumerate(table):
        sources = entry.get("sources") or [lane * entry["bytes"] for lane in range(32)]
        host[index] = [a | s // 4 << 16 for a, s in zip(entry["addresses"], sources, strict=True)]
    stream.sync()
    (error,) = driver.cuMemcpyHtoD(int(packed.handle), host.ctypes.data, host.nbytes)
    assert int(error) == 0, error
    config = LaunchConfig(grid=1, block=32, shmem_size=40 * 1024)
    kernels = {op: module.get_kernel(op) for op in {entry["op"] for entry in table}}
    for index, entry in enumerate(table):
        address = int(packed.handle) + 128 * index
        mask = np.uint32(entry["mask"])
        start(stream, config, kernels[entry["op"]], address, buffer, mask, out)
    stream.sync()


def collect(folder: Path) -> int:
    """Write cases.json and run this file's `launch` under ncu; the exit status of ncu."""
    folder.mkdir(parents=True, exist_ok=True)
    table = {"schema": "accesses/1", "cases": cases()}
    (folder / "cases.json").write_text(json.dumps(table))
    ncu = shutil.which("ncu")
    if ncu is None:
        print("error: ncu is not on PATH", file=sys.stderr)
        return 6
    report = [ncu, "-f", "-o", str(folder / "accesses"), "--cache-control", "none", "--clock-control", "none"]
    names = ",".join(name if name.startswith("memory") else f"{name}.sum" for name in METRICS)
    command = [*report, "--metrics", names, sys.executable, __file__, "launch", str(folder)]
    return subprocess.run(command, check=False).returncode


def table(folder: Path, output: Path) -> int:
    """Join the report with cases.json by launch order into a table."""
    import ncu_report

    made = json.loads((folder / "cases.json").read_text())
    actions = list(ncu_report.load_report(str(folder / "accesses.ncu-rep"))[0])
    if len(actions) != len(made["cases"]):
        print(f"error: {len(actions)} kernels in the report, {len(made['cases'])} cases", file=sys.stderr)
        return 1
    for entry, action in zip(made["cases"], actions, strict=True):
        assert action.name() == entry["op"], (action.name(), entry["id"])
        found = {}
        for name in METRICS:
            metric = action.metric_by_name(name) or action.metric_by_name(name + ".sum")
            if metric is not None:
                found[name] = int(metric.as_uint64())
        entry["measured"] = {name: value for name, value in found.items() if value}
    output.write_text(json.dumps(made))
    return 0


if __name__ == "__main__":
    verb, where = sys.argv[1], Path(sys.argv[2])
    if verb == "launch":
        launch(where)
    else:
        sys.exit(collect(where) if verb == "collect" else table(where, Path(sys.argv[3])))
