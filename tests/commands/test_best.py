"""`dgw best`, and tuned configs in `dgw profile`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dgw.errors import UsageError
from dgw.model import Run, gemm
from dgw.toolchain.devices import device
from dgw.workbench import tuned
from dgw.workbench.sweep import race
from tests.commands.conftest import Dgw, Ended, Engine
from tests.commands.test_sweep import FOLDER, Gpus, gpus
from tests.workbench.sweep.many import VARIANT

__all__ = ["gpus"]
KERNEL = ("--kernel", str(FOLDER / "many.cu"))
SHAPE = "64x64x64"


@pytest.fixture
def swept(dgw: Dgw, gpus: Gpus) -> Callable[..., Ended]:
    def call(*arguments: str) -> Ended:
        return dgw("sweep", *KERNEL, "--shape", SHAPE, "--space", "X=1..3,Y=1..4", *arguments)

    return call


Swept = Callable[..., Ended]


def winner(ended: Ended) -> dict[str, Any]:
    records = msgspec.json.decode(ended.out, type=Run).records
    return dict(next(record for record in records if race.verdict(record) == "best").case.config)


def test_the_winner_of_the_newest_race_is_named_with_the_distance_of_the_default(dgw: Dgw, swept: Swept) -> None:
    best = winner(swept("--json"))
    ended = dgw("best", SHAPE, *KERNEL)
    assert ended.code == 0, ended.err
    config = ",".join(f"{name}={value}" for name, value in best.items())
    assert config in ended.out
    assert "The default config takes" in ended.out
    assert "in run" in ended.out


def test_an_exported_winner_is_what_profile_runs_and_says(dgw: Dgw, swept: Swept, engine: Engine) -> None:
    best = winner(swept("--json"))
    ended = dgw("best", SHAPE, "-o", ".dgw/tuned.json")
    assert ended.code == 0, ended.err
    ended = dgw("profile", *KERNEL, "--shape", SHAPE, "--engine", "emulator")
    assert [dict(case.config) for case in engine.seen] == [best]
    assert "tuned config" in ended.err
    assert "--tuned none" in ended.err


@pytest.mark.parametrize("more", [("--tuned", "none"), ("-c", "X=2"), ("--shape", "32x32x32"), ("--dtype", "f16,bf16")])
def test_configs_that_are_typed_and_other_problems_are_left_alone(
    dgw: Dgw, swept: Swept, engine: Engine, more: tuple[str, ...]
) -> None:
    best = winner(swept("--json"))
    dgw("best", SHAPE, "-o", "t.json")
    extra = more if more[0] == "--tuned" else (*more, "--tuned", "t.json")
    dgw("profile", *KERNEL, *(() if more[0] == "--shape" else ("--shape", SHAPE)), "--engine", "emulator", *extra)
    others = [case for case in engine.seen if dict(case.config) != best]
    assert len(others) >= 1


def test_a_second_export_keeps_what_the_file_held(dgw: Dgw, swept: Swept, gpus: Gpus) -> None:
    swept()
    dgw("sweep", *KERNEL, "--shape", "32x32x32", "--space", "X=1..3,Y=1..4")
    dgw("best", SHAPE, "-o", "t.json")
    dgw("best", "32x32x32", "-o", "t.json")
    dgw("best", SHAPE, "-o", "t.json")
    entries = json.loads(Path("t.json").read_text())["entries"]
    assert [entry["problem"]["m"] for entry in entries] == [64, 32]


def test_the_json_is_the_file(dgw: Dgw, swept: Swept) -> None:
    best = winner(swept("--json"))
    content = json.loads(dgw("best", SHAPE, "--json").out)
    assert content["schema"] == "dgw.tuned/1"
    (entry,) = content["entries"]
    assert entry["config"] == best
    assert entry["protocol"] == "cold-graph/1"
    assert entry["device"] == "h200"


def test_a_shape_that_was_never_swept_says_how_to(dgw: Dgw, swept: Swept) -> None:
    swept()
    ended = dgw("best", "8x8x8")
    assert ended.code == 4
    assert ended.error_is_two_lines(), ended.err
    assert "dgw sweep --variant" in ended.err


def test_the_shape_is_an_option_as_in_every_command_too(dgw: Dgw, swept: Swept) -> None:
    swept()
    assert dgw("best", "--shape", SHAPE, *KERNEL).out == dgw("best", SHAPE, *KERNEL).out
    ended = dgw("best", *KERNEL)
    assert ended.code == 2
    assert f"dgw best --kernel {KERNEL[1]} --shape" in ended.err


def test_what_was_only_emulated_has_no_winner_and_is_shown_by_the_hint(dgw: Dgw) -> None:
    dgw("sweep", "-v", "tiled", "-s", "32x32x32", "--fix", "default")
    ended = dgw("best", "32x32x32")
    assert ended.code == 4
    assert ended.error_is_two_lines(), ended.err
    assert "times measured on a GPU" in ended.err
    command = ended.err.rpartition("try: dgw ")[2].split()
    assert command[0] == "report"
    assert dgw(*command).code == 0


def test_the_hint_where_nothing_was_swept_keeps_the_kernel_and_can_be_typed(dgw: Dgw, swept: Swept) -> None:
    ended = dgw("best", "8x8x8", *KERNEL)
    command = shlex.split(ended.err.rpartition("try: dgw ")[2])
    assert "--kernel" in command
    assert dgw(*command, "--sample", "1", "--engine", "static").code == 0


def test_an_export_elsewhere_says_how_profile_takes_it(dgw: Dgw, swept: Swept) -> None:
    swept()
    ended = dgw("best", SHAPE, *KERNEL, "-o", "t.json")
    command = shlex.split(ended.err.rpartition("try: dgw ")[2])
    assert dgw(*command, "--engine", "static").code == 0


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"schema": "dgw.tuned/2"}', b"\xff", b'{"entries": [{"device": 1}]}']
)
def test_a_file_that_holds_no_tuned_configs_is_an_error_of_two_lines(
    dgw: Dgw, engine: Engine, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "t.json").write_bytes(content)
    ended = dgw("profile", *KERNEL, "--shape", SHAPE, "--tuned", "t.json")
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err


def an_entry(**changes: Any) -> tuned.Tuned:
    fields: dict[str, Any] = {
        "device": "h200", "problem": gemm(64, 64, 64, data="normal"), "variant": "own/many", "version": 1,
        "config": {"X": 2, "Y": 3}, "seconds": 1e-3, "protocol": "cold-graph/1",
    }  # fmt: skip
    return tuned.Tuned(**(fields | changes))


def test_an_entry_is_found_whatever_the_data() -> None:
    problem = gemm(64, 64, 64, data="integer", seed=7)
    assert tuned.find([an_entry()], problem, VARIANT, device("h200")) == an_entry()


@pytest.mark.parametrize(
    "changes",
    [
        {"device": "a100"}, {"variant": "own/other"}, {"version": 2}, {"problem": gemm(64, 64, 32)},
        {"config": {"X": 2}}, {"config": {"X": 99, "Y": 3}}, {"config": {"X": 0, "Y": 3}},
    ],
)  # fmt: skip
def test_an_entry_of_another_time_or_place_is_not_taken(changes: dict[str, Any]) -> None:
    assert tuned.find([an_entry(**changes)], gemm(64, 64, 64), VARIANT, device("h200")) is None


def test_a_file_that_is_not_there_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read") as caught:
        tuned.load(tmp_path / "none.json")
    assert "dgw best" in caught.value.hint
