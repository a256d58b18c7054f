"""What the Triton stages share: tunables, the launch they declare, what they refuse, what they warn of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dgw.kernels import declaring
from dgw.kernels.triton import defects
from dgw.kernels.triton.defects import Use
from dgw.model import DECIDED_LATER, Argument, Config, Device, Launch, Plan, Pointer, Problem, Scalar, Source, Tunable
from dgw.operands import layouts

FMA_INPUTS = ("f16", "bf16", "f32")
TENSOR_INPUTS = ("f16", "bf16", "tf32")
OUTPUTS = ("f16", "bf16", "f32")
TYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "tf32": "fp32"}  # names in Triton
MOST_SUMS = 256  # f32 sums of a thread that its registers can hold at all
SIZES = (16, 32, 64, 128, 256)
OPERANDS = ("a", "b", "c", "d", "bias", "residual")
LEADING = {"lda": "a", "ldb": "b", "ldc": "c", "ldd": "d", "ldr": "residual"}


def space(bm: int, bn: int, bk: int, warps: int, stages: int = 0, group: int = 0) -> tuple[Tunable, ...]:
    """The tunables of a stage with these defaults; 0 leaves STAGES or GROUP_M out."""
    depth = "k depth of a tile; on tensor cores half as many elements of 32 bits"
    tunables = [
        Tunable(name="BM", default=bm, values=SIZES, meaning="rows of D a program computes"),
        Tunable(name="BN", default=bn, values=SIZES, meaning="columns of D a program computes"),
        Tunable(name="BK", default=bk, values=(16, 32, 64, 128), meaning=depth),
        Tunable(name="WARPS", default=warps, values=(2, 4, 8), meaning="warps of a program"),
    ]
    if group:
        meaning = "tiles of D that programs go down before they move right"
        tunables.append(Tunable(name="GROUP_M", default=group, values=(1, 2, 4, 8, 16, 32), meaning=meaning))
    if stages:
        meaning = "tiles of A and B in flight; where cp.async feeds mma.sync, one of them is in registers"
        tunables.append(Tunable(name="STAGES", default=stages, values=(1, 2, 3, 4, 5, 6), meaning=meaning))
    return tuple(tunables)


@dataclass(frozen=True)
class Rung:
    """How one stage differs in its declaration from the others."""

    entry: str
    file: str
    inputs: tuple[str, ...]
    epilogue: bool = False


def refuses(rung: Rung, problem: Problem, config: Config, device: Device, use: Use = Use()) -> str | None:
    """Why this stage cannot run `problem` with `config` on `device` with the installed Triton."""
    found = declaring.refuses_problem(problem, rung.inputs, OUTPUTS)
    found = found or (_refuses_epilogue(problem) if rung.epilogue else declaring.refuses_epilogue(problem))
    found = found or declaring.not_powers_of_two(config, ("BM", "BN", "BK", "WARPS"))
    if found:
        return found
    bm, bn, bk, warps = (declaring.integer(config, name) for name in ("BM", "BN", "BK", "WARPS"))
    if bm * bn // (32 * warps) > MOST_SUMS:
        return f"{bm}x{bn} sums do not fit the registers of {warps} warps; at most {MOST_SUMS} a thread do"
    buffers = max(int(config.get("STAGES", 1)) - 1, 1)
    shared = buffers * (bm + bn) * _depth(rung, problem, bk) * declaring.element_bytes(problem.a.dtype)
    blocks = declaring.tiles(problem, bm, bn)
    return declaring.refuses_launch(32 * warps, shared, blocks, device) or defects.refuses(use, device)


def _refuses_epilogue(problem: Problem) -> str | None:
    if problem.epilogue.quantise != "none":
        return f"has no quantising epilogue, but quantise {problem.epilogue.quantise} is asked for"
    return None


def no_warnings(problem: Problem, config: Config, device: Device) -> tuple[str, ...]:
    """What the installed Triton gets wrong elsewhere on `device`."""
    return defects.warnings(Use(), device)


def plan(
    rung: Rung, problem: Problem, config: Config, device: Device, *,
    blocks: int | None = None, extra: Mapping[str, int | str] | None = None,
) -> Plan:  # fmt: skip
    """One launch of one program per tile of D, or of `blocks` programs. `extra`: further constexpr arguments."""
    constants = _constants(rung, problem, config) | dict(extra or {})
    bm, bn, warps = (declaring.integer(config, name) for name in ("BM", "BN", "WARPS"))
    # A pipelined loop says itself how deep it is; without one nothing may be pipelined.
    options = (f"num_warps={warps}", f"num_stages={config.get('STAGES', 1)}")
    types, arguments = _arguments(problem)
    launch = Launch(
        source=Source(
            path=rung.file,
            language="triton",
            defines=tuple(constants.items()),
            flags=(f"entry={rung.entry}", f"signature={','.join(types)}", *options),
        ),
        entry=rung.entry,
        grid=(blocks or declaring.tiles(problem, bm, bn), 1, 1),
        block=(32 * warps, 1, 1),
        arguments=arguments,
        shared_bytes=DECIDED_LATER,
    )
    return Plan(steps=(launch,), tile=(bm, bn))


def _depth(rung: Rung, problem: Problem, bk: int) -> int:
    """k depth of a tile in elements: on tensor cores, BK counts 16-bit elements and 32-bit ones are half as many."""
    return bk * 2 // declaring.element_bytes(problem.a.dtype) if rung.inputs is TENSOR_INPUTS else bk


def _constants(rung: Rung, problem: Problem, config: Config) -> dict[str, int | str]:
    names: list[str] = [name for name in ("BM", "BN", "BK", "GROUP_M", "STAGES") if name in config]
    sizes = {name: declaring.integer(config, name) for name in names}
    sizes["BK"] = _depth(rung, problem, sizes["BK"])
    even = all(size % sizes[tile] == 0 for size, tile in ((problem.m, "BM"), (problem.n, "BN"), (problem.k, "BK")))
    constants: dict[str, int | str] = {
        "A_T": int(problem.a.order == "col"),
        "B_T": int(problem.b.order == "col"),
        "USE_C": int("c" in problem.operands()),
        "EVEN": int(even),
        **sizes,
    }
    if rung.inputs is TENSOR_INPUTS:
        constants["PRECISION"] = "tf32"
    if rung.epilogue:
        constants |= {
            "USE_BIAS": int(problem.bias is not None),
            "USE_RESIDUAL": int(problem.residual is not None),
            "ACTIVATION": problem.epilogue.activation,
        }
    return constants


def _arguments(problem: Problem) -> tuple[list[str], tuple[Argument, ...]]:
    """Triton's types of the runtime arguments, `:16` where they are multiples of 16, and the arguments.

    An operand that the problem lacks is a null pointer of D's type. A leading dimension is 64 bits wide when an offset
    inside its operand does not fit 32.
    """
    operands = problem.operands()
    types: list[str] = []
    arguments: list[Argument] = []
    for name in OPERANDS:
        operand = operands.get(name, problem.d)
        aligned = operand.offset * declaring.element_bytes(operand.dtype) % 16 == 0
        types.append(f"*{TYPES[operand.dtype]}" + (":16" if aligned or name not in operands else ""))
        arguments.append(Pointer(operand=name))
    for name in ("m", "n", "k"):
        types.append("i32:16" if getattr(problem, name) % 16 == 0 else "i32")
        arguments.append(Scalar(name=name))
    for name, of in LEADING.items():
        value = problem.leading_dimension(of) if of in operands else 0
        wide = of in operands and layouts.extent(problem, of) > declaring.LARGEST_SIZE
        types.append(("i64" if wide else "i32") + (":16" if value % 16 == 0 else ""))
        arguments.append(Scalar(name=name, dtype="i64" if wide else "i32"))
    for name in ("alpha", "beta"):
        types.append("fp32")
        arguments.append(Scalar(name=name, dtype="f32"))
    return types, tuple(arguments)


def describable(problem: Problem, name: str) -> bool:
    """Whether the tensor memory accelerator can address operand `name`: 16-byte multiples in base and row distance."""
    operand = problem.operands()[name]
    size = declaring.element_bytes(operand.dtype)
    return operand.offset * size % 16 == 0 and problem.leading_dimension(name) * size % 16 == 0
