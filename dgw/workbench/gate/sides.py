"""The two things that a gate compares: how to start their processes, and what they would launch.

Each side is asked in a process of its own what it would do with every case: the declarations of two trees cannot
live in one interpreter. That process needs no GPU; it compiles with the harness's compiler, and answers in one file.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dgw.errors import ChildFault, DgwError, UsageError
from dgw.model import Case, Config, Device, Measurement, Noun, Outcome, Plan, Problem, Record, Variant
from dgw.toolchain.cache import CompileCache
from dgw.workbench.gate.verdict import Side
from dgw.workbench.prepare import Prepared, prepare, warm_cache
from dgw.workbench.protocol import Member

ANSWER_S = 600.0


class Wanted(Noun, frozen=True, kw_only=True):
    """One comparison: the problem, the variant of this side, and the tunables asked for (others are its choice)."""

    key: str
    problem: Problem
    variant: str
    asked: Config = {}


class SideJob(Noun, frozen=True, kw_only=True):
    """What a side is asked. `folder` is where its cubins go, `cache` that of the compiler."""

    device: Device
    wanted: tuple[Wanted, ...]
    folder: str
    cache: str


class Entry(Noun, frozen=True, kw_only=True):
    """What one side would do with one comparison. `known` is False where it has no such variant.

    `identity` hashes the machine code and everything about the launches; it is empty for foreign code, which has none.
    """

    key: str
    outcome: Outcome = "ok"
    reason: str = ""
    known: bool = True
    record: Record | None = None
    plan: Plan | None = None
    cubins: tuple[str, ...] = ()
    identity: str = ""
    source: str = ""

    @property
    def member(self) -> Member:
        """What a child is given. Only for an entry that can run."""
        assert self.record is not None
        return Member(case=self.record.case, plan=self.plan, cubins=self.cubins)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """What is known of it without running it."""
        return self.record.measurements if self.record is not None else ()


@dataclass(frozen=True)
class SideSetup:
    """How a side is started. `program` is `python -m dgw`, `selects` the arguments that choose its kernels.

    `name` is base or head; `about` goes into the report.
    """

    name: str
    about: Side
    program: Sequence[str]
    selects: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def child_argv(self) -> list[str]:
        """The command of a child, to which its job is appended."""
        return [*self.program, "child", *self.selects]

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of its processes."""
        return {**os.environ, **self.environment, **(more or {})}


def ask(side: SideSetup, job: SideJob, folder: Path) -> dict[str, Entry]:
    """What `side` would do, by key. Raises ChildFault when its kernels do not load."""
    folder.mkdir(parents=True, exist_ok=True)
    question, answer = folder / "wanted.json", folder / "answer.json"
    question.write_bytes(msgspec.json.encode(job))
    command = [*side.program, "side", *side.selects, str(question), str(answer)]
    try:
        done = subprocess.run(
            command, env=side.variables(), capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except OSError as error:
        raise ChildFault(f"{side.name} cannot be started: {command[0]}: {error.strerror}", "dgw doctor") from error
    except subprocess.TimeoutExpired:
        raise ChildFault(
            f"{side.name} did not say within {ANSWER_S:.0f} s what it would run", "dgw gate again"
        ) from None
    if done.returncode != 0 or not answer.is_file():
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "")
        reason = said or (lines[-1].strip() if lines else f"status {done.returncode}")
        raise ChildFault(f"{side.name} ({side.about.label}) does not build: {reason}", "dgw check in that tree")
    entries = msgspec.json.decode(answer.read_bytes(), type=tuple[Entry, ...])
    return {entry.key: entry for entry in entries}


def serve(variants: Mapping[str, Variant], question: Path, answer: Path) -> None:
    """The side's process: answer the question in the file. Raises UsageError when it is not one."""
    try:
        job = msgspec.json.decode(question.read_bytes(), type=SideJob)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"cannot read what is wanted: {error}", "dgw gate starts this, nobody types it") from error
    cache = CompileCache(Path(job.cache))
    pairs = [(one, variants[one.variant]) for one in job.wanted if one.variant in variants]
    made = [(one, variant, _case(one, variant, job.device)) for one, variant in pairs]
    warm_cache(((case, variant) for _, variant, case in made if isinstance(case, Case)), job.device, cache)
    entries = [Entry(key=one.key, known=False) for one in job.wanted if one.variant not in variants]
    for one, variant, case in made:
        if isinstance(case, str):
            entries.append(Entry(key=one.key, outcome="refused", reason=case))
            continue
        found = prepare(case, variant, job.device, cache)
        entries.append(_entry(one.key, found, variant, Path(job.folder)))
    answer.write_bytes(msgspec.json.encode(entries))


def _case(wanted: Wanted, variant: Variant, device: Device) -> Case | str:
    """The case, or why this side cannot have it: a tunable or a value that its declaration does not know."""
    space = {tunable.name: tunable for tunable in variant.space}
    for name, value in wanted.asked.items():
        if name not in space:
            return f"{variant.id} has no tunable {name}"
        if value not in space[name].values:
            return f"{variant.id} does not take {name}={value}"
    config = variant.config_for(wanted.problem, device, wanted.asked)
    return Case(problem=wanted.problem, variant=variant.id, version=variant.version, config=config)


def _entry(key: str, found: Prepared, variant: Variant, folder: Path) -> Entry:
    record, plan = found.record, found.plan
    source = ""
    if plan is not None and plan.launches and found.builds:
        source = str(variant.root / plan.launches[0].source.path)
    if not found.runnable:
        return Entry(key=key, outcome=record.outcome, reason=record.reason, record=record, source=source)
    if plan is None:
        return Entry(key=key, record=record, source=str(variant.declaration))
    cubins = []
    folder.mkdir(parents=True, exist_ok=True)
    for launch in plan.launches:
        built = found.builds[launch.source]
        path = folder / f"{built.sha256}.cubin"
        if not path.exists():
            path.write_bytes(built.cubin)
        cubins.append(str(path))
    return Entry(
        key=key, record=record, plan=plan, cubins=tuple(cubins), identity=found.identity, source=source
    )  # fmt: skip


def both(base: SideSetup, head: SideSetup, jobs: Mapping[str, SideJob], folder: Path) -> dict[str, dict[str, Entry]]:
    """Ask both sides at the same time, and one that stands on both sides once; raises what the first of them raised."""
    from concurrent.futures import ThreadPoolExecutor

    sides = {side.name: side for side in (base, head)}
    with ThreadPoolExecutor(2) as pool:
        asked = {name: pool.submit(ask, side, jobs[name], folder / name) for name, side in sides.items()}
        errors = [error for future in asked.values() if isinstance(error := future.exception(), DgwError)]
        if errors:
            raise errors[0]
        return {name: future.result() for name, future in asked.items()}
