"""The sanitizer lane: cases under compute-sanitizer, one tool after another; what each found becomes rows of the case.

A report does not say which case a finding belongs to, only which kernel. So many cases share a process as long as
nothing is found; where something is, its cases run again one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dgw.model import Defect, Measurement
from dgw.workbench.children import End
from dgw.workbench.collectors import sanitizer
from dgw.workbench.collectors.sanitizer import Examination, SanitizerProblem
from dgw.workbench.passes import Found, Target, Workplace, grouped
from dgw.workbench.protocol import Begin, ChildJob, Done, Message

CHUNK = 25
_PATIENCE = 10.0  # every access is checked by code of its own; 10 to 50 times as slow is usual
_RUNNABLE = ("ok", "wrong", "crashed", "launch-failed")


@dataclass
class _Heard:
    """The cases that a child went through, and those that failed in it."""

    done: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    current: str = ""

    def hear(self, message: Message) -> None:
        """Take note of a message."""
        if isinstance(message, Begin):
            self.current = message.key
        elif isinstance(message, Done):
            self.current = ""
            self.done.add(message.key)
            if message.outcome != "ok":
                self.failed[message.key] = f"{message.outcome}: {message.reason}"


@dataclass(frozen=True)
class _Answer:
    """What one process under one tool led to."""

    examination: Examination
    heard: _Heard
    end: End
    log: Path

    def clean(self, targets: Sequence[Target]) -> bool:
        """Whether every case was run to its end and nothing was found."""
        keys = {target.member.case.key for target in targets}
        return self.examination.clean and not self.heard.failed and keys <= self.heard.done


@dataclass
class _Case:
    """What the tools said of one case so far."""

    target: Target
    measurements: list[Measurement] = field(default_factory=list)
    defects: list[Defect] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    errors: int = 0


def _addresses_wrong(case: _Case) -> bool:
    return any(found.tool == "memcheck" and found.severity == "error" for found in case.defects)


class SanitizerPass:
    """Runs `tools` (see :data:`sanitizer.TOOLS`) over the cases with the compute-sanitizer at `path`."""

    lane = "sanitize"

    def __init__(self, path: Path, tools: Sequence[str], version: str = "") -> None:
        self._path, self._tools, self._version = path, sanitizer.tools(tools), version
        self._processes = 0
        self._stopped: SanitizerProblem | None = None

    def run(self, targets: Sequence[Target], place: Workplace, on_found: Callable[[Found], None]) -> None:
        """Chunk by chunk: every tool over the chunk, then the findings of its cases.

        A case with wrong addresses is not given to the tools that come after memcheck: what they say means nothing.
        """
        runnable = [target for target in targets if target.record.outcome in _RUNNABLE]
        for start in range(0, len(runnable), CHUNK):
            cases = {target.member.case.key: _Case(target) for target in runnable[start : start + CHUNK]}
            for tool in self._tools:
                self._tool(tool, list(cases.values()), place)
            for key, case in cases.items():
                on_found(self._found(key, case))

    def _tool(self, tool: str, cases: Sequence[_Case], place: Workplace) -> None:
        chosen = []
        for case in cases:
            reason = sanitizer.refusal(tool, case.target.variant)
            if self._stopped is not None:
                reason = f"{self._stopped.cause}; {self._stopped.cure}"
            elif not reason and tool != "memcheck" and _addresses_wrong(case):
                reason = "memcheck found wrong addresses, and what another tool says then means nothing"
            if reason:
                case.measurements.append(sanitizer.measurement(tool, None, reason, self._version))
            else:
                chosen.append(case)
        if chosen:
            self._examine(tool, chosen, place)

    def _examine(self, tool: str, cases: Sequence[_Case], place: Workplace) -> None:
        targets = [case.target for case in cases]
        answer = self._process(tool, targets, place)
        problem = answer.examination.problem
        if problem is not None and problem.missing:
            self._stopped = problem
        if len(cases) > 1 and not answer.clean(targets) and self._stopped is None:
            for case in cases:
                self._tool(tool, [case], place)
            return
        for case in cases:
            self._note(tool, case, answer, place)

    def _process(self, tool: str, targets: Sequence[Target], place: Workplace) -> _Answer:
        self._processes += 1
        log = place.folder / f"{tool}-{self._processes}.log"
        plans = [target.member.plan for target in targets]
        entries = [launch.entry for plan in plans if plan is not None for launch in plan.launches]
        if any(plan is None for plan in plans):  # nobody knows what kernels foreign code launches
            entries = []
        job = ChildJob(
            kind="profile", groups=grouped([target.member for target in targets]),
            device_code=dict(place.device_code), separate=True,
        )  # fmt: skip
        heard = _Heard()
        prefix = sanitizer.command(self._path, tool, log, entries)
        end = place.listen(job, heard.hear, prefix, None, _PATIENCE)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        # an option that it does not know it names on its standard output, before there is a log
        examination = sanitizer.examine(tool, text or end.output, end.status)
        return _Answer(examination, heard, end, log)

    def _note(self, tool: str, case: _Case, answer: _Answer, place: Workplace) -> None:
        key, found = case.target.member.case.key, answer.examination
        unfinished = key not in answer.heard.done
        untold = found.problem.kind in ("no-summary", "crashed") if found.problem else found.errors == 0
        if unfinished and untold:
            reason = f"under {tool}: {answer.end.describe(_PATIENCE * place.deadline_s)}"
        elif found.errors == 0 and key in answer.heard.failed:
            reason = f"under {tool}: {answer.heard.failed[key]}"
        else:
            reason = found.problem.cause if found.problem is not None else ""
        if reason:
            case.measurements.append(sanitizer.measurement(tool, None, reason, self._version))
            case.flags.append(f"sanitizer: {tool} came to no verdict: {reason}")
        else:
            case.measurements.append(sanitizer.measurement(tool, found, "", self._version))
        case.errors += found.errors
        case.defects += found.defects
        if found.defects and answer.log.is_file():
            case.logs.append(answer.log)

    def _found(self, key: str, case: _Case) -> Found:
        errors = [defect for defect in case.defects if defect.severity == "error"]
        flags = [f"sanitizer: {found.sentence}" for found in case.defects if found.severity == "warning"]
        return Found(
            key,
            tuple(case.measurements),
            (*case.flags, *flags),
            tuple(case.defects),
            outcome="wrong" if errors else None,
            reason=errors[0].sentence if errors else "",
            files=tuple((log, "log", log.name) for log in case.logs),
        )
