"""What a finding says to type next, for a kernel of the user's own: it has to run as it is printed."""

from __future__ import annotations

import importlib
import re
import shlex
from dataclasses import fields
from typing import Any

import msgspec
import pytest
import typer

from dgw.cli import COMMANDS
from dgw.commands.options import Ask
from dgw.commands.request import problems
from dgw.model import Epilogue, Finding, Operand, Problem, Record, gemm
from dgw.recipes import retyping
from dgw.recipes.diagnosis import diagnose
from dgw.recipes.recipe import Recipe
from dgw.recipes.registry import recipes
from dgw.toolchain.devices import device
from tests.recipes.making import record

H200 = device("h200")
OWN = ("--kernel", "my kernels/k.cu")
F16 = Operand(dtype="f16")
by_name = pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.name)
PROBLEMS = {
    "plain": gemm(4096, 2048, 512),
    "nt": gemm(256, 256, 64, layout="nt"),
    "batched s8": gemm(256, 256, 64, "s8", out="s32", batch=3, op="batched", accumulator="s32"),
    "epilogue": gemm(256, 256, 64, bias=F16, residual=F16, epilogue=Epilogue(activation="gelu")),
    "scaled C": gemm(256, 256, 64, alpha=2.0, beta=0.5, c=F16),
    "strided": msgspec.structs.replace(gemm(256, 130, 64), d=Operand(dtype="f16", ld=136)),
    "other data": gemm(64, 64, 64, data="integer", seed=3),
}


def parsed(command: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of a command line that the parser takes."""
    name, *arguments = shlex.split(command)[1:]
    assert name in COMMANDS
    module = importlib.import_module(f"dgw.commands.{'list_' if name == 'list' else name}")
    context = typer.main.get_command(module.app).make_context(name, arguments)
    return name, context.params


def printed(finding: Finding) -> list[str]:
    """The commands in the next step, each to its end."""
    told = retyping.with_kernels(finding, OWN).next_step
    return [found[0].rstrip(". ") for found in re.finditer(r"dgw [a-z]+ -?[^;]*", told) if " and " not in found[0]]


def asked(options: dict[str, Any]) -> Problem:
    names = {one.name for one in fields(Ask)}
    return problems(Ask(**{name: value for name, value in options.items() if name in names}), "dgw")[0]


@by_name
def test_the_next_step_of_a_users_kernel_parses_and_names_its_file(recipe: Recipe) -> None:
    fires: Record = importlib.import_module(f"tests.recipes.cases.{recipe.name.replace('-', '_')}").FIRES
    mine = msgspec.structs.replace(fires, case=msgspec.structs.replace(fires.case, variant="mine/kernel"))
    (finding,) = [one for one in diagnose(mine, H200) if one.recipe == recipe.name]
    assert ("dgw " in finding.next_step) == bool(printed(finding)) or " and dgw heatmap" in finding.next_step
    for command in printed(finding):
        name, options = parsed(command)
        concerned = "mine/kernel" in shlex.split(command)
        assert ("kernel" in options and str(options["kernel"]) == OWN[1]) == concerned
        if name != "list" and "shape" in options and options["shape"]:
            assert asked(options) == mine.case.problem


@by_name
@pytest.mark.parametrize("config", [{}, {"BK": 32, "STAGES": 4}], ids=["no tunables", "those of its loop"])
def test_no_map_is_advised_for_a_kernel_without_tunables_of_its_tile(recipe: Recipe, config: dict[str, int]) -> None:
    fires: Record = importlib.import_module(f"tests.recipes.cases.{recipe.name.replace('-', '_')}").FIRES
    bare = msgspec.structs.replace(fires, case=msgspec.structs.replace(fires.case, variant="mine/k", config=config))
    assert [f.next_step for f in diagnose(bare, H200) if "dgw heatmap --" in f.next_step] == []


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_what_is_typed_again_means_the_same_problem(problem: Problem) -> None:
    case = record(problem=problem).case
    for command in (retyping.again("check", case), retyping.profile(case), retyping.other_tiles(case)):
        assert asked(parsed(command)[1]) == problem


def test_a_kernel_is_shown_for_the_layout_and_the_epilogue_it_was_run_with() -> None:
    for name in ("nt", "epilogue"):
        shown = retyping.show(record(problem=PROBLEMS[name]).case, "--configs")
        assert asked(parsed(shown)[1]) == PROBLEMS[name]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("dgw show mine/k --source", "dgw show --kernel k.cu mine/k --source"),
        ("dgw show cuda/tiled --source", "dgw show cuda/tiled --source"),
        ("a stage is faster: dgw show it", "a stage is faster: dgw show it"),
        ("dgw profile --variant cuda/tiled --shape 64x64x64", "dgw profile --variant cuda/tiled --shape 64x64x64"),
        ("dgw compare mine/a mine/b", "dgw compare --kernel k.cu mine/a mine/b"),
        ("dgw check --kernel k.cu --shape 64x64x64", "dgw check --kernel k.cu --shape 64x64x64"),
        ("declare them, and dgw sweep and dgw heatmap try", "declare them, and dgw sweep and dgw heatmap try"),
    ],
)
def test_only_commands_that_run_or_show_the_users_kernel_name_its_file(told: str, said: str) -> None:
    assert retyping.knowing(told, ("--kernel", "k.cu")) == said
    assert retyping.knowing(said, ("--kernel", "k.cu")) == said
