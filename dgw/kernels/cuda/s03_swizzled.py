"""Stage 3, swizzled: the tiled kernel with an XOR swizzle of its shared-memory tiles."""

from __future__ import annotations

from dgw.kernels import simt
from dgw.model import Claim, Config, Device, Plan, Problem, Variant


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of one block per tile of D."""
    return simt.plan(problem, config, "s03_swizzled.cu", "swizzled")


VARIANT = Variant(
    id="cuda/swizzled",
    version=1,
    stage=3,
    idea="an XOR of the lane into the place of each chunk, so that no two lanes of a phase meet in a bank",
    dtypes=simt.INPUTS,
    space=simt.SPACE,
    refuses=simt.refuses,
    plan=plan,
    claims=(
        Claim(
            metric="conflict_ratio_ld",
            relation="is",
            value=0.0,
            why="the lanes of a phase read different slots of a 128-byte line",
        ),
        Claim(metric="conflict_ratio_st", relation="is", value=0.0, why="the XOR stays inside the line a copy writes"),
    ),
    notes=(
        "GRANULARITY is what the swizzle moves and what one access reads: 8 elements are 16 bytes of f16 or bf16, 4 "
        "elements are 8 bytes, with twice as many load instructions and as many wavefronts. f32 moves 16 bytes with "
        "either value, because two lanes that share a 32-byte piece would meet in its banks. FMA count, number and "
        "width of shared accesses equal those of tiled with the same config."
    ),
)
