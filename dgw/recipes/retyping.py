"""The command line that measures a case again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from dgw.model import Case, Problem

TIMED = ("time_cold", "time_hot", "sm_clock", "power", "throttle", "temperature")
TIMELINE = ("kernel_time", "gap_time", "timeline_kernels", "launch_api_time")
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
