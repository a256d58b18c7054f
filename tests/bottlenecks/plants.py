"""The benchmark of planted bottlenecks: good kernels, each with one defect, and the recipe that has to name it.

A plant says what is measured (problem), of which good kernel it is a copy, and what its first finding must be. Good
kernels have no recipe: on them nothing may be found with high confidence. `declare` makes the Variant; the files in
`kernels` are one line each, so that `dgw diagnose --kernels tests/bottlenecks/kernels --variant NAME` takes them as a
user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dgw.model import Config, Device, Epilogue, Operand, Problem, Tunable, Variant, gemm
from tests.bottlenecks.declaring import (
    HERE,
    SQUARE,
    TENSOR,
    Defines,
    MakePlan,
    at,
    gemv,
    ladder,
    plain,
    stage,
    tensor,
    transposed,
)

FAMILY = "bottlenecks"
Refuses = Callable[[Problem, Config, Device], str | None]
CUBE, SHORT, F32 = "4096x4096x4096", "4096x4096x256", "4096x4096x1024"
FUSED, ROW, ONE_ROW = "4096x4096x512", "1x28672x8192", "1x8192x8192"


@dataclass(frozen=True)
class Plant:
    """One kernel. `recipe`: what its first finding must name, empty for a good one. `good`: the kernel without defect.

    `shape` is measured on a GPU; `emulated` says whether the emulator can tell, with k cut to `small_k`.
    """

    make: MakePlan
    shape: str
    recipe: str = ""
    good: str = ""
    defect: str = ""
    config: Config = field(default_factory=dict)
    dtype: str = "f16"
    layout: str = "nn"
    epilogue: bool = False
    emulated: bool = False
    small_k: int = 256

    def problem(self, k: int | None = None) -> Problem:
        """What it is measured on; with `k`, the same with another depth."""
        m, n, depth = (int(size) for size in self.shape.split("x"))
        extra = {"bias": Operand(dtype="f16"), "epilogue": Epilogue(activation="gelu")} if self.epilogue else {}
        return gemm(m, n, k or depth, self.dtype, self.layout, **extra)


def _tensor(recipe: str, defect: str, defines: Defines | None = None, shape: str = CUBE, **fields: object) -> Plant:
    config = {**TENSOR, **fields.pop("config", {})}  # type: ignore[dict-item]
    how = {name: fields.pop(name) for name in ("slices", "splits", "passes") if name in fields}
    good = fields.pop("good", "tensor")
    return Plant(tensor(defines, **how), shape, recipe, good, defect, config, **fields)  # type: ignore[arg-type]


def _stage(name: str, recipe: str = "", good: str = "", defect: str = "", **fields: object) -> Plant:
    how = {key: fields.pop(key) for key in ("defines", "shared_bytes") if key in fields}
    config = {**ladder(name).defaults(), **fields.pop("config", {})}  # type: ignore[dict-item]
    shape = fields.pop("shape", F32)
    return Plant(stage(name, **how), shape, recipe, good, defect, config, **fields)  # type: ignore[arg-type]


GOOD: Mapping[str, Plant] = {
    "tensor": _tensor("", "", good=""),
    "fused": _tensor("", "", shape="4096x4096x2048", epilogue=True, good=""),
    "persistent": _stage("persistent", shape=CUBE),
    "tensor-core": _stage("tensor-core", shape=F32),
    "double-buffered-f32": _stage("double-buffered", dtype="f32"),
    "gemv": Plant(gemv(), ROW, layout="nt"),
}

# Kernels without a defect of their own that others are compared with; nothing is asked of them.
PARTNERS: Mapping[str, Plant] = {
    "square": _tensor("", "", config=SQUARE, good=""),
    "swizzled-f32": _stage("swizzled", dtype="f32"),
    "transposed": Plant(transposed(), F32, dtype="f32"),
    "low-tiles": _tensor("", "", config={"BM": 64, "WM": 32}, good=""),
    "split": _tensor("", "", config=SQUARE, splits=16, good=""),
}

_SMALL_K: Config = {**SQUARE, "BK": 16, "STAGES": 2}
_LARGE_K: Config = {**SQUARE, "BK": 128, "STAGES": 3}

PLANTED: Mapping[str, Plant] = {
    "no-swizzle": _tensor("bank-conflicts", "rows lie under each other", {"NO_SWIZZLE": 1}),
    "half-swizzle": _tensor("bank-conflicts", "the XOR takes one bit of three", {"HALF_SWIZZLE": 1}),
    "tiled-f32": _stage(
        "tiled", "bank-conflicts", "swizzled-f32", "no swizzle", dtype="f32", small_k=32
    ),
    "plain-transpose": Plant(
        transposed({"PLAIN_TRANSPOSE": 1}), F32, "bank-conflicts", "transposed", "a warp stores a column", dtype="f32",
        emulated=True, small_k=64,
    ),
    "copies-down": _tensor("uncoalesced", "lanes copy from rows under each other", {"COPIES_DOWN": 1}, emulated=True),
    "stores-down": _tensor(
        "uncoalesced", "lanes store into rows under each other", {"STORES_DOWN": 1}, SHORT, emulated=True
    ),
    "loads-down": Plant(
        transposed({"LOADS_DOWN": 1}), F32, "uncoalesced", "transposed", "lanes load from rows under each other",
        dtype="f32",
    ),
    "shallow": _tensor("bk-too-small", "k tiles of 16", config={"BK": 16, "STAGES": 2}, emulated=True),
    "shallow-square": _tensor("bk-too-small", "k tiles of 16", config=_SMALL_K, good="square", emulated=True),
    "deep-square": _tensor("bk-too-large", "k tiles of 128", config=_LARGE_K, good="square", emulated=True),
    "capped": _tensor("spills", "half the registers it needs", {"MIN_BLOCKS": 2}, emulated=True),
    "capped-f32": _stage(
        "double-buffered", "spills", "double-buffered-f32", "half the registers it needs", defines={"MIN_BLOCKS": 4},
        dtype="f32", emulated=True, small_k=64,
    ),
    "held-registers": Plant(
        gemv({"HELD_REGISTERS": 190, "MIN_BLOCKS": 1}, threads=256), ROW, "registers-limit-occupancy", "gemv",
        "registers held for nothing", layout="nt",
    ),
    "held-shared": Plant(
        gemv({"UNUSED_SHARED": 1}, shared_bytes=112_000), ROW, "shared-memory-limits-occupancy", "gemv",
        "shared memory that it does not use", layout="nt",
    ),
    "held-shared-f32": _stage(
        "double-buffered", "shared-memory-limits-occupancy", "double-buffered-f32", "shared memory it does not use",
        shared_bytes=150_000, dtype="f32", emulated=True, small_k=64,
    ),
    "wait-at-once": _tensor(
        "not-overlapped", "waits for each tile when it asks for it", {"WAIT_AT_ONCE": 1}, emulated=True, small_k=512
    ),
    "wait-at-once-square": _tensor(
        "not-overlapped", "waits for each tile when it asks for it", {"WAIT_AT_ONCE": 1}, config=SQUARE, good="square",
        emulated=True,
    ),
    "many-barriers": _tensor("barrier-bound", "a barrier after every fourth mma", {"MANY_BARRIERS": 1}, emulated=True),
    "slow-gelu": _tensor(
        "epilogue-bound", "erf by a series", {"GELU_BY_SERIES": 1}, FUSED, epilogue=True, good="fused"
    ),
    "scattered": _tensor(
        "l2-locality", "no two blocks at one k at a time", {"OWN_FIRST_K": 1}, "4096x4096x16384"
    ),
    "partials": _tensor("dram-bound", "sums of 16 parts of k through memory", shape="2048x2048x4096", splits=16),
    "two-tiles": _tensor("latency-bound", "two blocks for 132 SMs", shape="256x256x8192", good="split", emulated=True),
    "last-wave": _tensor("partial-wave", "136 tiles on 132 SMs", shape="1024x4224x4096", good="square", emulated=True),
    "tall-tiles": _tensor(
        "tile-waste", "tiles of 256 rows over 320", shape="320x16896x4096", config={"BM": 256, "BN": 128},
        good="low-tiles", emulated=True,
    ),
    "fma-f16": _stage("double-buffered", "no-tensor-cores", "tensor", "FMA units instead", emulated=True, small_k=64),
    "passes": _tensor(
        "unfused-epilogue", "bias and GELU in passes", shape=FUSED, passes=True, epilogue=True, good="fused"
    ),
    "row-in-tiles": _stage(
        "tensor-core", "wrong-path-for-m1", "gemv", "tiles of 128 rows for one", shape=ONE_ROW, layout="nt",
        emulated=True,
    ),
    "slices": _tensor(
        "launch-bound", "16 launches for 64 tiles", shape="1024x1024x512", config=SQUARE, slices=16, good="square"
    ),
    "naive-f32": _stage(
        "naive", "no-reuse", "swizzled-f32", "no tiles", shape=F32, dtype="f32", emulated=True, small_k=32
    ),
}  # fmt: skip

PLANTS: Mapping[str, Plant] = {**GOOD, **PARTNERS, **PLANTED}


def declare(name: str, shapes: Sequence[str] = ()) -> Variant:
    """The Variant of a plant, `bottlenecks/NAME`; with `shapes`, for these only."""
    plant = PLANTS[name]
    own = plant.make.__qualname__.startswith("stage")
    variant = Variant(
        id=f"{FAMILY}/{name}", version=1, idea=plant.defect or "a good kernel", dtypes=(plant.dtype,),
        space=tuple(Tunable(name=n, default=v, values=(v,), meaning="as planted") for n, v in plant.config.items()),
        refuses=_refuses(plant, own), plan=plant.make, root=ladder("naive").root if own else HERE,
    )  # fmt: skip
    return at(variant, frozenset(shapes))


def _refuses(plant: Plant, own: bool) -> Refuses:
    def refuses(problem: Problem, config: Config, device: Device) -> str | None:
        if problem.layout != plant.layout:
            return f"layout {plant.layout} only"
        return None if own else plain(problem)

    return refuses
