"""Stage 1, tensor-core: TMA brings the tiles, two warpgroups multiply them with wgmma."""

from __future__ import annotations

from dgw.kernels import declaring
from dgw.kernels.hopper import tile_launch, tiling
from dgw.model import Claim, Config, Device, Plan, Problem, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    if config["BM"] not in (128, 256):
        return f"BM={config['BM']} must be 128 or 256: two warpgroups take a half each"
    return declaring.refuses_epilogue(problem) or tiling.refuses(problem, config, device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One CTA of two warpgroups for each tile of D."""
    return tile_launch.plan(problem, config, "s01_tensor_core.cu", map_d=False, threads=256)


VARIANT = Variant(
    id="hopper/tensor-core",
    version=1,
    stage=1,
    idea="tiles by the copy engine (TMA), multiplied by warpgroups (wgmma) where they lie in shared memory",
    dtypes=tiling.INPUTS,
    architectures=("sm_90a",),
    space=(tiling.BM, tiling.BN, tiling.STAGES, tiling.GROUP_M),
    refuses=refuses,
    plan=plan,
    synchronises="mbarrier",
    pipelined=True,
    claims=(Claim(metric="tensor_pipe_util", relation="above", value=0.0, why="wgmma runs on the tensor pipe"),),
    notes=(
        "Operands whose lines are not multiples of 16 bytes apart, or that do not begin at such a multiple, are copied "
        "first: the copy engine cannot read them."
    ),
)
