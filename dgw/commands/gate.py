"""`dgw gate`: does a change make a kernel worse?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dgw.commands import gate_output, options
from dgw.commands.exact import Folder, Pick
from dgw.errors import UsageError

if TYPE_CHECKING:
    from dgw.commands.gate_time import TimePick

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Exact = Annotated[bool, typer.Option("--exact", help="Code, resources and the emulator's counts; needs no GPU.")]
OnMissing = Annotated[
    str, typer.Option("--on-missing", metavar="fail|record", help="What a case without anything approved does.")
]
OnInconclusive = Annotated[
    str, typer.Option("--on-inconclusive", metavar="fail|warn", help="Whether a case that noise hides fails (exit 3).")
]
Suite = Annotated[
    str, typer.Option("--suite", metavar="NAME", help="Of perf/suites. [default: seeds, with --exact ci]")
]
Deadline = Annotated[
    float | None,
    typer.Option(
        "--deadline",
        metavar="S",
        min=1.0,
        help="Seconds without a word after which a case is given up. [default: 30, with --exact 120]",
    ),
]
Base = Annotated[str, typer.Option("--base", metavar="REF", help="A commit, checked out beside the repository.")]
BaseTree = Annotated[Path | None, typer.Option("--base-tree", metavar="DIR", help="A checkout of the base.")]
BaseKernel = Annotated[
    Path | None, typer.Option("--base-kernel", metavar="FILE", help="One kernel file with its declaration.")
]
BasePython = Annotated[
    Path | None,
    typer.Option("--base-python", metavar="PATH", help="An interpreter, or a folder of packages, with the base."),
]
Plan = Annotated[
    str, typer.Option("--plan", metavar="NAME", help="default, wide or release: how many pairs and rounds.")
]
Floor = Annotated[
    float | None, typer.Option("--floor", metavar="SHARE", help="The least slowdown that counts. [default: 0.01]")
]
TimeIdentical = Annotated[
    bool, typer.Option("--time-identical", help="Time also what has the same code on both sides (A/A).")
]
NoCounters = Annotated[bool, typer.Option("--no-counters", help="Do not count with ncu.")]
Explain = Annotated[
    bool, typer.Option("--explain/--no-explain", help="Say by which counters a case became slower.")
]  # fmt: skip
SelfTest = Annotated[int, typer.Option("--self-test", metavar="N", min=0, help="N gates of head against itself.")]
Calibrate = Annotated[
    bool, typer.Option("--calibrate", help="Find out which counters repeat exactly on this GPU, and keep it.")
]
Wait = Annotated[
    float | None,
    typer.Option("--wait", metavar="S", min=0, help="Seconds to wait for a GPU that another dgw measures on."),
]
AllowShared = Annotated[
    bool, typer.Option("--allow-shared", help="Measure also on a MIG slice, or where other processes compute.")
]
GateSeed = Annotated[int, typer.Option("--gate-seed", min=0, help="Seed of the order in which turns are taken.")]


@dataclass(frozen=True)
class Typed:
    """The options of a gate."""

    exact: Exact = False
    base: Base = ""
    base_tree: BaseTree = None
    base_kernel: BaseKernel = None
    base_python: BasePython = None
    suite: Suite = ""
    shape: options.Shapes = None
    variant: options.Variants = None
    family: options.Family = ""
    dtype: options.Dtypes = None
    layout: options.Layouts = None
    config: options.Config = None
    out: options.Out = ""
    bias: options.Bias = False
    activation: options.Activation = "none"
    residual: options.Residual = False
    quantise: options.Quantise = "none"
    kernels: options.Kernels = None
    kernel: options.Kernel = None
    device: options.Device = ""
    baselines: Folder = None
    deadline: Deadline = None
    plan: Plan = "default"
    floor: Floor = None
    gate_seed: GateSeed = 0
    time_identical: TimeIdentical = False
    no_counters: NoCounters = False
    explain: Explain = True
    self_test: SelfTest = 0
    calibrate: Calibrate = False
    wait: Wait = None
    lock_clocks: options.LockClocks = 0
    allow_shared: AllowShared = False
    on_inconclusive: OnInconclusive = "fail"
    on_missing: OnMissing = "fail"
    no_store: options.NoStore = False
    json: gate_output.AsJson = False
    report: gate_output.ReportFile = None
    junit: gate_output.Junit = None
    markdown: gate_output.Markdown = None
    annotations: gate_output.Annotations = None

    @property
    def missing(self) -> Literal["fail", "record"]:
        """What a case does that head or the baselines lack. Raises UsageError."""
        if self.on_missing not in ("fail", "record"):
            raise UsageError(f"--on-missing cannot be {self.on_missing!r}", "--on-missing fail or record")
        return "record" if self.on_missing == "record" else "fail"

    @property
    def unsure(self) -> Literal["fail", "warn"]:
        """What an inconclusive case does. Raises UsageError."""
        if self.on_inconclusive not in ("fail", "warn"):
            raise UsageError(f"--on-inconclusive cannot be {self.on_inconclusive!r}", "--on-inconclusive fail or warn")
        return "warn" if self.on_inconclusive == "warn" else "fail"


@app.command()
@options.spread_of(Typed)
def gate(ctx: typer.Context, typed: Typed) -> None:
    """Fail when a kernel became worse.

    Base and head are measured in the same job on one GPU, in pairs of processes that take turns; what has the same
    machine code is identical and is not timed. A wrong result fails whatever its speed.

    With --exact what the compiler and the emulator say of every case is compared with what was approved in
    perf/baselines: no GPU, no noise. Identical code and launch is identical, and a conflict, a spill or an instruction
    more fails.
    """
    outputs = gate_output.Outputs(typed.json, typed.report, typed.junit, typed.markdown, typed.annotations)
    outputs.demand()
    arguments = tuple(ctx.obj or ())
    if typed.exact:
        from dgw.commands.gate_exact import exact_gate

        gate_output.publish(exact_gate(_exact(typed), arguments, typed.missing, typed.explain), outputs)
    from dgw.commands.gate_time import time_gate

    timed = _timed(typed)
    if typed.calibrate or typed.self_test:
        from dgw.commands.gate_tests import calibrate_counters, run_self_test

        if typed.calibrate:
            calibrate_counters(timed, typed.json)
        run_self_test(timed, typed.self_test, arguments, typed.json)
    gate_output.publish(time_gate(timed, arguments), outputs)


_BASES = ("base", "base_tree", "base_kernel", "base_python")
_ONLY_TIME = (
    *_BASES, "plan", "floor", "gate_seed", "time_identical", "no_counters", "self_test", "calibrate", "wait",
    "lock_clocks", "allow_shared",
)  # fmt: skip


def _demand_unused(typed: Typed, names: Iterable[str], why: str) -> None:
    """Raises UsageError for an option that was typed and would mean nothing."""
    for name in names:
        if getattr(typed, name) != getattr(Typed(), name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {why}", f"the same without {option}")


def _exact(typed: Typed) -> Pick:
    _demand_unused(typed, _ONLY_TIME, "belongs to the time gate: --exact compares with perf/baselines")
    if typed.bias or typed.residual or typed.out or (typed.activation, typed.quantise) != ("none", "none"):
        raise UsageError("the exact gate compares plain multiplications", "dgw gate --base REF with an epilogue")
    return Pick(
        typed.suite, typed.shape, typed.variant, typed.family, typed.dtype, typed.layout, typed.config, typed.kernels,
        typed.kernel, typed.device, typed.baselines, 120.0 if typed.deadline is None else typed.deadline,
    )  # fmt: skip


def _timed(typed: Typed) -> TimePick:
    from dgw.commands.gate_time import TimePick

    _demand_unused(
        typed, ("device", "baselines"), "belongs to dgw gate --exact: time is measured on the GPU that is here"
    )
    if typed.self_test or typed.calibrate:
        _demand_unused(typed, _BASES, "has no use here: head is compared with itself")
    if typed.calibrate:
        _demand_unused(
            typed, ("self_test", "plan", "floor"), "does not go with --calibrate, which counts and times nothing"
        )
    same = {one.name for one in fields(TimePick)} & {one.name for one in fields(Typed)}
    return TimePick(
        **{name: getattr(typed, name) for name in same - {"deadline", "on_inconclusive", "on_missing"}},
        seed=typed.gate_seed, counters=not typed.no_counters, on_inconclusive=typed.unsure, on_missing=typed.missing,
        deadline=30.0 if typed.deadline is None else typed.deadline,
    )  # fmt: skip
