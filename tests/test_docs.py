from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from dgw.cli import COMMANDS, HIDDEN
from dgw.model import Case, Measurement, Record, Run, gemm
from tests.reports.samples import full_record

ROOT = Path(__file__).resolve().parents[1]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE, PICTURE = script("generate"), script("picture")


@pytest.mark.parametrize("path", GENERATE.documents(), ids=lambda path: path.name)
def test_the_generated_tables_are_what_the_generator_writes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert GENERATE.rewritten(text, "docs/h200" if path.parent == ROOT else "h200") == text


def test_the_readme_has_a_table_of_the_first_profile() -> None:
    assert "<!-- generated: first-profile run 4096x4096x4096 -->" in (ROOT / "README.md").read_text(encoding="utf-8")


MARKED = "before\n<!-- generated: topic {part} -->\nold\n<!-- end -->\nafter\n"


def test_without_evidence_a_table_says_that_nothing_was_measured(tmp_path: Path) -> None:
    text = GENERATE.rewritten(MARKED.format(part="run 4096x4096x4096"), evidence=tmp_path)
    assert "Not measured yet" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def evidence(folder: Path) -> Path:
    run = Run(
        id="r", created="2026-01-01", command=("dgw",), version="0", records=(full_record(), full_record("tiled"))
    )
    content = {
        "schema": "dgw.evidence/1",
        "topic": "topic",
        "measured": {"gpu": "NVIDIA H200", "driver": "580.1", "date": "2026-01-01"},
        "shows": [
            {"claim": "fast | enough", "value": 2.124e-3, "unit": "s", "bar": 3e-3, "relation": "<=", "holds": True},
            {"claim": "never wrong", "value": 1, "unit": "", "bar": 0, "relation": "==", "holds": False},
            {"claim": "a figure", "value": 0.5, "unit": "ratio"},
            {"claim": "an old figure", "value": 0.7, "unit": "ratio", "bar": 0.0, "relation": ">", "holds": True},
            {"claim": "a slower rung", "value": 0.96, "unit": "x", "bar": 0.95, "relation": ">=", "holds": True},
            {"claim": "a figure lost", "value": None, "unit": "x", "bar": "known", "relation": "==", "holds": False},
            {"claim": "too slow", "value": 0.9, "unit": "x", "bar": 0.95, "relation": ">=", "holds": False},
        ],
        "run": msgspec.to_builtins(run),
        "rows": [{"variant": "cuda/naive", "compared": 1234, "differing": {"a_b": [1, 2]}, "time_s": 2e-3}],
    }
    (folder / "topic.json").write_text(json.dumps(content))
    return folder


def test_claims_are_rows_and_one_that_does_not_hold_stays(tmp_path: Path) -> None:
    text = GENERATE.rewritten(MARKED.format(part="shows"), evidence=evidence(tmp_path))
    assert "| fast \\| enough | 2.124 ms | at most 3.000 ms | yes |" in text
    assert "| never wrong | 1 | 0 | **no** |" in text
    assert "| a figure lost | - | known | **no** |" in text
    assert "| too slow | 0.900 x | at least 0.950 x | **no** |" in text
    assert "NVIDIA H200, driver 580.1, 2026-01-01" in text


def test_a_figure_of_which_nothing_was_asked_is_not_said_to_hold(tmp_path: Path) -> None:
    text = GENERATE.rewritten(MARKED.format(part="shows"), evidence=evidence(tmp_path))
    for shown in ("a figure | 50.0 %", "an old figure | 70.0 %", "a slower rung | 0.960 x"):
        assert f"| {shown} | - | - |" in text


def test_the_rows_beside_a_run_are_a_table_with_units_in_its_cells(tmp_path: Path) -> None:
    text = GENERATE.rewritten(MARKED.format(part="rows"), evidence=evidence(tmp_path))
    assert "| variant | compared | differing | time |" in text
    assert "| cuda/naive | 1,234 | 1 (a_b) | 2.000 ms |" in text


