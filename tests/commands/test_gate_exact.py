"""`dgw gate --exact` and `dgw baseline` through the command line, on a small kernel of which one thing changes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dgw.commands import exact
from dgw.workbench.gate import facts
from tests.commands.conftest import Dgw, Ended

GATED = Path(__file__).resolve().parents[1] / "gated"
SHAPE = ("--shape", "64x64x40", "--dtype", "f32")


class Repository:
    """A folder with one kernel in it, and its baselines."""

    def __init__(self, dgw: Dgw, folder: Path) -> None:
        self.dgw, self.folder = dgw, folder
        shutil.copytree(GATED, folder / "gated", ignore=shutil.ignore_patterns("__pycache__"))

    def change(self, old: str, new: str, file: str = "column.cu") -> None:
        path = self.folder / "gated" / file
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} is not there once"
        path.write_text(text.replace(old, new))

    def gate(self, *more: str) -> Ended:
        return self.dgw("gate", "--exact", "--kernel", "gated/column.py", *SHAPE, *more)

    def approve(self, *more: str, reason: str = "the first") -> Ended:
        return self.dgw("baseline", "approve", "--kernel", "gated/column.py", *SHAPE, "--reason", reason, *more)

    def report(self, *more: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.gate("--json", *more).out)
        return found

    @property
    def file(self) -> Path:
        (found,) = (self.folder / "perf" / "baselines").glob("*/*/*.json")
        return found


@pytest.fixture
def bare(
    dgw: Dgw, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Repository:
    monkeypatch.setenv("DGW_CACHE", str(tmp_path_factory.getbasetemp() / "gated-cache"))
    return Repository(dgw, tmp_path)


@pytest.fixture
def repository(bare: Repository) -> Repository:
    assert bare.approve().code == 0
    return bare


def never(*arguments: object) -> None:
    raise AssertionError("this must not be called")


UNPAD = ("constexpr int PAD = 1;", "constexpr int PAD = 0;")


def test_nothing_approved_is_exit_4_and_says_what_to_type(bare: Repository) -> None:
    ended = bare.gate()
    assert ended.code == 4
    assert "1 missing (exit 4)" in ended.out
    assert "dgw baseline approve --kernel gated/column.py --shape 64x64x40" in ended.out
    assert not (bare.folder / "perf").exists()


def test_what_was_approved_is_identical_afterwards(repository: Repository) -> None:
    ended = repository.gate()
    assert ended.code == 0
    assert "1 identical (exit 0)" in ended.out


def test_commits_are_those_of_the_repository_that_is_gated_and_not_those_of_dgw(bare: Repository) -> None:
    names = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for arguments in (["init", "-q"], ["add", "gated"], [*names, "commit", "-q", "-m", "kernels"]):
        subprocess.run(["git", *arguments], cwd=bare.folder, check=True, capture_output=True)
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=bare.folder, capture_output=True, text=True, check=True)
    assert bare.approve().code == 0
    (approval,) = json.loads(bare.file.read_text())["history"]
    assert approval["commit"] == bare.report()["head"]["commit"] == asked.stdout.strip()


def test_outside_of_a_repository_kernels_of_ones_own_have_no_commit(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DGW_COMMIT", raising=False)
    assert repository.report()["head"].get("commit", "") == ""
    monkeypatch.setenv("DGW_COMMIT", "c0ffee")  # on a machine that has a copy without git
    assert repository.report()["head"]["commit"] == "c0ffee"


def test_comments_and_line_numbers_make_no_difference(repository: Repository) -> None:
    repository.change("constexpr int PAD", "// moved\n\n\nconstexpr int PAD")
    assert "1 identical (exit 0)" in repository.gate().out


def test_identical_code_is_not_run_again(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "count", never)
    assert repository.gate().code == 0


def test_a_bank_conflict_fails_and_is_named_with_its_line(repository: Repository) -> None:
    repository.change(*UNPAD)
    ended = repository.gate()
    assert ended.code == 1
    assert "bank conflicts of shared stores 0 -> " in ended.out
    lines = (repository.folder / "gated" / "column.cu").read_text().splitlines()
    (case,) = repository.report()["cases"]
    assert case["status"] == "regressed"
    assert case["source"] == "gated/column.cu"
    assert "tile[" in lines[case["line"] - 1]
    assert "smem_wavefronts_actual" in " ".join(case["explanation"])


def test_what_became_better_passes_and_asks_for_approval(bare: Repository) -> None:
    greedy = ("block=(32, 1, 1)", "block=(32, 1, 1), shared_bytes=4096")
    bare.change(*greedy, "column.py")
    bare.approve()
    bare.change(greedy[1], greedy[0], "column.py")
    ended = bare.gate()
    assert ended.code == 0
    assert "1 improved (exit 0)" in ended.out
    assert "dgw baseline approve" in ended.out
    assert bare.approve(reason="it needs less").code == 0
    bare.change(*greedy, "column.py")
    assert bare.gate().code == 1


def test_a_spill_fails(repository: Repository) -> None:
    repository.change('extern "C" __global__ void column', 'extern "C" __global__ void __maxnreg__(24) column')
    (case,) = repository.report()["cases"]
    assert case["status"] == "regressed"
    assert {"spill_store_bytes", "spill_load_bytes"} <= {c["metric"] for c in case["changed"] if c.get("worse")}


def test_another_launch_of_the_same_code_is_seen(repository: Repository) -> None:
    repository.change("block=(32, 1, 1)", "block=(32, 1, 1), shared_bytes=4096", "column.py")
    ended = repository.gate()
    assert ended.code == 1
    assert "shared memory per CTA" in ended.out


def test_a_wrong_result_is_exit_1_however_little_it_needs(repository: Repository) -> None:
    repository.change("alpha * sum[j]", "alpha * sum[0]")
    ended = repository.gate()
    assert ended.code == 1
    assert "1 wrong (exit 1)" in ended.out


def test_what_does_not_compile_is_exit_5(repository: Repository) -> None:
    repository.change("float sum[32] = {};", "float sum[32] = nothing;")
    ended = repository.gate()
    assert ended.code == 5
    assert "compile-failed: column.cu(7): error" in " ".join(ended.out.split())


def test_what_never_ends_is_exit_5_after_the_deadline(repository: Repository) -> None:
    repository.change("__shared__ float tile", "while (*(volatile int*)d != 1) {}\n    __shared__ float tile")
    ended = repository.gate("--deadline", "1")
    assert ended.code == 5
    assert "timed-out" in ended.out


def test_a_refusal_of_what_was_approved_fails(repository: Repository) -> None:
    repository.change("problem.batch != 1", "problem.batch != 1 or problem.m > 32", "column.py")
    assert repository.gate().code == 1


def test_another_compiler_is_not_comparable(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "compiler_identity", lambda: "nvrtc 99.0, headers 99.0")
    ended = repository.gate()
    assert ended.code == 4
    assert "gated was approved with nvrtc-" in ended.out
    assert "and here is nvrtc-99.0" in ended.out


def test_another_device_is_not_what_was_approved(repository: Repository) -> None:
    assert repository.gate("--device", "a100").code == 4


def test_a_baseline_that_was_edited_by_hand_is_refused(repository: Repository) -> None:
    repository.file.write_text(
        repository.file.read_text().replace('"registers_per_thread": ', '"registers_per_thread": 9')
    )
    ended = repository.gate()
    assert ended.code == 4
    assert ended.error_is_two_lines()
    assert "was not written by dgw baseline approve" in ended.err


def test_an_approval_that_ended_is_not_comparable(bare: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.approve("--until", "9998-12-31")
    assert bare.gate().code == 0

    class Later:
        @staticmethod
        def now(zone: Any) -> Any:
            from datetime import datetime

            return datetime(9999, 1, 1, tzinfo=zone)

    monkeypatch.setattr(exact, "datetime", Later)
    ended = bare.gate()
    assert ended.code == 4
    assert "its approval ended on 9998-12-31" in ended.out


def test_ctrl_c_is_130_and_keeps_what_is_finished(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    repository.change(*UNPAD)
    monkeypatch.setattr(facts, "count", interrupted)
    ended = repository.gate("--json")
    assert ended.code == 130
    assert json.loads(ended.out)["interrupted"] is True


def test_missing_cases_pass_beside_compared_ones_where_they_are_only_recorded(repository: Repository) -> None:
    more = ("--shape", "32x32x32")
    assert repository.gate(*more).code == 4
    assert repository.gate(*more, "--on-missing", "record").code == 0


def test_every_report_is_written_and_says_the_same(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.change(*UNPAD)
    summary = repository.folder / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ended = repository.gate("--report", "gate.json", "--junit", "gate.xml", "--markdown", "gate.md")
    assert ended.code == 1
    assert json.loads((repository.folder / "gate.json").read_text())["cases"][0]["status"] == "regressed"
    (failure, _) = ElementTree.parse(repository.folder / "gate.xml").iter("failure")
    assert "bank conflicts" in str(failure.get("message"))
    markdown = (repository.folder / "gate.md").read_text()
    assert "bank conflicts" in markdown
    assert summary.read_text() == "before\n" + markdown
    assert ended.err.startswith("::error file=gated/column.cu,line=")
    assert "::error" not in repository.gate("--no-annotations").err


@pytest.mark.parametrize(
    ("typed", "what"),
    [
        (("--on-missing", "maybe"), "--on-missing cannot be 'maybe'"),
        (("--junit", "nowhere/gate.xml"), "cannot write nowhere/gate.xml"),
        (("--junit", "gate.x", "--report", "gate.x"), "the same file"),
        (("--baselines", "gated/column.py"), "is not a folder"),
        (("--suite", "nothing"), "no suite is named"),
    ],
)
def test_what_cannot_be_is_exit_2_before_anything_is_compiled(
    bare: Repository, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...], what: str
) -> None:
    monkeypatch.setattr(facts, "prepare", never)
    ended = bare.gate(*typed)
    assert ended.code == 2
    assert ended.error_is_two_lines()
    assert what in ended.err


# -- baseline


def test_an_approval_needs_a_reason(bare: Repository) -> None:
    for reason in ("", "  "):
        ended = bare.approve(reason=reason)
        assert ended.code == 2
        assert ended.error_is_two_lines()
    assert not (bare.folder / "perf").exists()


@pytest.mark.parametrize("until", ["2001-01-01", "tomorrow"])
def test_an_approval_cannot_end_before_it_begins(bare: Repository, until: str) -> None:
    assert bare.approve("--until", until).code == 2


@pytest.mark.parametrize(
    ("old", "new", "code"), [("alpha * sum[j]", "alpha * sum[0]", 1), ("float sum[32] = {};", "float sum[32] = no;", 5)]
)
def test_a_red_run_approves_nothing(repository: Repository, old: str, new: str, code: int) -> None:
    before = repository.file.read_bytes()
    repository.change(old, new)
    ended = repository.approve(reason="it is fine")
    assert ended.code == code
    assert "nothing was approved" in ended.err
    assert repository.file.read_bytes() == before


def test_an_approval_of_a_regression_writes_its_reason_and_what_changed(repository: Repository) -> None:
    repository.change(*UNPAD)
    ended = repository.approve(reason="the tile\n must stay small")
    assert ended.code == 0
    assert "1 of 1 cases approved" in ended.out
    history = json.loads(repository.file.read_text())["history"]
    assert [one["reason"] for one in history] == ["the first", "the tile must stay small"]
    assert "bank conflicts of shared stores 0 -> " in history[1]["changes"][0]
    assert repository.gate().code == 0
    assert "the tile must stay small" in repository.dgw("baseline", "show").out


def test_an_approval_of_the_same_writes_nothing(repository: Repository) -> None:
    before = repository.file.read_bytes()
    assert "nothing changed" in repository.approve(reason="again").out
    assert repository.file.read_bytes() == before


def test_diff_shows_what_would_be_approved_and_writes_nothing(repository: Repository) -> None:
    before = repository.file.read_bytes()
    repository.change(*UNPAD)
    ended = repository.dgw("baseline", "diff", "--kernel", "gated/column.py", *SHAPE)
    assert ended.code == 0
    assert "bank conflicts of shared stores 0 -> " in ended.out
    assert repository.file.read_bytes() == before


def test_show_without_anything_approved_is_exit_4(dgw: Dgw) -> None:
    ended = dgw("baseline", "show")
    assert ended.code == 4
    assert ended.error_is_two_lines()


def test_show_has_a_json_form(repository: Repository) -> None:
    (file,) = json.loads(repository.dgw("baseline", "show", "--json").out)
    assert file["family"] == "gated"
    assert file["history"][0]["reason"] == "the first"


@pytest.fixture
def suite(bare: Repository) -> Callable[[str], None]:
    folder = bare.folder / "perf" / "suites"
    folder.mkdir(parents=True)

    def write(text: str) -> None:
        (folder / "mine.toml").write_text(f'dtypes = ["f32"]\nvariants = ["gated/column"]\n{text}')

    return write


def test_a_case_of_a_suite_that_vanished_is_missing_until_an_approval_drops_it(
    bare: Repository, suite: Callable[[str], None]
) -> None:
    typed = ("--suite", "mine", "--kernels", "gated")
    suite('shapes = ["64x64x40", "32x32x32"]')
    assert bare.dgw("baseline", "approve", *typed, "--reason", "the first").code == 0
    assert bare.dgw("gate", "--exact", *typed).code == 0
    suite('shapes = ["64x64x40"]')
    ended = bare.dgw("gate", "--exact", *typed)
    assert ended.code == 4
    assert "does not exist any more" in ended.out
    assert bare.dgw("baseline", "approve", *typed, "--reason", "not needed").code == 0
    assert bare.dgw("gate", "--exact", *typed).code == 0


def test_a_floor_of_what_is_no_figure_is_an_error_with_the_nearest_one(
    bare: Repository, suite: Callable[[str], None]
) -> None:
    suite('shapes = ["64x64x40"]\n[floors]\ntime = 0.02\nsmem_bank_conflict_st = 0.1')
    ended = bare.dgw("gate", "--exact", "--suite", "mine", "--kernels", "gated")
    assert ended.code == 2
    assert ended.error_is_two_lines()
    assert "smem_bank_conflicts_st" in ended.err


def test_what_was_approved_beside_a_suite_is_not_missed_when_the_suite_is_gated(
    bare: Repository, suite: Callable[[str], None]
) -> None:
    typed = ("--suite", "mine", "--kernels", "gated")
    suite('shapes = ["64x64x40"]')
    assert bare.dgw("baseline", "approve", *typed, "--shape", "32x32x32", "--reason", "beside").code == 0
    assert bare.dgw("gate", "--exact", *typed, "--shape", "32x32x32").code == 0
    assert bare.dgw("baseline", "approve", *typed, "--reason", "the suite").code == 0
    ended = bare.dgw("gate", "--exact", *typed)
    assert "1 identical (exit 0)" in ended.out
