"""The nouns of dgw: frozen values that survive a JSON round trip.

Values are stored in base units (s, B, FLOP/s, ratio); only reports format them. Everything here is data: what computes,
measures or explains lives elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

Dim3 = tuple[int, int, int]
Config = dict[str, int | str]
OperandName = Literal["a", "b", "c", "d", "bias", "residual"]

DTYPE_BITS: Mapping[str, int] = {
    "f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "f64": 64, "e4m3": 8, "s8": 8, "s4": 4, "s32": 32,
}  # fmt: skip


class Noun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frozen value; unknown fields are ignored when read, so that newer files open in older code."""


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
    """One multiplication: D = epilogue(alpha * A @ B + beta * C + bias) + residual; D never aliases C."""

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    d: Operand
    op: Literal["gemm", "batched", "grouped"] = "gemm"
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
    def layout(self) -> str:
        """`nn`, `nt`, `tn` or `tt`: first letter for A, second for B; `t` means stored transposed."""
        return "".join("n" if o.order == "row" else "t" for o in (self.a, self.b))

    @property
    def shape(self) -> str:
        """`MxNxK`, or `BxMxNxK` when batched."""
        mnk = f"{self.m}x{self.n}x{self.k}"
        return mnk if self.batch == 1 else f"{self.batch}x{mnk}"

    @property
    def flops(self) -> int:
        """2 M N K per batch item."""
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
        """Each input element read once and each output element written once, padding not counted."""
        bits = 0
        for name, operand in self.operands().items():
            rows, cols = self.logical_shape(name)
            bits += rows * cols * DTYPE_BITS[operand.dtype]
        return bits * self.batch // 8


def gemm(
    m: int, n: int, k: int, dtype: str = "f16", layout: str = "nn", out: str | None = None, **fields: Any
) -> Problem:
    """The Problem of a plain GEMM: `dtype` inputs, output `out` (default: as the inputs, f32 for tf32)."""
    stored = "f32" if dtype == "tf32" else dtype
    a = Operand(dtype=dtype, order="row" if layout[0] == "n" else "col")
    b = Operand(dtype=dtype, order="row" if layout[1] == "n" else "col")
    return Problem(m=m, n=n, k=k, a=a, b=b, d=Operand(dtype=out or stored), **fields)


class Tunable(Noun, frozen=True, kw_only=True):
    """One dimension of a variant's Config space."""

    name: str
    default: int | str
    values: tuple[int | str, ...]
    meaning: str


class Pointer(Noun, frozen=True, kw_only=True, tag="pointer"):
    """Address of the first element of an operand."""

    operand: str


class Scalar(Noun, frozen=True, kw_only=True, tag="scalar"):
    """A number passed by value. `value` None: bound from the Problem by `name` (m n k lda ldb ldc ldd alpha beta)."""

    name: str
    dtype: Literal["i32", "u32", "i64", "f32"] = "i32"
    value: int | float | None = None


class TensorMap(Noun, frozen=True, kw_only=True, tag="tensor-map"):
    """A TMA descriptor of an operand: `box` in elements (rows, columns as stored), `swizzle` none, 32, 64 or 128."""

    operand: str
    box: tuple[int, ...]
    swizzle: str = "none"


class Workspace(Noun, frozen=True, kw_only=True, tag="workspace"):
    """Address of a scratch buffer declared in Plan.workspaces."""

    name: str


Argument = Pointer | Scalar | TensorMap | Workspace


class Source(Noun, frozen=True, kw_only=True):
    """What is compiled: `path` relative to the variant's root, `defines` in the order given to the compiler."""

    path: str
    defines: tuple[tuple[str, int | str], ...] = ()
    flags: tuple[str, ...] = ()


class Launch(Noun, frozen=True, kw_only=True, tag="launch"):
    """One kernel launch. `grid` is always counted in blocks (not clusters); `shared_bytes` is dynamic shared memory."""

    source: Source
    entry: str
    grid: Dim3
    block: Dim3
    arguments: tuple[Argument, ...]
    cluster: Dim3 = (1, 1, 1)
    shared_bytes: int = 0


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


