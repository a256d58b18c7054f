"""Stage 4, persistent: one CTA an SM, the ring carried from tile to tile, tiles of operands shared in clusters."""

from __future__ import annotations

from dgw.kernels import declaring, tensor
from dgw.kernels.hopper import alignment, selector, tiling
from dgw.model import Claim, Config, Device, Launch, Plan, Problem, Source, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why this kernel cannot run `problem` with `config` on `device`."""
    found = tiling.refuses(problem, config, device, tiling.QUANTISED, tiling.map_output(problem))
    return found or tensor.refuses_epilogue(problem, device)


def choose(problem: Problem, pinned: Config, device: Device) -> tuple[Config, tuple[str, ...]] | None:
    """The config that the selector estimates to be the fastest, and why."""
    found = selector.choose(problem, pinned, device)
    return (found.config, found.reasons) if found else None


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """At most one CTA an SM in whole clusters, or with SPLIT a cluster for every tile; before, copies where needed."""
    through_shared = tiling.map_output(problem)
    tile = tiling.Tiling.of(problem, config, through_shared)
    name = "split_k" if tile.split > 1 else "persistent"
    clusters = tile.clusters(problem)
    if tile.split == 1:
        clusters = min(clusters, selector.resident(device, tile.cluster) // tile.cluster)
    boxes = (
        tiling.box(problem, "a", tile.bm // tile.cluster_n),
        tiling.box(problem, "b", tile.bn // tile.cluster_m),
        tiling.output_box(problem, tile.columns) if through_shared else tiling.box(problem, "a", tile.bm),
    )
    launch = Launch(
        source=Source(
            path=f"{'s04_' if name == 'persistent' else ''}{name}.cu",
            defines=(
                *tiling.defines(problem, config, through_shared).items(),
                *((name, declaring.integer(config, name)) for name in ("GROUP_M", "LEAD")),
            ),
        ),
        entry=name,
        grid=(clusters * tile.cluster, 1, 1),
        block=(128 * (tile.consumers + 1), 1, 1),
        cluster=(tile.cluster, 1, 1),
        arguments=(*(alignment.redirected(problem, box) for box in boxes), *tiling.epilogue_arguments(problem)),
        shared_bytes=tile.shared_bytes,
    )
    steps = (*alignment.copying(problem), launch)
    return Plan(steps=steps, workspaces=alignment.workspaces(problem), kernels=len(steps), tile=(tile.bm, tile.bn))


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
        tiling.LEAD,
        tiling.SETMAXNREG,
    ),
    refuses=refuses,
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
