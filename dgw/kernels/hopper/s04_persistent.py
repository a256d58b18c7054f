"""Stage 4, persistent: one CTA an SM, the ring carried from tile to tile, tiles of operands shared in clusters."""

from __future__ import annotations

from dgw.kernels.hopper import alignment, selector, tile_launch, tiling
from dgw.model import Claim, Config, Device, Epilogue, Plan, Problem, Variant


def choose(problem: Problem, pinned: Config, device: Device) -> tuple[Config, tuple[str, ...]] | None:
    """The config that the selector estimates to be the fastest, and why.

    Plain sums that the copy engine stores need no more registers than a thread has, so that none are moved to those
    that multiply.
    """
    found = selector.choose(problem, pinned, device)
    if found is None:
        return None
    plain = problem.epilogue == Epilogue() and not {"c", "bias", "residual"} & problem.operands().keys()
    plain = plain and tiling.output_of(problem) == tiling.BY_ENGINE
    reason = "registers stay where they are: plain sums take few" if plain else "registers move to the sums"
    return {**found.config, "SETMAXNREG": 0 if plain else 1}, (*found.reasons, *alignment.reasons(problem), reason)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """At most one CTA an SM in whole clusters, or with SPLIT a cluster for every tile."""
    tile = tiling.Tiling.of(problem, config, tiling.output_of(problem))
    if tile.split > 1:
        return tile_launch.plan(problem, config, "split_k.cu", map_d=True)
    clusters = min(tile.clusters(problem), selector.resident(device, tile.cluster) // tile.cluster)
    return tile_launch.plan(problem, config, "s04_persistent.cu", map_d=True, clusters=clusters)


VARIANT = Variant(
    id="hopper/persistent",
    version=1,
    stage=4,
    idea="one CTA an SM; the ring fills with the next tile while this one is stored; clusters share tiles of operands",
    dtypes=tiling.INPUTS,
    architectures=("sm_90a",),
    space=(
        tiling.BM,
        tiling.BN,
        tiling.STAGES,
        tiling.CLUSTER_M,
        tiling.CLUSTER_N,
        tiling.SPLIT,
        tiling.GROUP_M,
        tiling.PINGPONG,
        tiling.SETMAXNREG,
    ),
    refuses=tiling.refuses_fused,
    plan=plan,
    choose=choose,
    synchronises="mbarrier",
    pipelined=True,
    claims=(
        Claim(
            metric="tensor_pipe_util",
            relation="rises",
            value=1.0,
            why="only the first tile of a CTA waits for an empty ring, and stores overlap with multiplications",
        ),
    ),
)
