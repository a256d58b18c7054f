"""`dgw gate` end to end on a played GPU: every verdict and every exit code."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.workbench.gate.verdict import GateReport, Side
from tests.commands.conftest import Dgw, Ended
from tests.commands.gates import prepare_lab, report_of, write_kernel
from tests.workbench.gate.fake_lab import ENVIRONMENT, Lab

SHAPES = ("--shape", "64x64x64,128x64x64")
Gate = Callable[..., Ended]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "gated-cache"  # that of all tests of gates


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab()
    prepare_lab(monkeypatch, made)
    return made


@pytest.fixture
def gate(dgw: Dgw, lab: Lab, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A repository with two kernels, of which `changed` has other code in head than in base; `same` has not."""
    monkeypatch.setenv("DGW_CACHE", str(cache))
    for side, value in (("base", "1"), ("head", "2")):
        write_kernel(tmp_path / side / "mine", "same")
        write_kernel(tmp_path / side / "mine", "changed", value)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x", "--allow-empty"]):
        names = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *names, *arguments], cwd=tmp_path / "base", check=True, capture_output=True)
    monkeypatch.chdir(tmp_path / "head")

    def call(*arguments: str) -> Ended:
        return dgw("gate", "--kernels", "mine", "--base-tree", "../base", *SHAPES, *arguments)

    return call


def statuses(report: GateReport) -> dict[str, str]:
    return {case.label.partition(" f16")[0]: case.status for case in report.cases}


def test_a_clean_change_passes_and_what_did_not_change_is_not_timed(gate: Gate, lab: Lab) -> None:
    ended = gate("--json")
    assert ended.code == 0, ended.err
    report = report_of(ended)
    assert set(statuses(report).values()) == {"identical", "unchanged"}
    changed = [case for case in report.cases if case.variant == "mine/changed"]
    assert all(case.status == "unchanged" and case.pairs == 4 for case in changed)
    assert all(case.ratio and abs(case.ratio.value - 1) < 0.003 for case in changed)
    assert len(report.sentinels) == 2
    assert lab.most_alive == 2
    assert report.base.label == "base"
    assert report.protocol.startswith("gate-pairs/1")


def test_a_slower_kernel_fails_with_1_on_fresh_pairs(gate: Gate, lab: Lab) -> None:
    lab.slow["head"]["mine/changed"] = 1.03
    ended = gate("--json")
    assert ended.code == 1, ended.err
    slow = [case for case in report_of(ended).cases if case.variant == "mine/changed"]
    assert all(case.status == "regressed" and case.stage == "confirm" and case.pairs == 8 for case in slow)
    assert all(case.ratio and 1.025 < case.ratio.value < 1.035 for case in slow)
    assert all(case.mde is not None and case.mde < 0.02 for case in slow)
    assert len({name for name in lab.started if name.startswith("confirm")}) == 16
    assert all(case.explanation == () for case in slow)  # nothing was counted that could explain it


def test_a_faster_kernel_is_improved_and_passes(gate: Gate, lab: Lab) -> None:
    lab.slow["head"]["mine/changed"] = 0.9
    ended = gate()
    assert ended.code == 0
    assert "improved" in ended.out


def test_noise_that_hides_the_answer_is_3_and_can_be_let_pass(gate: Gate, lab: Lab) -> None:
    lab.sigma = 0.06
    assert gate("--no-store").code == 3
    assert gate("--no-store", "--on-inconclusive", "warn").code == 0


def test_an_unsteady_machine_is_3_whatever_the_times_say(gate: Gate, lab: Lab) -> None:
    lab.slow["head"]["*"] = 1.03  # also unchanged code
    ended = gate("--json")
    assert ended.code == 3
    assert any("the machine is not steady" in note for note in report_of(ended).notes)


def test_thermal_throttling_is_3(gate: Gate, lab: Lab) -> None:
    lab.throttle = ("HwThermalSlowdown",)
    ended = gate("--json")
    assert ended.code == 3
    assert "20 of 20 rounds are invalid (20 x HwThermalSlowdown)" in ended.out


def test_nothing_to_compare_is_4(gate: Gate, tmp_path: Path) -> None:
    for kernel in (tmp_path / "base" / "mine").glob("*.py"):
        kernel.write_text(kernel.read_text().replace("mine/", "theirs/"))
    ended = gate("--json")
    assert ended.code == 4
    assert set(statuses(report_of(ended)).values()) == {"new"}


def test_a_case_that_head_refuses_is_missing_and_4(gate: Gate, tmp_path: Path) -> None:
    write_kernel(tmp_path / "head" / "mine", "changed", refusal="not any more")
    ended = gate("--json")
    assert ended.code == 4
    assert statuses(report_of(ended))["mine/changed 64x64x64"] == "missing"
    assert gate("--on-missing", "record").code == 0


