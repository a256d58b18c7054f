"""The plan of the stages that start one CTA a tile of D: copies where operands are not aligned, then the kernel."""

from __future__ import annotations

from dgw.kernels import declaring
from dgw.kernels.hopper import alignment, tiling
from dgw.model import Config, Launch, Plan, Problem, Source


def plan(problem: Problem, config: Config, path: str, entry: str, threads: int, *, map_d: bool) -> Plan:
    """`path` and `entry` name the kernel; with `map_d` it takes a tensor map of D and stores through shared memory."""
    through_shared = map_d and tiling.map_output(problem)
    tile = tiling.Tiling.of(problem, config, through_shared)
    boxes = [tiling.box(problem, "a", tile.bm), tiling.box(problem, "b", tile.bn)]
    if map_d:
        boxes.append(tiling.output_box(problem, tile.bn) if through_shared else boxes[0])
    defines = tiling.defines(problem, config, through_shared)
    defines["GROUP_M"] = declaring.integer(config, "GROUP_M")
    launch = Launch(
        source=Source(path=path, defines=tuple(defines.items())),
        entry=entry,
        grid=(tile.clusters(problem), 1, 1),
        block=(threads, 1, 1),
        arguments=(*(alignment.redirected(problem, box) for box in boxes), *tiling.epilogue_arguments(problem)),
        shared_bytes=tile.shared_bytes,
    )
    steps = (*alignment.copying(problem), launch)
    return Plan(steps=steps, workspaces=alignment.workspaces(problem), kernels=len(steps), tile=(tile.bm, tile.bn))