def test_the_card_of_a_run_has_a_column_for_each_variant(tmp_path: Path) -> None:
    text = GENERATE.rewritten(MARKED.format(part="run 4096x4096x4096"), evidence=evidence(tmp_path))
    assert "|  | cuda/swizzled | cuda/tiled |" in text
    assert "time cold, ms" in text


def test_a_ladder_has_a_row_for_each_stage_and_what_it_brought(tmp_path: Path) -> None:
    slow, fast = full_record("tiled", 4e-3), full_record("swizzled", 2e-3)
    content = json.loads((evidence(tmp_path) / "topic.json").read_text())
    content["run"]["records"] = msgspec.to_builtins([fast, slow])
    content["parts"] = {"later": {"measured": {"date": "2026-01-02"}}, "same": {"measured": {"date": "2026-01-01"}}}
    (tmp_path / "topic.json").write_text(json.dumps(content))
    text = GENERATE.rewritten(MARKED.format(part="ladder 4096x4096x4096"), evidence=tmp_path)
    rows = [line for line in text.splitlines() if line.startswith("| cuda/")]
    assert rows[0].startswith("| cuda/tiled | 4.000 ms | 34.36 TFLOP/s | - | 5.0 % | 0 % | 3.1 % |")
    assert rows[1].startswith("| cuda/swizzled | 2.000 ms | 68.72 TFLOP/s | 2.000 x | 10.0 % |")
    assert "Measured on another day: later (2026-01-02)." in text


def test_a_table_can_be_of_the_run_of_one_part_of_a_topic(tmp_path: Path) -> None:
    content = json.loads((evidence(tmp_path) / "topic.json").read_text())
    content |= {"run_of": "first", "parts": {"first": {"measured": {"gpu": "one"}}, "later": {"run": content["run"]}}}
    content["run"] = {**content["run"], "records": []}
    (tmp_path / "topic.json").write_text(json.dumps(content))
    named = {part: MARKED.replace("topic", f"topic/{part}").format(part="ladder") for part in ("first", "later", "no")}
    text = {part: GENERATE.rewritten(marked, evidence=tmp_path) for part, marked in named.items()}
    assert "The run holds no timed case." in text["first"]
    assert "Measured on one;" in text["first"]
    assert "| cuda/tiled |" in text["later"]
    assert "Not measured yet: `docs/h200/topic.json` has no part no." in text["no"]


def test_a_picture_stands_where_its_map_is_measured(tmp_path: Path) -> None:
    marked = MARKED.replace("topic", "heatmap").format(part="picture")
    assert "Not measured yet" in GENERATE.rewritten(marked, evidence=tmp_path)
    (tmp_path / "heatmap.json").write_text("{}")
    assert "![A map of BK against BN](heatmap.svg)\n" in GENERATE.rewritten(marked, evidence=tmp_path)


def test_a_shape_that_was_not_timed_is_said_to_be_missing(tmp_path: Path) -> None:
    text = GENERATE.rewritten(MARKED.format(part="run 1x1x1"), evidence=evidence(tmp_path))
    assert "The run holds no timed case of 1x1x1." in text


def test_the_picture_in_the_readme_is_of_the_report_of_a_stored_run() -> None:
    assert f"(docs/{PICTURE.PICTURE.name})" in (ROOT / "README.md").read_text(encoding="utf-8")
    data = PICTURE.PICTURE.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (PICTURE.WIDTH, PICTURE.HEIGHT)
    page = PICTURE.page()
    assert 'data-chart="roofline"' in page
    assert "cuda/swizzled" in page


def test_evidence_names_no_host_user_or_path() -> None:
    paths = sorted((ROOT / "docs" / "h200").glob("*.json"))
    assert paths
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert not any(f'"{key}"' in text for key in ("host", "hostname", "user"))
        assert not any(folder in text for folder in ("/home/", "/" + "root/", "/tmp/"))


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in HIDDEN])
def test_the_readme_names_every_command(command: str) -> None:
    assert f"`dgw {command}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", GENERATE.PICTURES)
def test_a_picture_is_what_the_generator_draws_from_its_evidence(name: str, tmp_path: Path) -> None:
    path = ROOT / "docs" / name
    assert GENERATE.picture(name) == (path.read_text(encoding="utf-8") if path.is_file() else "")
    assert GENERATE.picture(name, tmp_path) == ""


