"""Stage 4, double-buffered: asynchronous copies fill the next tiles while the CTA computes with this one."""

from __future__ import annotations

from dgw.kernels import simt
from dgw.model import Claim, Config, Device, Plan, Problem, Tunable, Variant


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of one block per tile of D. Operands too narrowly aligned for cp.async are copied by plain loads."""
    asynchronous = config["COPY"] == "async" and simt.can_copy_asynchronously(problem, simt.Tiling.of(problem, config))
    extra: Config = {"STAGES": config["STAGES"], "ASYNC": "true" if asynchronous else "false"}
    if not asynchronous:
        extra["MIN_BLOCKS"] = 1  # the tiles under way occupy registers
    return simt.plan(problem, config, "s04_double_buffered.cu", "double_buffered", extra)


VARIANT = Variant(
    id="cuda/double-buffered",
    version=1,
    stage=4,
    idea="asynchronous copies fill the next tiles while the CTA computes with this one",
    dtypes=simt.INPUTS,
    space=(
        *simt.SPACE,
        Tunable(name="STAGES", default=2, values=(1, 2, 3, 4, 5), meaning="tiles of each operand in shared memory"),
        Tunable(name="COPY", default="async", values=("async", "plain"), meaning="cp.async, or loads and stores"),
    ),
    refuses=simt.refuses,
    plan=plan,
    claims=(
        Claim(
            metric="stall_long_scoreboard",
            relation="falls",
            value=2.0,
            why="no thread waits for its loads from global memory: they arrive during the tile before",
        ),
        Claim(metric="conflict_ratio_ld", relation="is", value=0.0, why="the layout is that of swizzled"),
    ),
    notes=(
        "STAGES=1 with COPY=plain is swizzled again; STAGES=2 with COPY=plain shows what the copies through registers "
        "cost. cp.async moves 4, 8 or 16 bytes: operands with narrower alignment fall back to plain copies."
    ),
)
