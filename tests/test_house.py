from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dgw.cli import COMMANDS, HIDDEN

ROOT = Path(__file__).resolve().parents[1]
LONGEST_MODULE, LONGEST_FUNCTION = 400, 60
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
HEAVY = ("torch", "triton", "cuda", "matplotlib", "sqlalchemy", "scipy", "numpy", "rich")


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository; where there is no git, every file that git would not ignore by folder."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    found = [path for pattern in patterns or ("*",) for path in ROOT.rglob(pattern)]
    return [path for path in found if path.is_file() and not any(part.startswith(".") for part in path.parts)]


PYTHON = tracked("*.py")


def test_there_is_something_to_look_at() -> None:
    assert len(PYTHON) > 50


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_is_long_and_none_has_a_vague_name(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= LONGEST_MODULE
    assert path.stem.strip("_") not in VAGUE


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_is_long(path: Path) -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, functions)]
    long = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in nodes}
    assert {name: lines for name, lines in long.items() if lines > LONGEST_FUNCTION} == {}


def test_no_file_names_a_folder_of_the_machine_it_was_written_on() -> None:
    own = Path(__file__).resolve()
    pattern = re.compile("|".join(("/" + "work/", "/" + "root/", "/" + "farm/", "bash" + "_jobs")))
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if path != own and (match := pattern.search(text)):
            found.append(f"{path.relative_to(ROOT)}: {match[0]}")
    assert found == []


def test_imports_go_down_only() -> None:
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout


def modules_after(*arguments: str) -> set[str]:
    """The modules in a fresh interpreter after one command line of dgw."""
    program = (
        "import sys\n"
        "from dgw.cli import run\n"
        f"code = run({list(arguments)!r})\n"
        "sys.stderr.write(' '.join(sorted(sys.modules)))\n"
        "sys.exit(code)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Usage: dgw" in ran.stdout
    return set(ran.stderr.split())


def test_help_imports_nothing_heavy_and_no_machinery() -> None:
    loaded = modules_after("--help")
    assert {name.partition(".")[0] for name in loaded} & set(HEAVY) == set()
    assert {name for name in loaded if name.startswith("dgw.")} == {
        "dgw.cli",
        "dgw.commands",
        "dgw.commands.console",
        "dgw.errors",
    }


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in HIDDEN])
def test_help_of_a_command_imports_nothing_heavy(command: str) -> None:
    loaded = modules_after(command, "--help")
    assert {name.partition(".")[0] for name in loaded} & set(HEAVY) == set()
    assert not any(
        name.startswith(("dgw.workbench", "dgw.kernels", "dgw.toolchain", "dgw.operands")) for name in loaded
    )


def test_help_loads_little_more_than_its_option_parser() -> None:
    program = "import sys, typer\nsys.stdout.write(str(len(sys.modules)))"
    parser = int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    assert len(modules_after("--help")) < parser + 60
