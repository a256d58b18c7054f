"""Stage 7, persistent: as many CTAs as the device holds, and no empty pipeline between tiles of D."""

from __future__ import annotations

from dgw.kernels import declaring, tensor
from dgw.model import Claim, Config, Device, Launch, Plan, Problem, Source, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    outputs = (*tensor.OUTPUTS, "s8", "e4m3")
    return tensor.refuses(problem, config, device, outputs) or tensor.refuses_epilogue(problem, device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of as many blocks as `device` holds at once, or as there are tiles of D if these are fewer."""
    tiling = tensor.Tiling.of(problem, config)
    tiles = declaring.tiles(problem, tiling.bm, tiling.bn)
    launch = Launch(
        source=Source(path="s07_persistent.cu", defines=tuple(tensor.fused_defines(problem, config).items())),
        entry="persistent",
        grid=(min(tiles, tiling.resident_blocks(device) * device.sms), 1, 1),
        block=(tiling.threads, 1, 1),
        arguments=tensor.fused_arguments(problem),
        shared_bytes=tiling.shared_bytes,
    )
    return Plan(steps=(launch,), tile=(tiling.bm, tiling.bn))


VARIANT = Variant(
    id="cuda/persistent",
    version=1,
    stage=7,
    idea="as many CTAs as the device holds; the copies for the next tile of D start before this one is stored",
    dtypes=tensor.INPUTS,
    space=tensor.SPACE,
    refuses=refuses,
    plan=plan,
    claims=(
        Claim(metric="conflict_ratio_ld", relation="is", value=0.0, why="the tiles lie as in tensor-core"),
        Claim(
            metric="tensor_pipe_util",
            relation="rises",
            value=1.0,
            why="only the first tile of a CTA waits for an empty pipeline, which shows most at few k tiles",
        ),
    ),
    notes=(
        "The grid is the number of SMs times the blocks that fit one (registers, shared memory), at most the number "
        "of tiles. A CTA computes tiles blockIdx.x, blockIdx.x + gridDim.x, ... of the grouped order."
    ),
)
