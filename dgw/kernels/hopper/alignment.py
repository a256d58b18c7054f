"""Operands that the copy engine cannot read in place: copied first, with their lines at multiples of 128 bytes."""

from __future__ import annotations

import msgspec

from dgw.kernels.declaring import ceil_div, element_bytes
from dgw.model import Argument, Config, Launch, Pointer, Problem, Scalar, Source, TensorMap, Workspace

THREADS = 128
LINES = 4  # of which a thread copies 16 bytes at once
LINE = 64  # elements that the copy's lines are a multiple of: 128 bytes, as L2 has them
LANES = 8  # that copy 128 bytes of a line
BLOCKS = 132 * 1024 // THREADS  # of an operand: what an H200 runs at once; they stride over larger ones
GRANULE = 8  # elements of 16 bytes
CHUNK = 256  # elements of k that are copied ahead of others
AHEAD_BYTES = 2 * 4 * (CHUNK + GRANULE) * 2  # of shared memory for a warp that multiplies: two parts (copy_ahead.cuh)
PROGRESS = "progress"  # workspace: how far the copies are (grid_progress.cuh)


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


def reasons(problem: Problem, ahead: bool = False) -> tuple[str, ...]:
    """Which of A and B are copied and why, in words; nothing of those that are read where they lie."""
    when = "ahead of what is multiplied" if ahead else "first"
    return tuple(f"{name} is copied {when}: {obstacle(problem, name)}" for name in copied(problem))


def copy_ld(problem: Problem, name: str) -> int:
    """Elements from line to line of the copy."""
    return ceil_div(stored_shape(problem, name)[1], LINE) * LINE


def workspaces(problem: Problem, ahead: bool = False) -> dict[str, int]:
    """The copies, in bytes; `ahead`: and the counts of how far they are, of launches of CTAs and of each chunk."""
    bytes_of = {name: stored_shape(problem, name)[0] * copy_ld(problem, name) * 2 for name in copied(problem)}
    found = {f"aligned {name}": size for name, size in bytes_of.items()}
    return {**found, PROGRESS: (2 + ceil_div(problem.k, CHUNK)) * LINE * 2} if ahead else found


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
    pair = (names[0], names[-1])  # twice the same where one is copied: there are no blocks of y 1 then
    shapes = [stored_shape(problem, name) for name in pair]
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


def copied_ahead(problem: Problem, ahead: bool) -> tuple[Argument, ...]:
    """What a kernel takes that makes the copies itself: operands, copies, leading dimensions, counts; else nothing."""
    names = copied(problem) if ahead else ()
    none = Scalar(name="none", dtype="i64", value=0)
    return (
        *(Pointer(operand=name) for name in ("a", "b")),
        *(Workspace(name=f"aligned {name}") if name in names else none for name in ("a", "b")),
        *(Scalar(name=f"ld{name}", dtype="i64") for name in ("a", "b")),
        Workspace(name=PROGRESS) if ahead else none,
    )


def shifts(problem: Problem, ahead: bool) -> Config:
    """Defines: elements of the granules of 16 bytes before the first line of A and of B, and how many more before the
    next. Both are 0 of an operand that the kernel does not copy.
    """
    names = copied(problem) if ahead else ()
    found: Config = {}
    for name in ("a", "b"):
        found[f"FIRST_{name.upper()}"] = problem.operands()[name].offset % GRANULE if name in names else 0
        found[f"STEP_{name.upper()}"] = problem.leading_dimension(name) % GRANULE if name in names else 0
    return found
