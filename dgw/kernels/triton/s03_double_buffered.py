"""Stage 3, double-buffered: the loop over k pipelined with cp.async."""

from __future__ import annotations

from dgw.kernels.triton import family
from dgw.model import Claim, Config, Device, Plan, Problem, Variant

RUNG = family.Rung(entry="double_buffered", file="s03_double_buffered_kernel.py", inputs=family.FMA_INPUTS)


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    return family.refuses(RUNG, problem, config, device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of one program per tile of D."""
    return family.plan(RUNG, problem, config, device)


VARIANT = Variant(
    id="triton/double-buffered",
    version=1,
    stage=3,
    idea="a pipelined loop over k: the next tiles are copied to shared memory while these are multiplied",
    dtypes=family.FMA_INPUTS,
    space=family.space(bm=128, bn=64, bk=16, warps=4, group=16, stages=3),
    refuses=refuses,
    warns=family.no_warnings,
    plan=plan,
    needs=("triton",),
    claims=(
        Claim(
            metric="ldgsts_inst",
            relation="above",
            value=0.0,
            why="pipelined loads are asynchronous copies; they need 4 contiguous aligned bytes a thread",
        ),
        Claim(
            metric="stall_long_scoreboard",
            relation="falls",
            value=1.5,
            why="no warp waits for a load it has just asked for; the wait is for a copy asked for STAGES - 1 tiles ago",
        ),
    ),
    notes=(
        "Operands whose rows are not aligned to 4 bytes are loaded without cp.async, and then nothing is pipelined."
    ),
)
