"""How the kernels of this folder are launched: one function for each source, with the defines of the defect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dgw.kernels.declaring import ceil_div, refuses_problem
from dgw.kernels.loader import load
from dgw.model import (
    Config,
    Device,
    Launch,
    Plan,
    Pointer,
    Problem,
    Scalar,
    Source,
    Variant,
    Workspace,
)

HERE = Path(__file__).parent
ALPHA = Scalar(name="alpha", dtype="f32")
Defines = dict[str, int | str]
MakePlan = Callable[[Problem, Config, Device], Plan]

TENSOR: Config = {"BM": 128, "BN": 256, "BK": 64, "WM": 64, "WN": 64, "STAGES": 3, "GROUP_M": 8}
SQUARE: Config = {"BM": 128, "BN": 128, "BK": 32, "WM": 64, "WN": 64, "STAGES": 4, "GROUP_M": 8}


def source(path: str, defines: Defines) -> Source:
    """A source of this folder."""
    return Source(path=path, defines=tuple(defines.items()))


def plain(problem: Problem) -> str | None:
    """Why the kernels of this folder cannot compute a problem: they take no C, no scales, 16-byte alignment only."""
    found = refuses_problem(problem, ("f16", "f32"), ("f16", "f32"))
    if found is None and (problem.beta or problem.residual is not None or problem.epilogue.quantise != "none"):
        return "takes no C, no residual and no quantised output"
    if found is None and (problem.n % 8 or problem.k % 8):
        return "n and k must be multiples of 8"
    return found


def tensor(defines: Defines | None = None, slices: int = 1, splits: int = 1, passes: bool = False) -> MakePlan:
    """tensor.cu: in `slices` launches one after another, k in `splits` parts whose sums go through memory, what follows
    the product in `passes` of its own. MIN_BLOCKS as registers allow, unless `defines` has another."""

    def plan(problem: Problem, config: Config, device: Device) -> Plan:
        sizes = {name: int(value) for name, value in config.items()}
        bm, bn, bk = sizes["BM"], sizes["BN"], sizes["BK"]
        threads = 32 * (bm // sizes["WM"]) * (bn // sizes["WN"])
        registers = sizes["WM"] * sizes["WN"] // 32 + (sizes["WM"] + sizes["WN"]) // 2 + 40
        found: Defines = {**sizes, "MIN_BLOCKS": max(1, 65536 // (threads * registers)), **(defines or {})}
        bias, activation = problem.bias is not None, problem.epilogue.activation != "none"
        if not passes and bias:
            found["BIAS"] = 1
        if not passes and activation and "GELU_BY_SERIES" not in found:
            found["GELU"] = 1
        elsewhere = splits > 1 or (passes and bias and activation)
        if elsewhere:
            found["PARTIAL"] = 1
        blocks = ceil_div(ceil_div(problem.m, bm) * ceil_div(problem.n, bn), slices)
        shared = max((bm + bn) * bk * 2 * sizes["STAGES"], bm * (bn * 2 + 4) if "STORES_DOWN" in found else 0)
        steps = [
            Launch(
                source=source("tensor.cu", found), entry="tensor", grid=(blocks, splits, 1),
                block=(threads, 1, 1), shared_bytes=shared,
                arguments=(
                    Pointer(operand="a"), Pointer(operand="b"),
                    Workspace(name="sums") if elsewhere else Pointer(operand="d"),
                    Pointer(operand="bias"), Pointer(operand="residual"), Scalar(name="m"), Scalar(name="n"),
                    Scalar(name="k"), Scalar(name="lda", dtype="i64"), Scalar(name="ldb", dtype="i64"),
                    Scalar(name="ldd", dtype="i64"), ALPHA,
                    Scalar(name="first", value=number * blocks),
                ),
            )
            for number in range(slices)
        ]  # fmt: skip
        if not elsewhere:
            return Plan(steps=tuple(steps), tile=(bm, bn), kernels=slices)
        if splits > 1:
            steps.append(_pass(problem, "sum_partials", "sums", "d", Scalar(name="parts", value=splits), ALPHA))
            room = {"sums": problem.m * problem.n * 4 * splits}
        else:
            steps += [_pass(problem, "add_bias", "sums", "biased", ALPHA), _pass(problem, "apply_gelu", "biased", "d")]
            room = dict.fromkeys(("sums", "biased"), problem.m * problem.n * 4)
        return Plan(steps=tuple(steps), workspaces=room, tile=(bm, bn), kernels=len(steps))

    return plan


def _pass(problem: Problem, entry: str, origin: str, target: str, *more: Scalar) -> Launch:
    to = Pointer(operand="d") if target == "d" else Workspace(name=target)
    bias = (Pointer(operand="bias"),) if entry == "add_bias" else ()
    return Launch(
        source=source("passes.cu", {}), entry=entry, grid=(ceil_div(problem.m * problem.n, 2048), 1, 1),
        block=(256, 1, 1), arguments=(Workspace(name=origin), *bias, to, Scalar(name="m"), Scalar(name="n"), *more),
    )  # fmt: skip


def gemv(defines: Defines | None = None, shared_bytes: int = 0, threads: int = 128) -> MakePlan:
    """gemv.cu: one row of A, B stored N x K."""

    def plan(problem: Problem, config: Config, device: Device) -> Plan:
        found: Defines = {"THREADS": threads, "UNROLL": 2, "MIN_BLOCKS": 2048 // threads, **(defines or {})}
        launch = Launch(
            source=source("gemv.cu", found), entry="gemv", grid=(ceil_div(problem.n, threads // 32), 1, 1),
            block=(threads, 1, 1), shared_bytes=shared_bytes,
            arguments=(
                Pointer(operand="a"), Pointer(operand="b"), Pointer(operand="d"), Scalar(name="n"), Scalar(name="k"),
                Scalar(name="ldb", dtype="i64"), ALPHA,
            ),
        )  # fmt: skip
        return Plan(steps=(launch,), tile=(1, threads // 32))

    return plan


def transposed(defines: Defines | None = None) -> MakePlan:
    """transposed.cu: f32 without tensor cores."""

    def plan(problem: Problem, config: Config, device: Device) -> Plan:
        names = ("lda", "ldb", "ldd")
        launch = Launch(
            source=source("transposed.cu", defines or {}), entry="transposed", block=(256, 1, 1),
            grid=(ceil_div(problem.m, 128) * ceil_div(problem.n, 128), 1, 1),
            arguments=(
                Pointer(operand="a"), Pointer(operand="b"), Pointer(operand="d"), Scalar(name="m"), Scalar(name="n"),
                Scalar(name="k"), *(Scalar(name=name, dtype="i64") for name in names), ALPHA,
            ),
        )  # fmt: skip
        return Plan(steps=(launch,), tile=(128, 128))

    return plan


def stage(name: str, defines: Defines | None = None, shared_bytes: int = 0) -> MakePlan:
    """A stage of the ladder, with other defines than it would take, or shared memory that it does not use."""
    variant = ladder(name)
    assert variant.plan is not None

    def plan(problem: Problem, config: Config, device: Device) -> Plan:
        assert variant.plan is not None
        made = variant.plan(problem, config, device)
        steps = tuple(
            replace_launch(
                launch, {**dict(launch.source.defines), **(defines or {})}, launch.shared_bytes + shared_bytes
            )
            for launch in made.launches
        )
        return Plan(steps=steps, tile=made.tile)

    return plan


def replace_launch(launch: Launch, defines: Defines, shared_bytes: int) -> Launch:
    """The launch with other defines and another amount of shared memory."""
    import msgspec

    changed = msgspec.structs.replace(launch.source, defines=tuple(defines.items()))
    return msgspec.structs.replace(launch, source=changed, shared_bytes=shared_bytes)


def ladder(name: str) -> Variant:
    """The stage of the CUDA ladder."""
    return load()[f"cuda/{name}"]


def at(variant: Variant, shapes: frozenset[str]) -> Variant:
    """The variant for these shapes only, so that one command measures each kernel where it belongs."""
    if not shapes:
        return variant

    def refuses(problem: Problem, config: Config, device: Device) -> str | None:
        if problem.shape not in shapes:
            return f"is measured at {' and '.join(sorted(shapes))}"
        return variant.refuses(problem, config, device)

    return replace(variant, refuses=refuses)
