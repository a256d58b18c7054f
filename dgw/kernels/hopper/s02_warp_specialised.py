"""Stage 2, warp-specialised: one warp copies, warpgroups multiply, and nothing holds them all."""

from __future__ import annotations

from dgw.kernels import declaring
from dgw.kernels.hopper import tile_launch, tiling
from dgw.model import Claim, Config, Device, Plan, Problem, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    return declaring.refuses_epilogue(problem) or tiling.refuses(problem, config, device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One CTA for each tile of D: the warpgroups that multiply, and one of which a warp copies."""
    return tile_launch.plan(problem, config, "s02_warp_specialised.cu", map_d=False)


VARIANT = Variant(
    id="hopper/warp-specialised",
    version=1,
    stage=2,
    idea="one warp has the tiles copied, warpgroups multiply them; barriers of the slots, none of all threads",
    dtypes=tiling.INPUTS,
    architectures=("sm_90a",),
    space=(tiling.BM, tiling.BN, tiling.STAGES, tiling.GROUP_M),
    refuses=refuses,
    plan=plan,
    synchronises="mbarrier",
    pipelined=True,
    claims=(
        Claim(
            metric="tensor_pipe_util",
            relation="rises",
            value=1.0,
            why="a warpgroup that is behind does not stop the other, and none waits for a copy to be asked for",
        ),
    ),
)
