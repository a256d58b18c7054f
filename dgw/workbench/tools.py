"""Where NVIDIA's tools are: on PATH, in CUDA folders, inside Nsight Compute folders, in wheels. Nothing is run here."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

TOOLS = ("ncu", "nsys", "compute-sanitizer")

_NSIGHT_COMPUTE = (
    "opt/nvidia/nsight-compute/*",
    "usr/local/cuda*/nsight-compute-*",
    "usr/local/NVIDIA-Nsight-Compute*",
    "opt/NVIDIA-Nsight-Compute*",
)
_BELOW: Mapping[str, tuple[str, ...]] = {
    "ncu": ("ncu", "target/*/ncu"),
    "nsys": ("host/target-linux-x64/nsys", "host/target-linux-*/nsys", "host/*/nsys"),
    "compute-sanitizer": ("host/*/compute-sanitizer", "compute-sanitizer"),
}
_FOLDERS: Mapping[str, tuple[str, ...]] = {
    "ncu": ("usr/local/cuda*/bin",),
    "nsys": (
        "usr/local/cuda*/bin",
        "opt/nvidia/nsight-systems/*/bin",
        "opt/nvidia/nsight-systems/*/target-linux-x64",
        "opt/nvidia/nsight-systems-cli/*/bin",
        "opt/nvidia/nsight-systems-cli/*/target-linux-x64",
        "usr/local/cuda*/nsight-systems-*/bin",
    ),
    "compute-sanitizer": ("usr/local/cuda*/compute-sanitizer", "usr/local/cuda*/bin"),
}
_VERSION = re.compile(r"[Vv]ersion:?\s+(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class Places:
    """What is searched: a file system root, an environment, and folders of Python packages."""

    root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    packages: tuple[Path, ...] = field(default_factory=lambda: tuple(Path(entry) for entry in sys.path if entry))

    def glob(self, pattern: str) -> list[Path]:
        """Matches below the root, newest version first."""
        return sorted(self.root.glob(pattern), key=_newest, reverse=True)


def _newest(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def candidates(name: str, places: Places | None = None) -> Iterator[Path]:
    """Where the tool `name` could be, best first: DGW_NCU and the like, PATH, CUDA, Nsight Compute, wheels."""
    places = places or Places()
    chosen = places.env.get("DGW_" + name.upper().replace("-", "_"))
    if chosen:
        yield Path(chosen)
    for entry in places.env.get("PATH", "").split(os.pathsep):
        if entry:
            yield Path(entry) / name
    for variable in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        if places.env.get(variable):
            yield Path(places.env[variable]) / "bin" / name
            yield Path(places.env[variable]) / name / name
    for pattern in _FOLDERS.get(name, ()):
        yield from (folder / name for folder in places.glob(pattern))
    for folder in nsight_compute_folders(places):
        for below in _BELOW.get(name, ()):
            yield from sorted(folder.glob(below))
    for package in places.packages:
        yield from sorted(package.glob(f"nvidia/*/bin/{name}")) if package.name == "site-packages" else ()
        yield from sorted(package.glob(f"nvidia/*/{name}/{name}")) if package.name == "site-packages" else ()


def find_tool(name: str, places: Places | None = None) -> Path | None:
    """The executable of `ncu`, `nsys` or `compute-sanitizer`, or None."""
    for path in candidates(name, places):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def nsight_compute_folders(places: Places | None = None) -> list[Path]:
    """Every installation of Nsight Compute, newest first."""
    places = places or Places()
    found = [folder for pattern in _NSIGHT_COMPUTE for folder in places.glob(pattern) if folder.is_dir()]
    return sorted(dict.fromkeys(found), key=_version_of_folder, reverse=True)


def _version_of_folder(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]


def report_reader_folder(ncu: Path | None, places: Places | None = None) -> Path | None:
    """The `extras/python` folder that holds the `ncu_report` of an installation: that of `ncu`, else the newest."""
    above = list(ncu.resolve().parents)[:4] if ncu else []
    for folder in [*above, *nsight_compute_folders(places)]:
        python = folder / "extras" / "python"
        if (python / "ncu_report.py").is_file():
            return python
    return None


def importer_of(nsys: Path) -> Path | None:
    """The QdstrmImporter that belongs to this nsys, or None when only the target half is installed."""
    for folder in list(nsys.resolve().parents)[:3]:
        for pattern in ("QdstrmImporter", "host-linux-*/QdstrmImporter", "*/QdstrmImporter"):
            for found in sorted(folder.glob(pattern)):
                if found.is_file():
                    return found
    return None


def parse_version(text: str) -> str:
    """The version in what `--version` prints, such as 2025.3.1.0; empty when there is none."""
    found = _VERSION.search(text)
    return found.group(1) if found else ""
