"""One invocation that runs cases: which machine, into which store, how it ends, and with which exit code."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dgw import __version__
from dgw.commands.console import note, warn
from dgw.commands.options import Ask, Cluster, Engine
from dgw.errors import Exit, Missing, UsageError, worst
from dgw.model import Artifact, Case, Device, Environment, Problem, Record, Run, Variant

if TYPE_CHECKING:
    from dgw.workbench.passes import Pass
    from dgw.workbench.store import Store

DEFAULT_DEVICE = "h200"
GPU_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
EXIT_OF = {
    "ok": Exit.OK, "refused": Exit.OK, "wrong": Exit.WRONG, "compile-failed": Exit.FAULT, "launch-failed": Exit.FAULT,
    "timed-out": Exit.FAULT, "crashed": Exit.FAULT, "out-of-memory": Exit.FAULT,
}  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """Where cases run: `engine` is gpu, emulator or static; `reason` says why time is not measured there."""

    engine: str
    device: Device
    reason: str = ""
    environment: Environment | None = None


def stamp() -> tuple[str, str]:
    """The id of a run that begins now, and when that is (ISO 8601, UTC)."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}", now.isoformat(timespec="milliseconds")


@dataclass
class Session:
    """A run under way: what was asked, the records so far by case key, and the kept reports of ncu by content.

    Figures are taken while the SM clock is locked at `lock_mhz`; 0: it is left alone. `lock_tried`: that was tried.
    """

    ask: Ask
    arguments: tuple[str, ...]
    variants: Mapping[str, Variant]
    machine: Machine
    counters: str = "none"
    lanes: frozenset[str] = frozenset({"check"})
    baselines: tuple[str, ...] = ()
    passes: tuple[Pass, ...] = ()
    verify_time: bool = False
    lock_mhz: int = 0
    lock_tried: bool = False
    finished: dict[str, Record] = field(default_factory=dict)
    reports: dict[str, Path] = field(default_factory=dict)
    interrupted: bool = False
    id: str = field(default_factory=lambda: stamp()[0])
    created: str = field(default_factory=lambda: stamp()[1])

    @property
    def records(self) -> list[Record]:
        """The records so far, in the order in which their cases were first finished."""
        return list(self.finished.values())

    @property
    def locked_hz(self) -> float:
        """The clock that is locked, in Hz, 0 where none is."""
        return self.lock_mhz * 1e6

    @property
    def run(self) -> Run:
        """The run as it stands."""
        return Run(
            id=self.id, created=self.created, command=("dgw", *self.arguments), version=__version__, commit=commit(),
            records=tuple(self.records),
        )  # fmt: skip


def cache_folder() -> Path:
    """Where compiled kernels are kept: DGW_CACHE, else `.dgw/cache`."""
    return Path(os.environ.get("DGW_CACHE") or Path(".dgw") / "cache")


def commit() -> str:
    """The git commit of this copy of dgw: DGW_COMMIT where it is set, empty where git does not know."""
    if os.environ.get("DGW_COMMIT"):
        return os.environ["DGW_COMMIT"]
    try:
        asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def gpu_is_here() -> bool:
    """Whether the driver has put a GPU where this process can see it; nothing is opened."""
    return any(Path(node).exists() for node in GPU_NODES)


def child_argv(ask: Ask) -> list[str]:
    """The command of a child process, to which the runner appends its job."""
    from dgw.commands.request import extra_paths

    extra = [part for path in extra_paths(ask.kernels, ask.kernel) for part in ("--extra", str(path))]
    return [sys.executable, "-m", "dgw", "child", *extra]


def machine(ask: Ask) -> Machine:
    """The engine and device asked for. Raises Missing when a GPU is demanded and none can be used."""
    from dgw.toolchain.devices import device

    if isinstance(ask.engine, Cluster):
        raise UsageError(f"only sweeps run on a cluster ({ask.engine})", f"dgw sweep --engine {ask.engine} ...")
    named = device(ask.device or DEFAULT_DEVICE)
    wants_gpu = ask.engine in (Engine.AUTO, Engine.GPU)
    if not gpu_is_here():
        if ask.engine is Engine.GPU:
            raise Missing("there is no GPU here", "--engine emulator, or dgw doctor to see what is missing")
        return Machine("emulator" if wants_gpu else str(ask.engine), named, "there is no GPU")
    if not wants_gpu:
        return Machine(str(ask.engine), named, f"the engine is {ask.engine}")
    return _gpu(ask, named)


