from __future__ import annotations

from pathlib import Path

import pytest

from dgw.workbench.tools import TOOLS, Places, find_tool, importer_of, parse_version, report_reader_folder

NSIGHT = "opt/nvidia/nsight-compute/2025.3.1"


def _executable(root: Path, *paths: str) -> None:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)


def _places(root: Path, **env: str) -> Places:
    return Places(root=root, env=env, packages=(root / "site-packages",))


@pytest.mark.parametrize("tool", TOOLS)
def test_a_machine_without_tools_has_none(tmp_path: Path, tool: str) -> None:
    assert find_tool(tool, _places(tmp_path)) is None


@pytest.mark.parametrize(
    ("tool", "path"),
    [
        ("ncu", f"{NSIGHT}/ncu"),
        ("ncu", f"{NSIGHT}/target/linux-desktop-glibc_2_11_3-x64/ncu"),
        ("ncu", "usr/local/cuda-13.0/bin/ncu"),
        ("ncu", "usr/local/cuda-13.0/nsight-compute-2025.3.1/ncu"),
        ("nsys", f"{NSIGHT}/host/target-linux-x64/nsys"),
        ("nsys", "opt/nvidia/nsight-systems/2025.5.2/bin/nsys"),
        ("nsys", "opt/nvidia/nsight-systems-cli/2025.5.2/target-linux-x64/nsys"),
        ("compute-sanitizer", "usr/local/cuda-13.0/compute-sanitizer/compute-sanitizer"),
        ("compute-sanitizer", "usr/local/cuda/bin/compute-sanitizer"),
        ("compute-sanitizer", "site-packages/nvidia/cu13/bin/compute-sanitizer"),
    ],
)
def test_tools_are_found_where_nvidia_puts_them(tmp_path: Path, tool: str, path: str) -> None:
    _executable(tmp_path, path)
    assert find_tool(tool, _places(tmp_path)) == tmp_path / path


def test_path_comes_before_folders_and_a_chosen_tool_before_both(tmp_path: Path) -> None:
    _executable(tmp_path, "bin/ncu", "mine/ncu", f"{NSIGHT}/ncu")
    on_path = str(tmp_path / "bin")
    assert find_tool("ncu", _places(tmp_path, PATH=on_path)) == tmp_path / "bin/ncu"
    assert (
        find_tool("ncu", _places(tmp_path, PATH=on_path, DGW_NCU=str(tmp_path / "mine/ncu"))) == tmp_path / "mine/ncu"
    )


def test_the_newest_installation_is_taken_by_number_and_not_by_letter(tmp_path: Path) -> None:
    _executable(tmp_path, "opt/nvidia/nsight-compute/2025.9.0/ncu", "opt/nvidia/nsight-compute/2025.10.0/ncu")
    assert find_tool("ncu", _places(tmp_path)) == tmp_path / "opt/nvidia/nsight-compute/2025.10.0/ncu"


def test_a_file_that_cannot_be_run_is_no_tool(tmp_path: Path) -> None:
    _executable(tmp_path, f"{NSIGHT}/ncu")
    (tmp_path / NSIGHT / "ncu").chmod(0o644)
    assert find_tool("ncu", _places(tmp_path)) is None


def test_the_report_reader_of_an_installation_is_found(tmp_path: Path) -> None:
    _executable(tmp_path, f"{NSIGHT}/ncu", f"{NSIGHT}/extras/python/ncu_report.py")
    expected = tmp_path / NSIGHT / "extras/python"
    assert report_reader_folder(tmp_path / NSIGHT / "ncu", _places(tmp_path)) == expected
    assert report_reader_folder(None, _places(tmp_path)) == expected


def test_the_importer_of_nsys_is_found_beside_it_or_missing(tmp_path: Path) -> None:
    _executable(tmp_path, f"{NSIGHT}/host/target-linux-x64/nsys")
    nsys = tmp_path / NSIGHT / "host/target-linux-x64/nsys"
    assert importer_of(nsys) is None
    _executable(tmp_path, f"{NSIGHT}/host/linux-desktop-glibc_2_11_3-x64/QdstrmImporter")
    assert importer_of(nsys) is not None


def test_versions_are_read_from_what_the_tools_print() -> None:
    assert parse_version("NVIDIA (R) Nsight Compute\nVersion 2025.3.1.0 (build 36398880)") == "2025.3.1.0"
    assert parse_version("NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0") == "2025.3.2.474"
    assert parse_version("nothing") == ""