class Device(Noun, frozen=True, kw_only=True):
    """Limits and rates of one GPU model, per device unless said otherwise; `sources` says where each comes from."""

    name: str
    arch: str  # sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_120a
    sms: int
    clock_hz: float
    l2_bytes: int
    dram_bytes_per_s: float
    shared_per_sm: int
    shared_per_block: int  # opt-in maximum
    shared_reserved_per_block: int
    registers_per_sm: int = 65536
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    fma_per_sm_per_clock: int = 128
    tensor_flops_per_sm_per_clock: dict[str, int] = {}  # dense FLOP by input dtype, best instruction family
    mma_flops_per_sm_per_clock: dict[str, int] = {}  # dense FLOP by input dtype, mma.sync family
    measured: dict[str, float] = {}  # ceilings seen: dram_copy, dram_read (B/s), mma_f16, ... (FLOP/s)
    sources: tuple[str, ...] = ()


class Claim(Noun, frozen=True, kw_only=True):
    """What a stage says of its counters against the previous stage, checked by `compare`.

    `relation` compares metric values: `is` (equals `value`), `above`, `below` (`value`), `falls`, `rises` (against the
    previous rung, by at least the ratio `value`).
    """

    metric: str
    relation: Literal["is", "above", "below", "falls", "rises"]
    value: float = 0.0
    why: str = ""
    dtypes: tuple[str, ...] = ()  # empty: every dtype
    layouts: tuple[str, ...] = ()  # empty: every layout


Refuses = Callable[[Problem, Config, Device], str | None]
MakePlan = Callable[[Problem, Config, Device], Plan]
Bind = Callable[[Problem, Config, Mapping[str, Any]], Callable[[], None]]


def _never_refuses(problem: Problem, config: Config, device: Device) -> str | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to compute a Problem. Exactly one of `plan` (own kernels) and `bind` (foreign code) is set.

    `id` is `family/idea`. `root` is the folder that Source.path is relative to, `includes` the folders searched for
    headers. `architectures` lists the oldest architecture of each line that it runs on, such as ("sm_80",) for "sm_80
    and newer" or ("sm_90a",) for exactly Hopper. `needs` names Python modules that `bind` imports.
    """

    id: str
    version: int
    idea: str
    dtypes: tuple[str, ...]
    stage: int | None = None
    architectures: tuple[str, ...] = ("sm_80",)
    space: tuple[Tunable, ...] = ()
    refuses: Refuses = _never_refuses
    plan: MakePlan | None = None
    bind: Bind | None = None
    root: Path = Path()
    includes: tuple[Path, ...] = ()
    claims: tuple[Claim, ...] = ()
    needs: tuple[str, ...] = ()
    notes: str = ""
    synchronises: Literal["barrier", "mbarrier", "unknown"] = "barrier"
    declaration: Path = field(default=Path(), compare=False)

    @property
    def family(self) -> str:
        """The part of the id before the slash."""
        return self.id.partition("/")[0]

    @property
    def name(self) -> str:
        """The part of the id after the slash: the idea's name."""
        return self.id.partition("/")[2]

    def defaults(self) -> Config:
        """The default Config."""
        return {tunable.name: tunable.default for tunable in self.space}

    def runs_on(self, arch: str) -> bool:
        """Whether `architectures` covers `arch`: a plain name covers newer ones, a name with a suffix only itself."""
        return any(arch == oldest or (oldest[-1].isdigit() and sm(arch) >= sm(oldest)) for oldest in self.architectures)


def sm(arch: str) -> int:
    """The number in an architecture name: 90 for `sm_90a`."""
    return int("".join(ch for ch in arch if ch.isdigit()))


class Case(Noun, frozen=True, kw_only=True):
    """Problem + Variant + Config. `version` is the declaration version; `config` holds every tunable."""

    problem: Problem
    variant: str
    version: int = 1
    config: Config = {}

    @property
    def key(self) -> str:
        """16 hex digits of the SHA-256 of the canonical JSON without defaults: the NVTX range name."""
        return digest(self)[:16]


