"""Stage 6, fused-epilogue: bias, activation, residual and quantisation while the sums are still in registers."""

from __future__ import annotations

from dgw.kernels import declaring, tensor
from dgw.model import Claim, Config, Device, Launch, Plan, Problem, Source, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    outputs = (*tensor.OUTPUTS, "s8", "e4m3")
    return tensor.refuses(problem, config, device, outputs) or tensor.refuses_epilogue(problem, device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of one block per tile of D."""
    tiling = tensor.Tiling.of(problem, config)
    launch = Launch(
        source=Source(path="s06_fused_epilogue.cu", defines=tuple(tensor.fused_defines(problem, config).items())),
        entry="fused_epilogue",
        grid=(declaring.tiles(problem, tiling.bm, tiling.bn), 1, 1),
        block=(tiling.threads, 1, 1),
        arguments=tensor.fused_arguments(problem),
        shared_bytes=tiling.shared_bytes,
    )
    return Plan(steps=(launch,), tile=(tiling.bm, tiling.bn))


VARIANT = Variant(
    id="cuda/fused-epilogue",
    version=1,
    stage=6,
    idea="bias, activation, residual and quantisation while the sums are still in registers",
    dtypes=tensor.INPUTS,
    space=tensor.SPACE,
    refuses=refuses,
    plan=plan,
    claims=(
        Claim(metric="tensor_pipe_util", relation="above", value=0.0, why="the main loop is that of tensor-core"),
        Claim(
            metric="conflict_ratio_ld",
            relation="is",
            value=0.0,
            why="the epilogue exchanges values between lanes, not through shared memory",
        ),
    ),
    notes=(
        "DRAM traffic falls against separate kernels: D is written once, in its final type, and nothing is read back. "
        "A value is multiplied by the rounded reciprocal of its scale, so a quantised element may differ by one step "
        "from a division where the quotient lies at a tie. Output e4m3 needs sm_89."
    ),
)
