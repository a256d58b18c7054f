"""The metric table: one canonical key per number, whoever supplies it.

`metrics.json` holds facts only: units, meanings, counter names per architecture, sets. Values are in base units; what
ncu gives in percent is a ratio from 0 to 1 here. Names and passes come from the catalogue that the file names.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import msgspec

from dgw.errors import UsageError
from dgw.model import Noun, sm

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""The architectures whose counter names the table knows."""

Combine = Literal["sum", "mean", "same", "derived", "none"]


class Metric(Noun, frozen=True, kw_only=True):
    """One number that dgw can have.

    `names` maps an architecture (or `*`) to the counter that ncu collects; `ncu_unit` is the unit ncu gives it in.
    `combine` says how several kernels of a case make one value: `sum`, `mean` weighted by the metric `weight` (the
    denominator of a ratio), `same` (must be equal), `derived` (computed again from the combined `inputs`). `tier` is
    hardware (needs permission for counters) or sass (instruction counts and launch data). `better` is lower, higher or
    empty. `absent` maps an architecture to the reason why it cannot have this number.
    """

    key: str
    unit: str = ""
    meaning: str
    names: dict[str, str] = {}
    ncu_unit: str = ""
    sets: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    collectors: tuple[str, ...] = ()
    passes: dict[str, int] = {}
    better: Literal["lower", "higher", ""] = ""
    absent: dict[str, str] = {}
    combine: Combine = "none"
    weight: str = ""
    inputs: tuple[str, ...] = ()
    tier: Literal["hardware", "sass", ""] = ""

    @property
    def from_ncu(self) -> bool:
        """Whether a report of ncu can supply it, directly or through its inputs."""
        return bool(self.names or self.inputs)


class MetricSet(Noun, frozen=True, kw_only=True):
    """A named choice of metrics. `passes` is the least number of times that ncu must run a kernel, by architecture."""

    name: str
    meaning: str
    passes: dict[str, int] = {}


class _Table(Noun, frozen=True, kw_only=True):
    sets: tuple[MetricSet, ...]
    metrics: tuple[Metric, ...]


@dataclass(frozen=True)
class Absent:
    """Why there is no number."""

    reason: str


def _read() -> _Table:
    return msgspec.json.decode((resources.files("dgw.workbench") / "metrics.json").read_bytes(), type=_Table)


_TABLE = _read()
METRICS: dict[str, Metric] = {metric.key: metric for metric in _TABLE.metrics}
SETS: dict[str, MetricSet] = {chosen.name: chosen for chosen in _TABLE.sets}

NOT_A_TIME = "duration_under_ncu"
"""The one counter that only normalises others: it is collected and never reported."""


def table_arch(arch: str) -> str:
    """The architecture of the table whose names hold for `arch`: itself, or the nearest older one."""
    number = sm(arch)
    older = [known for known in ARCHITECTURES if sm(known) <= number]
    return older[-1] if older else ARCHITECTURES[0]


def absence(metric: Metric, arch: str) -> str:
    """Why `arch` cannot have `metric` from ncu, or an empty text."""
    reason = metric.absent.get(table_arch(arch))
    return f"not on this GPU because {reason}" if reason else ""


def counter_name(metric: Metric, arch: str) -> str | Absent:
    """The name that ncu knows `metric` by on `arch`, or why there is none."""
    if not metric.names:
        return Absent(f"{metric.key} is not a counter of ncu")
    reason = absence(metric, arch)
    if reason:
        return Absent(reason)
    known = table_arch(arch)
    name = metric.names.get(known, metric.names.get("*"))
    return name if name else Absent(f"not on this GPU because {metric.key} has no counter on {known}")


def members(name: str) -> list[Metric]:
    """The metrics of the set `name`, in the order of the table."""
    return [metric for metric in METRICS.values() if name in metric.sets]


def resolve(names_or_set: str | Sequence[str], arch: str = "sm_90") -> list[Metric]:
    """The metrics that a set name, keys, short aliases or counter names stand for; a text may hold several by comma.

    Metrics that `arch` cannot have are kept, so that they are reported as absent. UsageError with the nearest names for
    an unknown one.
    """
    parts = names_or_set.split(",") if isinstance(names_or_set, str) else list(names_or_set)
    chosen: dict[str, Metric] = {}
    for part in (name.strip() for name in parts):
        if part:
            chosen.update({metric.key: metric for metric in _named(part, arch)})
    return list(chosen.values())


def _named(name: str, arch: str) -> list[Metric]:
    if name in SETS:
        return members(name)
    if name in METRICS:
        return [METRICS[name]]
    found = [metric for metric in METRICS.values() if name in metric.aliases]
    if not found:
        found = [metric for metric in METRICS.values() if counter_name(metric, arch) == name]
    if found:
        return found
    raise UsageError(f"unknown metric {name!r}{_nearest(name)}", "dgw metrics lists every metric and set")


def _nearest(name: str) -> str:
    aliases = {alias for metric in METRICS.values() for alias in metric.aliases}
    near = difflib.get_close_matches(name.lower(), [*METRICS, *SETS, *sorted(aliases)], n=3, cutoff=0.5)
    return f"; nearest: {', '.join(near)}" if near else ""


def with_inputs(metrics: Iterable[Metric]) -> list[Metric]:
    """`metrics` and what they are computed from: inputs of derived ones and weights of ratios."""
    wanted: dict[str, Metric] = {}
    queue = list(metrics)
    while queue:
        metric = queue.pop(0)
        if metric.key not in wanted:
            wanted[metric.key] = metric
            queue += [METRICS[key] for key in (*metric.inputs, *((metric.weight,) if metric.weight else ()))]
    return list(wanted.values())


def counter_names(metrics: Iterable[Metric], arch: str, tier: str = "") -> list[str]:
    """The counters that ncu must collect on `arch` for `metrics`, each once; only those of `tier` when given."""
    names: dict[str, None] = {}
    for metric in with_inputs(metrics):
        name = counter_name(metric, arch)
        if isinstance(name, str) and tier in ("", metric.tier):
            names[name] = None
    return list(names)


def passes(metrics: MetricSet | Metric, arch: str) -> int | None:
    """The least number of passes on `arch`, or None where the catalogue cannot tell."""
    return metrics.passes.get(table_arch(arch), metrics.passes.get("*"))