def _gpu(ask: Ask, named: Device) -> Machine:
    from dgw.workbench import probing
    from dgw.workbench.slots import Slot, visible

    first = (visible() or [Slot()])[0]
    try:
        environment, found = probing.known(child_argv(ask), first, cache_folder())
    except Missing as error:
        if ask.engine is Engine.GPU:
            raise
        warn(error.message, "dgw doctor; the emulator is used instead")
        return Machine("emulator", named, error.message)
    if ask.device and ask.device != found.name:
        raise UsageError(f"the GPU here is {found.name}, not {ask.device}", f"--engine emulator --device {ask.device}")
    return Machine("gpu", found, environment=environment)


def execute(
    session: Session,
    cases: Sequence[Case],
    progress: Callable[..., None],
    known: Mapping[str, Record] | None = None,
    afresh: bool = False,
) -> None:
    """Run the cases; every record is in the session, and in the store unless --no-store, before the next starts.

    What is `known` by case key is neither checked nor timed again on a GPU, only counted. With `afresh` nothing is
    taken over from earlier runs. Ctrl-C ends it early with `interrupted` set; what is finished stays. Raises Missing
    where the clock may not be locked.
    """
    from dgw.commands.locking import try_lock

    try_lock(session)
    store = begin(session)

    def keep(record: Record) -> None:
        # a case comes twice when counters are added to it: the key stays the same
        session.finished[record.case.key] = record
        if store is not None:
            store.put(session.id, record)

    if session.ask.resume and not afresh and store is not None:
        from dgw.commands.resume import finished_before

        for record in finished_before(session, cases, store):
            keep(record)
    left = [case for case in cases if case.key not in session.finished]
    try:
        if session.machine.engine == "gpu":
            _on_gpu(session, cases, left, keep, progress, store, known or {})
        else:
            _on_cpu(session, left, keep, progress)
    except KeyboardInterrupt:
        session.interrupted = True


def begin(session: Session) -> Store | None:
    """The store with the head of this run in it; None with --no-store."""
    if session.ask.no_store:
        return None
    from dgw.workbench.store import open_store

    store = open_store()
    store.begin(session.run)
    return store


def _on_cpu(
    session: Session, cases: Sequence[Case], keep: Callable[[Record], None], progress: Callable[..., None]
) -> None:
    from dgw.commands.without_gpu import CpuEngine

    kind: Literal["emulator", "static"] = "emulator" if session.machine.engine == "emulator" else "static"
    engine = CpuEngine(
        session.variants, session.machine.device, cache_folder(), kind, session.machine.reason,
        full_grid=session.ask.full_grid, strict="time" not in session.lanes,
    )  # fmt: skip
    engine.run(cases, keep, progress)


def _on_gpu(
    session: Session,
    cases: Sequence[Case],
    left: Sequence[Case],
    keep: Callable[[Record], None],
    progress: Callable[..., None],
    store: Store | None,
    known: Mapping[str, Record],
) -> None:
    from dgw.workbench import clocks, runner, slots
    from dgw.workbench.protocol import Policy

    def keep_artifact(path: Path, kind: str, name: str) -> Artifact:
        assert store is not None
        artifact = store.artifacts.add(path, kind, name)
        if kind in ("ncu-rep", "trace.json"):
            session.reports[artifact.sha256] = store.artifacts.path(artifact)
        return artifact

    setup = runner.Session(
        variants=session.variants,
        device=session.machine.device,
        child_argv=child_argv(session.ask),
        cache_dir=cache_folder(),
        environment=session.machine.environment,
        counters=session.counters,
        policy=Policy(locked_hz=session.locked_hz),
        activity=session.verify_time,
        deadline_s=session.ask.deadline,
        keep_artifact=None if store is None else keep_artifact,
        passes=session.passes,
        gpu=lambda: clocks.hold(slots.visible()[:1], session.lock_mhz, note),
    )
    against: dict[Problem, list[Case]] = {}
    for case in cases:
        if case.variant in session.baselines:
            against.setdefault(case.problem, []).append(case)
    jobs = [
        runner.Job(
            case=case, lanes=session.lanes,
            against=tuple(other for other in against.get(case.problem, ()) if other != case),
            known=known.get(case.key),
        )
        for case in left
    ]  # fmt: skip
    runner.run(jobs, setup, keep, progress)


def exit_code(session: Session) -> Exit:
    """The worst of what happened; `refused` is a row and no failure."""
    codes = [EXIT_OF[record.outcome] for record in session.records]
    return worst([*codes, *([Exit.INTERRUPTED] if session.interrupted else [])])
