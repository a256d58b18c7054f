"""Stage 1, tiled: one program for each tile of D, plain FMAs, no tensor core."""

from __future__ import annotations

from dgw.kernels.triton import family
from dgw.model import Claim, Config, Device, Plan, Problem, Variant

RUNG = family.Rung(entry="tiled", file="s01_tiled_kernel.py", inputs=family.FMA_INPUTS)


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    return family.refuses(RUNG, problem, config, device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of one program per tile of D."""
    return family.plan(RUNG, problem, config, device)


VARIANT = Variant(
    id="triton/tiled",
    version=1,
    stage=1,
    idea="one program for each tile of D; Triton places tiles in shared memory and sums in registers",
    dtypes=family.FMA_INPUTS,
    space=family.space(bm=128, bn=64, bk=16, warps=4),
    refuses=refuses,
    warns=family.no_warnings,
    plan=plan,
    needs=("triton",),
    claims=(
        Claim(
            metric="tensor_pipe_util",
            relation="is",
            value=0.0,
            why="the operands become f32 and tl.dot multiplies them in full f32 precision",
        ),
    ),
    notes=(
        "Programs are numbered row of tiles after row. 16-bit operands become f32 in registers, so this stage does "
        "what the tiled CUDA stage does; where the elements lie in shared memory is chosen by Triton."
    ),
)
