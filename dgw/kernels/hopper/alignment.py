"""Operands that the copy engine cannot read in place: copied first, with their lines at multiples of 128 bytes."""

from __future__ import annotations

import msgspec

from dgw.kernels.declaring import ceil_div, element_bytes
from dgw.model import Argument, Launch, Pointer, Problem, Scalar, Source, TensorMap, Workspace

LINE = 64  # elements that the copy's lines are a multiple of: 128 bytes, as L2 has them
PIECE = 256  # elements that a warp copies of a line with one instruction
THREADS, RESIDENT, PIECES = 256, 4, 4  # of a block; blocks of an SM; most pieces that a warp copies at once
BLOCKS = 132 * RESIDENT  # what an H200 runs at once: to start more of them takes longer than to have them loop


def stored_shape(problem: Problem, name: str) -> tuple[int, int]:
    """Lines and elements a line of operand `name` as it is stored."""
    rows, cols = problem.logical_shape(name)
    return (rows, cols) if problem.operands()[name].order == "row" else (cols, rows)


def obstacle(problem: Problem, name: str) -> str | None:
    """Why the copy engine cannot reach operand `name` where it lies; None where it can.

    It wants every line of a box to begin at a multiple of 16 bytes. Bases of operands are multiples of 256 bytes.
    """
    operand, step = problem.operands()[name], problem.leading_dimension(name)
    size = element_bytes(operand.dtype)
    if operand.offset * size % 16:
        return f"its first element is {operand.offset * size % 16} bytes behind a multiple of 16"
    if stored_shape(problem, name)[0] > 1 and step * size % 16:
        return f"its lines are {step} elements apart, no multiple of 16 bytes"
    return f"its lines are {step} elements apart, 2^40 bytes or more" if step * size >= 2**40 else None


def copied(problem: Problem) -> tuple[str, ...]:
    """Which of A and B have to be copied."""
    return tuple(name for name in ("a", "b") if obstacle(problem, name) is not None)


def reasons(problem: Problem) -> tuple[str, ...]:
    """Which of A and B are copied first and why, in words; nothing of those that are read where they lie."""
    return tuple(f"{name} is copied first: {obstacle(problem, name)}" for name in copied(problem))


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
    """The launch that makes the copies; none where the operands are read in place."""
    names = copied(problem)
    if not names:
        return ()
    pair = (names[0], names[-1])  # twice the same where one is copied, the second time without lines
    shapes = [stored_shape(problem, name) for name in pair]
    if len(names) == 1:
        shapes[1] = (0, shapes[1][1])
    arguments: list[Argument] = [Pointer(operand=name) for name in pair]
    arguments += [Workspace(name=f"aligned {name}") for name in pair]
    arguments += [Scalar(name=f"lines {i}", value=count) for i, (count, _) in enumerate(shapes)]
    arguments += [Scalar(name=f"width {i}", value=width) for i, (_, width) in enumerate(shapes)]
    arguments += [Scalar(name=f"ld{name}", dtype="i64") for name in pair]
    pieces = min(PIECES, max(ceil_div(width, PIECE) for _, width in shapes))
    parts = sum(count * ceil_div(width, pieces * PIECE) for count, width in shapes)
    defines = (("THREADS", THREADS), ("RESIDENT", RESIDENT), ("PIECES", pieces))
    return (
        Launch(
            source=Source(path="aligned_copy.cu", defines=defines),
            entry="aligned_copy",
            grid=(min(BLOCKS, ceil_div(parts * 32, THREADS)), 1, 1),
            block=(THREADS, 1, 1),
            arguments=tuple(arguments),
        ),
    )
