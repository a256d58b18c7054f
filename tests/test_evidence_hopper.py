"""evidence/hopper-2.py without a GPU: what is drawn, what its rows are made of, and that none holds for nothing."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import typer.main

from dgw.commands import check, profile
from dgw.commands.suites import shapes_file
from dgw.kernels.loader import load
from dgw.model import Case, Check, Measurement, Record, Run, gemm
from dgw.operands import references
from dgw.toolchain.devices import device
from dgw.workbench.device.driver import Driver
from tests.reports.samples import full_record
from tests.workbench.fake_cuda import FakeCuda, view_of, word

EVIDENCE = Path(__file__).resolve().parents[1] / "evidence"
Answer = Callable[[Sequence[str]], Sequence[Record]]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EVIDENCE))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield importlib.import_module("hopper-2")
    for name in ("hopper-2", "parts", "topic"):
        sys.modules.pop(name, None)


def measured(script: ModuleType, monkeypatch: pytest.MonkeyPatch, part: str, answer: Answer) -> tuple[Any, list[Any]]:
    """What a part keeps and its rows, where every command answers with these records."""

    def dgw(topic: Any, *arguments: str, limit_s: float = 0.0) -> Any:
        from topic import Done

        run = Run(id="r", created="2026-01-01", command=arguments, version="0", records=tuple(answer(arguments)))
        return Done(0, json.dumps(msgspec.to_builtins(run)), "", 1.0)

    monkeypatch.setattr(script.Topic, "dgw", dgw)
    topic = script.Topic("hopper-2")
    return script.PARTS[part](topic), topic.shows


def test_every_part_asks_only_for_what_the_commands_know(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        name: {option for one in typer.main.get_command(module.app).params for option in one.opts}
        for name, module in (("check", check), ("profile", profile))
    }
    asked: list[tuple[str, ...]] = []

    def answer(arguments: Sequence[str]) -> list[Record]:
        asked.append(tuple(arguments))
        return [full_record()]

    for part in script.PARTS.keys() - {"repeats"}:
        measured(script, monkeypatch, part, answer)
    cliff = len(script.ALIGNED) + 1 + len(script.WAYS)
    assert len(asked) == script.BATCHES + 4 + len(script.LONG) + cliff
    for command, *options in asked:
        assert {option for option in options if option.startswith("--")} <= known[command]


def test_ten_thousand_problems_meet_every_epilogue_with_several_tiles_and_no_pair_twice(
    script: ModuleType, tmp_path: Path
) -> None:
    tiles, epilogues, drawn = defaultdict(list), defaultdict(list), []
    for epilogue, tile, options in script.draws(tmp_path):
        tiles[epilogue].append(tile)
        epilogues[tile].append(epilogue)
        drawn += shapes_file(Path(options[1]))
    assert len(drawn) == 10000
    assert len(tiles) == len(script.EPILOGUES)
    assert {len(found) for found in tiles.values()} == {3, 4}
    assert {len(found) for found in epilogues.values()} == {4, 5}
    assert all(len(set(found)) == len(found) for found in (*tiles.values(), *epilogues.values()))
    assert len({(one.shape, one.dtype, one.layout) for one in drawn}) == 10000


def test_what_fails_among_random_problems_is_counted_by_epilogue_beside_at_most_twenty_lines(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(arguments: Sequence[str]) -> list[Record]:
        wrong = full_record(outcome="wrong", reason="above its limit")
        return [full_record(), *([wrong] * 9 if "silu" in arguments else [])]

    kept, rows = measured(script, monkeypatch, "random", answer)
    counted = kept["failed by epilogue"]
    assert counted.pop("--activation silu --out f32") == 27
    assert set(counted.values()) == {0}
    assert len(counted) == len(script.EPILOGUES) - 1
    assert sorted(kept["failed by epilogue and tile"].values()) == [0] * 22 + [9] * 3
    assert len(kept["failed"]) == 20
    assert [row["holds"] for row in rows] == [False, False]


def cut_off(script: ModuleType, name: str, factor: float) -> Answer:
    """Relative errors as an H200 has them; those of one variant are `factor` times as large."""

    def answer(arguments: Sequence[str]) -> list[Record]:
        found = []
        for variant in (script.PERSISTENT, script.MMA, script.CUBLAS):
            for dtype in ("f16", "bf16"):
                for depth in script.DEPTHS:
                    problem = gemm(script.SQUARE, script.SQUARE, depth, dtype, "nt", out="f32")
                    size = 0.65 * depth / 16 * 2.0**-25 * (factor if variant == name else 1)
                    judged = Check(passed=True, compared=1, relative_error=size or None)
                    found.append(full_record(case=Case(problem=problem, variant=variant), check=judged))
        return found

    return answer


@pytest.mark.parametrize(("name", "factor", "failing"), [
    ("hopper/persistent", 1.0, 0), ("hopper/persistent", 1.1, 8), ("cuda/tensor-core", 1.1, 0),
    ("cuda/tensor-core", 3.0, 8), ("baselines/cublas", 0.0, 4 * 8), ("cuda/tensor-core", 0.0, 2 * 8),
])  # fmt: skip
def test_sums_are_cut_off_no_more_than_by_cublas_and_an_unknown_error_never_holds(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, factor: float, failing: int
) -> None:
    _, rows = measured(script, monkeypatch, "truncation", cut_off(script, name, factor))
    assert len(rows) == 4 * 8
    assert sum(row.get("holds") is False for row in rows) == failing


def test_a_memcheck_without_a_verdict_is_not_clean(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(**fields: Any) -> Answer:
        found = Measurement(metric="memcheck_errors", unit="count", collector="sanitizer", **fields)
        return lambda _: [full_record(measurements=(found,))] * 4 * len(script.EDGES)

    for answer, holds in ((ran(value=0), True), (ran(value=1), False), (ran(absent="it came to no end"), False)):
        _, rows = measured(script, monkeypatch, "memcheck", answer)
        assert [row["holds"] for row in rows] == [holds]


def test_a_size_off_alignment_is_compared_with_its_own_neighbour(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(arguments: Sequence[str]) -> list[Record]:
        seconds = {1000: 1.0, 1001: 1.2, 2048: 3.0, 2047: 4.5, 4096: 9.0}
        shapes, variant = (arguments[arguments.index(name) + 1] for name in ("--shape", "--variant"))
        return [
            full_record(seconds=time, case=Case(problem=problem, variant=variant))
            for size, time in seconds.items()
            for problem in (gemm(size, size, size, layout=layout) for layout in ("nn", "nt"))
            if script.cube(size) in shapes.split(",")
        ]

    _, rows = measured(script, monkeypatch, "cliff", answer)
    times = [row for row in rows if "over" in row["claim"]]
    found = [(1.2, True), (1.5, False), (None, False)]
    assert [(row["value"], row["holds"]) for row in times] == [*found, *found, *[(None, False)] * 6]
    ways = {row["claim"] for row in rows if "COPY_AHEAD" in row["claim"]}
    assert ways == {f"persistent at 2047x2047x2047, nt, {way}: time" for way in script.WAYS}


class Fake(FakeCuda):
    """What hopper/persistent needs besides."""

    released = 0

    def _cuTensorMapEncodeTiled(self, *arguments: Any) -> Any:  # noqa: N802
        return SimpleNamespace(opaque=range(16))

    def _cuDevicePrimaryCtxRelease(self, ordinal: int) -> None:  # noqa: N802
        self.released += 1


def right(cuda: FakeCuda, parameters: list[int]) -> None:
    """The kernel's fifth argument is D: three tensor maps and C come first."""
    found = references.block_reference(cuda.problem)
    view_of(cuda.problem, "d", word(parameters[4]))[...] = references.stored_output(cuda.problem, found.value)


