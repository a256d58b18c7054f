"""One way to compute a problem, and what it claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dgw.model.device import Device, sm
from dgw.model.noun import Noun
from dgw.model.plan import Plan
from dgw.model.problem import Config, Problem


class Tunable(Noun, frozen=True, kw_only=True):
    """One dimension of a variant's Config space."""

    name: str
    default: int | str
    values: tuple[int | str, ...]
    meaning: str


class Claim(Noun, frozen=True, kw_only=True):
    """What a stage says of its counters against the previous stage, checked by `compare`.

    `relation` compares metric values: `is` (equals `value`), `above`, `below` (`value`), `falls`, `rises` (against the
    previous rung, at least by the factor `value`), `keeps` (the previous rung's value, but for the share `value`).
    `against` names a variant to compare with instead of the previous rung. `when` lists what must hold for the claim to
    be made: `epilogue` (anything follows the product), `short-k` (k is at most 1024), `many-tiles` (more tiles than
    SMs), `beyond-l2` (A and B of one batch item are each larger than L2).
    """

    metric: str
    relation: Literal["is", "above", "below", "falls", "rises", "keeps"]
    value: float = 0.0
    why: str = ""
    against: str = ""
    when: tuple[Literal["epilogue", "short-k", "many-tiles", "beyond-l2"], ...] = ()
    dtypes: tuple[str, ...] = ()  # empty: every dtype
    layouts: tuple[str, ...] = ()  # empty: every layout


Refuses = Callable[[Problem, Config, Device], str | None]
Warns = Callable[[Problem, Config, Device], tuple[str, ...]]
MakePlan = Callable[[Problem, Config, Device], Plan]
Choose = Callable[[Problem, Config, Device], tuple[Config, tuple[str, ...]] | None]
Bind = Callable[[Problem, Config, Mapping[str, Any]], Callable[[], None]]


def _never_refuses(problem: Problem, config: Config, device: Device) -> str | None:
    return None


def _never_warns(problem: Problem, config: Config, device: Device) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to compute a Problem. Exactly one of `plan` (own kernels) and `bind` (foreign code) is set.

    `id` is `family/idea`. `root` is the folder that Source.path is relative to, `includes` the folders searched for
    headers. `warns` says what to know of a case that is not refused; it becomes a flag of the record. `architectures`
    lists the oldest architecture of each line that it runs on, such as ("sm_80",) for "sm_80 and newer" or ("sm_90a",)
    for exactly Hopper. `needs` names Python modules that `bind` imports or that compile the sources of `plan`.
    `choose` picks a config for a problem that keeps the tunables given, and says why; without it the defaults hold.
    `pipelined` says that a remark of ptxas about serialised wgmma (C75xx) is an error of the build.
    `roundings` is how often code that works in several steps rounds an intermediate result to A's type: the check then
    allows as much more.
    """

    id: str
    version: int
    idea: str
    dtypes: tuple[str, ...]
    stage: int | None = None
    architectures: tuple[str, ...] = ("sm_80",)
    space: tuple[Tunable, ...] = ()
    refuses: Refuses = _never_refuses
    warns: Warns = _never_warns
    choose: Choose | None = None
    plan: MakePlan | None = None
    bind: Bind | None = None
    root: Path = Path()
    includes: tuple[Path, ...] = ()
    claims: tuple[Claim, ...] = ()
    needs: tuple[str, ...] = ()
    notes: str = ""
    roundings: int = 0
    pipelined: bool = False
    synchronises: Literal["barrier", "mbarrier", "unknown"] = "barrier"
    declaration: Path = field(default=Path(), compare=False)

    @property
    def family(self) -> str:
        """The part of the id before the slash."""
        return self.id.partition("/")[0]

    @property
    def name(self) -> str:
        """The part of the id after the slash: the idea's name."""
        return self.id.partition("/")[2]

    @property
    def portable(self) -> bool:
        """Whether newer architectures than those it lists run it, too."""
        return any(arch[-1].isdigit() for arch in self.architectures)

    @property
    def emulated(self) -> bool:
        """Whether the emulator can execute it: kernels of its own, portable ones or Hopper's."""
        return self.plan is not None and (self.portable or "sm_90a" in self.architectures)

    def defaults(self) -> Config:
        """The default Config."""
        return {tunable.name: tunable.default for tunable in self.space}

    def config_for(self, problem: Problem, device: Device, pinned: Config | None = None) -> Config:
        """Every tunable for `problem`: what is `pinned`, else chosen, else the default."""
        given = pinned or {}
        chosen = self.choose(problem, given, device) if self.choose else None
        return {**self.defaults(), **(chosen[0] if chosen else {}), **given}

    def runs_on(self, arch: str) -> bool:
        """Whether `architectures` covers `arch`: a plain name covers newer ones, a name with a suffix only itself."""
        return any(arch == oldest or (oldest[-1].isdigit() and sm(arch) >= sm(oldest)) for oldest in self.architectures)
