from __future__ import annotations

from dgw.commands.options import Ask
from dgw.commands.request import problems
from dgw.reports.tables import problem_text


def test_epilogue_options_become_operands_and_an_epilogue() -> None:
    ask = Ask(shape=["64x32x16"], dtype=["bf16"], bias=True, residual=True, activation="gelu", quantise="row", out="s8")
    (problem,) = problems(ask, "dgw profile")
    assert problem.bias is not None
    assert problem.bias.dtype == "bf16"
    assert problem.residual is not None
    assert problem.logical_shape("bias") == (1, 32)
    assert (problem.epilogue.activation, problem.epilogue.quantise, problem.d.dtype) == ("gelu", "row", "s8")


def test_without_them_the_problem_is_a_plain_gemm() -> None:
    (problem,) = problems(Ask(shape=["64x32x16"]), "dgw profile")
    assert (problem.bias, problem.residual) == (None, None)
    assert list(problem.operands()) == ["a", "b", "d"]


def test_a_case_is_named_with_all_that_follows_its_product() -> None:
    ask = Ask(shape=["64x32x16"], bias=True, residual=True, activation="silu", quantise="row", out="s8", zero_point=7)
    text = problem_text(*problems(ask, "dgw profile"))
    assert "f16 -> s8, nn, bias, silu, residual, a scale for each row, zero point 7, normal data" in text
