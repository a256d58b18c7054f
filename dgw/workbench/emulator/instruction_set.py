"""Which module decodes which opcode."""

from __future__ import annotations

from collections.abc import Callable

from dgw.workbench.emulator import (
    arithmetic_float,
    arithmetic_integer,
    async_copy,
    atomics,
    bits,
    bulk_copy,
    clusters,
    conversions,
    matrices,
    mbarriers,
    memory_access,
    moves,
    tensor,
    warp,
    wgmma,
)
from dgw.workbench.emulator.barriers import barrier_operands, decode_arrive
from dgw.workbench.emulator.operation import Operation, destination, unknown
from dgw.workbench.emulator.ptx.module import Instruction
from dgw.workbench.emulator.ptx.operands import Not, Register

Decoder = Callable[[Instruction], Operation]


def _arithmetic(instruction: Instruction) -> Operation:
    if instruction.modifiers and instruction.modifiers[-1] in arithmetic_float.FLOAT_TYPES:
        return arithmetic_float.decode(instruction)
    return arithmetic_integer.decode(instruction)


def _float(instruction: Instruction) -> Operation:
    if not instruction.modifiers:
        raise unknown(instruction)
    return arithmetic_float.decode(instruction)


def _copy(instruction: Instruction) -> Operation:
    if instruction.modifiers[1:2] == ("bulk",):
        return bulk_copy.decode(instruction)
    return async_copy.decode(instruction)


def _store(instruction: Instruction) -> Operation:
    if instruction.modifiers[:1] == ("async",):
        return clusters.decode_store(instruction)
    return memory_access.decode_store(instruction)


def _control(instruction: Instruction) -> Operation:
    """Instructions that end a block: `control` performs them."""
    operands = list(instruction.operands)
    writes: tuple[Register | None, ...] = ()
    if instruction.opcode in ("bar", "barrier"):
        barrier_operands(instruction)
        if "red" in instruction.modifiers:
            writes = (destination(instruction, operands.pop(0)),)
    reads = tuple(operand for operand in operands if isinstance(operand, Register | Not))
    return Operation(instruction, writes, reads, lambda group: lambda: None, "control", False)


def _barrier(instruction: Instruction) -> Operation:
    if instruction.modifiers[:2] == ("warp", "sync"):
        return warp.decode_warp_barrier(instruction)
    if instruction.modifiers[:1] == ("cluster",):
        return clusters.decode_barrier(instruction)
    if "arrive" in instruction.modifiers:
        return decode_arrive(instruction)
    return _control(instruction)


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "div", "rem", "min", "max", "abs", "neg"), _arithmetic),
    **dict.fromkeys(("mul24", "mad24", "sad"), arithmetic_integer.decode),
    **dict.fromkeys(("fma", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "copysign"), _float),
    **dict.fromkeys(("dp4a", "dp2a"), arithmetic_integer.decode_dot),
    **dict.fromkeys(("and", "or", "xor", "not", "cnot"), bits.decode_logic),
    **dict.fromkeys(("shl", "shr"), bits.decode_shift),
    **dict.fromkeys(("popc", "clz", "brev", "bfind"), bits.decode_count),
    "shf": bits.decode_funnel,
    "lop3": bits.decode_lop3,
    "prmt": bits.decode_permute,
    "bfe": bits.decode_extract,
    "bfi": bits.decode_insert,
    "bmsk": bits.decode_mask,
    "cvt": conversions.decode,
    "mov": moves.decode_mov,
    "cvta": moves.decode_cvta,
    "isspacep": moves.decode_isspacep,
    "selp": moves.decode_selp,
    "slct": moves.decode_slct,
    "setp": moves.decode_setp,
    "set": moves.decode_set,
    "createpolicy": moves.decode_policy,
    **dict.fromkeys(
        ("prefetch", "prefetchu", "membar", "fence", "nanosleep", "pmevent", "discard", "applypriority",
         "griddepcontrol", "brkpt", "setmaxnreg"),
        moves.decode_nothing,
    ),
    **dict.fromkeys(("ld", "ldu"), memory_access.decode_load),
    "st": _store,
    "mapa": clusters.decode_mapa,
    **dict.fromkeys(("atom", "red"), atomics.decode),
    "cp": _copy,
    "mbarrier": mbarriers.decode,
    "wgmma": wgmma.decode,
    **dict.fromkeys(("ldmatrix", "stmatrix"), matrices.decode),
    "mma": tensor.decode,
    "shfl": warp.decode_shuffle,
    "vote": warp.decode_vote,
    "match": warp.decode_match,
    "activemask": warp.decode_activemask,
    "redux": warp.decode_reduction,
    "elect": warp.decode_elect,
    **dict.fromkeys(("bar", "barrier"), _barrier),
    **dict.fromkeys(("bra", "brx", "ret", "exit", "trap"), _control),
}  # fmt: skip


def decode(instruction: Instruction) -> Operation:
    """The Operation of an instruction; an EmulatorError names an unknown one and its line."""
    decoder = DECODERS.get(instruction.opcode)
    if decoder is None:
        raise unknown(instruction)
    try:
        operation = decoder(instruction)
    except (IndexError, StopIteration, KeyError):
        raise unknown(instruction) from None
    operation.seal()
    return operation
