"""Stage 4, tensor-core: the operands multiplied as they are stored, by the tensor cores."""

from __future__ import annotations

from dgw.kernels.triton import family
from dgw.model import Claim, Config, Device, Plan, Problem, Variant

RUNG = family.Rung(entry="tensor_core", file="s04_tensor_core_kernel.py", inputs=family.TENSOR_INPUTS)


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    return family.refuses(RUNG, problem, config, device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of one program per tile of D."""
    return family.plan(RUNG, problem, config, device)


VARIANT = Variant(
    id="triton/tensor-core",
    version=1,
    stage=4,
    idea="tl.dot of the operands as they are stored: mma.sync, on Hopper wgmma, with f32 sums",
    dtypes=family.TENSOR_INPUTS,
    space=family.space(bm=128, bn=256, bk=64, warps=8, group=8, stages=3),
    refuses=refuses,
    warns=family.no_warnings,
    plan=plan,
    needs=("triton",),
    claims=(
        Claim(
            metric="tensor_pipe_util",
            relation="above",
            value=0.0,
            why="tl.dot of 16-bit or tf32 operands is tensor-core instructions",
        ),
        Claim(
            metric="fma_pipe_util",
            relation="falls",
            value=2.0,
            why="the FMA pipe is left with addresses",
        ),
    ),
    notes=(
        "f32 is refused unless the dtype is tf32, because the tensor cores drop their last 13 bits. Tiles of "
        "fewer than 64 rows use mma.sync on Hopper too."
    ),
)
