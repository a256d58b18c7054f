"""Each kind of bad input gives one line of error, one line of advice, the right exit code and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgw.commands import session
from tests.commands.conftest import Dgw, Engine

SMALL = ("--shape", "64x64x64")
QUANTISED = ("--quantise", "row", "--out", "s8")
SWIZZLED = ("profile", "--variant", "swizzled")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("profile", "--variant", "swizled", *SMALL), 2, ("no variant swizled", "swizzled")),
        (("profile", *SMALL), 2, ("no variant was named",)),
        (SWIZZLED, 2, ("no shape was given", "--shape 4096x4096x4096")),
        ((*SWIZZLED, "--shape", "64x64"), 2, ("'64x64'", "MxNxK")),
        ((*SWIZZLED, "--shape", "64xAx64"), 2, ("'A' is not a whole number",)),
        ((*SWIZZLED, "--shape", "0x64x64"), 2, ("0 is not in 1",)),
        ((*SWIZZLED, "--shape", "64x-1x64"), 2, ("-1 is not in 1",)),
        ((*SWIZZLED, "--shape", "64x64x2147483649"), 2, ("2147483649 is not in 1",)),
        ((*SWIZZLED, *SMALL, "--dtype", "fp16"), 2, ("no dtype is named 'fp16'", "f16")),
        ((*SWIZZLED, *SMALL, "--out", "f61"), 2, ("no dtype is named 'f61'",)),
        ((*SWIZZLED, *SMALL, "--layout", "row"), 2, ("no layout is named 'row'", "nn")),
        ((*SWIZZLED, *SMALL, "--data", "norml"), 2, ("no data set is named 'norml'", "normal")),
        ((*SWIZZLED, *SMALL, "--activation", "gleu"), 2, ("cannot be 'gleu'", "gelu")),
        ((*SWIZZLED, *SMALL, "--quantise", "column"), 2, ("cannot be 'column'", "row")),
        ((*SWIZZLED, *SMALL, "--quantise", "row"), 2, ("does not go with an output of f16", "--out s8")),
        ((*SWIZZLED, *SMALL, "--out", "s8"), 2, ("does not go with an output of s8", "--quantise row")),
        ((*SWIZZLED, *SMALL, "--zero-point", "3"), 2, ("needs a D that is quantised to s8", "--quantise row --out s8")),
        ((*SWIZZLED, *SMALL, *QUANTISED, "--zero-point", "200"), 2, ("zero point 200", "-128 to 127")),
        ((*SWIZZLED, *SMALL, "--alpha", "nan"), 2, ("--alpha nan is no finite number",)),
        ((*SWIZZLED, *SMALL, "--beta", "inf"), 2, ("--beta inf is no finite number",)),
        ((*SWIZZLED, *SMALL, "--against", "cubals"), 2, ("no variant cubals", "cublas")),
        ((*SWIZZLED, *SMALL, "--lda", "63"), 2, ("leading dimension 63", "--lda 64")),
        ((*SWIZZLED, *SMALL, "--config", "BM=7"), 2, ("does not take BM=7", "allowed: 32,64,128,256")),
        ((*SWIZZLED, *SMALL, "--config", "BMM=64"), 2, ("has no tunable BMM", "--configs")),
        ((*SWIZZLED, *SMALL, "--config", "BM"), 2, ("'BM' is not NAME=VALUE",)),
        ((*SWIZZLED, *SMALL, "--counters", "conflict"), 2, ("unknown metric 'conflict'", "conflicts")),
        ((*SWIZZLED, *SMALL, "--device", "h201"), 2, ("h201", "h200")),
        ((*SWIZZLED, *SMALL, "--engine", "warp"), 2, ("'warp' is not one of", "--help")),
        ((*SWIZZLED, *SMALL, "--engine", "gpu"), 6, ("there is no GPU here", "dgw doctor")),
        ((*SWIZZLED, *SMALL, "--kernel", "mine.cu"), 2, ("mine.cu does not exist",)),
        ((*SWIZZLED, "--suite", "lm"), 2, ("no suite is named 'lm'", "llm")),
        ((*SWIZZLED, "--suite", "none.toml"), 2, ("cannot read none.toml: No such file", "llm")),
        ((*SWIZZLED, "--shapes", "none.csv"), 2, ("cannot read none.csv",)),
        ((*SWIZZLED, *SMALL, "--seed", "x"), 2, ("--seed", "--help")),
        ((*SWIZZLED, *SMALL, "--shpe", "1"), 2, ("no such option: --shpe", "--shape")),
        (("check", "--engine", "static"), 2, ("computes nothing", "--engine emulator")),
        (("profle",), 2, ("no command is named 'profle'", "dgw profile")),
        (("compare", "--family", "cudda", *SMALL), 2, ("no family is named 'cudda'", "cuda")),
        (("compare", "tiled", "--family", "cuda", *SMALL), 2, ("both say what runs", "--family cuda alone")),
        (("show", "swizled"), 2, ("no variant swizled", "dgw list")),
        (("show",), 2, ("missing argument", "--help")),
        (("show", "cublas", "--source"), 2, ("foreign code",)),
        (("show", "swizzled", "--ptx", "--dtype", "s8"), 2, ("refuses", "s8")),
        (("metrics", "tflop"), 2, ("unknown metric 'tflop'", "tflops")),
        (("metrics", "--arch", "hopper"), 2, ("'hopper'", "sm_90")),
        (("metrics", "--arch", "sm_70"), 2, ("'sm_70'", "sm_80")),
        (("report", "last"), 2, ("no run", "dgw profile --variant swizzled")),
        (("import", "."), 2, ("it is a folder",)),
        (("import", "none.json"), 2, ("cannot read none.json",)),
        (("store", "prune", "--keep", "-1"), 2, ("--keep",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)  # fmt: skip
def test_bad_input_is_one_line_of_error_and_one_of_advice(
    dgw: Dgw, engine: Engine, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    ended = dgw(*arguments)
    assert ended.error_is_two_lines(), ended.err
    assert ended.code == code
    assert ended.out == ""
    assert all(word in ended.err for word in words), ended.err
    assert engine.seen == []


def test_a_dtype_that_every_variant_refuses_is_a_row_and_an_error(dgw: Dgw, engine: Engine) -> None:
    engine.outcomes["cuda/swizzled"] = "refused"
    ended = dgw("profile", "--variant", "swizzled", *SMALL, "--dtype", "s8")
    assert ended.code == 2
    assert "refused" in ended.out
    assert "error: nothing ran: cuda/swizzled refuses 64x64x64 s8" in ended.err
    assert "  try: dgw show cuda/swizzled --configs" in ended.err


def test_a_refusal_among_cases_that_ran_is_a_row_and_no_failure(dgw: Dgw, engine: Engine) -> None:
    engine.outcomes["cuda/tiled"] = "refused"
    ended = dgw("profile", "--variant", "tiled,swizzled", *SMALL)
    assert ended.code == 0
    assert "cuda/tiled is refused on purpose" in ended.out
    assert "error" not in ended.err


def test_a_corrupt_store_is_refused_before_anything_runs(dgw: Dgw, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / ".dgw").mkdir()
    (tmp_path / ".dgw" / "dgw.db").write_bytes(b"this is no database" * 1000)
    ended = dgw("profile", "--variant", "swizzled", *SMALL)
    assert ended.error_is_two_lines(), ended.err
    assert ended.code == 2
    assert engine.seen == []


def test_a_store_that_cannot_be_made_is_refused_before_anything_runs(dgw: Dgw, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / ".dgw").write_text("a file where the folder should be")
    ended = dgw("profile", "--variant", "swizzled", *SMALL)
    assert ended.error_is_two_lines(), ended.err
    assert ended.code == 2
    assert engine.seen == []


def test_a_record_that_cannot_be_read_is_an_error_and_no_traceback(dgw: Dgw, engine: Engine, tmp_path: Path) -> None:
    import sqlite3

    dgw("profile", "--variant", "swizzled", *SMALL)
    with sqlite3.connect(tmp_path / ".dgw" / "dgw.db") as database:
        database.execute("update record set body = '{}'")
    ended = dgw("report")
    assert ended.error_is_two_lines(), ended.err
    assert ended.code == 2
    assert "cannot be read" in ended.err


def test_a_store_of_a_newer_version_is_refused_with_what_to_install(dgw: Dgw, engine: Engine, tmp_path: Path) -> None:
    import sqlite3

    dgw("profile", "--variant", "swizzled", *SMALL)
    with sqlite3.connect(tmp_path / ".dgw" / "dgw.db") as database:
        database.execute("update alembic_version set version_num = '9999_from_the_future'")
    ended = dgw("runs")
    assert ended.error_is_two_lines(), ended.err
    assert ended.code == 2
    assert "newer" in ended.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("m,n\n1,2\n", "no column k"),
        ("m,n,k\n1,2,\n", "row 2 lacks a size"),
        ("", "holds no shapes"),
        ("m,n,k\n1,2,zero\n", "'zero' is not a whole number"),
        ("shape,dtype\n1x2x3,f17\n", "no dtype is named 'f17'"),
    ],
)
def test_a_broken_list_of_shapes_names_what_is_wrong(
    dgw: Dgw, engine: Engine, tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "shapes.csv").write_text(content)
    ended = dgw("profile", "--variant", "swizzled", "--shapes", "shapes.csv")
    assert ended.error_is_two_lines(), ended.err
    assert words in ended.err
    assert ended.code == 2


def test_an_import_that_is_no_run_is_refused(dgw: Dgw, tmp_path: Path) -> None:
    for name, content in {"a": "{", "b": "{}", "c": '{"schema": "dgw.run/1", "id": 3}', "d": "[1]"}.items():
        (tmp_path / f"{name}.json").write_text(content)
        ended = dgw("import", f"{name}.json")
        assert ended.error_is_two_lines(), ended.err
        assert ended.code == 2


def test_a_report_with_an_unknown_ending_or_an_unwritable_place_is_refused(dgw: Dgw, engine: Engine) -> None:
    dgw("profile", "--variant", "swizzled", *SMALL)
    for output in ("x.pdf", "x", ".dgw/dgw.db/x.md"):
        ended = dgw("report", "last", "-o", output)
        assert ended.error_is_two_lines(), ended.err
        assert ended.code == 2


def test_a_broken_declaration_names_its_file(dgw: Dgw, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("VARIANT = 1 / 0\n")
    ended = dgw("profile", "--kernel", "mine.py", *SMALL)
    assert ended.error_is_two_lines(), ended.err
    assert "mine.py" in ended.err
    assert ended.code == 2


def test_a_demanded_gpu_that_is_missing_is_exit_code_6(dgw: Dgw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "gpu_is_here", lambda: False)
    assert dgw("check", "--engine", "gpu").code == 6