@pytest.mark.parametrize("change", [{"device_uuid": "beef"}, {"driver": "570.1"}])
def test_another_gpu_or_driver_on_one_side_is_4(gate: Gate, lab: Lab, change: dict[str, Any]) -> None:
    lab.environments["base"] = msgspec.structs.replace(ENVIRONMENT, **change)
    ended = gate()
    assert ended.code == 4
    assert ended.error_is_two_lines(), ended.err
    assert "do not see the same GPU and driver" in ended.err


def test_a_base_that_does_not_build_is_5(gate: Gate, tmp_path: Path) -> None:
    write_kernel(tmp_path / "base" / "mine", "changed", value="no such thing")
    ended = gate("--json")
    assert ended.code == 5
    failed = [case for case in report_of(ended).cases if case.status == "failed"]
    assert len(failed) == 2
    assert failed[0].reasons[0].startswith("base: compile-failed")


def test_a_wrong_result_is_1_and_never_timed(gate: Gate, lab: Lab) -> None:
    lab.what["head"]["mine/changed"] = "wrong"
    ended = gate("--json")
    assert ended.code == 1
    wrong = [case for case in report_of(ended).cases if case.status == "wrong"]
    assert len(wrong) == 2
    assert all(case.ratio is None for case in wrong)
    assert not any(name.startswith("screen") for name in lab.started)


def test_a_result_that_is_wrong_in_unchanged_code_is_1_too(gate: Gate, lab: Lab) -> None:
    lab.what["head"]["mine/same"] = "wrong"
    assert gate().code == 1


def test_a_result_that_goes_wrong_while_timed_is_1(gate: Gate, lab: Lab) -> None:
    lab.what["head"]["mine/changed"] = "wrong-later"
    ended = gate("--json")
    assert ended.code == 1
    assert statuses(report_of(ended))["mine/changed 64x64x64"] == "wrong"


@pytest.mark.parametrize("what", ["hangs", "crashes", "hangs-later", "crashes-later"])
@pytest.mark.parametrize("side", ["base", "head"])
def test_a_hang_or_crash_is_5_and_costs_no_other_case(gate: Gate, lab: Lab, side: str, what: str) -> None:
    lab.what[side]["mine/changed"] = what
    ended = gate("--json")
    assert ended.code == 5
    found = statuses(report_of(ended))
    assert found["mine/changed 64x64x64"] == "failed"
    assert found["mine/same 64x64x64"] == "identical"
    assert lab.alive == 0


def test_both_a_wrong_result_and_a_hang_are_1(gate: Gate, lab: Lab) -> None:
    lab.what["head"] |= {"mine/changed": "hangs-later", "mine/same": "wrong"}
    assert gate().code == 1


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_gate_that_is_interrupted_is_130_and_says_what_it_has(gate: Gate, lab: Lab, by: signal.Signals) -> None:
    lab.interrupt_after, lab.interrupt_with = 60, by
    ended = gate("--json")
    assert ended.code == 130
    report = report_of(ended)
    assert report.interrupted
    assert statuses(report)["mine/changed 64x64x64"] == "inconclusive"
    assert statuses(report)["mine/same 64x64x64"] == "identical"
    assert lab.alive == 0


@pytest.mark.parametrize("options", [(), ("--lock-clocks", "1500")], ids=" ".join)
def test_a_machine_without_a_gpu_is_6_and_told_of_the_exact_gate(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    def nothing_to_hold(*_: object) -> None:
        pytest.fail("a GPU that is not there was to be held")

    monkeypatch.setattr("dgw.commands.gate_lock.hold_gpu", nothing_to_hold)
    monkeypatch.setattr("dgw.commands.session.gpu_is_here", lambda: False)
    ended = gate(*options)
    assert ended.code == 6
    assert "error: there is no GPU here" in ended.err
    assert ended.error_is_two_lines(), ended.err
    assert "dgw gate --exact" in ended.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--base", "main"), "a gate has one base"),
        (("--on-inconclusive", "shrug"), "cannot be 'shrug'"),
        (("--plan", "huge"), "no plan is named 'huge'"),
        (("--floor", "0"), "must be above 0"),
        (("--exact",), "--base-tree belongs to the time gate"),
        (("--device", "h200"), "--device belongs to dgw gate --exact"),
        (("--self-test", "2"), "head is compared with itself"),
        (("--calibrate",), "head is compared with itself"),
    ],
)
def test_what_cannot_be_is_a_usage_error(gate: Gate, options: tuple[str, ...], said: str) -> None:
    ended = gate(*options)
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err
    assert said in ended.err