@pytest.mark.parametrize("name", GENERATE.PICTURES)
def test_a_picture_is_drawn_from_the_run_in_the_evidence(name: str, tmp_path: Path) -> None:
    topic, run, _, (x, y) = GENERATE.PICTURES[name]
    cases = [Case(problem=gemm(64, 64, 64), variant="cuda/x", config={x: a, y: b}) for a in (1, 2) for b in (3, 4)]
    records = [full_record(case=case) for case in cases]
    content = {run: msgspec.to_builtins(Run(id="r", created="", command=(), version="0", records=tuple(records)))}
    (tmp_path / f"{topic}.json").write_text(json.dumps(content))
    assert "cuda/x at 64x64x64" in GENERATE.picture(name, tmp_path)


def in_parts(folder: Path) -> Path:
    """Evidence of two parts: the first is the topic's run, the second measured what choices give, in two groups."""

    def one(name: str, ratio: float, **config: int) -> Record:
        found = Measurement(metric="ratio_to_cublas", value=ratio, low=ratio - 0.01, high=ratio + 0.01, unit="ratio",
                            collector="timing")  # fmt: skip
        case = Case(problem=gemm(256, 256, 256), variant=name, config=dict(config))
        rate = Measurement(metric="tflops", value=ratio * 6e14, unit="FLOP/s", collector="timing")
        hits = Measurement(metric="l2_hit_rate", value=0.8, unit="ratio", collector="ncu")
        return full_record(case=case, measurements=(found, rate, hits))

    def run(*records: Record) -> Any:
        return msgspec.to_builtins(Run(id="r", created="2026-01-01", command=("dgw",), version="0", records=records))

    chosen, other = one("hopper/x", 1.0, STAGES=4), one("hopper/x", 0.8, STAGES=2)
    content = {
        "measured": {"gpu": "h200", "date": "2026-01-01"}, "run_of": "speed",
        "shows": [{"claim": "level", "value": 1.0, "unit": "ratio", "bar": 1.0, "holds": True, "part": "speed"}],
        "run": run(one("hopper/x", 1.02), one("baselines/cublas", 1.0)),
        "parts": {
            "speed": {"measured": {"gpu": "h200", "date": "2026-01-01"}},
            "ablation": {"measured": {}, "run": run(other, chosen),
                         "choices": {chosen.case.key: "4 slots", other.case.key: "2 slots"}},
        },
    }  # fmt: skip
    (folder / "topic.json").write_text(json.dumps(content))
    return folder


def test_a_part_that_was_measured_alone_is_named_behind_its_topic(tmp_path: Path) -> None:
    text = GENERATE.rewritten(MARKED.replace("topic", "topic/speed").format(part="speeds"), evidence=in_parts(tmp_path))
    assert (
        "| hopper/x | 256x256x256 | f16 | nn | - | 612.0 TFLOP/s | 600.0 TFLOP/s | 102.0 % | 101.0 % .. 103.0 % |"
        in text
    )
    assert "baselines/cublas" not in text


def test_choices_are_compared_through_cublas_and_stand_in_the_order_of_the_evidence(tmp_path: Path) -> None:
    marked = MARKED.replace("topic", "topic/ablation").format(part="choices")
    text = GENERATE.rewritten(marked, evidence=in_parts(tmp_path))
    first, second = (line for line in text.splitlines() if " slots " in line)
    assert first.startswith("| 4 slots | 100 % | 100 % | - | 80.0 %")
    assert second.startswith("| 2 slots | 80.0 % | 80.0 % |")


def test_columns_of_a_ladder_of_which_nothing_is_known_are_left_out(tmp_path: Path) -> None:
    text = GENERATE.rewritten(MARKED.format(part="ladder"), evidence=evidence(tmp_path))
    head = next(line for line in text.splitlines() if line.startswith("| stage"))
    assert "load conflicts" in head
    assert "tensor pipe" not in head
    assert "of cuBLAS" in head
