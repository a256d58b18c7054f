"""The collector that needs no GPU: runs the compiled PTX of a plan on the CPU, checks D, and counts.

Nothing here is a time. Counts have the tier `exact` where the audit of PTX against machine code is clean for the
instructions they come from, else `ptx-level`; instruction counts of all kinds together are always `ptx-level`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path

import msgspec

from dgw.errors import DgwError
from dgw.model import Case, Check, Device, Launch, Measurement, Plan, Source
from dgw.operands import bounds, references
from dgw.toolchain.sass import SassInstruction, disassemble
from dgw.workbench.emulator import bound as bounding
from dgw.workbench.emulator.audit import EXACT, PTX_LEVEL, Audit, audit, unaudited
from dgw.workbench.emulator.classes import Tiling
from dgw.workbench.emulator.launching import LaunchRun, PlanRun
from dgw.workbench.emulator.lead import Lead, lead
from dgw.workbench.emulator.measures import WARP, Table, combine, mma_flops, tabulate, with_ratios
from dgw.workbench.emulator.observer import Finding, SourceLine
from dgw.workbench.emulator.operands import Block
from dgw.workbench.emulator.spilling import spilled_sectors
from dgw.workbench.metrics import METRICS

COLLECTOR = "emulator"
ROWS_COMPARED = 256  # of D at a time, when all of it is compared
FAMILIES = {
    "smem_wavefronts_sass_ldgsts": "copy", "smem_wavefronts_least_ldgsts": "copy", "ldgsts_inst": "copy",
    "smem_bank_conflicts_ldgsts": "copy", "global_sectors_addressed_ld": "global copy",
    "global_requests_ld": "global copy", "global_sectors_hw_ld": "global copy", "gld": "global copy",
    "smem_wavefronts_actual": "shared copy", "smem_wavefronts_ideal": "shared copy", "smem": "shared",
    "ldsm": "shared", "conflict": "shared", "global": "global", "gst": "global", "local": "local",
    "tensor": "tensor constants", "mma": "tensor", "wgmma": "tensor",
}  # fmt: skip
"""Metric, or the first word of its key -> families of instructions that it counts."""


@dataclass(frozen=True)
class Emulation:
    """What an emulation found. `by_line` has the additive figures of each line of a stage, all launches together."""

    check: Check
    measurements: tuple[Measurement, ...]
    findings: tuple[Finding, ...]
    by_line: dict[SourceLine, dict[str, int]]
    bound: bounding.Bound
    audits: tuple[Audit, ...]
    protocol: str


def emulate(
    case: Case,
    plan: Plan,
    ptx_of: Callable[[Source], str],
    cubin_of: Callable[[Source], bytes] | None,
    device: Device,
    full_grid: bool = False,
    keep: Path | None = None,
) -> Emulation:
    """Run `plan` on the CPU, compare D with the reference, count.

    One CTA of each class is run and stands for its class. All CTAs are run with `full_grid`, for small problems, for
    several launches, and where it does not turn out which CTA computes what; `protocol` says which. Without `cubin_of`
    no figure is exact. Disassembled machine code is remembered in the folder `keep`. Raises EmulatorError for PTX that
    it does not know.
    """
    with ThreadPoolExecutor(max_workers=1) as beside:  # the disassembler is a process of its own
        listings = [beside.submit(_disassembled, launch, cubin_of, keep) for launch in plan.launches]
        execution = PlanRun(case, plan, ptx_of, full_grid)
        runs = execution.run()
        findings = tuple(finding for run in runs for finding in run.coverage.findings)
        codes = [listing.result() for listing in listings]
    audits = tuple(_audit(run, code) for run, code in zip(runs, codes, strict=True))
    launches = [_counted(run) for run in runs]
    spilled = [_spilled(*parts) for parts in zip(runs, launches, codes, strict=True)]
    by_line: dict[SourceLine, dict[str, int]] = {}
    for lines in (launch.by_line for launch in launches):
        for line, totals in lines.items():
            by_line[line] = combine([(by_line.get(line, {}), 1), (totals, 1)])
    alike = execution.alike(runs)
    work = [_work(run, launch, one, device, alike) for run, launch, one in zip(runs, launches, audits, strict=True)]
    bound = bounding.lower_bound(case.problem, device, work)
    protocol = "; ".join(dict.fromkeys(run.coverage.protocol for run in runs))
    ctas = sum(counters.ctas for run in runs for counters, _ in run.coverage.parts)
    return Emulation(
        check=_verdict(execution, runs, findings),
        measurements=tuple(_measurements(launches, audits, by_line, spilled, bound, ctas, protocol)),
        findings=findings,
        by_line=by_line,
        bound=bound,
        audits=audits,
        protocol=protocol,
    )


@dataclass(frozen=True)
class _Counted:
    """A launch: totals of the grid, by source line, instructions by opcode, FLOP of tensor cores by dtype, sectors, and
    how far ahead of the products of a k loop data is asked for, where it has one."""

    totals: dict[str, int]
    by_line: dict[SourceLine, dict[str, int]]
    opcodes: dict[str, int]
    flops: dict[str, int]
    sectors: dict[str, int]
    lead: Lead | None = None


def _counted(run: LaunchRun) -> _Counted:
    tables: list[tuple[Table, int]] = []
    flops, opcodes, sectors = [], [], []
    for counters, weight in run.coverage.parts:
        table = tabulate(counters)
        tables.append((table, weight))
        flops.append((mma_flops(counters), weight))
        opcodes.append((_opcodes(table), weight))
        sectors.append((counters.unique_sectors, weight))
    totals = _everywhere([(table.totals(), weight) for table, weight in tables])
    lines: dict[SourceLine, list[tuple[Mapping[str, int], int]]] = {}
    for table, weight in tables:
        for line, counts in table.by_source_line().items():
            known = {name: count for name, count in counts.items() if name in totals}
            lines.setdefault(line, []).append((known, weight))
    by_line = {line: combine(parts) for line, parts in lines.items()}
    most, _ = max(run.coverage.parts, key=lambda part: part[1])  # the CTAs of which there are most
    ahead = lead(most.instructions, most.steps, most.batch_warps)
    return _Counted(totals, by_line, combine(opcodes), combine(flops), combine(sectors), ahead)


def _everywhere(parts: Sequence[tuple[Mapping[str, int], int]]) -> dict[str, int]:
    """The combined totals, without those that are not known of every part."""
    total = combine(parts)
    return {name: value for name, value in total.items() if all(name in known for known, _ in parts)}


def _opcodes(table: Table) -> dict[str, int]:
    """Warp instructions by PTX opcode, the state space with loads and stores."""
    found: dict[str, int] = {}
    position = table.names.index("inst_executed")
    for info, count in zip(table.instructions, table.values[:, position], strict=True):
        if count:
            name = f"{info.opcode}.{info.space}" if info.space and info.opcode in ("ld", "st") else info.opcode
            found[name] = found.get(name, 0) + int(count)
    return found


def _disassembled(
    launch: Launch, cubin_of: Callable[[Source], bytes] | None, keep: Path | None
) -> list[SassInstruction] | str:
    """The machine code of a launch, or why there is none."""
    if cubin_of is None:
        return "there is no machine code to compare with"
    try:
        return disassemble(cubin_of(launch.source), launch.entry, keep)
    except DgwError as error:
        return f"the machine code could not be read: {error.message}"


def _audit(run: LaunchRun, listing: list[SassInstruction] | str) -> Audit:
    if isinstance(listing, str):
        return unaudited(listing)
    return audit(run.coverage.parts[0][0].instructions, listing)


def _spilled(run: LaunchRun, counted: _Counted, code: list[SassInstruction] | str) -> int | None:
    """Sectors that spilled registers move; None without machine code, and where the PTX has local memory as well."""
    instructions = run.coverage.parts[0][0].instructions
    if isinstance(code, str) or any(info.space == "local" for info in instructions):
        return None
    warps = run.coverage.grid * -(-prod(run.launch.block) // WARP)
    return spilled_sectors(code, counted.totals["tensor_inst"], counted.totals["fma_inst"], warps)


def _work(run: LaunchRun, counted: _Counted, audited: Audit, device: Device, alike: bool) -> bounding.Work:
    totals = counted.totals
    memory = sum(
        totals[name]
        for name in (
            "smem_requests_ld", "smem_requests_st", "ldsm_inst", "ldgsts_inst", "global_inst_ld", "global_inst_st",
        )
    )  # fmt: skip
    past_l1 = totals["smem_wavefronts_sass_ldgsts"]  # not seen by the wavefront counter of the hardware
    return bounding.Work(
        ctas=run.coverage.grid,
        mma_flops=counted.flops,
        mma=totals["tensor_inst"],
        fma=totals["fma_inst"],
        wavefronts=totals["smem_wavefronts_actual"] - past_l1,
        memory_instructions=memory,
        global_requests=totals["global_requests_ld"] + totals["global_requests_st"],
        cached=counted.sectors.get("cached", 0),
        uncached=counted.sectors.get("uncached", 0),
        stored=counted.sectors.get("stored", 0),
        resident=_resident(run.launch, device),
        exact_memory=audited.tier("shared", "copy", "global") == EXACT,
        smallest=1 / run.coverage.grid if alike else 0.0,
    )


def _resident(launch: Launch, device: Device) -> int:
    """CTAs that threads and dynamic shared memory let an SM hold; registers may allow fewer."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    shared = device.shared_per_sm // (launch.shared_bytes + device.shared_reserved_per_block)
    return max(1, min(device.max_blocks_per_sm, device.max_threads_per_sm // threads, shared))


def _verdict(execution: PlanRun, runs: Sequence[LaunchRun], findings: Sequence[Finding]) -> Check:
    """Compares what was computed, then what was stored where nothing should be, then what the machine found."""
    problem = execution.case.problem
    tiles = execution.tiles(runs)
    if tiles is None:
        where = "all elements"
        blocks: list[Block] = [
            (item, slice(top, min(top + ROWS_COMPARED, problem.m)), slice(0, problem.n))
            for item in range(problem.batch)
            for top in range(0, problem.m, ROWS_COMPARED)
        ]
    else:
        assert execution.plan.tile is not None
        tiling = Tiling(problem, execution.plan.tile)
        blocks = [(tile[0], *tiling.block(tile)) for tile in tiles]
        where = f"{len(tiles)} of {tiling.total} tiles of {execution.plan.tile[0]}x{execution.plan.tile[1]}"
    checks = [_compare(execution, block, where) for block in blocks]
    worst = bounds.worst_of(checks)
    stored = sum(int(execution.writes.items()[block].sum()) for block in blocks)
    outside = execution.writes.count() - stored
    missing = sum(check.compared for check in checks) - stored
    detail = worst.detail
    if missing:
        detail = "; ".join(filter(None, (f"{missing} elements of D were never stored", detail)))
    if outside:
        detail = "; ".join(filter(None, (f"{outside} elements of D were stored that no CTA should write", detail)))
    if findings:
        detail = "; ".join(filter(None, (_say(findings), detail)))
    compared = sum(check.compared for check in checks)
    return msgspec.structs.replace(worst, passed=not detail, compared=compared, detail=detail)


def _compare(execution: PlanRun, block: Block, where: str) -> Check:
    problem = execution.case.problem
    item, rows, cols = block
    expected = references.reference(problem, execution.buffers.inputs(block), rows, cols)
    origin = (rows.start, cols.start) if problem.batch == 1 else (item, rows.start, cols.start)
    splits = execution.case.config.get("SPLIT_K", 1)
    got = execution.buffers.output(block)
    return bounds.compare(
        problem, got, expected, where, origin, COLLECTOR, splits if isinstance(splits, int) else 1
    )  # fmt: skip


def _say(findings: Sequence[Finding]) -> str:
    first = findings[0]
    line = first.site if first.site.file else first.source
    place = str(line) if line.file else f"PTX line {first.line}"
    more = f" and {len(findings) - 1} more findings" if len(findings) > 1 else ""
    return f"{first.kind} at {place}: {first.message}{more}"


def _measurements(
    launches: Sequence[_Counted],
    audits: Sequence[Audit],
    by_line: Mapping[SourceLine, Mapping[str, int]],
    spilled: Sequence[int | None],
    bound: bounding.Bound,
    ctas: int,
    protocol: str,
) -> Iterator[Measurement]:
    """For the case, for each kernel of several, for lines and opcodes; metrics that the table does not know are left
    out."""

    def tier(metric: str) -> str:
        families = FAMILIES.get(metric) or FAMILIES.get(metric.partition("_")[0])
        exact = families and all(one.tier(*families.split()) == EXACT for one in audits)
        return EXACT if exact else PTX_LEVEL

    def measure(metric: str, value: float | int | str, scope: str = "case") -> Measurement:
        return Measurement(
            metric=metric, value=value, unit=METRICS[metric].unit, scope=scope, collector=COLLECTOR, protocol=protocol,
            tier=tier(metric),
        )  # fmt: skip

    whole = with_ratios(_everywhere([(launch.totals, 1) for launch in launches]))
    scopes = [("case", whole)]
    if len(launches) > 1:
        scopes += [(f"kernel {index}", with_ratios(launch.totals)) for index, launch in enumerate(launches)]
    for scope, values in scopes:
        yield from (measure(name, value, scope) for name, value in values.items() if name in METRICS)
    for opcode, count in combine((launch.opcodes, 1) for launch in launches).items():
        yield measure("inst_per_opcode", count, f"opcode {opcode}")
    loop = max(launches, key=lambda one: one.totals["tensor_inst"] + one.totals["fma_inst"]).lead
    if loop is not None:
        yield measure("k_tiles", loop.tiles)
        if loop.ahead is not None:
            yield measure("copy_lead", loop.ahead)
    for line, counts in by_line.items():
        if line.file:
            yield from (measure(name, value, f"line {line}") for name, value in counts.items() if name in METRICS)
    known = [sectors for sectors in spilled if sectors is not None]
    if len(known) == len(spilled):
        yield measure("spill_sectors", sum(known))
    yield measure("emulated_ctas", ctas)
    yield measure("bound_time", bound.seconds)
    yield measure("bound_pipe", bound.pipe)
