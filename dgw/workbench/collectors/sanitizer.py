"""compute-sanitizer: its command line, what it prints, and what may be concluded from both.

Its exit status alone says little: without `--error-exitcode` errors end with the program's own status, and 255 means
that the tool did not get to work. So a program is clean only when the closing summary was printed and counts no error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dgw.errors import ChildFault, DgwError, Missing, UsageError
from dgw.model import Defect, Measurement, Variant

COLLECTOR = "sanitizer"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
"""In the order in which they are run: what racecheck says is worth nothing while addresses are wrong."""
FOUND = 86
"""Exit status of compute-sanitizer when it found something."""
PRINT_LIMIT = 2000

_PREFIX = "========="
_SUMMARY = re.compile(r"(?:ERROR|INITCHECK|SYNCCHECK|MEMCHECK) SUMMARY: (\d+) errors?\s*$")
_RACES = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)")
_AT = re.compile(r"^(?:at )?(?P<kernel>(?!0x)\S.*?)\+0x[0-9a-fA-F]+(?: in (?P<place>\S.*?:\d+))?(?:\s|$)")
_AT_OLD = re.compile(r"^(?:at )?0x[0-9a-fA-F]+ in (?:(?P<place>[^()\s]+:\d+)(?::|$|\s))?(?P<kernel>[^\[]*)")
_BY = re.compile(r"by thread \((?P<thread>[\d,]+)\) in block \((?P<block>[\d,]+)\)")
_RACE = re.compile(r"Race reported between (?P<first>\w+) access at (?P<where>.+)")
_OTHER = re.compile(r"and (?P<second>\w+) access at (?P<where>.+?)(?:\s*\[(?P<hazards>\d+) hazards?\])?\s*$")
_NOT_FINDINGS = (
    "COMPUTE-SANITIZER",
    "LEAK SUMMARY",
    "Launch #",
    "Generating coredump",
    "Kernel:",
    "Target application",
)


@dataclass(frozen=True)
class SanitizerProblem:
    """Why a tool came to no verdict. `missing`: it, or what it needs, is not on this machine."""

    kind: str
    cause: str
    cure: str
    missing: bool = False

    def error(self) -> DgwError:
        """The problem as an error with its exit code."""
        return (Missing if self.missing else ChildFault)(self.cause, self.cure)


@dataclass(frozen=True)
class Examination:
    """What one tool said of one program: defects that belong together are one, with a count.

    `counted` is the count of errors in its summary; it exceeds those of the defects when not all were printed.
    """

    tool: str
    defects: tuple[Defect, ...] = ()
    problem: SanitizerProblem | None = None
    counted: int = 0

    @property
    def errors(self) -> int:
        """How often something was wrong; warnings do not count."""
        return max(self.counted, sum(defect.count for defect in self.defects if defect.severity == "error"))

    @property
    def clean(self) -> bool:
        """Whether the tool came to its end and found nothing wrong."""
        return self.problem is None and self.errors == 0


_PROBLEMS = (
    (
        "no-cuda",
        r"terminated before first instrumented (?:API call|kernel launch)",
        "the program ended before it made a CUDA call, so nothing was examined",
        "run the same case without --sanitize first",
        False,
    ),
    (
        "not-attached",
        r"No attachable process found",
        "compute-sanitizer could not attach to the program in time",
        "try again on a machine that is not busy",
        False,
    ),
    (
        "bad-target",
        r"doesn't exist or is not a valid executable",
        "compute-sanitizer could not start the program",
        "dgw doctor",
        True,
    ),
    (
        "injection",
        r"Unable to find injection library",
        "this compute-sanitizer is incomplete: its injection library is missing",
        "install the package cuda-sanitizer, or pip install nvidia-cuda-sanitizer-api",
        True,
    ),
    (
        "device",
        r"[Dd]evice (?:is )?not supported|not supported on (?:this )?device|Debugger (?:is )?(?:already )?attached",
        "compute-sanitizer cannot work on this device now (too old for it, or a debugger is attached)",
        "install the compute-sanitizer of the driver's CUDA version, and end other debuggers",
        True,
    ),
    (
        "internal",
        r"Internal (?:Sanitizer )?[Ee]rror",
        "compute-sanitizer itself failed",
        "try a newer one: pip install nvidia-cuda-sanitizer-api",
        False,
    ),
    (
        "option",
        r"unrecogni[sz]ed option|the argument .* is invalid|the required argument|see the compute-sanitizer manual for",
        "this compute-sanitizer does not know an option that dgw gives it",
        "install the compute-sanitizer of CUDA 12 or newer",
        True,
    ),
    (
        "crashed",
        r"process didn't terminate successfully|couldn't find exit code",
        "the program crashed, or was killed, under compute-sanitizer",
        "run the same case without --sanitize first",
        False,
    ),
)  # fmt: skip


def tools(names: Iterable[str]) -> list[str]:
    """The tools named (`all` is every one), in the order in which they are run. UsageError for an unknown one."""
    wanted = list(names)
    for name in wanted:
        if name not in (*TOOLS, "all"):
            raise UsageError(f"no sanitizer is named {name!r}", f"--sanitize {','.join(TOOLS)}")
    return [name for name in TOOLS if name in wanted or "all" in wanted]


def refusal(tool: str, variant: Variant) -> str:
    """Why `tool` is not run on `variant`, or an empty text."""
    if tool == "racecheck" and variant.synchronises != "barrier":
        how = {"mbarrier": "synchronises through mbarriers", "unknown": "does not say how it synchronises"}
        return (
            f"{variant.id} {how[variant.synchronises]}, and racecheck reports hazards in such kernels that are none "
            "(cuBLAS's own among them)"
        )
    return ""


def command(path: Path | str, tool: str, log: Path | str, entries: Sequence[str] = ()) -> list[str]:
    """The argv prefix that runs a child under `tool`; findings go to `log`, never to the child's output.

    `entries` are the kernels to examine, by their mangled names; empty means all. initcheck always watches every
    kernel, because the others are the ones that write what these read.
    """
    chosen = [] if tool == "initcheck" else list(dict.fromkeys(entries))
    return [
        str(path),
        *("--tool", tool),
        *("--error-exitcode", str(FOUND)),
        *("--check-exit-code", "no"),
        *("--require-cuda-init", "yes"),
        *("--target-processes", "all"),
        *("--destroy-on-device-error", "kernel"),
        *("--show-backtrace", "device"),
        *("--print-limit", str(PRINT_LIMIT)),
        *(word for entry in chosen for word in ("--kernel-name", f"kernel_substring={entry}")),
        *(("--report-api-errors", "no") if tool == "memcheck" else ()),
        *(("--racecheck-report", "analysis") if tool == "racecheck" else ()),
        *("--log-file", str(log)),
    ]


def examine(tool: str, log: str, status: int | None) -> Examination:
    """What may be concluded from the log of a run of `tool` that ended with exit status `status`."""
    findings = _findings(tool, log)
    defects = tuple(_together(findings))
    for kind, pattern, cause, cure, missing in _PROBLEMS:
        if re.search(pattern, log):
            return Examination(tool, defects, SanitizerProblem(kind, cause, cure, missing))
    counted = _counted(log)
    if counted is None:
        cause = f"compute-sanitizer ended with status {status} before it had summed up"
        return Examination(tool, defects, SanitizerProblem("no-summary", cause, "run the same case without --sanitize"))
    found = sum(1 for finding in findings if finding.severity == "error")
    if (counted or status == FOUND) and not found:
        cause = f"compute-sanitizer counts {max(counted, 1)} errors, but none of them could be read"
        return Examination(
            tool, defects, SanitizerProblem("unreadable", cause, "read the log that is kept with the run")
        )
    return Examination(tool, defects, counted=counted)


def _counted(log: str) -> int | None:
    counts = [int(found[2]) for found in _RACES.finditer(log)]
    counts += [int(found[1]) for line in log.splitlines() if (found := _SUMMARY.search(line))]
    return sum(counts) if counts else None


@dataclass
class _Finding:
    tool: str
    kind: str
    severity: str = "error"
    kernel: str = ""
    place: str = ""
    count: int = 1
    thread: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    detail: list[str] = field(default_factory=list)


def _findings(tool: str, log: str) -> list[_Finding]:
    found: list[_Finding] = []
    current: _Finding | None = None
    for line in log.splitlines():
        if not line.startswith(_PREFIX):
            continue
        body = line[len(_PREFIX) :]
        text = body.strip()
        other = _OTHER.match(text)
        if current is not None and (body.startswith("  ") or other):
            _add(current, text, other)
            continue
        current = None
        if not text or body.startswith("  ") or "SUMMARY:" in text or text.startswith(_NOT_FINDINGS):
            continue
        if any(re.search(pattern, text) for _, pattern, *_ in _PROBLEMS):
            continue
        current = _begun(tool, text)
        found.append(current)
    return found


def _begun(tool: str, text: str) -> _Finding:
    severity = "error"
    for word in ("Error", "Warning", "Info"):
        if text.startswith(f"{word}: "):
            severity, text = word.lower(), text[len(word) + 2 :]
    race = _RACE.match(text)
    if race:
        kernel, place = _location(race["where"])
        return _Finding(tool, f"race between {race['first'].lower()}", severity, kernel, place, count=0)
    return _Finding(tool, text.rstrip(" .:"), severity)


def _add(finding: _Finding, text: str, other: re.Match[str] | None) -> None:
    """Take in one indented line of a finding."""
    if other is not None and finding.kind.startswith("race"):
        place = _location(other["where"])[1] or other["where"]
        hazards = int(other["hazards"] or 1)
        if not finding.count:
            finding.kind += f" and {other['second'].lower()} accesses"
        finding.count += hazards
        finding.detail.append(f"against {other['second'].lower()} access at {place}, {hazards} hazards")
        return
    by = _BY.search(text)
    if by:
        finding.thread = tuple(int(part) for part in by["thread"].split(","))
        finding.block = tuple(int(part) for part in by["block"].split(","))
    elif text.startswith("at ") and not finding.kernel:
        finding.kernel, finding.place = _location(text)
    elif text.startswith("in ") and finding.kernel and not finding.place:
        finding.place = Path(text[3:]).name
    elif text.startswith("Device Frame:"):
        kernel, place = _location(text.removeprefix("Device Frame:").strip())
        finding.place = finding.place or place
        finding.detail.append(f"called from {kernel} at {place}" if place else f"called from {kernel}")
    elif not text.startswith(("Host Frame:", "Saved host backtrace", "Kernel")) and text:
        finding.detail.append(text)


def _location(text: str) -> tuple[str, str]:
    """(kernel, `FILE:N`) of what follows `at`; each empty where it is not given."""
    match = _AT.match(text) or _AT_OLD.match(text)
    if match is None:
        return "", ""
    place = match["place"] or ""
    return (match["kernel"] or "").strip().removesuffix(" in"), place.rsplit("/", 1)[-1]


def _together(findings: Iterable[_Finding]) -> list[Defect]:
    """One Defect for all findings of a kind at a place; addresses differ, so the first one's words stand for all."""
    groups: dict[tuple[str, ...], list[_Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.kind, finding.kernel, finding.place), []).append(finding)
    return [
        Defect(
            tool=first.tool,
            kind=first.kind,
            severity=first.severity,  # type: ignore[arg-type]
            kernel=first.kernel,
            place=first.place,
            count=sum(max(one.count, 1) for one in same),
            thread=first.thread,
            block=first.block,
            detail="; ".join(first.detail),
        )
        for same in groups.values()
        for first in same[:1]
    ]


def measurement(tool: str, found: Examination | None, reason: str = "", version: str = "") -> Measurement:
    """`<tool>_errors`: how often `tool` found something wrong, or why it gave no verdict."""
    protocol = f"compute-sanitizer/1 {version}".strip()
    if found is not None and found.problem is None:
        return Measurement(
            metric=f"{tool}_errors", value=found.errors, unit="count", collector=COLLECTOR, protocol=protocol
        )
    why = reason or (found.problem.cause if found is not None and found.problem is not None else "not run")
    return Measurement(metric=f"{tool}_errors", unit="count", collector=COLLECTOR, protocol=protocol, absent=why)
