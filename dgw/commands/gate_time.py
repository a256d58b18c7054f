"""The time gate behind `dgw gate`: sides from what was typed, one GPU held, reports and pairs kept in the store."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dgw import __version__
from dgw.commands import options
from dgw.commands.gate_explain import sentences
from dgw.commands.gate_sides import PACKAGE, base_side, head_side, shown
from dgw.commands.options import Ask, Engine, split
from dgw.errors import Missing, UsageError
from dgw.model import Variant

if TYPE_CHECKING:
    from dgw.commands.session import Machine
    from dgw.workbench.gate.counting import Calibration
    from dgw.workbench.gate.measure import Comparison, Measured, Setup
    from dgw.workbench.gate.policy import GatePolicy
    from dgw.workbench.gate.sides import SideSetup
    from dgw.workbench.gate.verdict import GateReport, SelfTest
    from dgw.workbench.store import Store
    from dgw.workbench.store.gates import Kind

DEFAULT_SUITE = "seeds"
_NO_BASE = "--base main, --base-tree DIR, --base-kernel FILE or --base-python PATH; without a GPU: dgw gate --exact"


@dataclass(frozen=True, kw_only=True)
class TimePick:
    """What was typed for a time gate."""

    suite: str = ""
    shape: options.Shapes = None
    shapes: Path | None = None
    variant: options.Variants = None
    family: str = ""
    dtype: options.Dtypes = None
    layout: options.Layouts = None
    config: options.Config = None
    out: str = ""
    bias: bool = False
    activation: str = "none"
    residual: bool = False
    quantise: str = "none"
    kernels: Path | None = None
    kernel: Path | None = None
    base: str = ""
    base_tree: Path | None = None
    base_kernel: Path | None = None
    base_python: Path | None = None
    plan: str = "default"
    floor: float | None = None
    seed: int = 0
    time_identical: bool = False
    counters: bool = True
    explain: bool = True
    on_inconclusive: Literal["fail", "warn"] = "fail"
    on_missing: Literal["fail", "record"] = "fail"
    deadline: float = 30.0
    wait: float | None = None
    lock_clocks: int = 0
    allow_shared: bool = False
    no_store: bool = False

    def ask(self) -> Ask:
        """The same as what the other commands understand."""
        named = self.suite or ("" if self.shape or self.shapes else DEFAULT_SUITE)
        return Ask(
            variant=self.variant, kernels=self.kernels, kernel=self.kernel, config=self.config, shape=self.shape,
            shapes=self.shapes, suite=named, dtype=self.dtype, layout=self.layout, engine=Engine.GPU,
            deadline=self.deadline, no_store=self.no_store, out=self.out, bias=self.bias, activation=self.activation,
            residual=self.residual, quantise=self.quantise,
        )  # fmt: skip

    def demand_one_base(self) -> None:
        """Raises UsageError unless exactly one base is named."""
        given = [self.base, self.base_tree, self.base_kernel, self.base_python]
        if sum(map(bool, given)) != 1:
            said = "there is nothing to compare with" if not any(given) else "a gate has one base"
            raise UsageError(said, _NO_BASE)


@dataclass
class Place:
    """One GPU that is held, the store, and everything that gates of one invocation share."""

    pick: TimePick
    ask: Ask
    where: Machine
    store: Store | None
    variables: dict[str, str]

    @property
    def device(self) -> str:
        """Its GPU model."""
        return self.where.device.name

    @property
    def aa_subject(self) -> str:
        """What A/A runs have in common that are counted together: the GPU model, its clocks, the rules of measuring."""
        from dgw.model import digest
        from dgw.workbench.gate.policy import GatePolicy

        return digest([self.device, GatePolicy(locked_hz=self.pick.lock_clocks * 1e6).protocol])[:32]


@contextlib.contextmanager
def place(pick: TimePick) -> Iterator[Place]:
    """Hold a GPU. Raises Missing where there is none, or where somebody else has it for too long."""
    from dgw.commands.gate_lock import hold_gpu
    from dgw.commands.session import gpu_is_here

    ask = pick.ask()
    if not gpu_is_here():
        _machine(ask, {})  # says so, before anybody speaks of a GPU that could be locked
    with hold_gpu(pick.wait, pick.lock_clocks, pick.allow_shared) as variables:
        where = _machine(ask, variables)
        store = None
        if not pick.no_store:
            from dgw.workbench.store import open_store

            store = open_store()
        yield Place(pick, ask, where, store, variables)


def _machine(ask: Ask, variables: dict[str, str]) -> Machine:
    from dgw.commands.session import machine

    try:
        with _environment(variables):
            return machine(ask)
    except Missing as error:
        raise Missing(error.message, "dgw gate --exact, which needs no GPU, or dgw doctor") from error


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def compare(
    where: Place, base: SideSetup, head: SideSetup, policy: GatePolicy, aa: bool = False, explained: bool = True
) -> Setup:
    """Everything that one gate needs; with `explained` also the counters that no gate judges, but explanations need.

    Raises UsageError for what cannot be asked for.
    """
    from dgw.commands.session import cache_folder
    from dgw.workbench.gate.measure import Setup

    lane, no_lane, known = _counting(where, explained and where.pick.explain) if not aa else (None, "", None)
    return Setup(
        base=base, head=head, wanted=_comparisons(where), device=where.where.device, policy=policy,
        cache=cache_folder().absolute(), folder=Path(tempfile.mkdtemp(prefix="dgw-gate-")), lane=lane, no_lane=no_lane,
        time_identical=aa or where.pick.time_identical, calibration=known, deadline_s=where.pick.deadline,
        variables=where.variables, earlier=lambda subject: _earlier(where.store, subject),
    )  # fmt: skip


def _comparisons(where: Place) -> list[Comparison]:
    from dgw.commands import request
    from dgw.workbench.gate.measure import comparisons

    ask = where.ask
    variants = request.library(ask)
    names = split(ask.variant)
    wanted = request.wanted(ask, names, where.pick.family, variants, where.where, every=True)
    problems = request.problems(ask, "dgw gate")
    configs = request.configs(ask.config)
    for problem in problems[:1]:
        request.cases(problem, wanted, configs)  # raises for a tunable that nobody has
    bases = _base_variants(where.pick, wanted)
    pairs = [(variant.id, bases.get(variant.id, variant.id)) for variant in wanted]
    return comparisons(where.where.device, problems, pairs, configs)


def _base_variants(pick: TimePick, wanted: Sequence[Variant]) -> dict[str, str]:
    """Base's variant for each of head's, where base is one kernel file: whatever that declares."""
    if pick.base_kernel is None:
        return {}
    from dgw.commands.request import extra_paths
    from dgw.kernels.loader import load

    (path,) = extra_paths(pick.base_kernel)
    own = [v for v in load((path,)).values() if v.declaration.with_suffix("") == path.with_suffix("")]
    return {variant.id: own[0].id for variant in wanted} if own else {}


def _counting(where: Place, explained: bool) -> tuple[Any, str, Calibration | None]:
    """The lane that counts, or why there is none, and what is known of its counters on this GPU."""
    from dgw.workbench.counters import NcuLane
    from dgw.workbench.gate.counting import COUNTERS
    from dgw.workbench.tools import find_tool

    if not where.pick.counters:
        return None, "", None
    tool = find_tool("ncu")
    if tool is None:
        return None, "Nsight Compute (ncu) was not found", None
    lane = NcuLane(tool, ",".join(("std", *COUNTERS) if explained else COUNTERS), where.where.device.arch)
    return lane, "", _calibration(where, lane.version)


def calibration_subject(where: Place, ncu: str) -> str:
    """What a calibration is valid for."""
    from dgw.model import digest

    driver = where.where.environment.driver if where.where.environment else ""
    return digest([where.device, driver, ncu])[:32]


def _calibration(where: Place, ncu: str) -> Calibration | None:
    from dgw.workbench.gate.counting import Calibration
    from dgw.workbench.store.gates import kept

    if where.store is None:
        return None
    rows = kept(where.store, "calibration", calibration_subject(where, ncu))
    return msgspec.json.decode(rows[-1].body, type=Calibration) if rows else None


def _earlier(store: Store | None, subject: str) -> list[Any]:
    from dgw.workbench.gate.rounds import PairRounds
    from dgw.workbench.store.gates import kept

    if store is None:
        return []
    rows = kept(store, "gate", subject)
    return [pair for row in rows for pair in msgspec.json.decode(row.data, type=list[PairRounds])]


def run_one(
    where: Place, setup: Setup, arguments: tuple[str, ...], kind: Kind, progress: Callable[..., None]
) -> GateReport:  # fmt: skip
    """Measure, judge, keep, and give the report."""
    from dgw.commands.gate_lock import GRACE_S, shared_gpu
    from dgw.commands.session import stamp
    from dgw.workbench.gate.measure import measure
    from dgw.workbench.gate.reporting import Heading, report
    from dgw.workbench.gate.trees import repository

    began = time.monotonic()
    name, created = stamp()
    try:
        measured = measure(setup, progress)
    finally:
        shutil.rmtree(setup.folder, ignore_errors=True)
    pick = where.pick
    suite = where.ask.suite
    if why := shared_gpu(where.variables.get("CUDA_VISIBLE_DEVICES", ""), 0.0 if pick.allow_shared else GRACE_S):
        measured.notes.append(f"the GPU was shared when the gate ended: {why}")
    heading = Heading(name, created, ("dgw", *arguments), __version__, setup.base.about, setup.head.about, suite)
    explain = sentences if pick.explain else None
    roots = (repository(Path.cwd()) or Path.cwd(), Path.cwd(), PACKAGE)
    made = report(
        heading, measured, setup.policy, setup.calibration, explain, lambda source: shown(Path(source), roots)
    )  # fmt: skip
    made = msgspec.structs.replace(
        made, seconds=time.monotonic() - began, on_inconclusive=pick.on_inconclusive, on_missing=pick.on_missing
    )  # fmt: skip
    alike = bool(measured.found) and all(one.identical for one in measured.found.values()) and setup.time_identical
    _keep(where, made, measured, "self-test" if alike else kind)
    return msgspec.structs.replace(made, self_test=tally(where))


def _keep(where: Place, made: GateReport, measured: Measured, kind: Kind) -> None:
    from dgw.workbench.gate.verdict import encode, exit_code
    from dgw.workbench.store.gates import KeptGate, keep

    if where.store is None:
        return
    subject = where.aa_subject if kind == "self-test" else measured.subject
    keep(
        where.store,
        KeptGate(
            id=made.id, created=made.created, kind=kind, subject=subject, code=int(exit_code(made)),
            body=encode(made).decode(), data=msgspec.json.encode(measured.pairs),
        ),
    )  # fmt: skip


def tally(where: Place) -> SelfTest | None:
    """All A/A runs of this GPU model in the store; None without any."""
    from dgw.errors import Exit
    from dgw.workbench.gate.statistics import upper_bound
    from dgw.workbench.gate.verdict import SelfTest
    from dgw.workbench.store.gates import kept

    rows = kept(where.store, "self-test", where.aa_subject) if where.store is not None else []
    rows = [row for row in rows if row.code in (Exit.OK, Exit.WRONG, Exit.INCONCLUSIVE)]
    if not rows:
        return None
    failed = sum(row.code == Exit.WRONG for row in rows)
    return SelfTest(
        runs=len(rows), false_fails=failed, inconclusive=sum(row.code == Exit.INCONCLUSIVE for row in rows),
        upper_bound=upper_bound(failed, len(rows)),
    )  # fmt: skip


def policy_of(pick: TimePick) -> GatePolicy:
    """The plan with the floors of the suite and of the command line."""
    from dgw.commands.suites import suite
    from dgw.workbench.gate.policy import plan

    policy = msgspec.structs.replace(plan(pick.plan), seed=pick.seed)
    named = pick.ask().suite
    floors = suite(named).floors if named else {}
    floor = pick.floor if pick.floor is not None else floors.get("time", policy.floor)
    mean = floors.get("geometric_mean", policy.mean_floor)
    if not floor > 0 or not mean > 0:
        raise UsageError("the floors of time must be above 0: nothing is measured exactly", "--floor 0.01")
    return msgspec.structs.replace(policy, floor=floor, mean_floor=mean, locked_hz=pick.lock_clocks * 1e6)


def time_gate(pick: TimePick, arguments: tuple[str, ...], kind: Kind = "gate") -> GateReport:
    """One gate, from what was typed to its report."""
    from dgw.commands.console import progress

    pick.demand_one_base()
    policy = policy_of(pick)
    head = head_side(pick)
    with base_side(pick, head) as base, place(pick) as where, progress("gate") as bar:
        return run_one(where, compare(where, base, head, policy), arguments, kind, bar)


def self_test(pick: TimePick, count: int, arguments: tuple[str, ...]) -> tuple[list[GateReport], SelfTest | None]:
    """A/A gates: head against itself, timed although it is identical. Ends early when interrupted."""
    from dgw.commands.console import progress
    from dgw.workbench.gate.verdict import Side

    policy = policy_of(pick)
    head = head_side(pick)
    base = replace(head, name="base", about=Side(label=head.about.label, kind="tree", commit=head.about.commit))
    reports = []
    with place(pick) as where, progress("self-test") as bar:
        for number in range(count):
            seeded = msgspec.structs.replace(policy, seed=policy.seed + number)
            reports.append(run_one(where, compare(where, base, head, seeded, aa=True), arguments, "self-test", bar))
            if reports[-1].interrupted:
                break
        return reports, tally(where)
