"""The exact facts of a case: what is executed, how it is launched, what it needs, and what the emulator counts of it.

Two steps, because the second is slow and often not needed: `identify` compiles, and gives the hash of the code and the
launch; `count` disassembles, runs the kernel in the emulator, and checks its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from dgw.errors import DgwError
from dgw.model import (
    Case,
    Config,
    Device,
    Environment,
    Launch,
    Measurement,
    Noun,
    Outcome,
    Plan,
    Problem,
    Record,
    Source,
    Variant,
    digest,
)
from dgw.toolchain.build import Build
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.sass import SassInstruction, disassemble, histogram
from dgw.toolchain.toolkit import compiler_identity
from dgw.workbench.collectors.emulator import Emulation, emulate
from dgw.workbench.emulator.grid import PROTOCOL
from dgw.workbench.gate.deadline import TooSlow, deadline
from dgw.workbench.gate.figures import FIGURES, OPCODES, of_worst_launch
from dgw.workbench.prepare import Prepared, identity, prepare

DEADLINE_S = 120.0
FOREIGN = "it is foreign code, which has no machine code here"


class Facts(Noun, frozen=True, kw_only=True):
    """What is known of one case on one device; a baseline file holds one of each.

    `asked` are the tunables that were asked for (the others are the variant's choice, in `config`). `code` has a hash
    of what each launch executes, `launches` each launch in words, `launch` a hash of everything about them that the
    code does not hold. `figures` holds the exact figures by key, `absent` why one has no value; `protocol` is the
    emulator's version.
    """

    device: str
    problem: Problem
    variant: str
    version: int
    asked: Config = {}
    config: Config = {}
    code: tuple[str, ...] = ()
    launch: str = ""
    launches: tuple[str, ...] = ()
    figures: dict[str, int | float] = {}
    absent: dict[str, str] = {}
    protocol: str = ""

    @property
    def key(self) -> str:
        """16 hex digits that name the case whatever its code, its version and its chosen config are."""
        return key_of(self.device, self.problem, self.variant, self.asked)

    @property
    def label(self) -> str:
        """The case in a few words."""
        return label_of(self.variant, self.problem, self.asked)


@dataclass(frozen=True)
class Known:
    """A case and as much of it as is known. `facts` has no code where it was refused or failed, for `reason`.

    `toolchain` is the compiler's name as a folder, `compiler` its whole identity, `source` the file of the kernel;
    `lines` says where each figure of the emulator has its largest share (`FILE:N`).
    """

    case: Case
    variant: Variant
    outcome: Outcome
    reason: str
    toolchain: str
    compiler: str
    facts: Facts
    source: Path | None = None
    lines: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    prepared: Prepared | None = None


def key_of(device: str, problem: Problem, variant: str, asked: Config) -> str:
    """16 hex digits that name a case of a gate, whatever code, version and chosen config it has."""
    return digest([device, problem, variant, asked])[:16]


def label_of(variant: str, problem: Problem, asked: Config) -> str:
    """`cuda/swizzled 64x64x64 f16 nn`, with what differs from a plain multiplication and the tunables asked for."""
    operands = problem.operands()
    output = "" if problem.d.dtype == problem.a.dtype else f" -> {problem.d.dtype}"
    extra: list[str] = [name for name in ("c", "bias", "residual") if name in operands]
    extra += [word for word in (problem.epilogue.activation, problem.epilogue.quantise) if word != "none"]
    extra += [f"{name}={value}" for name, value in asked.items()]
    return " ".join([variant, problem.shape, f"{problem.a.dtype}{output}", problem.layout, *extra])


def identify(case: Case, asked: Config, variant: Variant, device: Device, cache: CompileCache | None) -> Known:
    """Compile a case, and say what it would execute. Never raises for what a declaration or a source does."""
    prepared = prepare(case, variant, device, cache)
    plan = prepared.plan
    facts = Facts(
        device=device.name, problem=case.problem, variant=case.variant, version=case.version, asked=asked,
        config=case.config,
    )  # fmt: skip
    toolchain, compiler = toolchain_of(plan)
    record = prepared.record
    if not prepared.runnable or plan is None:
        outcome, reason = (record.outcome, record.reason) if not prepared.runnable else ("refused", FOREIGN)
        source = _source(variant, plan)
        return Known(case, variant, outcome, reason, toolchain, compiler, facts, source, prepared=prepared)
    remarks = sum(len(build.coded_remarks) for build in prepared.builds.values())
    figures = {"kernels": float(len(plan.launches)), "ptxas_remarks": float(remarks)}
    static = [key for key, figure in FIGURES.items() if figure.lane == "static" and key not in figures]
    known = {key: of_worst_launch(record.measurements, key) for key in static}
    figures |= {key: value for key, value in known.items() if value is not None}
    reasons = {m.metric: m.absent for m in record.measurements if m.value is None and m.absent}
    absent = {key: reasons[key] for key in static if key not in figures and key in reasons}
    facts = msgspec.structs.replace(
        facts,
        code=tuple(prepared.builds[launch.source].code_hash for launch in plan.launches),
        launch=identity(plan),
        launches=tuple(launch_text(launch) for launch in plan.launches),
        figures=_whole(figures),
        absent=absent,
    )
    return Known(case, variant, "ok", "", toolchain, compiler, facts, _source(variant, plan), prepared=prepared)


def count(known: Known, device: Device, cache: CompileCache, seconds: float = DEADLINE_S) -> Known:
    """A case that `identify` found to be runnable, with the figures of its machine code and of the emulator.

    The outcome becomes `wrong` where the result is, `timed-out` after so many seconds, `crashed` where the emulator is
    at fault; a kernel that the emulator cannot execute keeps its other figures, and says why it has no more.
    """
    assert known.prepared is not None
    plan = known.prepared.plan
    assert plan is not None
    builds = known.prepared.builds
    facts = known.facts
    figures: dict[str, float] = dict(facts.figures)
    absent = dict(facts.absent)
    keep = cache.folder / "sass"
    outcome, reason = known.outcome, known.reason
    lines: dict[str, tuple[str, int]] = {}
    try:
        figures |= _code_figures(plan, builds, keep)
    except DgwError as error:
        absent |= _unknown("sass", f"the machine code could not be read: {error.message}")
    try:
        with deadline(seconds):
            found = emulate(known.case, plan, lambda s: builds[s].ptx, lambda s: builds[s].cubin, device, keep=keep)
    except TooSlow as error:
        outcome, reason = "timed-out", f"the emulator found {error}"
    except DgwError as error:
        absent |= _unknown("emulator", f"the emulator cannot run it: {error.message}")
    except Exception as error:  # a fault of the emulator costs this case, not the others
        outcome, reason = "crashed", f"the emulator failed: {type(error).__name__}: {error}"
    else:
        figures |= _counted(found, figures.get("blocks", 0.0))
        lines = _lines(found)
        if not found.check.passed:
            outcome, reason = "wrong", found.check.detail
    absent = {key: why for key, why in absent.items() if key not in figures}
    facts = msgspec.structs.replace(facts, figures=_whole(figures), absent=absent, protocol=PROTOCOL)
    return replace(known, outcome=outcome, reason=reason, facts=facts, lines=lines)


def toolchain_of(plan: Plan | None) -> tuple[str, str]:
    """Name and identity of the compiler that a plan is compiled with: `nvrtc-13.5.37` and what is behind it."""
    if plan is not None and any(launch.source.language == "triton" for launch in plan.launches):
        from dgw.toolchain.triton_compiler import identity

        compiler = identity()
    else:
        compiler = compiler_identity()
    parts = [part.split(" ", 1) for part in compiler.split(", ")]
    versions = {part[-1] for part in parts}
    shown = parts[:1] if len(versions) == 1 else parts
    return "-".join(word for part in shown for word in part).replace("/", "_").replace(" ", "_"), compiler


def launch_text(launch: Launch) -> str:
    """A launch in words."""
    grid, block, cluster = ("x".join(map(str, sizes)) for sizes in (launch.grid, launch.block, launch.cluster))
    clustered = "" if launch.cluster == (1, 1, 1) else f" clusters {cluster}"
    return f"{launch.entry} grid {grid} block {block}{clustered} dynamic shared {launch.shared_bytes} B"


def _source(variant: Variant, plan: Plan | None) -> Path | None:
    """The file of the kernel with the most threads of a plan, or the declaration."""
    launches = plan.launches if plan is not None else ()
    if not launches:
        return variant.declaration if variant.declaration != Path() else None
    main = max(launches, key=lambda launch: launch.grid[0] * launch.grid[1] * launch.grid[2] * launch.block[0])
    return variant.root / main.source.path


def _code_figures(plan: Plan, builds: Mapping[Source, Build], keep: Path) -> dict[str, float]:
    counts: dict[str, int] = {}
    total = 0
    for launch in plan.launches:
        listing: list[SassInstruction] = disassemble(builds[launch.source].cubin, launch.entry, keep)
        for opcode, times in histogram(listing).items():
            counts[opcode] = counts.get(opcode, 0) + times
            total += times
    found = {key: float(sum(counts.get(one, 0) for one in opcodes)) for key, opcodes in OPCODES.items()}
    return {**found, "sass_inst": float(total)}


def _counted(found: Emulation, blocks: float) -> dict[str, float]:
    wanted = {key for key, figure in FIGURES.items() if figure.lane == "emulator"}
    counts = {
        m.metric: float(m.value)
        for m in found.measurements
        if m.scope == "case" and m.metric in wanted and isinstance(m.value, int | float)
    }
    if blocks and "inst_executed" in counts:
        counts["inst_per_cta"] = counts["inst_executed"] / blocks
    return counts


def _lines(found: Emulation) -> dict[str, tuple[str, int]]:
    """Of every figure the source line with the largest share."""
    best: dict[str, tuple[int, str, int]] = {}
    for line, counts in found.by_line.items():
        for metric, value in counts.items():
            if line.file and value > best.get(metric, (0, "", 0))[0]:
                best[metric] = (value, line.file, line.line)
    return {metric: (file, line) for metric, (_, file, line) in best.items()}


def _whole(figures: Mapping[str, float]) -> dict[str, int | float]:
    """Whole numbers as such, so that files and reports show `5` and not `5.0`."""
    return {key: int(value) if float(value).is_integer() else value for key, value in figures.items()}


def _unknown(lane: str, why: str) -> dict[str, str]:
    return {key: why for key, figure in FIGURES.items() if figure.lane == lane}


def record_of(facts: Facts) -> Record:
    """The facts as a record, for whoever explains records: figures in scope `case`, no result, no time."""
    lanes = {"static": "static", "sass": "static", "emulator": "emulator"}

    def measured(key: str) -> Measurement:
        figure = FIGURES[key]
        protocol = facts.protocol if figure.lane == "emulator" else ""
        value, absent = facts.figures.get(key), facts.absent.get(key, "")
        return Measurement(
            metric=key, value=value, unit=figure.unit, collector=lanes[figure.lane], protocol=protocol, absent=absent
        )

    case = Case(problem=facts.problem, variant=facts.variant, version=facts.version, config=facts.config)
    known = [key for key in FIGURES if key in facts.figures or key in facts.absent]
    environment = Environment(device=facts.device, engine="emulator")
    return Record(case=case, outcome="ok", environment=environment, measurements=tuple(map(measured, known)))
