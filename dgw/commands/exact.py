"""Cases for the exact gate and for baselines: what is examined, compared with what was approved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dgw.commands import options
from dgw.commands.options import Ask, Engine, split
from dgw.errors import UsageError
from dgw.model import Case, Config, Device, Variant

if TYPE_CHECKING:
    from dgw.toolchain.cache import CompileCache
    from dgw.workbench.baselines import BaselineFile, Baselines
    from dgw.workbench.gate.facts import Facts, Known

Suite = Annotated[
    str, typer.Option("--suite", metavar="NAME", help="Shapes, types and variants of perf/suites. [default: ci]")
]
Folder = Annotated[
    Path | None, typer.Option("--baselines", metavar="DIR", help="Where approved facts are. [default: perf/baselines]")
]
Deadline = Annotated[
    float, typer.Option("--deadline", metavar="S", min=1.0, help="Seconds after which the emulator gives a case up.")
]
DEFAULT_SUITE = "ci"


@dataclass(frozen=True)
class Pick:
    """Which cases: the options that `gate --exact` and `baseline` share."""

    suite: Suite = ""
    shape: options.Shapes = None
    variant: options.Variants = None
    family: options.Family = ""
    dtype: options.Dtypes = None
    layout: options.Layouts = None
    config: options.Config = None
    kernels: options.Kernels = None
    kernel: options.Kernel = None
    device: options.Device = ""
    baselines: Folder = None
    deadline: Deadline = 120.0

    @property
    def whole_suite(self) -> bool:
        """Whether all of a suite is examined, so that a case that is not there is missing."""
        narrowed = (self.shape, self.variant, self.family, self.dtype, self.layout, self.config, self.kernel)
        return not any(narrowed)

    @property
    def named(self) -> str:
        """The suite: the one that was typed, and the default where no shape was."""
        return self.suite or ("" if self.shape else DEFAULT_SUITE)

    @property
    def typed(self) -> str:
        """The options again, for advice."""
        own = [(option, "" if path is None else path.as_posix()) for option, path in
               (("--kernels", self.kernels), ("--kernel", self.kernel), ("--baselines", self.baselines))]  # fmt: skip
        given = [("--suite", self.named), *own, ("--family", self.family), ("--device", self.device)]
        lists = [
            ("--shape", self.shape),
            ("--variant", self.variant),
            ("--dtype", self.dtype),
            ("--layout", self.layout),
        ]
        given += [(option, ",".join(split(texts))) for option, texts in lists]
        given += [("--config", text) for text in self.config or ()]
        return " ".join(f"{option} {text}" for option, text in given if text)

    def ask(self) -> Ask:
        """The same as what the other commands understand."""
        return Ask(
            variant=self.variant, kernels=self.kernels, kernel=self.kernel, config=self.config, shape=self.shape,
            suite=self.named, dtype=self.dtype, layout=self.layout, device=self.device, engine=Engine.EMULATOR,
        )  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """A case, and what was approved of it; `missing` says why there is nothing, `until` when the approval ended."""

    known: Known
    base: Facts | None
    missing: str = ""
    until: str = ""


@dataclass
class Examination:
    """Cases to examine on a device, and the baseline files that they are compared with."""

    pick: Pick
    device: Device
    variants: Mapping[str, Variant]
    cases: list[tuple[Case, Config]]
    floors: Mapping[str, float]
    cache: CompileCache
    baselines: Baselines
    files: dict[tuple[str, str, str], BaselineFile | None] = field(default_factory=dict)

    def file(self, toolchain: str, family: str) -> BaselineFile | None:
        """The baseline file of a family, read once. Raises NotComparable for one that is not sound."""
        place = (self.device.arch, toolchain, family)
        if place not in self.files:
            self.files[place] = self.baselines.read(*place)
        return self.files[place]

    def run(self, progress: Callable[..., None], every: bool = False) -> Iterator[Compared]:
        """Every case, compared. What is the same as approved is not counted again, unless `every` is set; nor is what
        has nothing to be compared with."""
        from dgw.workbench.gate.exact import same
        from dgw.workbench.gate.facts import count, identify
        from dgw.workbench.prepare import warm_cache

        progress(0, len(self.cases), "compiling")
        warm_cache(((case, self.variants[case.variant]) for case, _ in self.cases), self.device, self.cache)
        for done, (case, asked) in enumerate(self.cases):
            progress(done, len(self.cases), f"{case.variant} {case.problem.shape}")
            known = identify(case, asked, self.variants[case.variant], self.device, self.cache)
            found = self._approved(known)
            if known.outcome == "ok" and (every or (found.base is not None and not same(found.base, known.facts))):
                known = count(known, self.device, self.cache, self.pick.deadline)
            yield Compared(known, found.base, found.missing, found.until)
        progress(len(self.cases), len(self.cases), "")

    def _approved(self, known: Known) -> Compared:
        family = known.variant.family
        file = self.file(known.toolchain, family)
        if file is None:
            return Compared(known, None, self.baselines.missing(self.device.arch, known.toolchain, family))
        approved = file.cases.get(known.facts.key)
        if approved is None:
            name = self.baselines.name(self.device.arch, known.toolchain, family)
            return Compared(known, None, f"{name} does not have it")
        if file.compiler != known.compiler:
            return Compared(known, None, f"it was approved with {file.compiler}, and here is {known.compiler}")
        return Compared(known, approved.facts, until=file.expired(known.facts.key, datetime.now(UTC).date()))

    def left(self, seen: set[str], toolchains: set[str]) -> list[Facts]:
        """Facts approved with the whole of this suite, of which the case does not exist any more."""
        if not self.pick.whole_suite:
            return []
        return [
            approved.facts
            for file in self.baselines.files()
            if file.arch == self.device.arch and file.toolchain in toolchains
            for key, approved in file.cases.items()
            if self.pick.named in approved.suites and key not in seen and approved.facts.device == self.device.name
        ]


def examination(pick: Pick, command: str) -> Examination:
    """What is to be examined. Raises UsageError, Missing without a compiler."""
    from dgw.commands import request
    from dgw.commands.session import cache_folder, machine
    from dgw.commands.suites import suite
    from dgw.toolchain.cache import CompileCache
    from dgw.workbench.gate.figures import FIGURES

    ask = pick.ask()
    where = machine(ask)
    variants = request.library(ask)
    floors = dict(suite(ask.suite).floors) if ask.suite else {}
    wrong = sorted(name for name in floors if name not in FIGURES and name not in ("time", "geometric_mean"))
    if wrong:
        near = request.nearest(wrong[0], [*FIGURES, "time", "geometric_mean"]) or "time"
        raise UsageError(f"suite {ask.suite} has a floor for {wrong[0]}, which is no figure", f"write {near}")
    wanted = [
        variant
        for variant in request.wanted(ask, split(ask.variant), pick.family, variants, where, every=True)
        if variant.plan is not None
    ]
    if not wanted:
        raise UsageError("none of these variants has code of its own to compare", f"{command} --variant swizzled")
    configs = request.configs(ask.config)
    cases = [
        (case, asked)
        for problem in request.problems(ask, command)
        for asked in configs
        for case in request.cases(problem, wanted, [asked], where.device)
    ]
    own = [(case, {name: case.config[name] for name in asked if name in case.config}) for case, asked in cases]
    unique = {(case.key, tuple(asked.items())): (case, asked) for case, asked in own}
    cache, approved = CompileCache(cache_folder()), folder(pick.baselines)
    return Examination(pick, where.device, variants, list(unique.values()), floors, cache, approved)


def folder(given: Path | None) -> Baselines:
    """The baselines: the folder typed, the first that exists here or above, or one to be made here.

    Raises UsageError where the folder typed is a file.
    """
    from dgw.workbench.baselines import FOLDER, Baselines

    if given is not None:
        if given.exists() and not given.is_dir():
            raise UsageError(f"{given} is not a folder", "--baselines perf/baselines")
        return Baselines(given, given.as_posix() if not given.is_absolute() else given.name)
    here = Path.cwd()
    found = next((one / FOLDER for one in (here, *here.parents) if (one / FOLDER).is_dir()), here / FOLDER)
    return Baselines(found)
