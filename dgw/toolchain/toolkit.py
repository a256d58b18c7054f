"""Finds the pieces of the CUDA toolkit that dgw uses, without importing cuda: headers, disassembler, NVRTC's version.

The pip packages of NVIDIA come first, because they are what dgw depends on; then CUDA_HOME or CUDA_PATH, PATH, and
/usr/local/cuda. Nothing here needs a driver.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from dgw.errors import Missing


def _package_roots() -> Iterator[Path]:
    """`nvidia/cu13` and the like of every folder on sys.path, newest toolkit of a folder first."""
    for folder in sys.path:
        nvidia = Path(folder or ".") / "nvidia"
        if nvidia.is_dir():
            numbered = (p for p in nvidia.glob("cu[0-9]*") if p.name[2:].isdigit())
            yield from sorted(numbered, key=lambda p: int(p.name[2:]), reverse=True)


def _toolkit_roots() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield Path("/usr/local/cuda")


@lru_cache(maxsize=1)
def include_folder() -> Path:
    """The folder with cuda_fp16.h; Missing when no package and no toolkit has it."""
    for root in (*_package_roots(), *_toolkit_roots()):
        for folder in (root / "include", root / "targets" / "x86_64-linux" / "include"):
            if (folder / "cuda_fp16.h").is_file():
                return folder
    raise Missing("the CUDA headers (cuda_fp16.h) are not installed", hint="pip install nvidia-cuda-runtime")


def find_tool(name: str) -> Path:
    """The executable `name` (nvdisasm, cuobjdump); Missing with the package to install when there is none."""
    for root in _package_roots():
        if os.access(root / "bin" / name, os.X_OK):
            return root / "bin" / name
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    for root in _toolkit_roots():
        if os.access(root / "bin" / name, os.X_OK):
            return root / "bin" / name
    raise Missing(f"{name} is not installed", hint=f"pip install nvidia-cuda-{name}")


def package_version(package: str) -> str:
    """Version of an installed distribution from the name of its metadata folder; empty when there is none.

    The standard library's importlib.metadata gives the same and takes 50 ms to import, more than a warm compile.
    """
    prefix = package.replace("-", "_") + "-"
    for folder in sys.path:
        for found in Path(folder or ".").glob(f"{prefix}*.dist-info"):
            return found.name.removeprefix(prefix).removesuffix(".dist-info")
    return ""


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """NVRTC's version: of the pip package, or what the library itself says; Missing when there is none."""
    packaged = package_version("nvidia-cuda-nvrtc")
    if packaged:
        return packaged
    from dgw.toolchain.nvrtc import library_version

    return library_version()


@lru_cache(maxsize=1)
def compiler_identity() -> str:
    """What a compiled program depends on besides its own text: versions of NVRTC and of the CUDA headers."""
    headers = package_version("nvidia-cuda-runtime") or include_folder().as_posix()
    return f"nvrtc {nvrtc_version()}, headers {headers}"
