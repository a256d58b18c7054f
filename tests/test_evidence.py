"""The scripts that measure on a GPU machine: what their parts leave in the file, whatever happens to one of them."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from dgw.model import Environment, Measurement, Run
from tests.reports.samples import full_record

ROOT = Path(__file__).resolve().parents[1]
RUN = Run(id="r", created="2026-01-01", command=("dgw",), version="0", records=(full_record(),))


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "evidence"))
    module = importlib.import_module("parts")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield module
    for name in ("parts", "topic", "ladder"):
        sys.modules.pop(name, None)


def good(topic: Any) -> dict[str, Any]:
    topic.show("fast enough", 2.0, "s", "<=", 3.0)
    return {"run": RUN}


def breaks(topic: Any) -> dict[str, Any]:
    topic.show("first half", 1, "", "==", 1)
    raise LookupError("no such record")


def content(folder: Path) -> Any:
    return json.loads((folder / "docs" / "h200" / "topic.json").read_text())


def test_a_part_that_breaks_loses_neither_its_rows_nor_the_others(parts: ModuleType, tmp_path: Path) -> None:
    assert parts.measure("topic", {"a": breaks, "b": good, "c": good}, ["a", "b"]) == 0
    found = content(tmp_path)
    assert [(row["part"], row["holds"]) for row in found["shows"]] == [("a", True), ("a", False), ("b", True)]
    assert "no such record" in found["shows"][1]["value"]
    assert (found["run_of"], found["run"]["id"], list(found["parts"])) == ("b", "r", ["a", "b"])


def test_a_part_measured_later_takes_its_own_place_and_keeps_the_others(parts: ModuleType, tmp_path: Path) -> None:
    all_parts = {"a": good, "b": good}
    parts.measure("topic", all_parts, ["b"])
    parts.measure("topic", all_parts, ["a"])
    parts.measure("topic", {"a": good, "b": breaks}, ["b"])
    found = content(tmp_path)
    assert [(row["part"], row["holds"]) for row in found["shows"]] == [("a", True), ("b", True), ("b", False)]
    assert found["run_of"] == "a"
    assert found["measured"]["gpu"] == "h200"
    assert found["parts"]["b"]["measured"] == {"date": found["measured"]["date"]}  # it broke, on the same day


def test_a_part_that_does_not_exist_is_said_with_those_that_do(
    parts: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parts.measure("topic", {"a": good}, ["z"]) == 2
    assert "try: a" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "low", "holds"), [(0.96, 0.95, True), (0.951, 0.93, False), (0.94, 0.94, False), (None, None, False)]
)
def test_a_ratio_holds_when_its_point_does_and_its_lower_end_nearly(
    parts: ModuleType, value: float | None, low: float | None, holds: bool
) -> None:
    topic = parts.Topic("topic")
    found = Measurement(metric="ratio_to_cublas", value=value, low=low, collector="timing")
    parts.ratio(topic, "as fast", found, 0.95)
    assert topic.shows[0]["holds"] is holds


@pytest.mark.parametrize("name", ["diagnosis", "ladder", "ladder-2"])
def test_every_part_asks_only_for_what_the_commands_know(
    parts: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each part runs on one answer for every command; none may ask for an option that does not exist."""
    import typer.main

    from dgw.commands import check, compare, diagnose, profile

    module = importlib.import_module(name)
    asked: list[tuple[str, ...]] = []

    def dgw(topic: Any, *arguments: str, limit_s: float = 0.0) -> Any:
        asked.append(arguments)
        from topic import Done

        return Done(0, json.dumps(msgspec_builtins(RUN)), "", 1.0)

    monkeypatch.setattr(parts.Topic, "dgw", dgw)
    known = {
        command: {option for one in typer.main.get_command(module_.app).params for option in one.opts}
        for command, module_ in (("check", check), ("compare", compare), ("diagnose", diagnose), ("profile", profile))
    }
    for part in module.PARTS.values():
        try:
            part(parts.Topic(name))
        except parts.FAILURES:
            continue
    assert asked
    for command, *options in asked:
        assert {option for option in options if option.startswith("--")} <= known[command]
    sys.modules.pop(name)


