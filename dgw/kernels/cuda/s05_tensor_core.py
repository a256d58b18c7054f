"""Stage 5, tensor-core: mma.sync fed by ldmatrix from a swizzled, multistage pipeline."""

from __future__ import annotations

from dgw.kernels import declaring, tensor
from dgw.model import Claim, Config, Device, Launch, Plan, Problem, Source, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    return tensor.refuses(problem, config, device) or declaring.refuses_epilogue(problem)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of one block per tile of D."""
    tiling = tensor.Tiling.of(problem, config)
    launch = Launch(
        source=Source(path="s05_tensor_core.cu", defines=tuple(tensor.defines(problem, config).items())),
        entry="tensor_core",
        grid=(declaring.tiles(problem, tiling.bm, tiling.bn), 1, 1),
        block=(tiling.threads, 1, 1),
        arguments=declaring.gemm_arguments(problem),
        shared_bytes=tiling.shared_bytes,
    )
    return Plan(steps=(launch,), tile=(tiling.bm, tiling.bn))


VARIANT = Variant(
    id="cuda/tensor-core",
    version=1,
    stage=5,
    idea="the tensor cores multiply: mma.sync, fed by ldmatrix",
    dtypes=tensor.INPUTS,
    space=tensor.SPACE,
    refuses=refuses,
    plan=plan,
    claims=(
        Claim(metric="tensor_pipe_util", relation="above", value=0.0, why="mma.sync runs on the tensor pipe"),
        Claim(metric="fma_pipe_util", relation="falls", value=2.0, why="no product is left for the FMA pipe"),
        Claim(
            metric="conflict_ratio_ld",
            relation="is",
            value=0.0,
            why="the eight rows of a matrix lie in different slots of a 128-byte line",
        ),
    ),
    notes=(
        "f32 operands are multiplied as tf32 (dtype tf32), rounded to nearest in registers. tf32 operands that run "
        "along m or n are read by 4-byte loads, because ldmatrix transposes 16-bit elements only. mma.sync reaches "
        "about two thirds of the rate of Hopper's wgmma: compare with the rate of mma.sync, not with the peak."
    ),
)
