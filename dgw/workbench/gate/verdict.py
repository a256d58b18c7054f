"""What a gate found, as data: both gates (exact and time) fill it, reports render it, one function gives the code."""

from __future__ import annotations

from typing import Literal

import msgspec

from dgw.errors import Exit, UsageError, worst
from dgw.model import Environment, Noun, Problem

SCHEMA = "dgw.gate/1"
Status = Literal[
    "identical", "unchanged", "improved", "regressed", "wrong", "failed", "inconclusive", "not-comparable", "new",
    "missing", "refused",
]  # fmt: skip
"""identical: same machine code and launch. wrong: a result is wrong, whatever its speed. failed: a crash, hang or
compile failure. new: base does not have the case. missing: head, or the baseline file, lacks it. refused: neither side
runs it."""

COMPARED = ("identical", "unchanged", "improved", "regressed", "wrong", "inconclusive")
"""Statuses of cases of which base and head were really compared."""
SEVERITY: tuple[Status, ...] = (
    "wrong", "regressed", "failed", "not-comparable", "missing", "inconclusive", "improved", "new", "unchanged",
    "identical", "refused",
)  # fmt: skip
"""Worst first, as reports sort."""
_CODES: dict[str, Exit] = {
    "wrong": Exit.WRONG, "regressed": Exit.WRONG, "failed": Exit.FAULT, "not-comparable": Exit.NOT_COMPARABLE,
    "missing": Exit.NOT_COMPARABLE, "inconclusive": Exit.INCONCLUSIVE,
}  # fmt: skip


class Side(Noun, frozen=True, kw_only=True):
    """One of the two things compared. `label` is what the user calls it, `digest` names its code, never a path.

    `kind`: a commit, a source tree, a kernel file, an installed package, or a baseline file of the repository.
    """

    label: str
    kind: Literal["commit", "tree", "kernel", "python", "baseline"] = "tree"
    commit: str = ""
    version: str = ""
    digest: str = ""


class Ratio(Noun, frozen=True, kw_only=True):
    """Time of head / time of base (above 1: head is slower), with the two-sided interval of this confidence."""

    value: float
    low: float
    high: float
    confidence: float = 0.95


class Change(Noun, frozen=True, kw_only=True):
    """A metric that differs between base and head. None: absent on that side.

    `rule` is how it is compared (exactly, or inside a band), `worse` whether this change alone fails the gate.
    """

    metric: str
    base: float | int | str | None = None
    head: float | int | str | None = None
    unit: str = ""
    scope: str = "case"
    rule: Literal["exact", "band"] = "exact"
    worse: bool = False


class GateCase(Noun, frozen=True, kw_only=True):
    """One comparison. `reasons` say why the status is what it is, in words with figures, the decisive one first.

    `mde` is the smallest slowdown (0.02: 2 %) that this measurement finds in 80 of 100 tries; `p` and `p_adjusted`
    (Holm) belong to the one-sided test that head is slower; `stage` says which stage decided; `sigma` is the standard
    deviation of log ratios of rounds, `sigma_process` that between pairs of processes beyond it.
    """

    key: str
    label: str
    status: Status
    variant: str = ""
    problem: Problem | None = None
    config: dict[str, int | str] = {}
    reasons: tuple[str, ...] = ()
    ratio: Ratio | None = None
    time_base: float | None = None
    time_head: float | None = None
    mde: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    stage: Literal["", "exact", "screen", "confirm"] = ""
    pairs: int = 0
    pairs_needed: int | None = None
    dropped_rounds: int = 0
    attempts: int = 1
    sigma: float | None = None
    sigma_process: float | None = None
    changed: tuple[Change, ...] = ()
    explanation: tuple[str, ...] = ()
    source: str = ""  # the kernel's source or declaration, relative to the repository, for annotations
    line: int | None = None

    @property
    def family(self) -> str:
        """The part of the variant's id before the slash."""
        return self.variant.partition("/")[0]


