"""Operands that the copy engine cannot read in place: copied first, with their lines at multiples of 128 bytes."""

from __future__ import annotations

import msgspec

from dgw.kernels import declaring
from dgw.kernels.declaring import ceil_div
from dgw.kernels.hopper import tiling
from dgw.model import Argument, Launch, Pointer, Problem, Scalar, Source, TensorMap, Workspace

THREADS = 256
ELEMENTS = 8  # that a thread moves at once
LINE = 64  # elements that the copy's lines are a multiple of: 128 bytes, as L2 has them
BLOCKS = 132 * 8


def stored_shape(problem: Problem, name: str) -> tuple[int, int]:
    """Lines and elements a line of operand `name` as it is stored."""
    rows, cols = problem.logical_shape(name)
    return (rows, cols) if problem.operands()[name].order == "row" else (cols, rows)


def copied(problem: Problem) -> tuple[str, ...]:
    """Which of A and B have to be copied."""
    return tuple(name for name in ("a", "b") if not tiling.can_map(problem, name))


def copy_ld(problem: Problem, name: str) -> int:
    """Elements from line to line of the copy."""
    return ceil_div(stored_shape(problem, name)[1], LINE) * LINE


def workspaces(problem: Problem) -> dict[str, int]:
    """The copies, in bytes."""
    return {f"aligned {name}": stored_shape(problem, name)[0] * copy_ld(problem, name) * 2 for name in copied(problem)}


def redirected(problem: Problem, box: TensorMap) -> TensorMap:
    """The tensor map of the operand, or of its copy."""
    if box.operand not in copied(problem):
        return box
    return msgspec.structs.replace(box, workspace=f"aligned {box.operand}", ld=copy_ld(problem, box.operand))


def copying(problem: Problem) -> tuple[Launch, ...]:
    """The launch that makes the copies; none where the operands are aligned."""
    names = copied(problem)
    if not names:
        return ()
    lines = {name: stored_shape(problem, name) if name in names else (0, 0) for name in ("a", "b")}
    most = max(rows * ceil_div(width, LINE) * (LINE // ELEMENTS) for rows, width in lines.values())
    pointers: list[Argument] = [Pointer(operand="a"), Pointer(operand="b")]
    for name in ("a", "b"):
        pointers.append(Workspace(name=f"aligned {name}") if name in names else Pointer(operand=name))
    sizes = [Scalar(name=f"size {i}", value=size) for i, size in enumerate([*lines["a"], *lines["b"]])]
    steps = [Scalar(name="lda", dtype="i64"), Scalar(name="ldb", dtype="i64")]
    steps += [Scalar(name=f"to ld{name}", dtype="i64", value=copy_ld(problem, name)) for name in ("a", "b")]
    source = Source(
        path="aligned_copy.cu",
        defines=tuple((f"VEC_{name.upper()}", declaring.vector_elements(problem, name)) for name in ("a", "b")),
    )
    blocks = min(BLOCKS, ceil_div(most, THREADS))
    arguments = (*pointers, *sizes, *steps)
    return (
        Launch(
            source=source,
            entry="aligned_copy",
            grid=(blocks, len(lines), 1),
            block=(THREADS, 1, 1),
            arguments=arguments,
        ),
    )
