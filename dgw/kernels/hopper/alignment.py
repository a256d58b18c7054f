"""Operands that the copy engine cannot read in place: copied first, with their lines at multiples of 128 bytes."""

from __future__ import annotations

import msgspec

from dgw.kernels.declaring import ceil_div
from dgw.kernels.hopper import lines
from dgw.kernels.hopper.lines import Phases
from dgw.model import Argument, Launch, Pointer, Problem, Scalar, Source, TensorMap, Workspace

THREADS = 128
LINES = 4  # of which a thread copies 16 bytes at once
LINE = 64  # elements that the copy's lines are a multiple of: 128 bytes, as L2 has them
LANES = 8  # that copy 128 bytes of a line
BLOCKS = 132 * 1024 // THREADS  # of an operand: what an H200 runs at once; they stride over larger ones


def copied(found: Phases) -> tuple[str, ...]:
    """Which of A and B have to be copied."""
    return tuple(name for name, count in found.items() if not count)


def copy_ld(problem: Problem, name: str) -> int:
    """Elements from line to line of the copy."""
    return ceil_div(lines.stored_shape(problem, name)[1], LINE) * LINE


def workspaces(problem: Problem, found: Phases) -> dict[str, int]:
    """The copies, in bytes."""
    return {
        f"aligned {name}": lines.stored_shape(problem, name)[0] * copy_ld(problem, name) * 2 for name in copied(found)
    }


def redirected(problem: Problem, box: TensorMap, found: Phases) -> TensorMap:
    """The tensor map of the operand, or of its copy."""
    if box.operand not in copied(found):
        return box
    return msgspec.structs.replace(box, workspace=f"aligned {box.operand}", ld=copy_ld(problem, box.operand), shift=0)


def copying(problem: Problem, found: Phases) -> tuple[Launch, ...]:
    """The launch that makes the copies; none where the operands are read in place."""
    names = copied(found)
    if not names:
        return ()
    pair = (names[0], names[-1])  # twice the same where one is copied: there are no blocks of y 1 then
    shapes = [lines.stored_shape(problem, name) for name in pair]
    arguments: list[Argument] = [Pointer(operand=name) for name in pair]
    arguments += [Workspace(name=f"aligned {name}") for name in pair]
    arguments += [Scalar(name=f"lines {i}", value=count) for i, (count, _) in enumerate(shapes)]
    arguments += [Scalar(name=f"width {i}", value=width) for i, (_, width) in enumerate(shapes)]
    arguments += [Scalar(name=f"ld{name}", dtype="i64") for name in pair]
    most = max(ceil_div(count, LINES) * ceil_div(width, LINE) for count, width in shapes)
    blocks = min(BLOCKS, ceil_div(most * LANES, THREADS))
    return (
        Launch(
            source=Source(path="aligned_copy.cu", defines=(("THREADS", THREADS), ("LINES", LINES))),
            entry="aligned_copy",
            grid=(blocks, len(names), 1),
            block=(THREADS, 1, 1),
            arguments=tuple(arguments),
        ),
    )
