"""What the declarations of dgw's own kernels share: alignment, compile-time defines, launch arguments and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, prod
from pathlib import Path
from typing import NoReturn

from dgw.errors import UsageError
from dgw.model import DTYPE_BITS, Argument, Config, Device, Operand, Pointer, Problem, Scalar

INCLUDE = Path(__file__).parent / "include"
LARGEST_SIZE = 2**31 - 1024  # m, n, k and the edge of the last tile are 32-bit integers in the kernels
LARGEST_GRID = 2**31 - 1
ADDENDS = ("f16", "bf16", "f32")  # dtypes of C, bias and residual
STORED = {"tf32": "F32"}  # names in types.cuh that differ from the upper-case dtype


def type_name(dtype: str) -> str:
    """The name of `dtype` in types.cuh."""
    return STORED.get(dtype, dtype.upper())


def element_bytes(dtype: str) -> int:
    """Bytes of one stored element."""
    return DTYPE_BITS[dtype] // 8


def vector_elements(problem: Problem, name: str, limit_bytes: int = 16) -> int:
    """Elements of operand `name` that one access may move: a power of two, at most `limit_bytes` in all.

    It divides the offset, the leading dimension and the width, so that every vector that starts inside the matrix is
    aligned and ends inside it. Bases are aligned to 256 bytes.
    """
    operand = problem.operands()[name]
    rows, cols = problem.logical_shape(name)
    width, lines = (cols, rows) if operand.order == "row" else (rows, cols)
    step = problem.leading_dimension(name) if lines > 1 else 0
    return gcd(operand.offset, step, width, limit_bytes // element_bytes(operand.dtype))


def k_major(problem: Problem, name: str) -> bool:
    """Whether consecutive stored elements of A or B run along k."""
    return problem.operands()[name].order == ("row" if name == "a" else "col")


def operand_defines(problem: Problem) -> dict[str, int | str]:
    """TYPE_*, K_MAJOR_*, VEC_* and USE_C: what the kernels know of the operands at compile time.

    VEC_* is elements per global access. An absent C takes the type of D and is never read.
    """
    operands = problem.operands()
    defines: dict[str, int | str] = {}
    for name in ("a", "b", "c", "d"):
        present = name if name in operands else "d"
        defines[f"TYPE_{name.upper()}"] = type_name(operands[present].dtype)
        defines[f"VEC_{name.upper()}"] = vector_elements(problem, present)
    for name in ("a", "b"):
        defines[f"K_MAJOR_{name.upper()}"] = "true" if k_major(problem, name) else "false"
    defines["USE_C"] = "true" if "c" in operands else "false"
    return defines


def gemm_arguments(problem: Problem) -> tuple[Argument, ...]:
    """a b c d m n k lda ldb ldc ldd alpha beta, as every plain GEMM kernel takes them."""
    has_c = "c" in problem.operands()
    return (
        Pointer(operand="a"),
        Pointer(operand="b"),
        Pointer(operand="c" if has_c else "d"),
        Pointer(operand="d"),
        *(Scalar(name=size) for size in ("m", "n", "k")),
        Scalar(name="lda", dtype="i64"),
        Scalar(name="ldb", dtype="i64"),
        Scalar(name="ldc", dtype="i64", value=None if has_c else 0),
        Scalar(name="ldd", dtype="i64"),
        Scalar(name="alpha", dtype="f32"),
        Scalar(name="beta", dtype="f32"),
    )


UNFINISHED = "the declaration is not finished"


def fill_in(declaration: str, parameter: str) -> NoReturn:
    """Stands for an argument that `dgw new` could not guess. Raises UsageError, which names the parameter."""
    name = Path(declaration).name
    raise UsageError(
        f"{UNFINISHED}: {name} does not say what the parameter {parameter} is",
        f"write its Pointer, Scalar or Workspace into {name}, instead of declaring.fill_in",
    )


def ceil_div(value: int, step: int) -> int:
    """The least number of steps that cover value."""
    return -(-value // step)


def integer(config: Config, name: str) -> int:
    """Tunable `name` as a number."""
    return int(config[name])


def refuses_problem(problem: Problem, inputs: Iterable[str], outputs: Iterable[str]) -> str | None:
    """Why a plain GEMM kernel cannot compute `problem`: dtypes, storage, sizes. None when it can."""
    inputs, outputs = tuple(inputs), tuple(outputs)
    if problem.op != "gemm" or problem.batch != 1:
        return f"computes one multiplication at a time, not op {problem.op} with batch {problem.batch}"
    if problem.a.dtype != problem.b.dtype:
        return f"a is {problem.a.dtype} and b is {problem.b.dtype}, but both must have the same dtype"
    if problem.a.dtype not in inputs:
        return f"dtype {problem.a.dtype} is not supported as input, only {', '.join(inputs)}"
    for name, operand in problem.operands().items():
        supported = outputs if name == "d" else ADDENDS
        if name not in ("a", "b") and operand.dtype not in supported:
            return f"dtype {operand.dtype} is not supported for {name}, only {', '.join(supported)}"
    if problem.accumulator != "f32":
        return f"accumulates in f32, not in {problem.accumulator}"
    if max(problem.m, problem.n, problem.k) > LARGEST_SIZE:
        return f"m, n and k may be at most {LARGEST_SIZE}"
    quantised = problem.epilogue.quantise != "none"
    return next(
        (why for name, o in problem.operands().items() if (why := refuses_storage(name, o, quantised and name == "d"))),
        None,
    )


def refuses_storage(name: str, operand: Operand, quantised: bool) -> str | None:
    """Why an operand's storage is not supported: only plain dense matrices, all but A and B in row order.

    What a `quantised` output stores is judged by the stage that quantises.
    """
    if name not in ("a", "b") and operand.order != "row":
        return f"{name} must be stored in row order"
    if not quantised and (operand.scale != "none" or operand.zero_point != 0):
        return f"{name} has scale {operand.scale} and zero point {operand.zero_point}, which are not supported"
    if operand.sparsity != "dense" or operand.packing != "plain":
        return f"{name} is {operand.sparsity} with packing {operand.packing}, but only dense plain storage is supported"
    return None


def refuses_epilogue(problem: Problem) -> str | None:
    """Why a kernel without a fused epilogue cannot compute `problem`."""
    epilogue = problem.epilogue
    if epilogue.activation != "none" or epilogue.quantise != "none":
        return f"has no epilogue, but {epilogue.activation} with quantise {epilogue.quantise} is asked for"
    if problem.bias is not None or problem.residual is not None:
        return "has no epilogue, but a bias or a residual is asked for"
    return None


def refuses_launch(threads: int, shared_bytes: int, blocks: int, device: Device) -> str | None:
    """Why `device` cannot launch blocks of this size, or so many of them."""
    if threads > 1024:
        return f"needs {threads} threads a block, but 1024 is the limit"
    if shared_bytes > device.shared_per_block:
        return (
            f"needs {shared_bytes} bytes of shared memory a block, "
            f"but {device.name} has {device.shared_per_block} ({device.arch})"
        )
    if blocks > LARGEST_GRID:
        return f"needs {blocks} blocks, but a grid has at most {LARGEST_GRID}"
    return None


def not_powers_of_two(config: Config, names: Iterable[str]) -> str | None:
    """Which of the tunables `names` is no positive power of two."""
    for name in names:
        value = integer(config, name)
        if value < 1 or value & (value - 1):
            return f"{name}={value} is not a power of two"
    return None


def tiles(problem: Problem, rows: int, cols: int) -> int:
    """How many rows x cols tiles cover D."""
    return prod((ceil_div(problem.m, rows), ceil_div(problem.n, cols)))
