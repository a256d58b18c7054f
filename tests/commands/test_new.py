"""A kernel of one's own, from nothing, from a stage, or from a source that exists, until it passes its check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dgw.kernels.loader import load
from tests.commands.conftest import Dgw

THEIRS = """
#include <cuda_fp16.h>
// the first __global__ void decoy(int x) { stands in a comment
extern "C" __global__ void __launch_bounds__(256)
gemm(const __half* __restrict__ A, const __half* __restrict__ B, float* C_out, int M, int N, int K, float alpha) {
    int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int i = 0; i < K; ++i) sum += __half2float(A[row * K + i]) * __half2float(B[i * N + col]);
    C_out[row * N + col] = alpha * sum;
}
"""


def test_a_new_kernel_passes_its_check_as_the_last_line_says(dgw: Dgw) -> None:
    made = dgw("new", "mine.cu")
    assert made.code == 0, made.err
    *command, _, shape = made.out.splitlines()[-1].removeprefix("next: dgw ").split()
    checked = dgw(*command, "--shape", shape)
    assert checked.code == 0, checked.err
    assert "mine/mine" in checked.out


def test_what_was_written_has_a_json_form(dgw: Dgw) -> None:
    made = json.loads(dgw("new", "mine.cu", "--json").out)
    assert made["wrote"] == ["mine.cu", "mine.py"]
    assert made["next"].startswith("dgw check --kernel mine.cu")


def test_a_stage_can_be_taken_as_a_start(dgw: Dgw) -> None:
    assert dgw("new", "my_tiles.cu", "--like", "swizzled").code == 0
    text = Path("my_tiles.py").read_text()
    assert "stage=" not in text
    checked = dgw("check", "--kernel", "my_tiles.cu", "--shape", "67x65x33", "--layout", "nt")
    assert checked.code == 0, checked.err
    assert "mine/my-tiles" in checked.out


@pytest.mark.parametrize("variant", [v for v in load().values() if v.family == "cuda"], ids=lambda v: v.name)
def test_every_stage_of_the_cuda_ladder_can_be_a_start(dgw: Dgw, variant: object) -> None:
    assert dgw("new", "mine.cu", "--like", variant.id).code == 0  # type: ignore[attr-defined]
    assert load([Path("mine.cu")])["mine/mine"].plan is not None


def test_a_kernel_that_exists_stays_and_what_cannot_be_known_is_said(dgw: Dgw) -> None:
    Path("theirs.cu").write_text(THEIRS)
    made = dgw("new", "theirs.cu")
    assert made.code == 0, made.err
    assert Path("theirs.cu").read_text() == THEIRS
    assert "fill in what the parameter `float* C_out` of gemm is" in made.out
    text = Path("theirs.py").read_text()
    assert 'entry="gemm"' in text
    assert 'Scalar(name="alpha", dtype="f32"),' in text
    text = text.replace('operand="c_out"', 'operand="d"').replace('("f16",)) or', '("f32",)) or')
    Path("theirs.py").write_text(text.replace('("f16",), ("f16",)', '("f16",), ("f32",)'))
    checked = dgw("check", "--kernel", "theirs.cu", "--shape", "17x63x65", "--out", "f32")
    assert checked.code == 0, checked.err


@pytest.mark.parametrize(
    ("arguments", "source", "words"),
    [
        (("mine.cpp",), None, ("not the name of a CUDA source", "dgw new mine.cu")),
        (("none/mine.cu",), None, ("no folder none", "mkdir")),
        (("mine.cu",), "int x;", ("no __global__ function", 'extern "C"')),
        (("mine.cu",), "__global__ void f(int m) { }", ("mangled name", 'extern "C"')),
        (("mine.cu", "--like", "tiled"), "int x;", ("exists", "--force")),
        (("mine.cu", "--like", "cublas"), None, ("foreign code", "--like tiled")),
        (("mine.cu", "--like", "tilled"), None, ("no variant tilled", "dgw list")),
        (("mine.cu", "--like", "triton/tiled"), None, ("not made of one .cu file", "naive")),
    ],
)
def test_what_cannot_be_started_from_is_said(
    dgw: Dgw, arguments: tuple[str, ...], source: str | None, words: tuple[str, ...]
) -> None:
    if source is not None:
        Path("mine.cu").write_text(source)
    ended = dgw("new", *arguments)
    assert ended.code == 2
    assert ended.error_is_two_lines(), ended.err
    assert all(word in ended.err for word in words), ended.err


def test_a_declaration_is_not_overwritten_unasked(dgw: Dgw) -> None:
    dgw("new", "mine.cu")
    Path("mine.py").write_text("mine")
    assert dgw("new", "mine.cu").code == 2
    assert Path("mine.py").read_text() == "mine"
    assert dgw("new", "mine.cu", "--force").code == 0


def test_a_source_without_declaration_leads_here(dgw: Dgw) -> None:
    Path("theirs.cu").write_text(THEIRS)
    ended = dgw("check", "--kernel", "theirs.cu", "--shape", "8x8x8")
    assert "try: dgw new " in ended.err
