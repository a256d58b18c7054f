"""What symbolic launch arguments become."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest

from dgw.errors import UsageError
from dgw.model import (
    SCALAR_BYTES,
    Argument,
    Epilogue,
    Operand,
    Pointer,
    Problem,
    Scalar,
    TensorMap,
    Workspace,
    gemm,
)
from dgw.toolchain.parameters import argument_size
from dgw.workbench.binding import argument_bytes, scalar_value

PROBLEM = Problem(
    m=3, n=5, k=7, a=Operand(dtype="f16", ld=9), b=Operand(dtype="f16", order="col"), d=Operand(dtype="f32"),
    alpha=1.5, batch=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [("m", 3), ("n", 5), ("k", 7), ("batch", 2), ("lda", 9), ("ldb", 7), ("ldc", 0), ("ldd", 5), ("ldr", 0),
     ("batch_stride_a", 27), ("batch_stride_d", 15), ("batch_stride_c", 0)],
)  # fmt: skip
def test_integers_come_from_the_problem(name: str, value: int) -> None:
    assert scalar_value(PROBLEM, Scalar(name=name, dtype="i64")) == value


def test_alpha_is_a_float_and_a_given_value_wins() -> None:
    assert scalar_value(PROBLEM, Scalar(name="alpha", dtype="f32")) == 1.5
    assert scalar_value(PROBLEM, Scalar(name="whatever", value=11)) == 11


def test_an_unknown_name_and_a_value_that_does_not_fit_are_errors() -> None:
    with pytest.raises(UsageError, match="'gamma'"):
        scalar_value(PROBLEM, Scalar(name="gamma"))
    with pytest.raises(UsageError, match="does not fit i32"):
        scalar_value(gemm(2, 2**31, 2), Scalar(name="n"))
    assert scalar_value(gemm(2, 2**31, 2), Scalar(name="n", dtype="i64")) == 2**31


def pack(argument: Pointer | Scalar | TensorMap | Workspace) -> bytes:
    return argument_bytes(PROBLEM, argument, lambda n: 1000 + ord(n[0]), lambda n: 2000, lambda t: bytes(128))


def test_scale_factors_are_bound_where_the_operand_has_some() -> None:
    quantised = gemm(3, 5, 7, out="s8", epilogue=Epilogue(quantise="row"))

    def address(name: str) -> bytes:
        asked: list[str] = []
        packed = argument_bytes(
            quantised, Pointer(operand=name), lambda n: asked.append(n) or 4096, lambda n: 0, lambda t: b""
        )
        assert asked == ([name] if any(packed) else [])
        return packed

    assert address("d_scale") == struct.pack("<Q", 4096)
    assert address("a_scale") == address("bias_scale") == address("d_scales") == bytes(8)
    assert pack(Pointer(operand="d_scale")) == bytes(8)


@pytest.mark.parametrize(
    "argument",
    [Pointer(operand="a"), Workspace(name="x"), TensorMap(operand="a", box=(8, 8)),
     *(Scalar(name="m", dtype=cast("Any", dtype)) for dtype in SCALAR_BYTES)],
)  # fmt: skip
def test_what_is_checked_before_a_launch_is_the_size_that_is_passed(argument: Argument) -> None:
    assert argument_size(argument) == len(pack(argument))


def test_parameters_have_the_bytes_that_the_kernel_reads() -> None:
    assert pack(Pointer(operand="a")) == struct.pack("<Q", 1097)
    assert pack(Pointer(operand="c")) == bytes(8)  # beta is 0: a null pointer
    assert pack(Workspace(name="w")) == struct.pack("<Q", 2000)
    assert pack(Scalar(name="m")) == struct.pack("<i", 3)
    assert pack(Scalar(name="alpha", dtype="f32")) == struct.pack("<f", 1.5)
    assert len(pack(TensorMap(operand="a", box=(8, 8)))) == 128
