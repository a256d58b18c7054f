from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.errors import NotComparable, UsageError
from dgw.workbench.baselines import Approval, BaselineFile, Baselines, approve
from tests.workbench.gate.exact_samples import facts

PLACE = ("sm_90a", "nvrtc-1", "cuda", "nvrtc 1, headers 1")
NAME = PLACE[:3]


def entry(reason: str = "the first", **more: Any) -> Approval:
    return Approval(approved="2027-01-01", reason=reason, dgw="0", suite="ci", **more)


@pytest.fixture
def place(tmp_path: Path) -> Baselines:
    return Baselines(tmp_path / "perf" / "baselines")


@pytest.fixture
def kept(place: Baselines) -> BaselineFile:
    file = approve(None, [facts(), facts(device="h100")], entry(), PLACE)
    place.write(file)
    return file


def test_what_was_approved_is_read_back(place: Baselines, kept: BaselineFile) -> None:
    assert place.read(*NAME) == kept
    assert place.path(*NAME).relative_to(place.folder).as_posix() == "sm_90a/nvrtc-1/cuda.json"
    assert kept.cases[facts().key].suites == ("ci",)


def test_writing_the_same_again_changes_no_byte(place: Baselines, kept: BaselineFile) -> None:
    before = place.path(*NAME).read_bytes()
    read = place.read(*NAME)
    assert read is not None
    place.write(read)
    assert place.path(*NAME).read_bytes() == before


def test_history_only_grows(place: Baselines, kept: BaselineFile) -> None:
    second = approve(kept, [facts(code=("new",))], entry("faster"), PLACE)
    third = approve(second, [], entry("gone"), PLACE, gone=[facts(device="h100").key])
    assert [one.reason for one in third.history] == ["the first", "faster", "gone"]
    assert third.history[:2] == second.history
    assert second.history[:1] == kept.history
    assert third.cases[facts().key].by == 1
    assert set(third.cases) == {facts().key}
    place.write(third)
    assert place.read(*NAME) == third


def test_facts_of_another_compiler_do_not_stay_beside_new_ones(kept: BaselineFile) -> None:
    newer = approve(kept, [facts()], entry("headers"), (*PLACE[:3], "nvrtc 1, headers 2"))
    assert set(newer.cases) == {facts().key}
    assert newer.compiler == "nvrtc 1, headers 2"


def edited(content: dict[str, Any], what: str) -> dict[str, Any]:
    first = next(iter(content["cases"].values()))
    if what == "a figure":
        first["facts"]["figures"]["registers_per_thread"] = 1
    elif what == "a case more":
        content["cases"]["0" * 16] = first
    elif what == "a reason":
        content["history"][0]["reason"] = "another"
    elif what == "an entry less":
        del content["history"][0]
    elif what == "no history":
        content["history"] = []
    return content


@pytest.mark.parametrize("what", ["a figure", "a case more", "a reason", "an entry less", "no history"])
def test_a_file_that_somebody_edited_is_refused(place: Baselines, kept: BaselineFile, what: str) -> None:
    place.write(approve(kept, [facts(code=("new",))], entry("faster"), PLACE))
    path = place.path(*NAME)
    path.write_text(json.dumps(edited(json.loads(path.read_text()), what)))
    with pytest.raises(NotComparable, match="was not written by dgw baseline approve") as caught:
        place.read(*NAME)
    assert "approve" in caught.value.hint


@pytest.mark.parametrize("text", ["", "<<<<<<< HEAD", "[]", '{"schema": "dgw.baseline/1"}'])
def test_a_file_that_is_none_is_refused_with_its_name(place: Baselines, kept: BaselineFile, text: str) -> None:
    place.path(*NAME).write_text(text)
    with pytest.raises(NotComparable, match=r"perf/baselines/sm_90a/nvrtc-1/cuda\.json"):
        place.read(*NAME)


def test_a_newer_file_says_what_to_install_and_a_moved_one_whose_it_is(place: Baselines, kept: BaselineFile) -> None:
    place.write(msgspec.structs.replace(kept, schema="dgw.baseline/2"))
    with pytest.raises(NotComparable) as caught:
        place.read(*NAME)
    assert "pip install" in caught.value.hint
    place.write(kept)
    moved = place.path("sm_80", "nvrtc-1", "cuda")
    moved.parent.mkdir(parents=True)
    place.path(*NAME).rename(moved)
    with pytest.raises(NotComparable, match="is that of sm_90a"):
        place.read("sm_80", "nvrtc-1", "cuda")


def test_where_there_is_no_file_the_other_compilers_are_named(place: Baselines, kept: BaselineFile) -> None:
    assert place.read("sm_90a", "nvrtc-2", "cuda") is None
    assert place.missing("sm_90a", "nvrtc-2", "cuda") == "cuda was approved with nvrtc-1, and here is nvrtc-2"
    assert "there is no perf/baselines/sm_80/nvrtc-1/cuda.json" in place.missing("sm_80", "nvrtc-1", "cuda")


def test_an_approval_ends_after_its_last_day() -> None:
    file = approve(None, [facts()], entry(until="2027-03-01"), PLACE)
    assert file.expired(facts().key, date(2027, 3, 1)) == ""
    assert file.expired(facts().key, date(2027, 3, 2)) == "2027-03-01"
    renewed = approve(file, [facts()], entry(), PLACE)
    assert renewed.expired(facts().key, date(2027, 3, 2)) == ""


def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        Baselines(tmp_path / "file").write(approve(None, [facts()], entry(), PLACE))
