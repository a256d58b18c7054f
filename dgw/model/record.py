"""What happened: cases, measurements, records and runs."""

from __future__ import annotations

from typing import Literal

from dgw.model.noun import Noun, digest
from dgw.model.plan import Plan
from dgw.model.problem import Config, Problem


class Case(Noun, frozen=True, kw_only=True):
    """Problem + Variant + Config. `version` is the declaration version; `config` holds every tunable."""

    problem: Problem
    variant: str
    version: int = 1
    config: Config = {}

    @property
    def key(self) -> str:
        """16 hex digits of the SHA-256 of the canonical JSON without defaults: the NVTX range name."""
        return digest(self)[:16]


class Check(Noun, frozen=True, kw_only=True):
    """The verdict on one output: the worst element (row, column), its error and its bound, both absolute.

    `where` says what was compared (all elements, or which tiles), `detail` names the first thing wrong in words. An
    error that is not a number is None.

    `relative_error` (a ratio) is the relative Frobenius error ||d - ref|| / ||ref|| over the compared elements that are
    finite, in the units of the dequantised D; of blocks compared one by one the largest. None where there is no limit
    on it (bounds.relative_limit: data without mean zero, integers, a quantised D) or fewer than 256 such elements.
    """

    passed: bool
    compared: int
    worst: tuple[int, ...] = ()
    error: float | None = 0.0
    bound: float | None = 0.0
    relative_error: float | None = None
    where: str = "all elements"
    detail: str = ""
    collector: str = "gpu"


class Measurement(Noun, frozen=True, kw_only=True):
    """One number and how it was obtained, or `absent` with the reason why there is none.

    `scope` is `case`, `kernel 0` ..., or `line FILE:N`. `low` and `high` bound the value (95 % unless the protocol says
    otherwise). `collector` and `protocol` say who measured and under which rules; `tier` is hardware, sass or cupti.
    """

    metric: str
    value: float | int | str | None = None
    unit: str = ""
    scope: str = "case"
    collector: str
    protocol: str = ""
    samples: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    absent: str = ""
    tier: str = ""


class Defect(Noun, frozen=True, kw_only=True):
    """One finding of a sanitizer: `kind` in its words, `kernel` and `place` (`FILE:N`) where it names them.

    `count` is how often it was seen (threads, or hazards), `thread` and `block` the first that did it, `detail` the
    rest of the finding. A `severity` of `warning` or `info` is no failure.
    """

    tool: str
    kind: str
    severity: Literal["error", "warning", "info"] = "error"
    kernel: str = ""
    place: str = ""
    count: int = 1
    thread: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    detail: str = ""

    @property
    def sentence(self) -> str:
        """In one line: what, where, how often, who did it first, and the first of the details."""
        at = f" at {self.place}" if self.place else ""
        text = f"{self.tool}: {self.kind}{at}{f' in {self.kernel}' if self.kernel else ''}"
        text += ", once" if self.count == 1 else f", {self.count} times"
        if self.thread:
            text += f", first by thread {','.join(map(str, self.thread))} of block {','.join(map(str, self.block))}"
        first = self.detail.partition("; ")[0]
        return f"{text}; {first}" if first else text


class Artifact(Noun, frozen=True, kw_only=True):
    """A file kept by content: `kind` cubin, ptx, ncu-rep, sqlite, log; `sha256` names it in the artifact folder."""

    kind: str
    sha256: str
    bytes: int
    name: str = ""


class Environment(Noun, frozen=True, kw_only=True):
    """Where a Record was made. Never a host name, user name, path or environment variable. Empty string: unknown."""

    device: str = ""
    arch: str = ""
    device_uuid: str = ""  # SHA-256 prefix of the GPU UUID
    driver: str = ""
    cuda: str = ""
    nvrtc: str = ""
    torch: str = ""
    cublas: str = ""
    ncu: str = ""
    python: str = ""
    system: str = ""
    engine: Literal["gpu", "emulator", "none"] = "none"


Outcome = Literal[
    "ok", "refused", "compile-failed", "launch-failed", "wrong", "timed-out", "crashed", "out-of-memory"
]  # fmt: skip


class Record(Noun, frozen=True, kw_only=True):
    """Everything that happened to one Case."""

    case: Case
    outcome: Outcome
    environment: Environment = Environment()
    reason: str = ""
    plan: Plan | None = None
    check: Check | None = None
    measurements: tuple[Measurement, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    flags: tuple[str, ...] = ()  # implausible or noteworthy, in words with figures
    defects: tuple[Defect, ...] = ()
    resume_key: str = ""

    def get(self, metric: str, scope: str = "case", collector: str = "") -> Measurement | None:
        """The first measurement of `metric` in `scope` (and by `collector`, when given), or None."""
        for found in self.measurements:
            if found.metric == metric and found.scope == scope and collector in ("", found.collector):
                return found
        return None

    def number(self, metric: str, scope: str = "case", collector: str = "") -> float | None:
        """The numeric value of `metric`, or None when it is absent or not a number."""
        found = self.get(metric, scope, collector)
        return None if found is None or isinstance(found.value, str | None) else float(found.value)


class Run(Noun, frozen=True, kw_only=True):
    """One invocation: its records and what is needed to repeat it. `created` is ISO 8601 in UTC."""

    id: str
    created: str
    command: tuple[str, ...]
    version: str
    commit: str = ""
    records: tuple[Record, ...] = ()
    schema: str = "dgw.run/1"
