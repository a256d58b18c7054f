"""What a side says it would launch, asked through its own process."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import dgw.kernels
from dgw.errors import ChildFault
from dgw.model import Launch, Plan, Scalar, Source, gemm
from dgw.toolchain.devices import device
from dgw.workbench.gate import sides
from dgw.workbench.gate.sides import Entry, SideJob, SideSetup, Wanted, ask
from dgw.workbench.gate.verdict import Side
from dgw.workbench.prepare import identity

H200 = device("h200")
PROBLEM = gemm(64, 64, 64)


def side(*selects: str) -> SideSetup:
    return SideSetup("base", Side(label="old"), [sys.executable, "-m", "dgw"], selects)


def job(folder: Path, *variants: str) -> SideJob:
    wanted = tuple(Wanted(key=name, problem=PROBLEM, variant=f"cuda/{name}") for name in variants)
    return SideJob(device=H200, wanted=wanted, folder=str(folder / "cubins"), cache=str(folder / "cache"))


def a_tree(folder: Path) -> Path:
    """A checkout in which one kernel does something else."""
    shutil.copytree(Path(dgw.kernels.__file__).parent, folder / "dgw" / "kernels")
    source = folder / "dgw" / "kernels" / "cuda" / "s01_naive.cu"
    text = source.read_text()
    assert "sum[0] *= alpha;" in text
    source.write_text(text.replace("sum[0] *= alpha;", "sum[0] *= 1.5f * alpha;"))
    return folder


def test_the_kernels_of_another_tree_are_compiled_by_this_dgw(tmp_path: Path) -> None:
    here = ask(side(), job(tmp_path, "naive", "tiled", "nothing"), tmp_path / "here")
    there = ask(side("--tree", str(a_tree(tmp_path / "tree"))), job(tmp_path, "naive", "tiled"), tmp_path / "there")
    assert here["tiled"].identity == there["tiled"].identity != ""
    assert here["naive"].identity != there["naive"].identity
    assert not here["nothing"].known
    assert [Path(path).is_file() for path in there["naive"].cubins] == [True]
    assert there["naive"].member.case.variant == "cuda/naive"
    assert any(m.metric == "registers_per_thread" for m in there["naive"].measurements)


def test_a_tree_that_does_not_load_is_a_fault_in_one_sentence(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "dgw" / "kernels" / "cuda" / "s01_naive.py").write_text("this is no Python")
    with pytest.raises(ChildFault, match=r"base \(old\) does not build: s01_naive.py: the declaration does not load"):
        ask(side("--tree", str(tree)), job(tmp_path, "naive"), tmp_path / "there")


def test_a_program_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    setup = SideSetup("base", Side(label="old"), [str(tmp_path / "python")])
    with pytest.raises(ChildFault, match="base cannot be started"):
        ask(setup, job(tmp_path, "naive"), tmp_path / "there")


def plan(**changes: object) -> Plan:
    fields: dict[str, object] = {
        "source": Source(path="x.cu"), "entry": "x", "grid": (1, 1, 1), "block": (32, 1, 1),
        "arguments": (Scalar(name="m"),),
    }  # fmt: skip
    return Plan(steps=(Launch(**{**fields, **changes}),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change", [{"grid": (2, 1, 1)}, {"shared_bytes": 1}, {"arguments": ()}, {"cluster": (2, 1, 1)}, {"entry": "y"}]
)
def test_another_launch_is_another_identity_whatever_the_code(change: dict[str, object]) -> None:
    assert identity(plan(**change), ["code"]) != identity(plan(), ["code"])


def test_where_a_source_lies_and_how_it_is_defined_is_no_part_of_the_identity() -> None:
    moved = plan(source=Source(path="elsewhere.cu", defines=(("A", 1),)))
    assert identity(moved, ["code"]) == identity(plan(), ["code"]) != identity(plan(), ["other code"])


def test_foreign_code_has_no_identity() -> None:
    assert Entry(key="x").identity == ""


def test_a_side_that_is_compared_with_itself_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(side: SideSetup, job: SideJob, folder: Path) -> dict[str, Entry]:
        asked.append((side.name, folder))
        return {}

    monkeypatch.setattr(sides, "ask", answer)
    head, base = (SideSetup(name=name, about=Side(label=name), program=()) for name in ("head", "base"))
    jobs: dict[str, Any] = {"head": None, "base": None}
    assert sides.both(head, head, jobs, tmp_path) == {"head": {}}
    assert asked == [("head", tmp_path / "head")]  # two at once would write and read the same files
    assert set(sides.both(base, head, jobs, tmp_path)) == {"base", "head"}
