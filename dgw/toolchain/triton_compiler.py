"""Triton as a compiler: a kernel file, its constants and its argument types in; PTX, cubin and log out. Needs no GPU.

A Source of language `triton` names a Python file with `@triton.jit` functions. `defines` are the constexpr arguments;
`flags` are `entry=NAME`, `signature=TYPES` (Triton's notation for the remaining arguments in order, such as
`*fp16:16,i32,fp32`, where `:16` promises a multiple of 16) and options of the compiler, such as `num_warps=4`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from dgw.errors import CompileError, Missing
from dgw.model import Source, sm
from dgw.toolchain.nvrtc import Compiled

_SECONDS = 300
_FACTS = re.compile(
    r"^triton \S+: (\d+) warps, (\d+) bytes dynamic smem, (\d+) bytes global scratch a block, (\d+) hidden pointers$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Facts:
    """What Triton decides about a launch: warps and dynamic shared bytes a block, global scratch bytes a block, and how
    many pointers it adds after the declared arguments (the first is the scratch; the others may be null)."""

    warps: int
    shared_bytes: int
    scratch_bytes: int
    hidden_pointers: int


def version() -> str:
    """Version of the installed Triton, without importing it; empty when there is none."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return ""


def identity() -> str:
    """What the machine code depends on besides the source: the compiler and its version. Missing without Triton."""
    found = version()
    if not found:
        raise Missing("Triton is not installed", hint="pip install triton")
    return f"triton {found}"


def facts(log: str) -> Facts | None:
    """The Facts that `compile_kernel` put into the log; None when it is another compiler's log."""
    found = _FACTS.search(log)
    return Facts(*map(int, found.groups())) if found else None


def compile_kernel(path: Path, source: Source, arch: str) -> Compiled:
    """Compile `source`, whose file is `path`, for `arch`.

    The log starts with a line of Facts. Raises Missing without Triton, CompileError when the kernel does not compile,
    also when Triton's compiler aborts or takes longer than 300 s.
    """
    identity()
    options = dict(flag.split("=", 1) for flag in source.flags)
    request = {
        "path": str(path.absolute()),
        "entry": options.pop("entry"),
        "signature": options.pop("signature").split(","),
        "constants": source.defines,
        "capability": sm(arch),
        "options": {name: int(value) for name, value in options.items()},
    }
    with tempfile.TemporaryDirectory(prefix="dgw-triton-") as name:
        folder = Path(name)
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        done = _work(folder, path)
        log = _shown(done.stdout, path, folder)
        if done.returncode != 0:
            raise CompileError(
                f"{path.name} does not compile with {identity()} for {arch}: {_reason(folder, done, path)}",
                "dgw show --source, or another --config",
                log=log,
            )
        known = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        head = (
            f"triton {known['version']}: {known['warps']} warps, {known['shared']} bytes dynamic smem, "
            f"{known['scratch']} bytes global scratch a block, {known['hidden']} hidden pointers"
        )
        ptx = (folder / "kernel.ptx").read_text(encoding="utf-8")
        return Compiled(ptx=ptx, cubin=(folder / "kernel.cubin").read_bytes(), log=f"{head}\n{log}")


def _work(folder: Path, path: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_DUMP_PTXAS_LOG": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "dgw.toolchain.triton_worker", str(folder)]
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CompileError(f"{path.name}: Triton took longer than {_SECONDS} s", "another --config") from error


def _reason(folder: Path, done: subprocess.CompletedProcess[str], path: Path) -> str:
    """One line: the last line of the exception, or the signal and the assertion that ended the compiler."""
    told = folder / "error.txt"
    if told.is_file():
        lines = [line.strip() for line in told.read_text(encoding="utf-8").splitlines() if line.strip(" ^")]
        kind = lines[0].partition(":")[0] if lines else "error"
        return _shown(lines[-1] if len(lines) == 1 else f"{kind}: {lines[-1]}", path, folder)
    name = signal.Signals(-done.returncode).name if done.returncode < 0 else f"status {done.returncode}"
    lines = [line for line in done.stdout.splitlines() if "ssertion" in line or "rror" in line]
    return f"its compiler ended with {name}" + (f": {_shown(lines[0].strip(), path, folder)}" if lines else "")


def _shown(text: str, path: Path, folder: Path) -> str:
    """`text` without the folders of this machine, because logs are kept in records."""
    for known in (path.absolute().parent, folder, Path(sys.prefix), Path(sys.base_prefix)):
        if known != Path("/"):
            text = text.replace(f"{known}/", "")
    return text
