"""The one table builder: records become blocks of raw values, which every renderer shows alike.

A block is one problem: metrics are its lines, variants its columns. Values stay in base units; a value that is not
known carries the reason instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dgw.model import Measurement, Problem, Record
from dgw.reports.units import UNKNOWN, Style, shared_unit, show, show_in
from dgw.workbench.locked_clock import said


@dataclass(frozen=True)
class Cell:
    """One value in base units, its 95 % interval where there is one, or the reason why it is not known."""

    value: float | int | str | None = None
    low: float | None = None
    high: float | None = None
    absent: str = ""
    source: str = ""


@dataclass(frozen=True)
class Line:
    """One metric of a block: a cell for every column."""

    key: str
    label: str
    group: str
    style: Style
    cells: tuple[Cell, ...]

    @property
    def has_interval(self) -> bool:
        """Whether the line is one that is judged by its interval, and any cell has one."""
        return self.key in JUDGED and any(cell.low is not None and cell.high is not None for cell in self.cells)

    @cached_property
    def unit(self) -> tuple[float, str]:
        """The factor and unit in which the whole line is shown."""
        return shared_unit((cell.value for cell in self.cells), self.style)

    @property
    def heading(self) -> str:
        """The label with the unit of the line."""
        unit = self.unit[1]
        return f"{self.label}, {unit}" if unit else self.label

    def text(self, column: int) -> str:
        """The cell as people read it, in the unit of the line."""
        return show_in(self.cells[column].value, self.style, self.unit[0])

    def interval(self, column: int) -> str:
        """The cell's interval as people read it, in the unit of the line."""
        cell = self.cells[column]
        if cell.low is None or cell.high is None:
            return UNKNOWN
        low, high = (show_in(end, self.style, self.unit[0]).removesuffix(" x") for end in (cell.low, cell.high))
        return f"{low} .. {high}"


@dataclass(frozen=True)
class Column:
    """One record of a block and the title that tells it from its neighbours."""

    title: str
    record: Record


@dataclass(frozen=True)
class Block:
    """Everything known about one problem on one machine."""

    problem: Problem
    machine: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    hidden: tuple[Line, ...] = ()  # without a GPU: what no column knows, for one reason, which stands in the notes

    @property
    def title(self) -> str:
        """The problem and the machine in one line."""
        return f"{problem_text(self.problem)} on {self.machine}"

    def line(self, key: str) -> Line | None:
        """The line of a metric, or None when the block does not show it."""
        return next((line for line in self.lines if line.key == key), None)


Find = Callable[[Record], Cell]


@dataclass(frozen=True)
class _Spec:
    key: str
    label: str
    group: str
    style: Style
    always: bool = True
    find: Find | None = None
    asked: bool = False  # also shown where a measurement says why it has no value
    emulated: bool = False  # counted by the emulator, and shown only where it stood in for the GPU
    nonzero: bool = False  # shown only where there is any


def _source(found: Measurement) -> str:
    return f"{found.collector} ({found.protocol})" if found.protocol else found.collector


def _measured(record: Record, key: str) -> Cell:
    found = record.get(key)
    if found is None:
        return Cell(absent="not measured in this run" if record.outcome == "ok" else "")
    if found.value is None:
        return Cell(absent=found.absent or "no reason was recorded")
    return Cell(found.value, found.low, found.high, source=_source(found))


def _error(record: Record) -> Cell:
    check = record.check
    if check is None:
        return Cell(absent="" if record.outcome != "ok" else "not checked in this run")
    source = f"{check.collector} ({check.where})"
    if check.error is None or check.bound is None:
        return Cell("not finite", source=source)
    if check.bound == 0:
        return Cell("exact" if check.error == 0 else show(check.error, "count"), source=source)
    return Cell(check.error / check.bound, source=source)


STALL_PREFIX = "stall_"


def _stalls(record: Record) -> list[Measurement]:
    """Shares of warp time by stall reason; issuing (`selected`) is time but not a stall."""
    return [
        m
        for m in record.measurements
        if m.metric.startswith(STALL_PREFIX)
        and m.scope == "case"
        and m.metric != "stall_selected"
        and m.unit == "ratio"
    ]


def stall_shares(record: Record) -> list[tuple[str, float, str]]:
    """(reason, share of warp time, source), largest share first."""
    shares = [
        (m.metric.removeprefix(STALL_PREFIX).replace("_", " "), float(m.value), _source(m))
        for m in _stalls(record)
        if isinstance(m.value, int | float)
    ]
    return sorted(shares, key=lambda found: (-found[1], found[0]))


