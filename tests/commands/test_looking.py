"""Commands that look at what there is: variants, metrics, runs, reports, the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dgw import __version__
from dgw.cli import COMMANDS, HIDDEN, Commands, app
from dgw.kernels.loader import load
from dgw.toolchain.cache import CompileCache
from tests.commands.conftest import Dgw, Engine

ROOT = Path(__file__).resolve().parents[2]
SHOWN = [name for name in COMMANDS if name not in HIDDEN]
CHEATS = ROOT / "tests/cheats"
VIEWS = ("source", "ptx", "sass", "configs")


@pytest.mark.parametrize("command", SHOWN)
def test_every_command_has_help_that_begins_with_what_the_list_says(dgw: Dgw, command: str) -> None:
    ended = dgw(command, "--help")
    assert ended.code == 0
    assert f"Usage: dgw {command}" in ended.out
    assert ended.err == ""


def test_the_hidden_command_is_not_listed(dgw: Dgw) -> None:
    listed = dgw("--help").out
    assert all(f"  {name} " in listed for name in SHOWN)
    assert "child" not in listed


def test_without_a_command_there_is_help_and_no_error(dgw: Dgw) -> None:
    ended = dgw()
    assert ended.code == 0
    assert "Usage: dgw" in ended.out


def test_the_version_is_that_of_the_package(dgw: Dgw) -> None:
    assert dgw("--version").out == f"dgw {__version__}\n"


def test_every_name_of_the_table_is_a_command(dgw: Dgw) -> None:
    import typer

    group = typer.main.get_command(app)
    assert isinstance(group, Commands)
    assert all(group.get_command(None, name) is not None for name in COMMANDS)


def test_list_shows_the_ladder_lowest_stage_first(dgw: Dgw) -> None:
    lines = dgw("list").out.splitlines()
    position = {line.split()[0]: number for number, line in enumerate(lines) if "/" in line}
    assert position["cuda/naive"] < position["cuda/tiled"] < position["cuda/swizzled"] < position["baselines/cublas"]


def test_list_as_json_has_every_variant(dgw: Dgw) -> None:
    ids = {variant["id"] for variant in json.loads(dgw("list", "--json").out)}
    assert {"cuda/naive", "baselines/cublas"} <= ids


def test_show_explains_a_variant_and_its_tunables(dgw: Dgw) -> None:
    out = dgw("show", "swizzled").out
    assert "cuda/swizzled" in out
    assert "GRANULARITY" in out


def test_show_of_a_shape_says_which_config_it_gets_and_why(dgw: Dgw) -> None:
    hopper = ("show", "hopper/persistent", "--shape", "1001x1001x1001", "--layout", "nn")
    out = dgw(*hopper).out
    assert "chosen for 1001x1001x1001: BM=" in out
    assert "a is copied first: its lines are 1001 elements apart, no multiple of 16 bytes" in out
    assert json.loads(dgw(*hopper, "--json").out)["chosen"]["reasons"]
    assert "config for 64x64x64: BM=128" in dgw("show", "cuda/tensor-core", "--shape", "64x64x64").out
    assert "nothing to tune" in dgw("show", "baselines/cublas", "--shape", "64x64x64").out
    refused = dgw("show", "cuda/tensor-core", "--shape", "2x64x64x64").out
    assert "refused for 2x64x64x64: " in refused
    assert "\n  try: dgw show cuda/tensor-core --configs --shape 2x64x64x64" in refused


@pytest.mark.parametrize(
    ("name", "asked", "instead"),
    [
        ("hopper/persistent", ("--dtype", "f32"), ("--dtype", "f16")),
        ("hopper/persistent", ("--dtype", "s8", "--layout", "nt"), ("--dtype", "f16", "--layout", "nt")),
        ("baselines/cublas", ("--dtype", "s8", "--out", "f32"), ("--dtype", "f16", "--out", "f32")),
    ],
)  # fmt: skip
def test_show_of_a_type_that_a_variant_does_not_take_names_the_command_with_one_that_it_takes(
    dgw: Dgw, name: str, asked: tuple[str, ...], instead: tuple[str, ...]
) -> None:
    refused = dgw("show", name, "--shape", "64x64x64", *asked).out
    typed = refused.rstrip().rpartition("\n  try: ")[2]
    assert typed == " ".join(("dgw show", name, "--shape 64x64x64", *instead))
    assert f"refused for 64x64x64: {name} takes " in refused
    assert "refused" not in dgw(*typed.split()[1:]).out


def test_the_command_after_a_refusal_finds_the_users_own_kernel(dgw: Dgw) -> None:
    honest = str(CHEATS / "honest.py")
    refused = dgw("show", "honest", "--kernel", honest, "--shape", "64x64x64", "--dtype", "s8").out
    assert refused.rstrip().endswith(f"try: dgw show --kernel {honest} cheats/honest --shape 64x64x64 --dtype f32")


def test_show_prints_source_ptx_and_machine_code(dgw: Dgw) -> None:
    assert "__global__" in dgw("show", "swizzled", "--source").out
    assert ".entry" in dgw("show", "swizzled", "--ptx").out
    sass = dgw("show", "swizzled", "--sass", "--device", "a100").out
    assert "sm_80" in sass
    assert "LDS" in sass


def test_show_says_what_each_config_needs(dgw: Dgw) -> None:
    out = " ".join(dgw("show", "swizzled", "--configs", "-c", "BM=64", "-c", "BM=128").out.split())
    assert out.count("registers,") == 2
    assert "configs," in out


def test_show_as_json_is_what_the_declaration_says(dgw: Dgw) -> None:
    shown = json.loads(dgw("show", "swizzled", "--json").out)
    assert shown["id"] == "cuda/swizzled"
    assert {tunable["name"] for tunable in shown["tunables"]} >= {"BM", "BN", "BK"}


def test_every_view_of_a_variant_has_a_json_form(
    dgw: Dgw, cache: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DGW_CACHE", str(cache.folder))
    shown = {view: json.loads(dgw("show", "swizzled", f"--{view}", "--json").out) for view in VIEWS}
    assert all(view["id"] == "cuda/swizzled" for view in shown.values())
    assert "__global__" in shown["source"]["sources"]["s03_swizzled.cu"]
    assert ".entry" in shown["ptx"]["ptx"]["swizzled"]
    assert "LDS" in {one["opcode"].partition(".")[0] for one in shown["sass"]["sass"]["swizzled"]}
    (config,) = shown["configs"]["configs"]
    assert config["needs"][0]["threads"] == 256


def test_the_configs_of_a_variant_that_chooses_say_why_in_json_too(dgw: Dgw) -> None:
    shown = json.loads(dgw("show", "hopper/persistent", "--configs", "--shape", "128x4096x4096", "--json").out)
    assert shown["chosen"]["reasons"]
    assert shown["chosen"]["config"].items() <= shown["configs"][0]["config"].items()


def test_the_place_of_the_store_has_a_json_form(dgw: Dgw) -> None:
    assert json.loads(dgw("store", "path", "--json").out)["store"] == dgw("store", "path").out.strip()


def test_metrics_list_units_sets_and_passes(dgw: Dgw) -> None:
    out = dgw("metrics").out
    assert "registers_per_thread" in out
    assert "passes" in out
    assert {metric["key"] for metric in json.loads(dgw("metrics", "quick", "--json").out)["metrics"]}


def test_a_metric_that_an_architecture_lacks_says_why(dgw: Dgw) -> None:
    assert "not on this GPU" in " ".join(dgw("metrics", "wgmma_inst", "--arch", "sm_80").out.split())


def test_runs_of_an_empty_store_say_how_to_make_one(dgw: Dgw) -> None:
    assert "dgw profile" in dgw("runs").out
    assert json.loads(dgw("runs", "--json").out) == []


@pytest.mark.parametrize("form", ["html", "json", "md", "csv", "txt"])
def test_a_run_is_reported_in_every_form(dgw: Dgw, engine: Engine, tmp_path: Path, form: str) -> None:
    dgw("profile", "-v", "naive,swizzled", "-s", "64x64x64")
    ended = dgw("report", "last", "-o", f"out/x.{form}")
    assert ended.code == 0, ended.err
    text = (tmp_path / "out" / f"x.{form}").read_text()
    assert "cuda/swizzled" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_chart_of_a_run_is_a_file(dgw: Dgw, engine: Engine, tmp_path: Path, form: str) -> None:
    dgw("profile", "-v", "naive,swizzled", "-s", "64x64x64")
    ended = dgw("report", "last", "-o", f"x.{form}", "--chart", "stalls")
    assert ended.code == 0, ended.err
    assert (tmp_path / f"x.{form}").read_bytes()[:4] in (b"<svg", b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("-o", "x.pdf"), 2),
        (("-o", "x.svg", "--chart", "stals"), 2),
        (("-o", "x.md", "--chart", "stalls"), 2),
        (("--chart", "stalls"), 2),
        (("-o", "x.svg", "--chart", "timeline"), 4),
    ],
)
def test_a_report_that_cannot_be_says_why(
    dgw: Dgw, engine: Engine, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    dgw("profile", "-v", "naive", "-s", "64x64x64")
    ended = dgw("report", "last", *arguments)
    assert ended.code == code
    assert ended.error_is_two_lines()
    assert not (tmp_path / "x.svg").exists()


def test_the_page_of_a_run_has_its_findings_and_the_lines_that_cost_most(
    dgw: Dgw, engine: Engine, tmp_path: Path
) -> None:
    dgw("compare", "-v", "naive,tiled,swizzled", "-s", "64x64x64")
    dgw("report", "last", "-o", "x.html")
    text = (tmp_path / "x.html").read_text()
    assert "cuda/swizzled: conflict_ratio_ld is 0" in text


def test_an_exported_run_is_imported_on_another_machine(
    dgw: Dgw, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dgw("profile", "-v", "naive,swizzled", "-s", "64x64x64")
    dgw("report", "last", "-o", "x.json")
    here = dgw("report", "last").out
    monkeypatch.setenv("DGW_STORE", "elsewhere/dgw.db")
    ended = dgw("import", "x.json")
    assert ended.code == 0, ended.err
    assert dgw("report", "last").out == here
    assert json.loads(dgw("import", "x.json", "--json").out)["cases"] == 2
    assert len(json.loads(dgw("runs", "--json").out)) == 1


def test_last_is_the_run_made_last_and_an_import_that_is_older_says_so_and_how_to_look_at_it(
    dgw: Dgw, tmp_path: Path
) -> None:
    stored = json.loads((ROOT / "docs" / "h200" / "first-profile.json").read_text())["run"]
    newer = {**stored, "id": "20990101-000000-abcd", "created": "2099-01-01T00:00:00"}
    for name, one in (("older", stored), ("newer", newer)):
        (tmp_path / f"{name}.json").write_text(json.dumps(one))
    assert dgw("import", "newer.json").err == ""
    ended = dgw("import", "older.json")
    assert ended.err == f"`last` is still run {newer['id']}, which was made later\n"
    typed = ended.out.rpartition("dgw ")[2].split()
    assert typed == ["report", stored["id"]]
    for asked, one in ((typed, stored), (["report", "last"], newer)):
        assert dgw(*asked, "-o", "shown.json").code == 0
        assert json.loads((tmp_path / "shown.json").read_text())["id"] == one["id"]
    assert "made last, which need not be the one imported last" in " ".join(dgw("report", "--help").out.split())


def test_the_store_says_where_it_is_and_what_it_holds_and_is_pruned(dgw: Dgw, engine: Engine) -> None:
    for _ in range(2):
        dgw("profile", "-v", "naive", "-s", "64x64x64")
    assert "dgw.db" in dgw("store", "path").out
    assert json.loads(dgw("store", "info", "--json").out)["runs"] == 2
    assert "deleted 1 runs" in dgw("store", "prune", "--keep", "1").out
    assert json.loads(dgw("store", "info", "--json").out)["cases"] == 1


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    environment = {**os.environ, "DGW_STORE": str(tmp_path / "dgw.db")}
    command = [sys.executable, "-m", "dgw", "metrics"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_two_runs_stand_beside_each_other_or_it_is_said_why_not(dgw: Dgw, engine: Engine, tmp_path: Path) -> None:
    first, second, other = (
        dgw("profile", "-v", "naive,swizzled", "-s", shape).err.split()[1] for shape in ("64x64x64",) * 2 + ("8x8x8",)
    )
    ended = dgw("report", "--compare", first, second)
    assert ended.code == 0, ended.err
    assert "2 cases compared" in ended.out
    for form in ("html", "md", "csv", "json", "txt", "svg", "png"):
        assert dgw("report", "--compare", first, second, "-o", f"x.{form}").code == 0
        assert (tmp_path / f"x.{form}").stat().st_size > 100
    refused = dgw("report", "--compare", first, other)
    assert refused.code == 4
    assert refused.error_is_two_lines()
    assert dgw("report", first, "--compare", first, second).error_is_two_lines()
    assert dgw("report", "--compare", first, second, "-o", "x.svg", "--chart", "times").code == 2


def test_the_evidence_in_docs_is_imported_as_the_run_that_it_holds(dgw: Dgw) -> None:
    path = Path(__file__).resolve().parents[2] / "docs" / "h200" / "first-profile.json"
    ended = dgw("import", str(path))
    assert ended.code == 0, ended.err
    assert "cuda/swizzled" in dgw("report").out


@pytest.mark.parametrize(
    "command",
    [
        ("list",), ("show", "tiled"), ("recipes",), ("claims",), ("metrics",),
        ("runs",), ("store", "path"), ("store", "info"),
        ("store", "prune"), ("report",), ("diagnose", "--run", "last"), ("best", "64x64x64"), ("trend",),
        ("heatmap", "--run", "last"), ("gate", "--help"), ("baseline", "show"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_looking_leaves_the_folder_as_it_was(dgw: Dgw, tmp_path: Path, command: tuple[str, ...]) -> None:
    assert dgw(*command).code in (0, 2, 4)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_not_there_is_named_where_it_would_be(dgw: Dgw) -> None:
    assert dgw("store", "path").out == ".dgw/dgw.db\n"


def test_the_claims_of_every_stage_are_listed_and_those_of_one_looked_up(dgw: Dgw) -> None:
    declared = {v.id: len(v.claims) for v in load().values() if v.claims}
    listed = json.loads(dgw("claims", "--json").out)
    assert {one["variant"]: len(one["claims"]) for one in listed} == declared
    said = dgw("claims", "cuda/swizzled").out
    assert "cuda/swizzled" in said
    assert "cuda/tiled " not in said
    wrong = dgw("claims", "swizled")
    assert (wrong.code, wrong.error_is_two_lines()) == (2, True)
    assert dgw(*wrong.err.rpartition("try: dgw ")[2].split()).code == 0


def test_whether_claims_held_in_a_stored_run_is_said_with_the_figures(dgw: Dgw, tmp_path: Path) -> None:
    stored = json.loads((ROOT / "docs" / "h200" / "first-profile.json").read_text())["run"]
    (tmp_path / "run.json").write_text(json.dumps(stored))
    assert dgw("import", "run.json").code == 0
    judged = json.loads(dgw("claims", "--run", "last", "--json").out)
    verdicts = [claim["verdict"] for one in judged for claim in one["claims"]]
    assert any(verdict.startswith("held: ") for verdict in verdicts)
    said = " ".join(dgw("claims", "--run", "last").out.split())
    assert all(" ".join(v.partition(": ")[2].split()) in said for v in verdicts)


def test_a_run_without_stages_has_no_claims_to_judge(dgw: Dgw, engine: Engine) -> None:
    dgw("profile", "--variant", "naive", "--shape", "64x64x64")
    ended = dgw("claims", "swizzled", "--run", "last")
    assert (ended.code, ended.error_is_two_lines()) == (4, True)
