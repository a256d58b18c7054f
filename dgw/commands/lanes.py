"""The lanes that run cases once more behind another tool: which tools there are, and what to do without them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dgw.commands.console import warn
from dgw.commands.session import Machine
from dgw.errors import Missing

if TYPE_CHECKING:
    from dgw.workbench.passes import Pass


def timeline(where: Machine) -> tuple[Pass, ...]:
    """The timeline lane: nsys, or torch.profiler where there is none; nothing, with a warning, without a GPU."""
    from dgw.workbench.timeline_pass import TimelinePass
    from dgw.workbench.tools import find_tool

    if where.engine != "gpu":
        warn(f"no timeline: {where.reason}", "--timeline on a machine with a GPU")
        return ()
    tool = find_tool("nsys")
    if tool is None:
        warn("nsys was not found: torch.profiler takes the timeline", "dgw doctor")
    return (TimelinePass(tool),)


def lines(where: Machine) -> tuple[Pass, ...]:
    """What the emulator counts by source line, to stand beside what was measured there; it is its own part without a
    GPU."""
    from dgw.commands.session import cache_folder
    from dgw.workbench.lines_pass import LinesPass

    return (LinesPass(cache_folder(), where.device),) if where.engine == "gpu" else ()


def sanitizer(names: Sequence[str], where: Machine) -> tuple[Pass, ...]:
    """The sanitizer lane with these tools; nothing for no names. Raises UsageError, and Missing without GPU or tool."""
    if not names:
        return ()
    from dgw.workbench.collectors.sanitizer import tools
    from dgw.workbench.sanitizer_pass import SanitizerPass
    from dgw.workbench.tools import find_tool

    wanted = tools(names)
    if where.engine != "gpu":
        raise Missing(
            f"compute-sanitizer examines kernels on a GPU: {where.reason}",
            "dgw check --engine emulator, which finds out-of-bounds accesses and races too",
        )
    path = find_tool("compute-sanitizer")
    if path is None:
        raise Missing(
            "compute-sanitizer was not found",
            "pip install nvidia-cuda-sanitizer-api, or set DGW_COMPUTE_SANITIZER to it",
        )
    return (SanitizerPass(path, wanted, version(path)),)


def version(path: Path) -> str:
    """What the tool says its version is; empty when it does not."""
    from dgw.workbench.tools import parse_version

    try:
        done = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return parse_version(done.stdout)