def digest(value: object) -> str:
    """SHA-256 (hex) of the canonical JSON of any noun or plain value: sorted keys, defaults left out."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


class Check(Noun, frozen=True, kw_only=True):
    """The verdict on one output: the worst element (row, column), its error and its bound, both absolute.

    `where` says what was compared (all elements, or which tiles), `detail` names the first thing wrong in words. An
    error that is not a number is None.
    """

    passed: bool
    compared: int
    worst: tuple[int, ...] = ()
    error: float | None = 0.0
    bound: float | None = 0.0
    where: str = "all elements"
    detail: str = ""
    collector: str = "gpu"


class Measurement(Noun, frozen=True, kw_only=True):
    """One number and how it was obtained, or `absent` with the reason why there is none.

    `scope` is `case`, `kernel 0` ..., or `line FILE:N`. `low` and `high` bound the value (95 % unless the protocol says
    otherwise). `collector` and `protocol` say who measured and under which rules; `tier` is hardware, sass or cupti.
    """

    metric: str
    value: float | int | str | None = None
    unit: str = ""
    scope: str = "case"
    collector: str
    protocol: str = ""
    samples: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    absent: str = ""
    tier: str = ""


class Artifact(Noun, frozen=True, kw_only=True):
    """A file kept by content: `kind` cubin, ptx, ncu-rep, sqlite, log; `sha256` names it in the artifact folder."""

    kind: str
    sha256: str
    bytes: int
    name: str = ""


class Environment(Noun, frozen=True, kw_only=True):
    """Where a Record was made. Never a host name, user name, path or environment variable. Empty string: unknown."""

    device: str = ""
    arch: str = ""
    device_uuid: str = ""  # SHA-256 prefix of the GPU UUID
    driver: str = ""
    cuda: str = ""
    nvrtc: str = ""
    torch: str = ""
    cublas: str = ""
    ncu: str = ""
    python: str = ""
    system: str = ""
    engine: Literal["gpu", "emulator", "none"] = "none"


Outcome = Literal[
    "ok", "refused", "compile-failed", "launch-failed", "wrong", "timed-out", "crashed", "out-of-memory"
]  # fmt: skip


class Record(Noun, frozen=True, kw_only=True):
    """Everything that happened to one Case."""

    case: Case
    outcome: Outcome
    environment: Environment = Environment()
    reason: str = ""
    plan: Plan | None = None
    check: Check | None = None
    measurements: tuple[Measurement, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    flags: tuple[str, ...] = ()  # implausible or noteworthy, in words with figures
    resume_key: str = ""

    def get(self, metric: str, scope: str = "case", collector: str = "") -> Measurement | None:
        """The first measurement of `metric` in `scope` (and by `collector`, when given), or None."""
        for found in self.measurements:
            if found.metric == metric and found.scope == scope and collector in ("", found.collector):
                return found
        return None

    def number(self, metric: str, scope: str = "case", collector: str = "") -> float | None:
        """The numeric value of `metric`, or None when it is absent or not a number."""
        found = self.get(metric, scope, collector)
        return None if found is None or isinstance(found.value, str | None) else float(found.value)


class Run(Noun, frozen=True, kw_only=True):
    """One invocation: its records and what is needed to repeat it. `created` is ISO 8601 in UTC."""

    id: str
    created: str
    command: tuple[str, ...]
    version: str
    commit: str = ""
    records: tuple[Record, ...] = ()
    schema: str = "dgw.run/1"


class Evidence(Noun, frozen=True, kw_only=True):
    """One observation behind a Finding."""

    metric: str
    value: float | int | str | None
    threshold: float | None = None
    why: str = ""


class Finding(Noun, frozen=True, kw_only=True):
    """What a recipe concluded: verdict, confidence (high, medium, low), evidence, and the next step."""

    recipe: str
    verdict: str
    confidence: Literal["high", "medium", "low"] = "medium"
    evidence: tuple[Evidence, ...] = ()
    next_step: str = ""
