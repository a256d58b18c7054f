"""The parent's side of a case, without a GPU: may it run, what is launched, does it compile, what is known of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dgw.errors import CompileError, DgwError
from dgw.model import Case, Device, Environment, Outcome, Plan, Record, Source, Variant, digest
from dgw.toolchain.build import Build, Recent, Request, build, build_many
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.launches import complete, too_large, unlaunchable
from dgw.toolchain.parameters import misdeclared
from dgw.workbench.collectors import static
from dgw.workbench.environment import host_environment
from dgw.workbench.protocol import PROTOCOL

DEVICE_CODE = ("fill", "reference", "compare", "mma_rate")
_DEVICE_FOLDER = Path(__file__).parent / "device"


@dataclass(frozen=True)
class Prepared:
    """A case ready to run, or the reason why not: `record.outcome` is ok, refused, compile-failed or launch-failed."""

    record: Record
    variant: Variant
    plan: Plan | None = None
    builds: dict[Source, Build] = field(default_factory=dict)

    @property
    def runnable(self) -> bool:
        """Whether there is something to run."""
        return self.record.outcome == "ok"

    @property
    def identity(self) -> str:
        """The hash of what is executed; empty where nothing runs, and for foreign code, which has none."""
        if self.plan is None or not self.runnable:
            return ""
        return identity(self.plan, [self.builds[launch.source].code_hash for launch in self.plan.launches])


def prepare(
    case: Case, variant: Variant, device: Device, cache: CompileCache | Recent | None = None, mix: bool = False
) -> Prepared:
    """Ask `refuses`, make the plan, compile it, collect the static figures. Never raises for what a declaration does.

    `mix` adds the SASS histogram, which costs a run of the disassembler. A run of many cases hands the same
    Recent to all of them.
    """
    environment = msgspec.structs.replace(host_environment(), device=device.name, arch=device.arch)
    known = static.problem_measurements(case.problem, device)

    def stopped(outcome: Outcome, reason: str, plan: Plan | None = None) -> Prepared:
        record = Record(
            case=case, outcome=outcome, reason=reason, environment=environment, plan=plan, measurements=known
        )
        return Prepared(record, variant, plan)

    try:
        reason = refusal(case, variant, device)
        if reason:
            return stopped("refused", reason)
        plan = variant.plan(case.problem, case.config, device) if variant.plan else None
    except DgwError as error:
        return stopped("refused", error.message)
    except Exception as error:
        return stopped("launch-failed", f"the declaration of {variant.id} raised {type(error).__name__}: {error}")
    if plan is None:
        flags = variant.warns(case.problem, case.config, device)
        record = Record(case=case, outcome="ok", environment=environment, measurements=known, flags=flags)
        key = resume_key(case, (), None, device, environment)
        return Prepared(msgspec.structs.replace(record, resume_key=key), variant)
    try:
        recent = cache if isinstance(cache, Recent) else Recent(cache)
        sources = dict.fromkeys(launch.source for launch in plan.launches)
        builds = {source: recent.build(source, variant.root, variant.includes, device.arch) for source in sources}
        if variant.pipelined and (remarks := static.remarks(builds.values())):
            return stopped("compile-failed", "; ".join(remarks), plan)
        plan = complete(plan, builds)
        if reason := too_large(plan, device):
            return stopped("refused", reason, plan)
        known = (*known, *static.plan_measurements(plan, builds, device))
        if reason := unlaunchable(plan, builds, device) or misdeclared(plan, builds):
            return stopped("launch-failed", reason, plan)
        if mix:
            known = (*known, static.instruction_mix(plan, builds))
    except CompileError as error:
        return stopped("compile-failed", error.message, plan)
    except DgwError as error:
        return stopped("compile-failed", f"{error.message}; {error.hint}", plan)
    record = Record(
        case=case,
        outcome="ok",
        environment=environment,
        plan=plan,
        measurements=known,
        flags=(*static.remarks(builds.values()), *variant.warns(case.problem, case.config, device)),
        resume_key=resume_key(case, [b.code_hash for b in builds.values()], plan, device, environment),
    )
    return Prepared(record, variant, plan, builds)


def lacking(variant: Variant) -> list[str]:
    """Python packages that foreign code needs and that are not installed."""
    return [name for name in variant.needs if importlib.util.find_spec(name) is None]


def other_type(case: Case, variant: Variant) -> str:
    """That the variant does not take the type of the inputs; empty where it does."""
    dtype = case.problem.a.dtype
    return "" if dtype in variant.dtypes else f"{variant.id} takes {', '.join(variant.dtypes)}, not {dtype}"


def refusal(case: Case, variant: Variant, device: Device) -> str:
    """Why this case cannot run on `device`; empty when it can. Modules that foreign code needs are only looked for."""
    if not variant.runs_on(device.arch):
        newer = " and newer" if variant.portable else ""
        return f"{variant.id} runs on {' and '.join(variant.architectures)}{newer}, not on {device.arch}"
    if unasked := other_type(case, variant):
        return unasked
    for tunable in variant.space:
        if tunable.name not in case.config:
            return f"the config lacks {tunable.name}; allowed: {', '.join(map(str, tunable.values))}"
    if missing := lacking(variant):
        return f"{variant.id} needs the Python package {' and '.join(missing)}, which is not installed"
    return variant.refuses(case.problem, case.config, device) or ""


def identity(plan: Plan, code: Sequence[str] = ()) -> str:
    """A hash of everything that a case executes: the code of each launch, sizes, arguments, fills, workspaces.

    Without `code` it is that of the launches alone, which says whether code or launch is what changed.
    """
    steps = [msgspec.to_builtins(step) for step in plan.steps]
    for step in steps:
        step.pop("source", None)
    return digest([list(code), steps, plan.workspaces])


def resume_key(case: Case, code: Sequence[str], plan: Plan | None, device: Device, environment: Environment) -> str:
    """What a finished record is valid for: the case, the machine code, the launches, the device, the protocol."""
    foreign = () if plan else (environment.torch,)
    return digest([case.key, list(code), plan, device.name, device.arch, PROTOCOL, *foreign])[:32]


def warm_cache(
    pairs: Iterable[tuple[Case, Variant]],
    device: Device,
    cache: CompileCache | None,
    workers: int | None = None,
    plumbing: Sequence[str] = (),
    on_done: Callable[[], None] | None = None,
) -> Recent:
    """Compile the sources of many cases, and those of dgw's `plumbing` kernels, at the same time, into `cache`.

    Gives what was built, for `prepare`. Whatever fails fails again there. `on_done` is called after each distinct
    source, from the thread that compiled it.
    """
    requests: dict[Request, None] = {
        Request(Source(path=f"{name}.cu"), _DEVICE_FOLDER, (), device.arch): None for name in plumbing
    }
    for case, variant in pairs:
        try:
            if variant.plan is None or refusal(case, variant, device):
                continue
            for launch in variant.plan(case.problem, case.config, device).launches:
                requests[Request(launch.source, variant.root, variant.includes, device.arch)] = None
        except Exception:  # a declaration that raises gets its own record in prepare
            continue
    if cache is None or not requests:
        return Recent(cache)
    found = build_many(requests, cache, workers, (lambda *_: on_done()) if on_done else None)
    return Recent(cache, {one: built for one, built in zip(requests, found, strict=True) if isinstance(built, Build)})


def device_code(arch: str, cache: CompileCache | None) -> dict[str, bytes]:
    """The cubins of dgw's own plumbing kernels, by name."""
    return {
        name: build(Source(path=f"{name}.cu"), _DEVICE_FOLDER, (), arch, cache).cubin for name in DEVICE_CODE
    }  # fmt: skip
