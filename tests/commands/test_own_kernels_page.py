"""docs/own-kernels.md: its example runs, and it names what a declaration can say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dgw.model import Launch, Plan, Scalar, Tunable
from dgw.toolchain.cache import CompileCache
from tests.commands.conftest import Dgw

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "own-kernels.md").read_text(encoding="utf-8")
COMMANDS = [line for line in PAGE.splitlines() if line.startswith("dgw ")]


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert isinstance(text, str)
    return text


@pytest.fixture(autouse=True)
def example(dgw: Dgw, cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGW_CACHE", str(cache.folder))
    Path("own.cu").write_text(block("cuda"))
    Path("own.py").write_text(block("python"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[1])
def test_a_command_of_the_page_runs_as_it_stands_there(dgw: Dgw, command: str) -> None:
    ended = dgw(*shlex.split(command)[1:])
    assert ended.code == 0, ended.err
    assert "own" in ended.out


def test_the_other_end_of_its_space_is_right_too(dgw: Dgw) -> None:
    ended = dgw(*shlex.split(COMMANDS[0])[1:], "--config", "BK=32,STAGES=1", "--no-store")
    assert ended.code == 0, ended.err


def test_the_named_tunables_let_a_recipe_judge_the_k_loop(dgw: Dgw) -> None:
    words = ["--bias", "--activation", "relu", "--shape", "512x512x512", "--no-store", "--engine", "static"]
    assert "bk-too-" in dgw("diagnose", "--kernel", "own.cu", *words, "--json").out


def test_the_page_names_every_field_that_a_declaration_has() -> None:
    named = {f"Plan.{name}" for name in Plan.__struct_fields__} | {f"Launch.{name}" for name in ("source", "entry")}
    assert [name for name in named if f"`{name}`" not in PAGE] == []
    words = (*Launch.__struct_fields__, *Tunable.__struct_fields__, *Scalar.__struct_fields__)
    assert [name for name in words if not re.search(rf"\b{name}\b", PAGE)] == []


def test_the_readme_leads_there_and_a_new_declaration_too(dgw: Dgw) -> None:
    assert "(docs/own-kernels.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/own-kernels.md" in dgw("new", "own.cu", "--force").out
