"""Whether ncu can read counters here, found out the only way that proves it: by profiling a kernel.

`ncu` on a program without kernels exits 0 where profiling is forbidden, so a report with one kernel is asked for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgw.errors import ReportError
from dgw.workbench.collectors import ncu

TRIVIAL = """
import nvtx
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

device = Device(0)
device.set_current()
stream = device.create_stream()
code = 'extern "C" __global__ void dgw_doctor(void) {}'
compiled = Program(code, "c++", ProgramOptions(arch="sm_" + device.arch)).compile("cubin")
kernel = compiled.get_kernel("dgw_doctor")
with nvtx.annotate("doctor", domain="dgw"):
    launch(stream, LaunchConfig(grid=1, block=32), kernel)
stream.sync()
"""
"""A program that launches one empty kernel in a range of the domain that dgw's counter lane includes."""

COUNTER = "sm__cycles_active.avg"


@dataclass(frozen=True)
class Completed:
    """What a command left: exit code (None: it could not be started or took too long), standard output and error."""

    returncode: int | None
    stdout: str = ""
    stderr: str = ""


Run = Callable[[Sequence[str], Mapping[str, str] | None, float], Completed]


def run_command(argv: Sequence[str], env: Mapping[str, str] | None = None, seconds: float = 10.0) -> Completed:
    """Run `argv` for at most `seconds`; nothing is raised."""
    try:
        done = subprocess.run(
            list(argv),
            env=dict(env) if env is not None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Completed(None, "", str(error))
    return Completed(done.returncode, done.stdout, done.stderr)


def probe_counters(
    tool: Path, env: Mapping[str, str] | None = None, run: Run = run_command, program: Sequence[str] = ()
) -> ncu.NcuProblem | None:
    """Profile one empty kernel (`program`, default: :data:`TRIVIAL`) with `tool`; the problem, or None when it worked.

    A program that fails without ncu too is said to be that, so that a broken Python is not taken for a broken ncu.
    """
    program = tuple(program) or (sys.executable, "-c", TRIVIAL)
    with tempfile.TemporaryDirectory(prefix="dgw-doctor-") as folder:
        report = Path(folder) / "doctor.ncu-rep"
        environment = ncu.ncu_environment(env if env is not None else os.environ, Path(folder) / "tmp")
        done = run([*ncu.ncu_command(tool, [COUNTER], report), *program], environment, 60.0)
        log = report.with_suffix(".log")
        said = (log.read_text(encoding="utf-8", errors="replace") if log.is_file() else "") + done.stdout + done.stderr
        if done.returncode is None:
            return ncu.NcuProblem(
                "not-started", f"ncu could not be run: {done.stderr}", "check the installation of ncu"
            )
        kernels = _kernels(report)
        problem = ncu.diagnose(said, done.returncode, kernels=kernels, report_exists=report.is_file())
    if problem is None or not problem.fatal:
        return problem
    if problem.kind in ("nothing-profiled", "application", "report-missing") and not problem.missing:
        alone = run(list(program), env, 60.0)
        if alone.returncode != 0:
            last = (alone.stderr.strip().splitlines() or [f"exit code {alone.returncode}"])[-1]
            return ncu.NcuProblem(
                "program", f"a kernel cannot even be launched without ncu: {last}", "repair CUDA first"
            )
    return problem


def _kernels(report: Path) -> int:
    """Kernels in the report; 1 when the file is whole and only the reader is missing, which is a symptom of its own."""
    if not report.is_file() or ncu.damage(report):
        return 0
    try:
        return sum(len(kernels) for kernels in ncu.read_report(report).values())
    except ReportError:
        return 0
    except Exception as error:
        if "ncu_report" in str(error):
            return 1
        raise
