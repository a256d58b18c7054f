"""`dgw heatmap` on GPUs that children play, on stored runs, and in the emulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dgw.model import Run
from tests.commands.conftest import Dgw, Ended
from tests.commands.test_sweep import FOLDER, Gpus, gpus

__all__ = ["gpus"]
AXES = ("--x", "X", "--y", "Y", "--space", "X=1..3,Y=1..4")


@pytest.fixture
def heatmap(dgw: Dgw, gpus: Gpus) -> Callable[..., Ended]:
    def call(*arguments: str) -> Ended:
        return dgw("heatmap", "--kernel", str(FOLDER / "many.cu"), "--shape", "64x64x64", *arguments)

    return call


Heatmap = Callable[..., Ended]


def test_what_is_missing_is_swept_and_the_map_goes_to_the_terminal(heatmap: Heatmap, gpus: Gpus) -> None:
    ended = heatmap(*AXES)
    assert ended.code == 0, ended.err
    assert "own/many at 64x64x64" in ended.out
    assert "screen/1 cold-graph/1" in ended.out
    assert len(gpus.begun("screen")) == 12
    again = heatmap(*AXES, "--metric", "time")
    assert len(gpus.begun("screen")) == 12
    assert "time cold, ms" in again.out


def test_a_sweep_before_is_drawn_without_measuring_again(heatmap: Heatmap, dgw: Dgw, gpus: Gpus) -> None:
    dgw("sweep", "--kernel", str(FOLDER / "many.cu"), "--shape", "64x64x64")
    heatmap(*AXES)
    assert len(gpus.begun("screen")) == 60


@pytest.mark.parametrize(
    ("suffix", "starts"), [(".png", b"\x89PNG"), (".svg", b"<svg"), (".csv", b"Y,X,"), (".txt", b"rate")]
)
def test_the_ending_of_the_file_decides(heatmap: Heatmap, tmp_path: Path, suffix: str, starts: bytes) -> None:
    ended = heatmap(*AXES, "-o", f"maps/m{suffix}")
    assert ended.code == 0, ended.err
    assert (tmp_path / "maps" / f"m{suffix}").read_bytes().startswith(starts)
    assert "wrote maps/m" in ended.err
    assert "winner" not in ended.out


def test_with_terminal_the_map_is_printed_too_and_several_metrics_are_several_files(
    heatmap: Heatmap, tmp_path: Path
) -> None:
    ended = heatmap(*AXES, "-o", "m.csv", "--terminal", "--metric", "time,registers")
    assert {path.name for path in tmp_path.glob("m*.csv")} == {"m-time_cold.csv", "m-registers_per_thread.csv"}
    assert "registers per thread" in ended.out


def test_a_stored_run_is_drawn_without_any_gpu(heatmap: Heatmap, dgw: Dgw, gpus: Gpus) -> None:
    heatmap(*AXES)
    begun = len(gpus.lines)
    ended = dgw("heatmap", "--run", "last", "--metric", "time", "--fix", "Y=2", "--x", "X", "--y", "Y")
    assert ended.code == 0, ended.err
    assert "time cold" in ended.out
    assert len(gpus.lines) == begun


def test_json_is_the_run_and_nothing_else(heatmap: Heatmap) -> None:
    ended = heatmap(*AXES, "--json")
    assert len(msgspec.json.decode(ended.out, type=Run).records) == 12


def test_a_wrong_cell_is_shown_as_wrong(heatmap: Heatmap, gpus: Gpus) -> None:
    gpus.broken = "Y=2=wrong"
    ended = heatmap(*AXES)
    assert ended.code == 1
    assert ended.out.count("wrong") >= 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("--x", "Z"), ("--x", "X", "--y", "X"), ("--rest", "worst"), ("--metric", "nonsense"), ("-o", "map.gif"),
        ("--facet", "X", "--x", "X"), ("--space", "X=1"),
    ],
)  # fmt: skip
def test_nonsense_is_an_error_of_two_lines(heatmap: Heatmap, arguments: tuple[str, ...]) -> None:
    ended = heatmap(*arguments)
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err


def test_a_run_without_tunables_has_no_map(dgw: Dgw) -> None:
    dgw("profile", "-v", "naive", "-s", "16x16x16", "--engine", "static", "--device", "h200")
    ended = dgw("heatmap", "--run", "last")
    assert ended.code in (2, 4)
    assert ended.error_is_two_lines(), ended.err


def test_without_a_gpu_the_same_command_maps_what_the_compiler_says(dgw: Dgw) -> None:
    ended = dgw("heatmap", "-v", "cuda/tiled", "-s", "64x64x64", "--engine", "static", "--space", "BM=64,128 BN=64,128",
                "--metric", "registers,occupancy,bound")  # fmt: skip
    assert ended.code == 0, ended.err
    assert "static facts only" in ended.out
    for title in ("registers per thread", "occupancy theoretical", "lower bound"):
        assert title in ended.out


def test_the_html_report_of_a_sweep_has_its_map(heatmap: Heatmap, dgw: Dgw, tmp_path: Path) -> None:
    heatmap(*AXES)
    ended = dgw("report", "last", "-o", "r.html")
    assert ended.code == 0, ended.err
    text = (tmp_path / "r.html").read_text()
    assert 'data-chart="heatmap"' in text
    assert "own/many at 64x64x64" in text
