"""What GPU there is: asked of a child, once for each GPU, driver and set of packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dgw.errors import Missing
from dgw.workbench import probing
from dgw.workbench.slots import Slot

FAKE = Path(__file__).parent / "fake_child.py"
HERE = Slot("GPU-aa", "fake", "580.1")


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    return [sys.executable, str(FAKE), "normal", str(tmp_path / "journal")]


def asked(folder: Path) -> int:
    journal = folder / "journal"
    return len(journal.read_text().splitlines()) if journal.exists() else 0


def test_the_same_gpu_is_asked_once(argv: list[str], tmp_path: Path) -> None:
    first = probing.known(argv, HERE, tmp_path / "cache")
    assert first[1].name == "h200"
    assert probing.known(argv, HERE, tmp_path / "cache") == first
    assert asked(tmp_path) == 1


@pytest.mark.parametrize("other", [Slot("GPU-bb", "fake", "580.1"), Slot("GPU-aa", "fake", "590.2")])
def test_another_gpu_or_driver_is_asked_again(argv: list[str], tmp_path: Path, other: Slot) -> None:
    probing.known(argv, HERE, tmp_path / "cache")
    probing.known(argv, other, tmp_path / "cache")
    assert asked(tmp_path) == 2


@pytest.mark.parametrize("unsure", [Slot(), Slot("GPU-aa", "fake")])
def test_a_gpu_of_which_little_is_known_is_always_asked(argv: list[str], tmp_path: Path, unsure: Slot) -> None:
    for _ in range(2):
        probing.known(argv, unsure, tmp_path / "cache")
    assert asked(tmp_path) == 2


def test_a_damaged_answer_is_asked_for_again(argv: list[str], tmp_path: Path) -> None:
    first = probing.known(argv, HERE, tmp_path / "cache")
    (kept,) = (tmp_path / "cache").glob("gpu-*.json")
    kept.write_bytes(b'{"environment": {}')
    assert probing.known(argv, HERE, tmp_path / "cache") == first
    assert asked(tmp_path) == 2


def test_no_gpu_is_never_remembered(argv: list[str], tmp_path: Path) -> None:
    argv[2] = "no-gpu"
    for _ in range(2):
        with pytest.raises(Missing, match="no GPU can be used"):
            probing.known(argv, HERE, tmp_path / "cache")
    assert asked(tmp_path) == 2
    assert not list((tmp_path / "cache").glob("*"))
