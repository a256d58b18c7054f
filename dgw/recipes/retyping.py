"""The command line that measures a case again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from dgw.model import Case, Finding, Problem, Step

TIMED = ("time_cold", "time_hot", "sm_clock", "power", "throttle", "temperature")
TIMELINE = ("kernel_time", "gap_time", "timeline_kernels", "launch_api_time")
_RUNS_KERNELS = re.compile(r"\bdgw (profile|compare|sweep|heatmap|check|diagnose)\b")
STATIC = ("registers_per_thread", "spill_store_bytes", "spill_load_bytes", "blocks", "blocks_per_sm")


def profile(
    case: Case, metrics: Sequence[str] = (), variant: str = "", tunables: Mapping[str, int | str] | None = None
) -> str:
    """`dgw profile ...` of the same problem: with what gets `metrics`, or with another variant or other tunables."""
    words = ["dgw", "profile", "--variant", variant or case.variant, *problem_options(case.problem)]
    config = {**({} if variant else case.config), **(tunables or {})}
    if config:
        words += ["--config", ",".join(f"{name}={value}" for name, value in config.items())]
    counters = [m for m in metrics if m not in (*TIMED, *TIMELINE, *STATIC)]
    if counters:
        words += ["--counters", ",".join(counters)]
    elif metrics:
        words += ["--counters", "none"]
    if any(m in TIMELINE for m in metrics):
        words.append("--timeline")
    return shlex.join(words)


def problem_options(problem: Problem) -> list[str]:
    """The options that mean this problem."""
    if not problem.known:
        return []
    dtype = problem.a.dtype
    words = ["--shape", problem.shape, "--dtype", dtype]
    if problem.layout != "nn":
        words += ["--layout", problem.layout]
    if problem.d.dtype != ("f32" if dtype == "tf32" else dtype):
        words += ["--out", problem.d.dtype]
    if problem.beta:
        words += ["--beta", f"{problem.beta:g}"]
    if problem.bias is not None:
        words.append("--bias")
    if problem.epilogue.activation != "none":
        words += ["--activation", problem.epilogue.activation]
    if problem.residual is not None:
        words.append("--residual")
    if problem.epilogue.quantise != "none":
        words += ["--quantise", problem.epilogue.quantise]
    return words


def kernel_options(command: Sequence[str]) -> tuple[str, ...]:
    """`--kernel FILE` and `--kernels DIR` as they stand in a command line."""
    found: list[str] = []
    for place, word in enumerate(command):
        option, equals, value = word.partition("=")
        if option not in ("--kernel", "--kernels"):
            continue
        if equals:
            found += [option, value]
        else:
            found += [option, *command[place + 1 : place + 2]]
    return tuple(found)


def with_kernels(finding: Finding, options: Sequence[str]) -> Finding:
    """The finding, whose commands find the user's own kernel by these options."""
    verdict, step = (_with(text, options) for text in (finding.verdict, finding.next_step))
    return msgspec.structs.replace(finding, verdict=verdict, next_step=step)


def step_with_kernels(step: Step, options: Sequence[str]) -> Step:
    """The same for a step, its reason and its findings."""
    findings = tuple(with_kernels(finding, options) for finding in step.findings)
    return msgspec.structs.replace(step, findings=findings, why=_with(step.why, options))


def _with(text: str, options: Sequence[str]) -> str:
    words = shlex.join(options)
    return _RUNS_KERNELS.sub(lambda found: f"{found[0]} {words}", text) if words else text
