"""What CI runs on dgw's own kernels, and the workflows that others are given."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dgw.toolchain.toolkit import package_version
from dgw.workbench.baselines import Baselines

ROOT = Path(__file__).resolve().parents[1]
KERNEL = Path("dgw") / "kernels" / "cuda" / "s03_swizzled.cu"
OWN = Baselines(ROOT / "perf" / "baselines")
WORKFLOWS = sorted((ROOT / "docs" / "ci").glob("*.yml"))


def recipe(target: str) -> list[str]:
    """The command line of a target of the Makefile that has one line, without the folder of its program."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:.*\n\t(.+)\n(?!\t)", text, re.MULTILINE)
    assert found is not None
    program, *arguments = shlex.split(found[1])
    assert program == "$(BIN)/dgw"
    return arguments


def gate(tree: Path) -> subprocess.CompletedProcess[str]:
    """The command of `make gate`, run on a tree; compiled programs are shared with `make gate` itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "DGW_"))}
    environment |= {"PYTHONPATH": str(tree), "DGW_CACHE": str(ROOT / ".dgw" / "cache")}
    command = [sys.executable, "-m", "dgw", *recipe("gate")]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of dgw with its suites and baselines."""
    for folder in ("dgw", "perf"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_a_bank_conflict_planted_in_a_stage_fails_what_ci_runs_and_is_named(tree: Path) -> None:
    text = (tree / KERNEL).read_text(encoding="utf-8")
    plain, count = re.subn(r"return thread \* (CHUNK % 128|LANE_STRIDE / 128 .*);", "return 0;", text)
    assert count == 2, "the swizzle is written in another way now: plant the conflict there"
    (tree / KERNEL).write_text(plain, encoding="utf-8")
    ended = gate(tree)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert re.search(
        r"regressed  cuda/swizzled 256x256x128 f16 nn\n +why +bank conflicts of shared loads 0 -> ", ended.stdout
    )
    assert re.search(r"at +dgw/kernels/cuda/s03_swizzled\.cu:\d+\n", ended.stdout)
    assert "identical" in ended.stdout
    assert ended.stdout.splitlines()[-1].endswith("(exit 1)")


def test_ci_runs_the_gate_and_ends_with_it_where_it_fails() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "set -euo pipefail" in lines
    assert "make --no-print-directory gate" in lines
    assert recipe("gate") == ["gate", "--exact", "--suite", "ci"]


def test_constraints_pin_the_compiler_that_the_baselines_were_made_with() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {
        name: re.search(rf"^nvidia-cuda-{name}==(\S+)$", text, re.MULTILINE)
        for name in ("nvrtc", "runtime", "nvdisasm")
    }
    assert all(pinned.values())
    compilers = {file.compiler for file in OWN.files()}
    assert compilers == {f"nvrtc {pinned['nvrtc'][1]}, headers {pinned['runtime'][1]}"}  # type: ignore[index]
    assert package_version("nvidia-cuda-nvrtc") == pinned["nvrtc"][1]  # type: ignore[index]


def test_every_stage_that_the_ci_suite_names_is_approved_and_no_other() -> None:
    from dgw.kernels.loader import load
    from dgw.operands.suites import read_suite

    suite = read_suite((ROOT / "perf" / "suites" / "ci.toml").read_text(encoding="utf-8"), "ci.toml")
    approved = {one.facts.variant for file in OWN.files() for one in file.cases.values() if "ci" in one.suites}
    assert approved == set(suite.variants)
    families = {name.partition("/")[0] for name in suite.variants}
    assert families == {"cuda", "hopper"}
    ladder = {variant.id for variant in load().values() if variant.family in families and variant.stage is not None}
    assert set(suite.variants) >= ladder


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_an_example_workflow_types_options_that_exist(path: Path) -> None:
    from dgw.cli import COMMANDS

    lines = re.findall(r"(?:run: |- )dgw (.+)", path.read_text(encoding="utf-8"))
    assert lines
    for line in lines:
        command, *arguments = shlex.split(line)
        assert command in COMMANDS
        shown = subprocess.run(
            [sys.executable, "-m", "dgw", command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert [option for option in arguments if option.startswith("--") and option not in shown] == []


def test_the_workflows_install_the_compiler_that_is_pinned() -> None:
    pinned = re.search(
        r"^nvidia-cuda-nvrtc==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert pinned is not None
    for path in WORKFLOWS:
        assert set(re.findall(r"nvidia-cuda-nvrtc==([\d.]+)", path.read_text(encoding="utf-8"))) <= {pinned[1]}
