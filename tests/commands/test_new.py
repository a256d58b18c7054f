"""A kernel of one's own, from nothing, from a stage, or from a source that exists, until it passes its check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dgw.commands.new import _first_check
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
    unfinished = dgw("check", "--kernel", "theirs.cu", "--shape", "17x63x65", "--no-store")
    assert (unfinished.code, unfinished.error_is_two_lines()) == (2, True)
    assert "theirs.py does not say what the parameter float* C_out is" in unfinished.err
    assert "  try: write its Pointer, Scalar or Workspace into theirs.py" in unfinished.err
    text = text.replace('declaring.fill_in(__file__, "float* C_out")', 'Pointer(operand="d")')
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


TWO = """
typedef long long ll;
extern "C" __global__ void product(const half* A, const half* B, float* S, int m, int n, int k, ll lda, ll ldb) {
    extern __shared__ __align__(128) char memory[];
}
extern "C" __global__ void finish(const float* S, const half* bias, half* D, int m, int n, ll ldd) { }
"""


def test_of_several_kernels_one_is_declared_and_the_others_are_named(dgw: Dgw) -> None:
    Path("two.cu").write_text(TWO)
    made = dgw("new", "two.cu")
    assert "two.cu has 2 kernels: product is declared, finish left out" in made.out
    assert "fill in what the parameter `float* S` of product is" in made.out
    assert "fill in shared_bytes: product has extern __shared__ memory" in made.out
    text = Path("two.py").read_text()
    assert 'declaring.fill_in(__file__, "float* S"),' in text
    assert "shared_bytes=0,  # bytes of its extern __shared__ memory" in text
    other = dgw("new", "two.cu", "--entry", "finish", "--force")
    assert "finish is declared, product left out" in other.out
    assert "shared_bytes:" not in other.out
    none = dgw("new", "two.cu", "--entry", "begin", "--force")
    assert (none.code, none.error_is_two_lines()) == (2, True)
    assert "it has product, finish" in none.err


def test_an_argument_of_another_size_than_the_parameter_leads_to_the_declaration(dgw: Dgw) -> None:
    assert dgw("new", "mine.cu").code == 0
    whole = Path("mine.py").read_text()
    for told, words in (
        (whole.replace('name="lda", dtype="i64"', 'name="lda"'),
         'parameter 7 of mine has 8 bytes, and Scalar(name="lda", dtype="i32") passes 4'),
        (whole.replace('            Scalar(name="ldb", dtype="i64"),\n', ""),
         "mine takes 10 parameters, and the Launch has 9 arguments"),
    ):  # fmt: skip
        Path("mine.py").write_text(told)
        ended = dgw("check", "--kernel", "mine.cu", "--shape", "8x8x8", "--no-store")
        assert ended.code == 5
        assert words in ended.err
        assert "  try: the arguments of the Launch in mine.py" in ended.err
        walked = dgw("diagnose", "--kernel", "mine.cu", "--shape", "8x8x8", "--no-store")
        assert "  try: the arguments of the Launch in mine.py" in walked.err


def test_the_first_check_takes_whole_tiles_where_the_declaration_refuses_others(dgw: Dgw) -> None:
    made = dgw("new", "mine.cu").out
    assert "127x255x96 because no tile divides it" in made
    text = Path("mine.py").read_text()
    path = Path("mine.py")
    path.write_text(text.replace("beta != 0.0:", "beta != 0.0 or problem.m % 64:").replace("layout nn", "64 rows, nn"))
    command, why = _first_check(Path("mine.cu"))
    assert command == "dgw check --kernel mine.cu --shape 256x256x128"
    assert why == "256x256x128 because 127x255x96 is refused: 64 rows, nn and beta 0 only"


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
