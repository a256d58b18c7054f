"""Stage 5, fused-epilogue: bias, activation and residual before D is stored."""

from __future__ import annotations

from dgw.kernels.triton import family
from dgw.model import Claim, Config, Device, Plan, Problem, Variant

RUNG = family.Rung(
    entry="fused_epilogue", file="s05_fused_epilogue_kernel.py", inputs=family.TENSOR_INPUTS, epilogue=True
)


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    return family.refuses(RUNG, problem, config, device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of one program per tile of D."""
    return family.plan(RUNG, problem, config, device)


VARIANT = Variant(
    id="triton/fused-epilogue",
    version=1,
    stage=5,
    idea="bias, activation and residual are applied to the sums in registers, before D is stored once",
    dtypes=family.TENSOR_INPUTS,
    space=family.space(bm=128, bn=256, bk=64, warps=8, group=8, stages=3),
    refuses=refuses,
    warns=family.no_warnings,
    plan=plan,
    needs=("triton",),
    claims=(
        Claim(
            metric="dram_bytes",
            relation="falls",
            value=1.2,
            against="baselines/unfused",
            when=("epilogue",),
            why="the unfused sequence writes and reads D once more for every step that follows the product",
        ),
    ),
    notes=(
        "relu, gelu (erf), gelu-tanh, silu; every option is chosen at compile time. A quantised D is not supported."
    ),
)
