"""Options that mean the same in every command that has them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Option

from dgw.errors import UsageError


class Engine(StrEnum):
    """What runs the kernels."""

    AUTO = "auto"
    GPU = "gpu"
    EMULATOR = "emulator"
    STATIC = "static"


class Cluster(str):
    """A dask scheduler by its address, `dask://host:8786`, whose workers run a sweep."""


def engine_of(text: str) -> str:
    """The engine of a name, or the cluster of an address. Raises UsageError."""
    if text.startswith("dask://"):
        return Cluster(text)
    if text not in list(Engine):
        names = ", ".join(repr(name.value) for name in Engine)
        raise UsageError(f"{text!r} is not one of {names}, nor dask://HOST:PORT", "--engine auto; see also --help")
    return Engine(text)


Names = list[str] | None

Variants = Annotated[
    Names, Option("--variant", "-v", metavar="NAME[,NAME]", help="A bare name picks the best family that runs here.")
]
Family = Annotated[str, Option("--family", metavar="NAME", help="Every stage of a family, as a ladder.")]
Kernels = Annotated[Path | None, Option("--kernels", metavar="DIR", help="A folder with your own declarations.")]
Kernel = Annotated[
    Path | None,
    Option("--kernel", metavar="FILE", help="A declaration (.py), or a .cu with its declaration beside it."),
]
Config = Annotated[
    Names, Option("--config", "-c", metavar="K=V[,K=V]", help="Tunables, such as BM=128,BN=256; again for each config.")
]
Against = Annotated[
    Names,
    Option("--against", metavar="NAME", help="Baselines timed beside; none. [default: cublas, given a GPU and torch]"),
]
Shapes = Annotated[Names, Option("--shape", "-s", metavar="MxNxK[,...]", help="MxNxK or BxMxNxK.")]
ShapesFile = Annotated[
    Path | None,
    Option("--shapes", metavar="FILE.csv", help="Columns m,n,k (batch, dtype, layout optional), or a shape a line."),
]
Suite = Annotated[
    str, Option("--suite", metavar="NAME", help="Shapes of perf/suites (llm, seeds, ragged), or of a file FILE.toml.")
]
Dtypes = Annotated[
    Names, Option("--dtype", "-t", metavar="NAME[,NAME]", help="f16 bf16 f32 tf32 e4m3 s8 s4. [default: f16]")
]
Out = Annotated[str, Option("--out", metavar="DTYPE", help="Type of D. [default: as the inputs]")]
Layouts = Annotated[
    Names, Option("--layout", "-l", metavar="nn|nt|tn|tt", help="Of A and B; t: stored transposed. [default: nn]")
]
Alpha = Annotated[float, Option("--alpha", help="Factor of A @ B.")]
Beta = Annotated[float, Option("--beta", help="Factor of C; with 0 there is no C.")]
Bias = Annotated[bool, Option("--bias", help="Add a row of N biases to alpha A @ B + beta C.")]
Activation = Annotated[
    str, Option("--activation", metavar="NAME", help="none, relu, gelu, gelu-tanh or silu, behind the bias.")
]
Residual = Annotated[bool, Option("--residual", help="Add an M x N matrix behind the activation.")]
Quantise = Annotated[
    str, Option("--quantise", metavar="none|tensor|row", help="Scale and round D to s8 or e4m3 (--out), last of all.")
]
ZeroPoint = Annotated[
    int, Option("--zero-point", metavar="N", help="Added to a quantised D of s8, so that N stands for zero.")
]
LeadA = Annotated[int | None, Option("--lda", min=1, help="Leading dimension of A, in elements.")]
LeadB = Annotated[int | None, Option("--ldb", min=1, help="Leading dimension of B, in elements.")]
LeadD = Annotated[int | None, Option("--ldd", min=1, help="Leading dimension of C and D, in elements.")]
Data = Annotated[str, Option("--data", metavar="SET", help="normal, uniform, integer, one-hot, outliers, ...")]
Seed = Annotated[int, Option("--seed", min=0, help="Seed of the data.")]
Counters = Annotated[
    str, Option("--counters", metavar="SET|NAMES", help="quick std memory stalls tensor full none, or metric names.")
]
Device = Annotated[
    str, Option("--device", "-d", metavar="NAME", help="The GPU model meant where there is none. [default: h200]")
]
Arch = Annotated[str, Option("--arch", metavar="sm_NN", help="Architecture, such as sm_90a.")]
EngineChoice = Annotated[
    str,
    Option(
        "--engine", "-e", metavar="NAME", parser=engine_of,
        help="auto gpu emulator static; sweeps: dask://HOST:PORT. auto: the GPU if there is one, else the emulator.",
    ),
]  # fmt: skip
FullGrid = Annotated[bool, Option("--full-grid", help="Emulate every CTA instead of one of each kind.")]
Resume = Annotated[bool, Option("--resume", help="Take over what an earlier run of the same code has finished.")]
ByLine = Annotated[bool, Option("--by-line", help="Also the source lines that cost most.")]
Timeline = Annotated[bool, Option("--timeline", help="Also a timeline by nsys: launches, gaps, copies, API time.")]
Sanitize = Annotated[
    Names,
    Option(
        "--sanitize", metavar="TOOL[,TOOL]", help="Also compute-sanitizer: memcheck racecheck initcheck synccheck all."
    ),
]
AsJson = Annotated[bool, Option("--json", help="JSON on standard output.")]
Deadline = Annotated[
    float, Option("--deadline", metavar="S", min=1.0, help="Seconds without a word after which a case is killed.")
]
NoTime = Annotated[bool, Option("--no-time", help="Check and count, but do not time.")]
VerifyTime = Annotated[
    bool, Option("--verify-time", help="Also the durations that CUPTI records of the same replays (needs torch).")
]
Tuned = Annotated[
    str,
    Option("--tuned", metavar="FILE|none", help="Tuned configs by dgw best. [default: .dgw/tuned.json, if there]"),
]
LockClocks = Annotated[
    int, Option("--lock-clocks", metavar="MHZ", min=0, help="Hold the SM clock there meanwhile; needs the right to.")
]
NoStore = Annotated[bool, Option("--no-store", help="Keep nothing.")]


@dataclass(frozen=True)
class Ask:
    """What a command line asks to be run: the options that `profile`, `compare` and `check` share."""

    variant: Variants = None
    kernels: Kernels = None
    kernel: Kernel = None
    config: Config = None
    shape: Shapes = None
    shapes: ShapesFile = None
    suite: Suite = ""
    dtype: Dtypes = None
    out: Out = ""
    layout: Layouts = None
    alpha: Alpha = 1.0
    beta: Beta = 0.0
    bias: Bias = False
    activation: Activation = "none"
    residual: Residual = False
    quantise: Quantise = "none"
    zero_point: ZeroPoint = 0
    lda: LeadA = None
    ldb: LeadB = None
    ldd: LeadD = None
    data: Data = "normal"
    seed: Seed = 0
    device: Device = ""
    engine: EngineChoice = Engine.AUTO
    full_grid: FullGrid = False
    resume: Resume = False
    deadline: Deadline = 30.0
    no_store: NoStore = False
    json: AsJson = False


def spread(function: Callable[..., None]) -> Callable[..., None]:
    """`function` with its parameter of type Ask replaced by one option for each field."""
    return spread_of(Ask)(function)


def spread_of(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The same for a parameter of another dataclass, whose fields are annotated with options."""
    return functools.partial(_spread, kind)


def _spread(kind: type[Any], function: Callable[..., None]) -> Callable[..., None]:
    asked = get_type_hints(kind, include_extras=True)
    shared = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=asked[one.name])
        for one in fields(kind)
    ]
    target = ""
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.annotation is kind:
            target = parameter.name
            parameters += shared
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(function)
    def call(**options: Any) -> None:
        given = kind(**{name: options.pop(name) for name in asked})
        function(**{target: given}, **options)

    del call.__wrapped__  # else its signature would be taken for this one's
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def split(values: Iterable[str] | None) -> list[str]:
    """Values given by repeating an option or by commas, in order, without repeats."""
    parts = (part.strip() for value in values or () for part in value.split(","))
    return list(dict.fromkeys(part for part in parts if part))