def wrong_the_second_time(cuda: FakeCuda, parameters: list[int]) -> None:
    right(cuda, parameters)
    if cuda.launched.count("persistent") == 2:
        view_of(cuda.problem, "d", word(parameters[4]))[1, 2] = 999


@pytest.mark.parametrize(
    ("kernel", "rows"),
    [(right, [True, True]), (wrong_the_second_time, [False, True]), (lambda cuda, parameters: None, [True, False])],
)
def test_repeats_that_agree_on_a_wrong_result_do_not_pass_and_the_gpu_is_given_back(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, kernel: Any, rows: list[bool]
) -> None:
    """The part on a driver made of host memory; nothing is compiled."""
    shape = (80, 72, 16)
    fake = Fake(gemm(*shape, layout="nt"), {"persistent": kernel})
    monkeypatch.setattr(script, "REPEATED", shape)
    monkeypatch.setattr(script, "REPEATS", 3)
    monkeypatch.setattr(script, "build", lambda *_: SimpleNamespace(cubin=b"code"))
    names = ("fill", "reference", "compare")
    monkeypatch.setattr("dgw.workbench.prepare.device_code", lambda *_: dict.fromkeys(names, b"code"))
    monkeypatch.setattr("dgw.workbench.device.driver.Driver", lambda: Driver(fake))
    topic = script.Topic("hopper-2")
    script.repeats(topic)
    assert [row["holds"] for row in topic.shows] == [False, *rows]  # so small a D has no more tiles than CTAs
    assert fake.released == 1


def test_the_shape_of_the_repeats_has_more_tiles_than_ctas(script: ModuleType) -> None:
    variant, target, problem = load()[script.PERSISTENT], device("h200"), gemm(*script.REPEATED, layout="nt")
    assert variant.plan is not None
    plan = variant.plan(problem, variant.config_for(problem, target), target)
    assert plan.tile is not None
    assert -(-problem.m // plan.tile[0]) * -(-problem.n // plan.tile[1]) > plan.launches[-1].grid[0]
