"""Command lines that concern a case again: as complete as they have to be to run, for a kernel of the user's too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from dgw.kernels.loader import FAMILY_ORDER
from dgw.model import Case, Finding, Problem, Record, Step

TIMED = ("time_cold", "time_hot", "sm_clock", "power", "throttle", "temperature")
TIMELINE = ("kernel_time", "gap_time", "timeline_kernels", "launch_api_time")
_OURS = f"(?:{'|'.join((*FAMILY_ORDER, 'baselines'))})/"
_RUNS_KERNELS = re.compile(
    rf"\bdgw (?:(?:profile|compare|sweep|heatmap|check|diagnose)(?= --?\w| [\w.-]+/|$)|show(?= (?!{_OURS})[\w.-]+/))"
    rf"(?! --variant {_OURS})(?![^;]* --kernels? )"
)
"""A command that has to know the user's kernel: what names a stage of dgw's own does not, nor what names the file."""
SHOWN = ("--shape", "--dtype", "--layout", "--out", "--beta", "--bias", "--activation", "--residual", "--quantise")
"""The options of a problem that `dgw show` has."""
STATIC = ("registers_per_thread", "spill_store_bytes", "spill_load_bytes", "blocks", "blocks_per_sm")


def profile(
    case: Case, metrics: Sequence[str] = (), variant: str = "", tunables: Mapping[str, int | str] | None = None
) -> str:
    """`dgw profile ...` of the same problem: with what gets `metrics`, or with another variant or other tunables."""
    words = ["dgw", "profile", "--variant", variant or case.variant, *problem_options(case.problem)]
    words += _config({**({} if variant else case.config), **(tunables or {})})
    counters = [m for m in metrics if m not in (*TIMED, *TIMELINE, *STATIC)]
    if counters:
        words += ["--counters", ",".join(counters)]
    elif metrics:
        words += ["--counters", "none"]
    if any(m in TIMELINE for m in metrics):
        words.append("--timeline")
    return shlex.join(words)


def again(command: str, case: Case, *more: str, config: bool = True) -> str:
    """`dgw COMMAND --variant ...` of the same case, and `more` options; without `config` its tunables are left open."""
    words = ["dgw", command, "--variant", case.variant, *problem_options(case.problem)]
    return shlex.join([*words, *(_config(case.config) if config else []), *more])


def show(case: Case, what: str = "") -> str:
    """`dgw show VARIANT --WHAT` for the same problem and tunables."""
    options = problem_options(case.problem)
    kept: list[str] = []
    for place, word in enumerate(options):
        if word in SHOWN:
            value = options[place + 1 : place + 2]
            kept += [word, *(one for one in value if not one.startswith("--"))]
    return shlex.join(["dgw", "show", case.variant, *([what] if what else []), *kept, *_config(case.config)])


def look_for_reason(case: Case) -> str:
    """The command that looks for the reason of a wrong result."""
    return again("diagnose", case, "--sequence", "precision")


def failed(record: Record) -> str:
    """What a record that is not ok says, and the command that looks further; what never ran has no wrong result."""
    said = f"it is {record.outcome}: {record.reason}"
    if record.outcome == "refused":
        return f"it is not for this problem: {record.reason}; {show(record.case, '--configs')}"
    if record.outcome == "launch-failed":
        return said
    if record.outcome == "compile-failed":
        return f"{said}; {show(record.case, '--source')}"
    return f"{said}; its reason: {look_for_reason(record.case)}"


def other_tiles(case: Case) -> str:
    """How other tiles of this kernel are tried on this problem: a map, a sweep of one tunable, or words where it
    declares none but those of its k loop."""
    from dgw.recipes.tiling import K_TILE, STAGES

    names = [name for name in case.config if name not in (*K_TILE, *STAGES)]
    if not names:
        return "declare them as tunables, and dgw sweep and dgw heatmap try them all"
    return again("heatmap" if len(names) > 1 else "sweep", case, config=False)


def _config(config: Mapping[str, int | str]) -> list[str]:
    return ["--config", ",".join(f"{name}={value}" for name, value in config.items())] if config else []


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
    for option, factor, usual in (("--alpha", problem.alpha, 1.0), ("--beta", problem.beta, 0.0)):
        words += [option, f"{factor:g}"] if factor != usual else []
    if problem.bias is not None:
        words.append("--bias")
    if problem.epilogue.activation != "none":
        words += ["--activation", problem.epilogue.activation]
    if problem.residual is not None:
        words.append("--residual")
    if problem.epilogue.quantise != "none":
        words += ["--quantise", problem.epilogue.quantise]
    if problem.d.zero_point:
        words += ["--zero-point", str(problem.d.zero_point)]
    for name in ("a", "b", "d"):
        lead = problem.operands()[name].ld
        words += [f"--ld{name}", str(lead)] if lead is not None else []
    if problem.data != "normal":
        words += ["--data", problem.data]
    return words + (["--seed", str(problem.seed)] if problem.seed else [])


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
    verdict, step = (knowing(text, options) for text in (finding.verdict, finding.next_step))
    return msgspec.structs.replace(finding, verdict=verdict, next_step=step)


def step_with_kernels(step: Step, options: Sequence[str]) -> Step:
    """The same for a step, its reason and its findings."""
    findings = tuple(with_kernels(finding, options) for finding in step.findings)
    return msgspec.structs.replace(step, findings=findings, why=knowing(step.why, options))


def knowing(text: str, options: Sequence[str]) -> str:
    """The text, in which every command that runs or shows the user's own kernel finds it by these options."""
    words = shlex.join(options)
    return _RUNS_KERNELS.sub(lambda found: f"{found[0]} {words}", text) if words else text
