"""What is multiplied: operands and the problem that they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dgw.errors import NotComparable
from dgw.model.noun import Noun

Config = dict[str, int | str]
OperandName = Literal["a", "b", "c", "d", "bias", "residual"]

DTYPE_BITS: Mapping[str, int] = {
    "f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "f64": 64, "e4m3": 8, "s8": 8, "s4": 4, "s32": 32,
}  # fmt: skip


class Operand(Noun, frozen=True, kw_only=True):
    """How one matrix (or vector) is stored.

    `order` is relative to the logical matrix: A is M x K, B is K x N, C, D and residual are M x N, bias is 1 x N. `ld`
    is the distance in elements between consecutive rows (`row`) or columns (`col`); None means tight. `offset` is the
    distance in elements from a 256-byte-aligned base.
    """

    dtype: str
    order: Literal["row", "col"] = "row"
    ld: int | None = None
    offset: int = 0
    scale: str = "none"
    zero_point: int = 0
    sparsity: str = "dense"
    packing: str = "plain"
    packing_version: int = 1


class Epilogue(Noun, frozen=True, kw_only=True):
    """What is applied to alpha*A@B + beta*C before it is stored."""

    activation: Literal["none", "relu", "gelu", "gelu-tanh", "silu"] = "none"
    quantise: Literal["none", "tensor", "row"] = "none"


class Problem(Noun, frozen=True, kw_only=True):
    """One multiplication: D = epilogue(alpha * A @ B + beta * C + bias) + residual; D never aliases C.

    The op `unknown` stands for what a kernel in somebody else's report computed: sizes 0, types `unknown`.
    """

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    d: Operand
    op: Literal["gemm", "batched", "grouped", "unknown"] = "gemm"
    batch: int = 1
    rows_per_group: tuple[int, ...] = ()
    c: Operand | None = None
    bias: Operand | None = None
    residual: Operand | None = None
    accumulator: str = "f32"
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: Epilogue = Epilogue()
    data: str = "normal"
    seed: int = 0

    @property
    def known(self) -> bool:
        """Whether it is known what is multiplied; what follows from sizes and types exists only then."""
        return self.op != "unknown"

    def _demand(self, what: str) -> None:
        if not self.known:
            raise NotComparable(
                f"{what} of an unknown problem cannot be known", "dgw import FILE --shape MxNxK --dtype f16"
            )

    @property
    def layout(self) -> str:
        """`nn`, `nt`, `tn` or `tt`: first letter for A, second for B; `t` means stored transposed. Empty if unknown."""
        if not self.known:
            return ""
        return "".join("n" if o.order == "row" else "t" for o in (self.a, self.b))

    @property
    def shape(self) -> str:
        """`MxNxK`, or `BxMxNxK` when batched; `unknown` when it is."""
        if not self.known:
            return "unknown"
        mnk = f"{self.m}x{self.n}x{self.k}"
        return mnk if self.batch == 1 else f"{self.batch}x{mnk}"

    @property
    def flops(self) -> int:
        """2 M N K per batch item. NotComparable when the problem is unknown."""
        self._demand("the arithmetic")
        return 2 * self.m * self.n * self.k * self.batch

    def operands(self) -> dict[str, Operand]:
        """The operands that exist, in the order a, b, c, bias, residual, d. C counts only when beta is not 0."""
        c = self.c if self.beta != 0.0 else None
        named = {"a": self.a, "b": self.b, "c": c, "bias": self.bias, "residual": self.residual, "d": self.d}
        return {name: operand for name, operand in named.items() if operand is not None}

    def logical_shape(self, name: str) -> tuple[int, int]:
        """Rows and columns of the logical matrix `name`."""
        return {"a": (self.m, self.k), "b": (self.k, self.n), "bias": (1, self.n)}.get(name, (self.m, self.n))

    def leading_dimension(self, name: str) -> int:
        """Elements between consecutive stored rows (order `row`) or columns (order `col`) of operand `name`."""
        operand = self.operands()[name]
        rows, cols = self.logical_shape(name)
        return operand.ld if operand.ld is not None else (cols if operand.order == "row" else rows)

    @property
    def compulsory_bytes(self) -> int:
        """Each input element read once and each output element written once, padding not counted.

        NotComparable when the problem is unknown.
        """
        return sum(self._bits(name) for name in self.operands()) // 8

    def bytes_of(self, *names: str) -> int:
        """The elements of these operands, all batch items together, padding not counted; B.

        NotComparable when the problem is unknown, KeyError for an operand that does not exist.
        """
        return sum(self._bits(name) for name in names) // 8

    def _bits(self, name: str) -> int:
        self._demand("the traffic")
        rows, cols = self.logical_shape(name)
        return rows * cols * self.batch * DTYPE_BITS[self.operands()[name].dtype]


def gemm(
    m: int, n: int, k: int, dtype: str = "f16", layout: str = "nn", out: str | None = None, **fields: Any
) -> Problem:
    """The Problem of a plain GEMM: `dtype` inputs, output `out` (default: as the inputs, f32 for tf32)."""
    stored = "f32" if dtype == "tf32" else dtype
    a = Operand(dtype=dtype, order="row" if layout[0] == "n" else "col")
    b = Operand(dtype=dtype, order="row" if layout[1] == "n" else "col")
    return Problem(m=m, n=n, k=k, a=a, b=b, d=Operand(dtype=out or stored), **fields)


def unknown_problem() -> Problem:
    """The Problem of a kernel of which nobody said what it computed."""
    operand = Operand(dtype="unknown")
    return Problem(m=0, n=0, k=0, a=operand, b=operand, d=operand, op="unknown", accumulator="unknown", data="unknown")