def test_a_gate_without_a_base_says_which_there_can_be(dgw: Dgw, lab: Lab) -> None:
    ended = dgw("gate", *SHAPES, "-v", "tiled")
    assert ended.code == 2
    assert "--base main" in ended.err


def test_retries_pool_with_what_was_measured_before(gate: Gate, lab: Lab) -> None:
    lab.slow["head"]["mine/changed"] = 1.03
    assert gate().code == 1
    lab.slow["head"]["mine/changed"] = 1.0  # a lucky run
    again = gate("--json")
    slow = [case for case in report_of(again).cases if case.variant == "mine/changed"]
    assert all(case.attempts == 2 and case.pairs == 16 for case in slow)
    assert again.code == 1 or all(case.status == "inconclusive" for case in slow)


def test_a_kernel_file_can_be_the_base_under_another_name(gate: Gate, dgw: Dgw, lab: Lab, tmp_path: Path) -> None:
    old = write_kernel(tmp_path / "old", "before", "1")
    lab.slow["base"]["mine/before"] = 0.9
    ended = dgw("gate", "--kernel", "mine/changed.cu", "--base-kernel", str(old), *SHAPES, "--json")
    assert ended.code == 1, ended.err
    report = report_of(ended)
    assert report.base.kind == "kernel"
    assert report.base.label == "before.cu"
    assert {case.status for case in report.cases} == {"regressed"}
    assert len(report.sentinels) == 2  # nothing is unchanged: head's own code on both sides


def test_a_commit_can_be_the_base_and_its_checkout_is_removed(
    dgw: Dgw, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "base"
    monkeypatch.chdir(repository)
    write_kernel(repository / "mine", "changed", "3")
    ended = dgw("gate", "--kernels", "mine", "--base", "HEAD", *SHAPES, "--json")
    assert ended.code == 0, ended.err
    report = report_of(ended)
    assert report.base.kind == "commit"
    assert len(report.base.commit) == 40
    assert report.head.label.endswith("with changes")
    assert statuses(report)["mine/changed 64x64x64"] == "unchanged"
    listed = subprocess.run(["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1
    assert str(tmp_path) not in ended.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--base", "nowhere"), "no commit is named 'nowhere'"),
        (("--base-tree", "nowhere"), "nowhere is no folder"),
        (("--base-python", "nowhere"), "nowhere does not exist"),
        (("--base-kernel", "nowhere.cu"), "nowhere.cu does not exist"),
    ],
)
def test_a_base_that_does_not_exist_is_a_usage_error(
    dgw: Dgw, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path / "base")
    ended = dgw("gate", "--kernels", "mine", *options, *SHAPES)
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err
    assert said in ended.err


def test_a_base_before_the_kernel_existed_is_a_usage_error(
    dgw: Dgw, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "base")
    write_kernel(tmp_path / "base" / "fresh", "other")
    ended = dgw("gate", "--kernels", "fresh", "--base", "HEAD", *SHAPES)
    assert ended.code == 2
    assert "HEAD has no fresh" in ended.err


def test_a_folder_of_packages_can_be_the_base(dgw: Dgw, gate: Gate, tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    ended = dgw("gate", "--kernels", "mine", "--base-python", str(tmp_path / "packages"), *SHAPES, "--json")
    assert ended.code == 0, ended.err
    report = report_of(ended)
    assert report.base == Side(label="packages", kind="python", digest=report.head.digest)


def test_self_tests_time_identical_code_and_their_tally_is_in_every_report(dgw: Dgw, gate: Gate, lab: Lab) -> None:
    ended = dgw("gate", "--kernels", "mine", *SHAPES, "--self-test", "3")
    assert ended.code == 0, ended.err
    assert ended.out.count("A/A gate ") == 3
    assert "all A/A gates in the store: 3, of which 0 failed" in ended.out
    report = report_of(gate("--json"))
    assert report.self_test is not None
    assert (report.self_test.runs, report.self_test.false_fails) == (3, 0)
    assert report.self_test.upper_bound == pytest.approx(1 - 0.05 ** (1 / 3))
    assert "0 of 3 failed" in gate().out


def test_a_self_test_that_fails_is_1(dgw: Dgw, gate: Gate, lab: Lab) -> None:
    lab.slow["head"]["*"] = 1.05
    ended = dgw("gate", "--kernels", "mine", *SHAPES, "--self-test", "2", "--json")
    assert ended.code == 1
    content = msgspec.json.decode(ended.out)
    assert content["tally"]["false_fails"] == 2
    assert len(content["gates"]) == 2


def test_identical_code_is_timed_when_asked(dgw: Dgw, gate: Gate, lab: Lab) -> None:
    ended = gate("--time-identical", "--json")
    assert ended.code == 0
    assert all(case.status == "unchanged" and case.ratio is not None for case in report_of(ended).cases)
