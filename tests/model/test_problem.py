from __future__ import annotations

import pytest

from dgw.errors import NotComparable
from dgw.model import Epilogue, Operand, Problem, gemm, unknown_problem

FUSED = gemm(
    128, 256, 64, "f16", out="s8", bias=Operand(dtype="f32"), residual=Operand(dtype="f16"),
    epilogue=Epilogue(activation="gelu"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "a", "b", "d"),
    [
        (FUSED, 128 * 64 * 2, 64 * 256 * 2, 128 * 256),
        (gemm(7, 3, 5, "s4", out="s32"), 17, 7, 84),  # half bytes are rounded down
        (gemm(64, 32, 16, "f32", op="batched", batch=3), 3 * 4096, 3 * 2048, 3 * 8192),
        (gemm(64, 32, 16, "f64"), 8192, 4096, 16384),
    ],
)
def test_the_bytes_of_an_operand_are_those_of_its_elements_in_all_batch_items(
    problem: Problem, a: int, b: int, d: int
) -> None:
    assert (problem.bytes_of("a"), problem.bytes_of("b"), problem.bytes_of("d")) == (a, b, d)


def test_the_compulsory_bytes_are_those_of_all_operands() -> None:
    assert FUSED.compulsory_bytes == FUSED.bytes_of("a", "b", "bias", "residual", "d")
    assert FUSED.bytes_of("bias") == 256 * 4
    with pytest.raises(KeyError):
        FUSED.bytes_of("c")


def test_an_unknown_problem_has_no_bytes() -> None:
    with pytest.raises(NotComparable):
        unknown_problem().bytes_of("a")