class GeometricMean(Noun, frozen=True, kw_only=True):
    """The test over all timed shapes together: what is small on each shape adds up here."""

    ratio: Ratio
    p: float
    floor: float
    shapes: int
    pairs: int
    status: Literal["unchanged", "improved", "regressed", "inconclusive"]
    mde: float | None = None


class SelfTest(Noun, frozen=True, kw_only=True):
    """All A/A runs in the store: how many there were, how many failed, and the 95 % upper bound of the true rate."""

    runs: int
    false_fails: int
    inconclusive: int
    upper_bound: float


class GateReport(Noun, frozen=True, kw_only=True):
    """One gate: what was compared, how, and what came of it. `created` is ISO 8601 in UTC, `seconds` its whole length.

    `toolchain` names the compiler, `protocol` the rules of measuring; both must be the same on both sides.
    `sentinels` are cases whose code did not change and that were timed nevertheless; they judge the machine.
    `notes` hold for the whole gate (counters unavailable, rounds dropped, ...), `faults` stopped it or a part of it.
    """

    id: str
    created: str
    command: tuple[str, ...]
    dgw: str
    gate: Literal["time", "exact"]
    base: Side
    head: Side
    suite: str = ""
    device: str = ""
    toolchain: str = ""
    protocol: str = ""
    environment: Environment = Environment()
    cases: tuple[GateCase, ...] = ()
    sentinels: tuple[GateCase, ...] = ()
    geometric_mean: GeometricMean | None = None
    self_test: SelfTest | None = None
    policy: dict[str, float | int | str] = {}
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    on_inconclusive: Literal["fail", "warn"] = "fail"
    on_missing: Literal["fail", "record"] = "fail"
    interrupted: bool = False
    seconds: float | None = None
    schema: str = SCHEMA

    @property
    def worst_first(self) -> tuple[GateCase, ...]:
        """The cases as reports show them: by severity, then by how much slower head is."""
        return tuple(sorted(self.cases, key=lambda c: (SEVERITY.index(c.status), -(c.ratio.value if c.ratio else 0.0))))

    @property
    def counts(self) -> dict[str, int]:
        """How many cases have each status that occurs, worst first."""
        found = {status: sum(case.status == status for case in self.cases) for status in SEVERITY}
        return {status: count for status, count in found.items() if count}


def exit_code(report: GateReport) -> Exit:
    """The exit code of a gate, by the precedence of dgw.errors; a gate that compared nothing never exits with 0."""
    codes = [code for case in report.cases if (code := _code_of(case.status, report)) is not None]
    if report.interrupted:
        codes.append(Exit.INTERRUPTED)
    if report.faults:
        codes.append(Exit.FAULT)
    if not any(case.status in COMPARED for case in report.cases):
        codes.append(Exit.NOT_COMPARABLE)
    mean = report.geometric_mean
    if mean is not None and (code := _code_of(mean.status, report)) is not None:
        codes.append(code)
    return worst(codes)


def _code_of(status: str, report: GateReport) -> Exit | None:
    lenient = (status == "inconclusive" and report.on_inconclusive == "warn") or (
        status == "missing" and report.on_missing == "record"
    )
    return None if lenient else _CODES.get(status)


def sentence(report: GateReport) -> str:
    """The verdict in one line: the counts, worst first, and what the exit code is."""
    counted = ", ".join(f"{count} {status}" for status, count in report.counts.items()) or "nothing was compared"
    return f"{counted} (exit {int(exit_code(report))})"


def encode(report: GateReport) -> bytes:
    """The report as indented JSON, newline at the end; the schema's name comes first."""
    content = {"schema": report.schema, **msgspec.to_builtins(report)}
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def decode(text: bytes, name: str = "the file") -> GateReport:
    """A report that `encode` wrote. Raises UsageError when it is not one, or a newer one."""
    try:
        report = msgspec.json.decode(text, type=GateReport)
    except msgspec.DecodeError as error:
        raise UsageError(f"{name} is not a report of dgw gate: {error}", "dgw gate --json > FILE.json") from error
    if report.schema != SCHEMA:
        raise UsageError(f"{name} has the schema {report.schema}, not {SCHEMA}", "pip install -U deepgemm-workbench")
    return report
