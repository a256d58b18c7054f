"""Stage 2, swizzled: the order in which programs take tiles, for the sake of L2."""

from __future__ import annotations

from dgw.kernels.triton import family
from dgw.model import Claim, Config, Device, Plan, Problem, Variant

RUNG = family.Rung(entry="swizzled", file="s02_swizzled_kernel.py", inputs=family.FMA_INPUTS)


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    return family.refuses(RUNG, problem, config, device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of one program per tile of D."""
    return family.plan(RUNG, problem, config, device)


VARIANT = Variant(
    id="triton/swizzled",
    version=1,
    stage=2,
    idea="programs go down a group of tiles before they move right, so that a wave shares rows and columns",
    dtypes=family.FMA_INPUTS,
    space=family.space(bm=128, bn=64, bk=16, warps=4, group=16),
    refuses=refuses,
    warns=family.no_warnings,
    plan=plan,
    needs=("triton",),
    claims=(
        Claim(
            metric="global_sectors_ld",
            relation="keeps",
            value=0.001,
            why="every program asks for what it asked for before, only at another time",
        ),
        Claim(
            metric="dram_read_bytes",
            relation="falls",
            value=1.2,
            when=("beyond-l2",),
            why="a wave of programs covers a block of D that is nearly square, whose rows and columns fit L2",
        ),
    ),
    notes=(
        "Swizzled means the order of tiles in L2 here. In the CUDA family it means the place of elements in shared "
        "memory, which Triton chooses itself in every stage. These claims are about L2 and DRAM, not about conflicts."
    ),
)
