"""How it is computed: launches, their symbolic arguments, and what they need."""

from __future__ import annotations

from math import prod
from typing import Literal

from dgw.model.noun import Noun

Dim3 = tuple[int, int, int]
SCALAR_BYTES = {"i32": 4, "u32": 4, "i64": 8, "f32": 4}
DECIDED_LATER = -1  # dynamic shared memory of a launch whose compiler decides it (toolchain.launches.complete)


class Pointer(Noun, frozen=True, kw_only=True, tag="pointer"):
    """Address of the first element of an operand."""

    operand: str


class Scalar(Noun, frozen=True, kw_only=True, tag="scalar"):
    """A number passed by value. `value` None: bound from the Problem by `name` (m n k lda ldb ldc ldd alpha beta)."""

    name: str
    dtype: Literal["i32", "u32", "i64", "f32"] = "i32"
    value: int | float | None = None


class TensorMap(Noun, frozen=True, kw_only=True, tag="tensor-map"):
    """A TMA descriptor of an operand: `box` in elements (rows, columns as stored), `swizzle` none, 32, 64 or 128.

    With `workspace` it describes the operand's copy there, whose lines are `ld` elements apart.
    """

    operand: str
    box: tuple[int, ...]
    swizzle: str = "none"
    workspace: str = ""
    ld: int | None = None


class Workspace(Noun, frozen=True, kw_only=True, tag="workspace"):
    """Address of a scratch buffer declared in Plan.workspaces."""

    name: str


Argument = Pointer | Scalar | TensorMap | Workspace


class Source(Noun, frozen=True, kw_only=True):
    """What is compiled: `path` relative to the variant's root, `defines` in the order given to the compiler.

    Language `triton`: defines are the constexpr arguments, flags are what dgw.toolchain.triton_compiler reads.
    """

    path: str
    defines: tuple[tuple[str, int | str], ...] = ()
    flags: tuple[str, ...] = ()
    language: Literal["cuda", "triton"] = "cuda"


class Launch(Noun, frozen=True, kw_only=True, tag="launch"):
    """One kernel launch. `grid` is always counted in blocks (not clusters); `shared_bytes` is dynamic shared memory.

    With `overlaps` it may start while the launch before it still runs (programmatic dependent launch): the kernel
    itself waits, with griddepcontrol.wait, before it reads what that one writes. With `together` its CTAs wait for each
    other in global memory: where they cannot all run at the same time, it is refused.
    """

    source: Source
    entry: str
    grid: Dim3
    block: Dim3
    arguments: tuple[Argument, ...]
    cluster: Dim3 = (1, 1, 1)
    shared_bytes: int = 0
    overlaps: bool = False
    together: bool = False


class Fill(Noun, frozen=True, kw_only=True, tag="fill"):
    """Set every byte of a workspace to `byte` before the next step."""

    workspace: str
    byte: int = 0


class Plan(Noun, frozen=True, kw_only=True):
    """Ordered steps, workspaces (name -> bytes), and how many kernels this makes (`any` for foreign code).

    `tile` is the (rows, columns) of D that one CTA computes at a time, for coverage and scaling; None when unknown.
    """

    steps: tuple[Launch | Fill, ...] = ()
    workspaces: dict[str, int] = {}
    kernels: int | Literal["any"] = 1
    tile: tuple[int, int] | None = None

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernel launches among the steps, in order."""
        return tuple(step for step in self.steps if isinstance(step, Launch))

    @property
    def largest(self) -> int:
        """Which of the launches stands for the case with its static figures: 0 where there is none.

        Of those that take A, B and D, or of all where none does, the one with the most threads.
        """
        threads = [(_multiplies(launch), prod(launch.grid) * prod(launch.block)) for launch in self.launches]
        return threads.index(max(threads)) if threads else 0


def _multiplies(launch: Launch) -> bool:
    taken = {argument.operand for argument in launch.arguments if isinstance(argument, Pointer | TensorMap)}
    return {"a", "b", "d"} <= taken