def _stall(rank: int, part: int) -> Find:
    """Cells of the stall of a rank: its name (`part` 0) or its share (`part` 1)."""

    def find(record: Record) -> Cell:
        shares = stall_shares(record)
        if rank < len(shares):
            return Cell(shares[rank][part], source=shares[rank][2])
        absent = next((m.absent for m in _stalls(record) if m.absent), "")
        return Cell(absent=absent or _measured(record, "stalls").absent)

    return find


def _copy_conflicts(record: Record) -> Cell:
    """Wavefronts of cp.async beyond those of the best place in shared memory; what ncu counts where that is not known,
    which are those of copies through L1 only."""
    taken, least = (_measured(record, f"smem_wavefronts_{kind}_ldgsts") for kind in ("sass", "least"))
    if isinstance(taken.value, int | float) and isinstance(least.value, int | float):
        return Cell(max(0, taken.value - least.value), source=taken.source)
    return _measured(record, "smem_bank_conflicts_ldgsts")


def _bound(key: str) -> Find:
    """Cells of the lower bound of the time: a case that is refused takes none."""
    return lambda record: Cell() if record.outcome == "refused" else _measured(record, key)


def _outcome(record: Record) -> Cell:
    return Cell(record.outcome)


SPECS: tuple[_Spec, ...] = (
    _Spec("outcome", "outcome", "result", "text", find=_outcome),
    _Spec("error_of_bound", "worst error / bound", "result", "percent", find=_error),
    _Spec("time_cold", "time cold", "time", "seconds"),
    _Spec("time_hot", "time hot", "time", "seconds"),
    _Spec("tflops", "rate", "time", "rate"),
    _Spec("ratio_to_cublas", "speed-up on cuBLAS", "time", "times"),
    _Spec("share_of_mma_rate", "share of mma.sync rate", "time", "percent", always=False),
    _Spec("energy", "energy per GEMM", "time", "energy"),
    _Spec("sm_clock", "SM clock", "time", "frequency", always=False),
    _Spec("power", "power", "time", "power", always=False),
    _Spec("bound_time", "lower bound", "bound", "seconds", always=False, find=_bound("bound_time")),
    _Spec("bound_pipe", "what binds", "bound", "text", always=False, find=_bound("bound_pipe")),
    _Spec("flops", "work", "bound", "work", always=False),
    _Spec("compulsory_bytes", "compulsory bytes", "bound", "bytes", always=False),
    _Spec("achieved_occupancy", "occupancy achieved", "occupancy", "percent"),
    _Spec("theoretical_occupancy", "occupancy theoretical", "occupancy", "percent"),
    _Spec("occupancy_limiter", "limited by", "occupancy", "text", always=False),
    _Spec("registers_per_thread", "registers per thread", "occupancy", "count"),
    _Spec("shared_mem_per_block", "shared mem per CTA", "occupancy", "bytes", always=False),
    _Spec("spill_store_bytes", "spill stores", "occupancy", "bytes", always=False),
    _Spec("spill_load_bytes", "spill loads", "occupancy", "bytes", always=False),
    _Spec("conflict_ratio_ld", "load conflicts", "shared memory", "percent"),
    _Spec("conflict_ratio_hw_ld", "load conflicts (hw)", "shared memory", "percent"),
    _Spec("conflict_ratio_st", "store conflicts", "shared memory", "percent"),
    _Spec("conflict_ratio_hw_st", "store conflicts (hw)", "shared memory", "percent"),
    _Spec("smem_bank_conflicts_ldsm", "ldmatrix conflicts", "shared memory", "count", always=False, nonzero=True),
    _Spec(
        "copy_conflicts",
        "cp.async conflicts",
        "shared memory",
        "count",
        always=False,
        find=_copy_conflicts,
        nonzero=True,
    ),
    _Spec("smem_wavefronts_actual", "wavefronts", "shared memory", "count", always=False, emulated=True),
    _Spec("smem_wavefronts_ideal", "wavefronts, no conflicts", "shared memory", "count", always=False, emulated=True),
    _Spec("smem_requests_ld", "load instructions", "shared memory", "count", always=False, emulated=True),
    _Spec("ldsm_inst", "ldmatrix instructions", "shared memory", "count", always=False, emulated=True),
    _Spec("smem_requests_st", "store instructions", "shared memory", "count", always=False, emulated=True),
    _Spec("tensor_pipe_util", "tensor pipe active", "pipes", "percent"),
    _Spec("fma_pipe_util", "FMA pipe active", "pipes", "percent", always=False),
    _Spec("tensor_inst", "tensor instructions", "pipes", "count", always=False, emulated=True),
    _Spec("fma_inst", "FMA instructions", "pipes", "count", always=False, emulated=True),
    _Spec("barrier_inst", "barriers", "pipes", "count", always=False, emulated=True),
    _Spec("global_requests_ld", "global load requests", "memory", "count", always=False, emulated=True),
    _Spec("gld_sectors_per_request", "sectors a load request", "memory", "count", always=False, emulated=True),
    _Spec("global_requests_st", "global store requests", "memory", "count", always=False, emulated=True),
    _Spec("gst_sectors_per_request", "sectors a store request", "memory", "count", always=False, emulated=True),
    _Spec("ldgsts_inst", "cp.async instructions", "memory", "count", always=False, emulated=True),
    _Spec("dram_bytes", "DRAM traffic", "memory", "bytes"),
    _Spec("dram_bandwidth", "DRAM throughput", "memory", "bandwidth"),
    _Spec("l2_hit_rate", "L2 hit rate", "memory", "percent"),
    _Spec("stall_1", "stall reason 1", "stalls", "text", find=_stall(0, 0)),
    _Spec("stall_1_share", "  share of warp time", "stalls", "percent", always=False, find=_stall(0, 1)),
    _Spec("stall_2", "stall reason 2", "stalls", "text", find=_stall(1, 0)),
    _Spec("stall_2_share", "  share of warp time", "stalls", "percent", always=False, find=_stall(1, 1)),
    _Spec("stall_3", "stall reason 3", "stalls", "text", find=_stall(2, 0)),
    _Spec("stall_3_share", "  share of warp time", "stalls", "percent", always=False, find=_stall(2, 1)),
    _Spec("emulated_ctas", "CTAs emulated", "emulator", "count", always=False, emulated=True),
    *(
        _Spec(key, label, "timeline", style, always=False, asked=True)
        for key, label, style in (
            ("timeline_launches", "launches", "count"),
            ("timeline_kernels", "kernels", "count"),
            ("kernel_duration", "kernel time per GEMM", "seconds"),
            ("kernel_time", "kernel time", "seconds"),
            ("gap_time", "gaps between kernels", "seconds"),
            ("copies", "copies", "count"),
            ("copy_bytes", "bytes copied", "bytes"),
            ("copy_time", "copy time", "seconds"),
            ("api_time", "API time", "seconds"),
            ("range_time", "range on the host", "seconds"),
            ("range_overlap", "GPU busy in the range", "percent"),
            ("replayed_kernel_duration", "kernel time in replays", "seconds"),
            ("replay_agreement", "replays, kernels / events", "percent"),
        )
    ),
    *(
        _Spec(f"{tool}_errors", f"{tool} errors", "sanitizer", "count", always=False, asked=True)
        for tool in ("memcheck", "racecheck", "initcheck", "synccheck")
    ),
)
"""Every line of the card, in the order shown; lines with `always=False` appear only where a value exists."""

