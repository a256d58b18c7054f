"""Lots that travel with their machine code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dgw.kernels.loader import load
from dgw.model import Case, Problem, Variant, gemm
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device
from dgw.workbench.prepare import Prepared, prepare
from dgw.workbench.sweep import parcel
from dgw.workbench.sweep.lots import Lot

FOLDER = Path(__file__).parent
H200 = device("h200")
PROBLEMS = (gemm(64, 64, 64), gemm(64, 64, 128))


@pytest.fixture(scope="module")
def variants() -> dict[str, Variant]:
    return load((FOLDER / "many.cu",))


@pytest.fixture(scope="module")
def prepared(variants: dict[str, Variant], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Prepared]:
    cache = CompileCache(tmp_path_factory.mktemp("cache"))
    variant = next(one for one in variants.values() if one.root == FOLDER)
    config = {tunable.name: 1 for tunable in variant.space}

    def one(problem: Problem) -> Prepared:
        return prepare(Case(problem=problem, variant=variant.id, config=config), variant, H200, cache)

    return {found.record.case.key: found for found in map(one, PROBLEMS)}


def lot(prepared: dict[str, Prepared]) -> Lot:
    return Lot(cases=tuple(one.record.case for one in prepared.values()), lanes=("check", "time"))


def test_what_was_packed_arrives_ready_to_run(prepared: dict[str, Prepared], variants: dict[str, Variant]) -> None:
    assert all(one.runnable and one.identity for one in prepared.values())
    sent = lot(prepared)
    arrived, found = parcel.unpack(parcel.pack(sent, prepared), variants)
    assert arrived == sent
    for key, one in prepared.items():
        assert (found[key].record, found[key].plan, found[key].identity) == (one.record, one.plan, one.identity)
        assert found[key].record.case.key == key
        assert msgspec.json.encode(found[key].record) == msgspec.json.encode(one.record)
        assert {built.cubin for built in found[key].builds.values()} == {b.cubin for b in one.builds.values()}


def test_what_the_cases_are_compared_with_travels_with_its_machine_code_and_once(
    prepared: dict[str, Prepared], variants: dict[str, Variant]
) -> None:
    first, second = (one.record.case for one in prepared.values())
    beside = Lot(cases=(first,), lanes=("check", "time"), against=(second,))
    arrived, found = parcel.unpack(parcel.pack(beside, prepared), variants)
    assert arrived == beside
    assert {key: one.identity for key, one in found.items()} == {key: one.identity for key, one in prepared.items()}
    itself = Lot(cases=(first, second), lanes=("check", "time"), against=(second,))
    assert list(parcel.unpack(parcel.pack(itself, prepared), variants)[1]) == [first.key, second.key]


def test_a_program_of_several_cases_travels_once(prepared: dict[str, Prepared], variants: dict[str, Variant]) -> None:
    _, found = parcel.unpack(parcel.pack(lot(prepared), prepared), variants)
    first, second = (next(iter(one.builds.values())) for one in found.values())
    assert first is second


def test_what_is_not_prepared_or_not_known_at_the_other_end_is_left_to_it(prepared: dict[str, Prepared]) -> None:
    sent = lot(prepared)
    one = next(iter(prepared))
    arrived, found = parcel.unpack(
        parcel.pack(sent, {one: prepared[one]}), {prepared[one].variant.id: prepared[one].variant}
    )
    assert (arrived, list(found)) == (sent, [one])
    assert parcel.unpack(parcel.pack(sent, prepared), {}) == (sent, {})