def msgspec_builtins(run: Run) -> Any:
    import msgspec

    return {**msgspec.to_builtins(run), "findings": []}


def test_choices_are_told_apart_by_their_tunables_and_not_by_the_order_in_which_they_ended(
    parts: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dgw.kernels.loader import load
    from dgw.model import Case, gemm
    from dgw.toolchain.devices import device

    script = importlib.import_module("hopper")
    for name in ("hopper", "ladder"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    variant, problem = load()[script.PERSISTENT], gemm(4096, 4096, 4096, layout="nt")
    turns = {"BM": 128, "BN": 128, "PINGPONG": 1}
    configs = [variant.config_for(problem, device("h200"), {**turns, "STAGES": slots}) for slots in (6, 2, 4)]
    records = [full_record(case=Case(problem=problem, variant=variant.id, config=config)) for config in configs]
    found = script.named([records[2], records[0], records[1]])
    assert found[records[1].case.key] == "2 slots"
    assert found[records[2].case.key] == "4 slots"
    assert list(found) == [record.case.key for record in records]


def test_a_run_was_measured_where_a_case_saw_the_driver_even_if_the_first_was_refused(parts: ModuleType) -> None:
    seen = full_record()
    refused = msgspec.structs.replace(seen, environment=Environment(device=seen.environment.device))
    run = msgspec.structs.replace(RUN, records=(refused, seen))
    assert seen.environment.driver
    assert parts.measured(run)["driver"] == seen.environment.driver


def test_a_figure_has_no_verdict_unless_it_is_unknown(parts: ModuleType) -> None:
    topic = parts.Topic("topic")
    topic.figure("so fast", 0.96, "x")
    topic.figure("not timed", None, "x")
    assert topic.shows[0] == {"claim": "so fast", "value": 0.96, "unit": "x"}
    assert (topic.shows[1]["value"], topic.shows[1]["holds"]) == (None, False)


def test_a_rung_that_is_slower_than_the_one_before_is_not_said_to_hold(
    parts: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part as it is, on the stored answer of an H200 with one rung made slower."""
    from topic import Done

    from dgw.recipes.ladder import ladder as steps

    module = importlib.import_module("ladder")
    run = msgspec.convert(json.loads((ROOT / "docs" / "h200" / "ladder.json").read_text())["run"], type=Run)
    records = [record for record in run.records if record.case.problem.a.dtype == "f16"]
    place = next(i for i, record in enumerate(records) if record.case.variant == "cuda/double-buffered")
    before, slower = records[place - 1].number("time_cold"), records[place]
    assert before is not None
    times = (
        msgspec.structs.replace(m, value=2 * before) if m.metric == "time_cold" else m for m in slower.measurements
    )
    records[place] = msgspec.structs.replace(slower, measurements=tuple(times))
    answer = msgspec.to_builtins(msgspec.structs.replace(run, records=tuple(records)))
    said = json.dumps({**answer, "findings": msgspec.to_builtins(steps(records))})
    monkeypatch.setattr(parts.Topic, "dgw", lambda topic, *arguments, **more: Done(0, said, "", 1.0))
    topic = parts.Topic("ladder")
    module.rungs(topic, "f16")
    figures = {row["claim"]: row for row in topic.shows if "before" in row["claim"] or "against cuBLAS" in row["claim"]}
    found = figures["4096x4096x4096 f16: cuda/double-buffered against the rung before, speed-up"]
    assert found["value"] == 0.5
    assert [name for name, row in figures.items() if "holds" in row] == [
        "4096x4096x4096 f16: tensor-core against cuBLAS"
    ]
    assert len(figures) == 6 + 7 + 1


def test_the_stored_records_of_planted_kernels_keep_what_the_evidence_claims(parts: ModuleType, tmp_path: Path) -> None:
    """The part that needs no GPU, on the committed data."""
    module = importlib.import_module("diagnosis")
    (tmp_path / module.DATA).parent.mkdir(parents=True)
    (tmp_path / module.DATA).write_bytes((ROOT / module.DATA).read_bytes())
    topic = parts.Topic("diagnosis")
    kept = module.judged(topic)
    sys.modules.pop("diagnosis")
    assert [row["claim"] for row in topic.shows if not row["holds"]] == []
    assert len(kept["findings"]) > len(kept["accounted"]) >= 24


@pytest.mark.parametrize("out", ["", '{"run": "r", "walks": [{"steps": []}]}'])
def test_a_walk_that_says_nothing_leaves_what_the_command_said(
    parts: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, out: str
) -> None:
    from topic import Done

    module = importlib.import_module("diagnosis")
    monkeypatch.setattr(parts.Topic, "dgw", lambda topic, *arguments, **more: Done(6, out, "error: no GPU here", 1.0))
    assert parts.measure("topic", {"plants": good, "seven-step": module.seven_step}, ["plants", "seven-step"]) == 0
    sys.modules.pop("diagnosis")
    (row,) = [row for row in content(tmp_path)["shows"] if row["part"] == "seven-step"]
    assert (row["holds"], "no GPU here" in row["value"]) == (False, True)


@pytest.mark.parametrize(("obeys", "signals"), [(True, ["INT"]), (False, ["INT", "KILL"])])
def test_a_command_that_takes_too_long_is_ended_as_by_ctrl_c_and_then_by_force(
    parts: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, obeys: bool, signals: list[str]
) -> None:
    import topic

    sent: list[str] = []

    class Hanging:
        def __init__(self, command: list[str], **more: Any) -> None:
            self.command = command

        def communicate(self, timeout: float | None = None) -> tuple[str, str]:
            if not sent or (timeout is not None and not obeys):
                raise subprocess.TimeoutExpired(self.command, timeout or 0.0)
            return "", ""

        def send_signal(self, number: signal.Signals) -> None:
            sent.append(number.name.removeprefix("SIG"))

        def kill(self) -> None:
            sent.append("KILL")

    monkeypatch.setattr(topic.subprocess, "Popen", Hanging)
    parts.measure("topic", {"a": good, "b": lambda one: one.dgw("runs")}, ["a", "b"])
    assert sent == signals
    (row,) = [row for row in content(tmp_path)["shows"] if row["part"] == "b"]
    assert "TimeoutExpired" in row["value"]


def test_spills_that_are_absent_are_no_zero(parts: ModuleType) -> None:
    ladder = importlib.import_module("ladder")
    both = [
        Measurement(metric=f"spill_{way}_bytes", value=0, unit="B", collector="static") for way in ("store", "load")
    ]
    for known, holds in ((both, True), (both[:1], False)):
        topic = parts.Topic("topic")
        record = full_record(measurements=tuple(known))
        ladder.spills(topic, "here", msgspec.structs.replace(RUN, records=(record,)), "cuda")
        assert [row["holds"] for row in topic.shows] == [holds]


def test_the_fit_of_the_selector_starts_from_its_constants_and_the_timings(parts: ModuleType) -> None:
    from dgw.kernels.hopper import selector

    fit = importlib.import_module("selector-fit")
    problems = fit.load()
    now = [getattr(selector, name) for name in fit.CONSTANTS]
    try:
        good = fit.loss(now, problems[:20])
        assert fit.picked(problems[0])[0] < 1.05
        worse = fit.loss(
            [value * (1.9 if name == "LATENCY" else 1.0) for name, value in zip(fit.CONSTANTS, now, strict=True)],
            problems[:20],
        )
        assert 0.0 < good < worse
    finally:
        for name, value in zip(fit.CONSTANTS, now, strict=True):
            setattr(selector, name, value)
        sys.modules.pop("selector-fit", None)
    assert len(problems) >= 40
