"""CUDA C++ to PTX and cubin with NVRTC. Needs no driver and no toolkit, only NVIDIA's pip packages.

NVRTC is called through cuda.bindings, because the Program of cuda.core asks the driver for its version before it gives
PTX. The driver's compute cache is switched off: it answers a repeated compile without any remark of ptxas, and the
remarks are where spills are counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgw.errors import CompileError, Missing
from dgw.toolchain.toolkit import include_folder

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a")
_ERROR_LINE = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)
_INSTALL = "pip install cuda-bindings nvidia-cuda-nvrtc"


@dataclass(frozen=True)
class Compiled:
    """One compiled program: PTX text, cubin, and the compiler's whole log (with the remarks of ptxas -v)."""

    ptx: str
    cubin: bytes
    log: str


def compile_options(
    arch: str, defines: Sequence[tuple[str, int | str]], include_dirs: Sequence[Path], flags: Sequence[str]
) -> tuple[str, ...]:
    """The options given to NVRTC, own flags last; the CUDA headers come after the project's folders."""
    standard = () if any(flag.startswith(("-std", "--std")) for flag in flags) else ("--std=c++17",)
    return (
        f"--gpu-architecture={arch}",
        *standard,
        "--generate-line-info",
        "--no-cache",
        "--ptxas-options=-v",
        "--ptxas-options=--warn-on-spills",
        *(f"--define-macro={name}={value}" for name, value in defines),
        *(f"--include-path={folder}" for folder in include_dirs),
        f"--include-path={include_folder()}",
        *flags,
    )


def compile_program(
    text: str,
    name: str,
    arch: str,
    defines: Sequence[tuple[str, int | str]] = (),
    include_dirs: Sequence[Path] = (),
    flags: Sequence[str] = (),
) -> Compiled:
    """Compile `text` for `arch` (such as sm_90a). `name` is the file name in messages and line tables.

    CompileError carries the first line that is an error and the whole log; Missing says what to install. Threads may
    compile at the same time: NVRTC runs without the interpreter's lock.
    """
    nvrtc = _bindings()
    options = [option.encode() for option in compile_options(arch, defines, include_dirs, flags)]
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    _require(nvrtc, status, name)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _read(nvrtc, program, "ProgramLog", name).decode("utf-8", "replace").strip("\0 \n")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _failure(name, arch, log or status.name)
        ptx = _read(nvrtc, program, "PTX", name).decode().rstrip("\0")
        return Compiled(ptx=ptx, cubin=_read(nvrtc, program, "CUBIN", name), log=log + "\n" if log else "")
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def library_version() -> str:
    """Major and minor version as the NVRTC library itself says, such as `13.0`."""
    nvrtc = _bindings()
    status, major, minor = nvrtc.nvrtcVersion()
    _require(nvrtc, status, "nvrtcVersion")
    return f"{major}.{minor}"


def _bindings() -> Any:
    """The nvrtc module of cuda.bindings with its library loaded."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as error:  # no binding, no library, or one that cannot be loaded
        raise Missing(f"NVRTC cannot be loaded: {str(error).partition(chr(10))[0]}", hint=_INSTALL) from error
    return nvrtc


def _read(nvrtc: Any, program: Any, what: str, name: str) -> bytes:
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _require(nvrtc, status, name)
    buffer = bytes(bytearray(size))  # a fresh object: the binding writes into it
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    _require(nvrtc, status, name)
    return buffer


def _require(nvrtc: Any, status: Any, name: str) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"{name}: NVRTC says {status.name}", hint="dgw doctor")


def _failure(name: str, arch: str, log: str) -> CompileError:
    """The first error line of `log` as an error; the rest stays in `.log`."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    first = next((line for line in lines if _ERROR_LINE.search(line)), lines[0])
    where = "" if name in first else f"{name}: "
    return CompileError(f"{where}{first} ({arch})", hint=f"correct {name} and repeat the command", log=log)