JUDGED = ("time_cold", "time_hot", "ratio_to_cublas")
"""The lines whose intervals are printed below them; the others follow from these or keep theirs in the record."""

SUMMARY = ("error_of_bound", "time_cold", "tflops", "ratio_to_cublas", "bound_time", "conflict_ratio_ld")
"""The lines that the one-row-per-case form of many problems shows."""


def _line(spec: _Spec, records: Sequence[Record]) -> Line:
    find = spec.find or (lambda record: _measured(record, spec.key))
    return Line(spec.key, spec.label, spec.group, spec.style, tuple(find(record) for record in records))


def dtype_text(problem: Problem) -> str:
    """Input and output types: `f16 -> f16`; both inputs where they differ."""
    inputs = problem.a.dtype if problem.a.dtype == problem.b.dtype else f"{problem.a.dtype} x {problem.b.dtype}"
    return f"{inputs} -> {problem.d.dtype}"


def problem_text(problem: Problem) -> str:
    """A problem in one line, with only what differs from the defaults after shape, types and layout."""
    if not problem.known:
        return "Kernels of an unknown problem"
    extra = []
    if problem.alpha != 1.0 or problem.beta != 0.0:
        extra.append(f"alpha {problem.alpha:g}, beta {problem.beta:g}")
    for name, operand in problem.operands().items():
        extra += [f"ld{name} {operand.ld}"] if operand.ld is not None else []
        extra += [f"{name} offset {operand.offset}"] if operand.offset else []
    extra += _epilogue(problem)
    extra.append(f"{problem.data} data, seed {problem.seed}")
    return ", ".join([problem.shape, dtype_text(problem), problem.layout, *extra])


