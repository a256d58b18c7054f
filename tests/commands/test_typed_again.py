"""Advice for a kernel of the user's own, typed as it is printed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from dgw.toolchain.cache import CompileCache
from tests.commands.conftest import Dgw, Ended

ROOT = Path(__file__).resolve().parents[2]
NT = ("--shape", "16x16x16", "--layout", "nt", "--bias", "--no-store")


@pytest.fixture(autouse=True)
def compiled_once(dgw: Dgw, cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGW_CACHE", str(cache.folder))


@pytest.fixture
def picky(dgw: Dgw) -> Path:
    """A kernel that takes layout nt with a bias only, and adds none."""
    assert dgw("new", "picky.cu").code == 0
    declaration = Path("picky.py")
    text = declaration.read_text()
    text = text.replace('problem.layout != "nn" or problem.beta != 0.0', 'problem.layout != "nt" or not problem.bias')
    text = text.replace(" or declaring.refuses_epilogue(problem)", "").replace("layout nn and beta 0", "nt with a bias")
    declaration.write_text(text)
    return Path("picky.cu")


def typed_as_printed(dgw: Dgw, ended: Ended) -> Ended:
    (advice,) = [line for line in ended.err.splitlines() if line.startswith("  try: dgw ")]
    return dgw(*shlex.split(advice.partition("; ")[0])[2:])


def test_the_source_of_a_kernel_that_does_not_compile_is_shown(dgw: Dgw, picky: Path) -> None:
    picky.write_text(picky.read_text().replace("float sum", "flot sum"))
    failed = dgw("check", "--kernel", "picky.cu", *NT)
    assert failed.code == 5
    shown = typed_as_printed(dgw, failed)
    assert (shown.code, "flot sum" in shown.out) == (0, True)


def test_a_wrong_kernel_is_checked_again_on_the_same_problem_with_whole_numbers(dgw: Dgw, picky: Path) -> None:
    wrong = dgw("check", "--kernels", ".", "--variant", "mine/picky", *NT)
    assert wrong.code == 1
    again = typed_as_printed(dgw, wrong)
    assert again.code == 1
    assert "nt, bias, integer data" in again.out


def test_what_a_refused_kernel_needs_is_shown(dgw: Dgw, picky: Path) -> None:
    refused = dgw("check", "--kernel", "picky.cu", "--shape", "64x64x32", "--no-store")
    assert refused.code == 2
    shown = typed_as_printed(dgw, refused)
    assert (shown.code, "nt with a bias only" in shown.out) == (0, True)
    source = dgw("show", "mine/picky", "--kernel", "picky.cu", "--source")
    assert "  try: dgw show --kernel picky.cu mine/picky --configs " in source.err


def test_a_missing_shape_is_asked_for_with_everything_else_that_was_typed(dgw: Dgw, picky: Path) -> None:
    ended = dgw("profile", "--kernel", "picky.cu", "--layout", "nt", "--bias")
    assert ended.err.splitlines()[-1] == (
        "  try: dgw profile --kernel picky.cu --layout nt --bias --shape 4096x4096x4096"
    )


def test_a_kernel_without_tunables_gets_no_command_for_a_map_but_words(dgw: Dgw) -> None:
    plain = ("--kernel", "plain.cu", "--shape", "64x64x32", "--no-store")
    assert dgw("new", "plain.cu").code == 0
    said = " ".join(dgw("diagnose", *plain, "--unknown").out.split())
    assert "what cannot be told * cannot tell " in said
    assert "try: dgw profile --kernel plain.cu --variant mine/plain" in said
    assert "declare them as tunables" in said
    assert "dgw heatmap --" not in said
    ended = dgw("heatmap", *plain)
    assert (ended.code, ended.error_is_two_lines()) == (2, True)
    assert "declare two tunables" in ended.err


def test_several_files_are_refused_with_the_command_that_compares_them(dgw: Dgw) -> None:
    assert dgw("new", "a.cu").code == 0
    assert dgw("new", "b_2.cu").code == 0
    rest = ("--explain", "--shape", "16x16x16", "--no-store")
    refused = dgw("compare", "--kernel", "a.cu", "--kernel=b_2.cu", *rest)
    assert (refused.code, refused.error_is_two_lines()) == (2, True)
    compared = typed_as_printed(dgw, refused)
    assert compared.code == 0
    assert "mine/a" in compared.out
    assert "mine/b-2 takes" in " ".join(compared.out.split())
    checked = dgw("check", "--kernel", "a.cu", "--kernel", "b_2.cu", "--shape", "64x64x64")
    assert checked.err.endswith("  try: dgw check --variant mine/a,mine/b-2 --kernels . --shape 64x64x64\n")
    Path("elsewhere").mkdir()
    assert dgw("new", "elsewhere/c.cu").code == 0
    apart = dgw("check", "--kernel", "a.cu", "--kernel", "elsewhere/c.cu", "--shape", "64x64x64")
    assert "put them into one folder" in apart.err
    assert "takes one" in dgw("check", "--kernels", ".", "--kernels", "..").err


def test_of_several_files_those_that_do_not_exist_are_told_and_the_command_is_that_of_the_others(dgw: Dgw) -> None:
    assert dgw("new", "a.cu").code == 0
    rest = ("--shape", "16x16x16", "--no-store")
    one = dgw("check", "--kernel", "a.cu", "--kernel", "gone.cu", *rest)
    assert (one.code, one.error_is_two_lines()) == (2, True)
    assert one.err.startswith("error: gone.cu does not exist\n")
    checked = typed_as_printed(dgw, one)
    assert checked.code == 0
    assert "mine/a" in checked.out
    folder = dgw("check", "--kernels=nowhere", "--kernels", ".", "--variant", "mine/a", *rest)
    assert folder.err.startswith("error: nowhere does not exist\n")
    assert typed_as_printed(dgw, folder).code == 0
    none = dgw("check", "--kernel", "b.cu", "--kernel", "c.cu", *rest)
    assert none.err.startswith("error: b.cu and c.cu do not exist\n")
    assert typed_as_printed(dgw, none).code == 0
    assert Path("b.py").exists()


def test_of_several_files_one_without_a_declaration_is_told(dgw: Dgw) -> None:
    assert dgw("new", "a.cu").code == 0
    Path("bare.cu").write_text(Path("a.cu").read_text())
    ended = dgw("check", "--kernel", "a.cu", "--kernel", "bare.cu", "--shape", "16x16x16")
    assert (ended.code, ended.error_is_two_lines()) == (2, True)
    assert "bare.cu has no declaration" in ended.err
    assert typed_as_printed(dgw, ended).code == 0
    assert Path("bare.py").exists()


def test_the_command_in_a_diagnosis_names_the_file_and_the_problem(dgw: Dgw, picky: Path) -> None:
    said = " ".join(dgw("diagnose", "--kernel", "picky.cu", *NT, "--sequence", "precision").out.split())
    assert "=> stop" in said
    said = " ".join(dgw("diagnose", "--kernel", "picky.cu", *NT).out.split())
    assert "dgw diagnose --kernel picky.cu --variant mine/picky --shape 16x16x16 --dtype f16 --layout nt --bias" in said


def test_a_package_that_is_missing_is_asked_for_and_no_other_shape(dgw: Dgw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgw.workbench.prepare.lacking", lambda variant: list(variant.needs))
    ended = dgw("profile", "--variant", "cublas", "--shape", "16x16x16", "--no-store")
    assert ended.code == 6
    assert ended.err.splitlines()[-1] == "  try: pip install torch"
