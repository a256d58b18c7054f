from __future__ import annotations

import json
from pathlib import Path

import pytest

from dgw.model import Finding, Step
from dgw.recipes.registry import recipes
from dgw.toolchain.cache import CompileCache
from tests.commands.conftest import Dgw, Engine

ROOT = Path(__file__).resolve().parents[2]
TILED = ("--variant", "tiled", "--shape", "4096x4096x32")


@pytest.fixture(autouse=True)
def compiled_once(dgw: Dgw, cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGW_CACHE", str(cache.folder))


def test_the_recipes_are_listed_and_looked_up(dgw: Dgw) -> None:
    listed = json.loads(dgw("recipes", "--json").out)
    assert {one["name"] for one in listed} == {recipe.name for recipe in recipes()}
    assert "smem_wavefronts_actual" in dgw("recipes", "bank-conflicts").out
    wrong = dgw("recipes", "bank-conflict")
    assert (wrong.code, wrong.error_is_two_lines()) == (2, True)
    assert "bank-conflicts" in wrong.err


def test_diagnose_names_the_cause_with_its_evidence_and_the_next_step(dgw: Dgw) -> None:
    ended = dgw("diagnose", *TILED)
    assert ended.code == 0
    assert "bank conflicts of loads at s02_tiled.cu" in ended.out
    assert "try: XOR" in ended.out
    assert "=> go on: begin with bank-conflicts: XOR" in ended.out
    assert "nothing serious" not in ended.out
    assert "Time was not measured" in ended.out


def test_a_stored_run_is_diagnosed_without_measuring(dgw: Dgw, tmp_path: Path) -> None:
    stored = json.loads((ROOT / "docs" / "h200" / "first-profile.json").read_text())["run"]
    (tmp_path / "run.json").write_text(json.dumps(stored))
    assert dgw("import", "run.json").code == 0
    said = dgw("diagnose", "--run", "last").out
    assert "cuda/tiled at 4096x4096x4096" in said
    assert "bank conflicts of loads" in said
    assert "cannot tell" not in said
    assert "cannot tell uncoalesced: needs" in dgw("diagnose", "--run", "last", "--unknown").out
    (tiled,) = [
        one for one in json.loads(dgw("diagnose", "--run", "last", "--json").out) if one["variant"] == "cuda/tiled"
    ]
    assert tiled["findings"][0]["recipe"] == "bank-conflicts"
    assert {one["confidence"] for one in tiled["findings"]} >= {"high", "medium"}
    tiers = {seen["metric"]: seen["tier"] for one in tiled["findings"] for seen in one["evidence"]}
    assert tiers["smem_wavefronts_actual"] == "sass"
    assert tiers["excess wavefronts of loads"] == ""


def test_the_next_steps_for_a_kernel_of_ones_own_name_its_file(dgw: Dgw) -> None:
    assert dgw("new", "mine.cu", "--like", "tiled").code == 0
    assert dgw("profile", "--kernel", "mine.cu", "--shape", "256x256x32").code == 0
    (mine,) = json.loads(dgw("diagnose", "--run", "last", "--unknown", "--json").out)
    steps = [one["next_step"] for one in mine["findings"] if "dgw profile" in one.get("next_step", "")]
    assert all("dgw profile --kernel mine.cu --variant mine/mine " in s for s in steps if "mine/mine" in s)
    assert any("dgw profile --kernel mine.cu --variant mine/mine " in step for step in steps)
    walked = dgw("diagnose", "--kernel", "mine.cu", "--shape", "256x256x32", "--no-store").out
    assert "dgw profile --variant mine" not in " ".join(walked.split())


def test_the_next_steps_for_a_stage_name_no_file(dgw: Dgw) -> None:
    assert dgw("new", "mine.cu").code == 0
    assert dgw("profile", "--kernel", "mine.cu", "--variant", "tiled", "--shape", "256x256x32").code == 0
    assert "--kernel" not in dgw("diagnose", "--run", "last", "--unknown").out


def test_a_stored_run_without_a_serious_cause_says_so_first_and_one_of_a_refused_case_why(dgw: Dgw) -> None:
    whole = ("--variant", "tensor-core", "--config", "BM=128,BN=128,BK=64", "--shape", "1408x1536x64")
    assert dgw("profile", *whole).code == 0
    told = dgw("diagnose", "--run", "last").out
    assert "  nothing serious found" in told.splitlines()[1]
    assert "confidence high" not in told
    assert "confidence medium" not in told
    assert dgw("profile", "--variant", "tensor-core", "--dtype", "f32", "--shape", "64x64x64").code == 2
    assert "  it is refused: cuda/tensor-core takes" in dgw("diagnose", "--run", "last").out


def test_the_seven_steps_walk_up_in_the_emulator_and_their_steps_are_json(dgw: Dgw) -> None:
    ended = dgw("diagnose", "--sequence", "seven-step", *TILED, "--json", "--no-store")
    (walked,) = json.loads(ended.out)["walks"]
    hands = list(dict.fromkeys(step["variant"] for step in walked["steps"]))
    assert ended.code == 0
    assert hands[:3] == ["cuda/tiled", "cuda/swizzled", "cuda/tensor-core"]
    assert walked["steps"][-1]["title"] == "7 validation"
    for step in walked["steps"]:
        assert step.keys() == set(Step.__struct_fields__)
        for one in step["findings"]:
            assert one.keys() == set(Finding.__struct_fields__)
            assert one["confidence"] in ("low", "medium", "high")
    tiers = {seen["metric"]: seen["tier"] for one in walked["steps"][0]["findings"] for seen in one["evidence"]}
    assert set(tiers.values()) <= {"", "exact", "ptx-level"}


def test_an_interrupted_walk_stops_there_and_says_how_to_go_on(dgw: Dgw, engine: Engine) -> None:
    engine.outcomes["cuda/tiled"] = KeyboardInterrupt()
    ended = dgw("diagnose", "--sequence", "seven-step", *TILED)
    assert ended.code == 130
    assert [case.variant for case in engine.seen] == ["cuda/tiled"]
    assert "error: interrupted: 0 cases are finished" in ended.err
    assert ended.err.splitlines()[-1].endswith("--resume")


def test_precision_of_a_users_kernel_with_a_race_stops_and_says_so(dgw: Dgw) -> None:
    kernel = str(ROOT / "tests" / "planted" / "shared_race.py")
    ended = dgw("diagnose", "--sequence", "precision", "--kernel", kernel, "--dtype", "f32", "--shape", "64x64x64")
    assert ended.code == 1
    assert "=> stop: two threads race" in ended.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("diagnose", *TILED, "--sequence", "seven"), 2, "seven-step"),
        (("diagnose", "--variant", "tiled"), 2, "no shape was given"),
        (("diagnose", "--shape", "64x64x64"), 2, "no variant was named"),
        (("diagnose", "--run", "nothing"), 2, "no run"),
    ],
)
def test_bad_input_is_one_line_and_one_of_advice(dgw: Dgw, arguments: tuple[str, ...], code: int, words: str) -> None:
    ended = dgw(*arguments)
    assert (ended.code, ended.error_is_two_lines()) == (code, True)
    assert words in ended.err


def test_compare_explains_where_the_cycles_went(dgw: Dgw) -> None:
    words = ("compare", "tiled", "swizzled", "--shape", "4096x4096x32", "--explain", "--no-store")
    said = " ".join(dgw(*words).out.split())
    assert "cuda/swizzled takes" in said
    assert "of the difference: shared memory takes" in said
    assert "residual 0 %" in said
    found = json.loads(dgw(*words, "--json").out)["findings"]
    assert [one["recipe"] for one in found].count("difference") == 1
