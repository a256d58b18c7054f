from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgw.errors import UsageError
from dgw.operands.ragged import ragged_shapes
from dgw.operands.suites import Suite, Wanted, read_suite
from dgw.operands.toml_lines import lines

SUITES = Path(__file__).resolve().parents[2] / "perf" / "suites"
SHIPPED = sorted(path.stem for path in SUITES.glob("*.toml"))


def shipped(name: str) -> Suite:
    return read_suite((SUITES / f"{name}.toml").read_text(encoding="utf-8"), f"perf/suites/{name}.toml")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_suite_that_is_shipped_is_valid_and_says_what_it_is(name: str) -> None:
    assert shipped(name).shapes
    assert shipped(name).meaning


LLM = {
    "Llama-3-8B": "6144x4096 4096x4096 28672x4096 4096x14336",
    "Llama-3-70B": "10240x8192 8192x8192 57344x8192 8192x28672",
    "Qwen2.5-7B": "4608x3584 3584x3584 37888x3584 3584x18944",
    "DeepSeek-V3": "2112x7168 24576x1536 32768x512 7168x16384 4096x7168 7168x2048",
}


def test_llm_holds_the_weights_of_its_models_with_four_rows_each() -> None:
    suite = shipped("llm")
    weights = [nk for listed in LLM.values() for nk in listed.split()]
    assert {wanted.shape for wanted in suite.shapes} == {f"{m}x{nk}" for m in (1, 16, 128, 4096) for nk in weights}
    assert suite.layouts == ("nt",)


def test_seeds_holds_the_shapes_of_the_articles() -> None:
    shapes = [wanted.shape for wanted in shipped("seeds").shapes]
    assert shapes == ["4096x4096x4096", "1024x1024x4096", "1x4096x4096", "127x255x4096"]


def test_ragged_is_the_frozen_list_and_not_too_long() -> None:
    shapes = [wanted.shape for wanted in shipped("ragged").shapes]
    assert shapes == [f"{m}x{n}x{k}" for m, n, k in ragged_shapes()]
    assert len(shapes) <= 250
    assert shipped("ragged").layouts == ("nn", "nt", "tn", "tt")


def test_everything_a_suite_may_say_is_read() -> None:
    text = """
meaning = "all of it"
dtypes = ["f16", "bf16"]
variants = ["swizzled"]
shapes = ["1x2x3"]
[[grid]]
m = [4, 5]
nk = ["6x7"]
dtype = "s8"
layout = "tn"
[floors]
time = 0.02
inst_executed = 0
"""
    suite = read_suite(text, "perf/suites/mine.toml")
    assert suite.name == "mine"
    assert suite.shapes == (Wanted("1x2x3"), Wanted("4x6x7", "s8", "tn"), Wanted("5x6x7", "s8", "tn"))
    assert suite.dtypes == ("f16", "bf16")
    assert suite.variants == ("swizzled",)
    assert suite.floors == {"time": 0.02, "inst_executed": 0.0}


SHAPES = 'shapes = ["1x1x1"]\n'
WRONG: list[tuple[str, int, str]] = [
    ('shapes = [\n  "1x1x1",\n  "1x1",\n]', 3, "has 2 sizes"),
    ('shapes = ["1x1x0"]', 1, "0 is not in"),
    ("shapes = [1]", 1, "must hold texts"),
    ('shapes = "1x1x1"', 1, "must be a list"),
    (SHAPES + 'layouts = ["nn",\n "nx"]', 3, "no layout is named 'nx'"),
    (SHAPES + '# a comment\ndtypes = ["f61"]', 3, "no dtype is named 'f61'"),
    (SHAPES + "[floors]\n\ntime = 2", 4, "must be a ratio from 0 to 1, not 2"),
    (SHAPES + "[floors]\ntime = true", 3, "must be a ratio"),
    (SHAPES + "[floors]\ntime = nan", 3, "must be a ratio"),
    (SHAPES + "floors = 1", 2, "must be a table"),
    (SHAPES + "shaps = []", 2, "'shaps' is not known"),
    ('[[grid]]\nm = [1]\nnk = ["1x1"]\n[[grid]]\nm = [1]', 4, "the grid has no nk"),
    ('[[grid]]\nm = [1]\nnk = ["1x1", "1x1x1"]', 3, "'1x1x1' is not NxK"),
    ('[[grid]]\nm = [\n1,\n"2"]\nnk = ["1x1"]', 4, "m must be a size, not '2'"),
    ('[[grid]]\nm = 1\nnk = ["1x1"]', 2, "m must be a list"),
    ('[[grid]]\nm = [1]\nnk = ["1x1"]\nlayout = 7', 4, "no layout is named 7"),
    ('[[grid]]\nm = [1]\nnk = ["1x1"]\ndtype = ["f16"]', 4, "no dtype is named"),
    ("grid = 3", 1, "grid must be a table"),
    ("meaning = 3\n" + SHAPES, 1, "meaning must be a text"),
    ("shapes = [1x]", 1, "not valid TOML"),
]


@pytest.mark.parametrize(("text", "line", "what"), WRONG, ids=[what for _, _, what in WRONG])
def test_what_is_wrong_in_a_suite_is_named_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_suite(text, "perf/suites/mine.toml")
    message = caught.value.message
    assert what in message
    assert f"mine.toml:{line}:" in message or f"line {line}," in message
    assert caught.value.hint


def test_a_suite_without_shapes_says_so() -> None:
    with pytest.raises(UsageError, match="lists no shapes"):
        read_suite('meaning = "nothing"', "perf/suites/mine.toml")


KEYS = st.text("abc_-1", min_size=1, max_size=4)
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.text("ab#[]{},= .", max_size=5))


def written(value: Any, newline: str) -> str:
    if isinstance(value, list):
        return f"[{newline}" + f",{newline}".join(written(item, newline) for item in value) + f"{newline}]"
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'


@given(
    st.dictionaries(KEYS, st.one_of(SCALARS, st.lists(SCALARS, max_size=3)), max_size=4), st.sampled_from(("", "\n"))
)
def test_every_key_and_item_is_found_on_a_line_where_it_really_stands(content: dict[str, Any], newline: str) -> None:
    text = "# heading\n[[table]]\n\n[[table]]\n" + "".join(
        f"{key} = {written(value, newline)} # trailing\n" for key, value in content.items()
    )
    assert tomllib.loads(text)["table"][1] == content
    found, rows = lines(text), text.split("\n")
    for key, value in content.items():
        assert rows[found["table", 1, key] - 1].startswith(f"{key} =")
        for position, item in enumerate(value if isinstance(value, list) else []):
            assert written(item, newline) in rows[found["table", 1, key, position] - 1]
