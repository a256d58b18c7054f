"""A screening and its race in one child, and what becomes of a race that a child does not survive."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dgw.model import Case, Record, gemm
from dgw.toolchain.devices import device
from dgw.workbench import runner
from dgw.workbench.slots import Held, Slot
from dgw.workbench.sweep import lots, race
from tests.workbench.sweep.many import VARIANT

FAKE = Path(__file__).with_name("fake_gpu.py")
CASES = tuple(
    Case(problem=gemm(64, 64, 64), variant=VARIANT.id, config={"X": x, "Y": y}) for x in (1, 2, 3) for y in (1, 2, 3)
)
ALL = ("check", "time", "race")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "sweep-cache"


def session(cache: Path, journal: Path, broken: str = "-") -> runner.Session:
    variant = replace(VARIANT, root=FAKE.parent)
    return runner.Session(
        variants={VARIANT.id: variant},
        device=device("h200"),
        child_argv=[sys.executable, str(FAKE), "0", str(journal), broken],
        cache_dir=cache,
    )


def begun(journal: Path) -> list[str]:
    return [line.split()[1] for line in journal.read_text().splitlines()]


def test_one_child_screens_and_races_and_final_figures_come_first(cache: Path, tmp_path: Path) -> None:
    handed: list[Record] = []
    found = lots.work(lots.Lot(cases=CASES, lanes=ALL), session(cache, tmp_path / "j"), handed.append)
    raced = [record for record in found if race.verdict(record)]
    assert [race.verdict(record) for record in raced].count("best") == 1
    for record in raced:
        time = record.get("time_cold")
        assert time is not None
        assert time.protocol == "cold-graph/1"
        assert race.screening(record) is not None
    assert len(handed) == len(CASES) + len(raced)


def test_each_screened_case_is_handed_on_before_the_next_begins(cache: Path, tmp_path: Path) -> None:
    journal = tmp_path / "j"
    seen: list[int] = []
    lot = lots.Lot(cases=CASES, lanes=("check", "time"))
    lots.work(lot, session(cache, journal), lambda record: seen.append(len(begun(journal))))
    assert seen == list(range(1, len(CASES) + 1))


def test_what_races_always_is_part_of_it_without_being_among_the_fastest(cache: Path, tmp_path: Path) -> None:
    first = lots.work(lots.Lot(cases=CASES, lanes=("check", "time")), session(cache, tmp_path / "j"))
    slowest = max(first, key=lambda record: race.screened(record) or 0.0)
    lot = lots.Lot(cases=CASES, lanes=("race",), known=tuple(first), always=(slowest.case.key,))
    found = {record.case.key: record for record in lots.work(lot, session(cache, tmp_path / "again"))}
    assert race.verdict(found[slowest.case.key]) == "slower"
    assert set(begun(tmp_path / "again")) == {"final"}


def test_a_race_that_is_settled_is_not_run_again(cache: Path, tmp_path: Path) -> None:
    first = lots.work(lots.Lot(cases=CASES, lanes=ALL), session(cache, tmp_path / "j"))
    lot = lots.Lot(cases=CASES, lanes=("race",), known=tuple(first))
    assert lots.work(lot, session(cache, tmp_path / "again")) == first
    assert not (tmp_path / "again").exists()


def test_a_finalist_that_breaks_in_the_race_is_a_failure_and_the_others_go_on(cache: Path, tmp_path: Path) -> None:
    first = lots.work(lots.Lot(cases=CASES, lanes=("check", "time")), session(cache, tmp_path / "j"))
    fastest = min(first, key=lambda record: race.screened(record) or 1.0)
    broken = f"X={fastest.case.config['X']}=wrong"
    always = tuple(record.case.key for record in first)
    lot = lots.Lot(cases=CASES, lanes=("race",), known=tuple(first), always=always)
    found = {r.case.key: r for r in lots.work(lot, session(cache, tmp_path / "again", broken))}
    assert found[fastest.case.key].outcome == "wrong"
    assert [race.verdict(record) for record in found.values()].count("best") == 1
    assert race.verdict(found[fastest.case.key]) == ""


def test_children_see_the_gpu_that_the_lot_holds(cache: Path, tmp_path: Path) -> None:
    from contextlib import contextmanager

    @contextmanager
    def held():  # type: ignore[no-untyped-def]
        yield Held(Slot("GPU-7"), {"CUDA_VISIBLE_DEVICES": "GPU-7"})

    journal = tmp_path / "j"
    lots.work(lots.Lot(cases=CASES[:2], lanes=ALL), replace(session(cache, journal), gpu=held))
    assert {line.split()[0] for line in journal.read_text().splitlines()} == {"GPU-7"}