def _epilogue(problem: Problem) -> list[str]:
    """What follows the product, in its order: `bias`, `gelu`, `residual`, `a scale for each row, zero point 3`."""
    found = ["bias"] if problem.bias is not None else []
    found += [problem.epilogue.activation] if problem.epilogue.activation != "none" else []
    found += ["residual"] if problem.residual is not None else []
    if problem.epilogue.quantise != "none":
        found.append("one scale" if problem.epilogue.quantise == "tensor" else "a scale for each row")
    return found + ([f"zero point {problem.d.zero_point}"] if problem.d.zero_point else [])


def config_text(config: Mapping[str, int | str]) -> str:
    """A config as it is typed: `BM=128,BN=256`."""
    return ",".join(f"{name}={value}" for name, value in config.items())


def _titles(records: Sequence[Record]) -> list[str]:
    """Each record's variant, without the folder of baselines, and the tunables in which its configs differ."""
    titles = []
    for record in records:
        name = record.case.variant.removeprefix("baselines/")
        same = [r.case.config for r in records if r.case.variant == record.case.variant]
        differs = {k: v for k, v in record.case.config.items() if any(config.get(k) != v for config in same)}
        titles.append(f"{name} {config_text(differs)}" if differs else name)
    return titles


def machine_text(record: Record) -> str:
    """The device and what stood in for it: `h200 (sm_90a), driver 580.1` or `h200 (sm_90a), emulated`."""
    env = record.environment
    how = {"gpu": f"driver {env.driver}" if env.driver else "", "emulator": "emulated", "none": "static facts only"}
    named = f"{env.device} ({env.arch})" if env.arch else env.device or "unknown device"
    return ", ".join(part for part in (named, how[env.engine]) if part)


def _where(record: Record, records: Sequence[Record]) -> str:
    """The machine of a record; one that never reached an engine stands with the others of its problem and device."""
    if record.environment.engine == "none" and record.outcome != "ok":
        for other in records:
            same = other.case.problem == record.case.problem and other.environment.device == record.environment.device
            if same and other.environment.engine != "none":
                return machine_text(other)
    return machine_text(record)


def build(records: Sequence[Record], order: Mapping[str, int] | None = None) -> tuple[Block, ...]:
    """Blocks of `records`, one for each problem and machine in order of appearance.

    `order` ranks variants (position in a ladder); variants without a rank keep their order after the ranked ones.
    """
    groups: dict[tuple[Problem, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.case.problem, _where(record, records)), []).append(record)
    blocks = []
    for (problem, machine), members in groups.items():
        if order is not None:
            members.sort(key=lambda record: order.get(record.case.variant, len(order)))
        shown, hidden = _shown(problem, members)
        columns = tuple(Column(title, record) for title, record in zip(_titles(members), members, strict=True))
        blocks.append(Block(problem, f"{machine}{said(members)}", columns, shown, hidden))
    return tuple(blocks)


def _shown(problem: Problem, members: Sequence[Record]) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    """The lines of a block, and those that are hidden because no column knows them, all for one reason."""
    ran = problem.known and any(record.outcome == "ok" for record in members)
    on_gpu = any(record.environment.engine == "gpu" for record in members)
    shown, hidden = [], []
    for spec in SPECS:
        line = _line(spec, members)
        known = any(cell.value is not None for cell in line.cells)
        required = spec.always and (ran or spec.key == "outcome")
        asked = spec.asked and any(record.get(spec.key) is not None for record in members)
        if (spec.emulated and on_gpu) or (
            (spec.emulated or spec.nonzero) and not any(cell.value for cell in line.cells)
        ):
            continue
        if known or asked or (required and (on_gpu or _reasons(line) != 1)):
            shown.append(line)
        elif required:
            hidden.append(line)
    return tuple(shown), tuple(hidden)


def _reasons(line: Line) -> int:
    """For how many different reasons cells of a line are unknown."""
    return len({cell.absent for cell in line.cells if cell.value is None and cell.absent})
