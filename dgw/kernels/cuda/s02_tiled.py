"""Stage 2, tiled: tiles in shared memory, sums in registers, and the natural layout, whose loads conflict."""

from __future__ import annotations

from dgw.kernels import simt
from dgw.model import Claim, Config, Device, Plan, Problem, Variant


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """One launch of one block per tile of D."""
    return simt.plan(problem, config, "s02_tiled.cu", "tiled")


VARIANT = Variant(
    id="cuda/tiled",
    version=1,
    stage=2,
    idea="tiles in shared memory, a block of sums in the registers of each thread",
    dtypes=simt.INPUTS,
    space=simt.SPACE,
    refuses=simt.refuses,
    plan=plan,
    claims=(
        Claim(
            metric="conflict_ratio_ld",
            relation="above",
            value=0.30,
            layouts=("nn", "nt"),
            why="eight lanes read rows of A that lie TM rows apart, a multiple of 128 bytes: eight wavefronts, not one",
        ),
        Claim(metric="conflict_ratio_st", relation="is", value=0.0, why="copies into the tiles write whole lines"),
    ),
    notes=(
        "A and B keep the order and the element type that they have in global memory; 16-bit elements become f32 in "
        "registers. Shared memory then holds what an asynchronous copy can deliver, and an access of 16 bytes moves 8 "
        "elements. A warp is 8 threads along m by 4 along n, so one phase of a 16-byte load reads A at 8 places and B "
        "at one. In the default config a load of K-major A (layouts nn, nt) takes 32 wavefronts instead of 4 and a "
        "load of B along n takes 2 (equal addresses of a half warp merge): per k step of f16 nn 34 against 6, a "
        "predicted conflict ratio of 28/34 = 0.82; f32 nn the same ratio. f16 tn has no conflicts; f32 tn has 0.40."
    ),
)
