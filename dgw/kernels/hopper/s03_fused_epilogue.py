"""Stage 3, fused-epilogue: results are finished in registers and leave through shared memory and the copy engine."""

from __future__ import annotations

from dgw.kernels.hopper import tile_launch, tiling
from dgw.model import Claim, Config, Device, Plan, Problem, Variant


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One CTA for each tile of D."""
    return tile_launch.plan(problem, config, "s03_fused_epilogue.cu", map_d=True)


VARIANT = Variant(
    id="hopper/fused-epilogue",
    version=1,
    stage=3,
    idea="bias, activation and rounding in registers; D leaves by stmatrix and the copy engine, in whole lines",
    dtypes=tiling.INPUTS,
    architectures=("sm_90a",),
    space=(tiling.BM, tiling.BN, tiling.STAGES, tiling.GROUP_M),
    refuses=tiling.refuses_fused,
    plan=plan,
    synchronises="mbarrier",
    pipelined=True,
    claims=(
        Claim(metric="tensor_pipe_util", relation="above", value=0.0, why="the main loop is that of warp-specialised"),
        Claim(
            metric="conflict_ratio_st",
            relation="below",
            value=0.02,
            why="stmatrix writes rows of 16 bytes that the swizzle spreads over all banks",
        ),
    ),
    notes=(
        "A D that the copy engine cannot reach is stored by its rows, a quantised one from registers. DRAM traffic "
        "falls against separate kernels: D is written once, in its final type, and nothing is read back."
    ),
)
