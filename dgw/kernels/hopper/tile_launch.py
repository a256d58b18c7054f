"""The plan of every Hopper stage: copies where operands are not aligned, then the kernel."""

from __future__ import annotations

import re

from dgw.kernels import declaring
from dgw.kernels.hopper import alignment, tiling
from dgw.model import Config, Launch, Plan, Problem, Source


def plan(
    problem: Problem,
    config: Config,
    source: str,
    *,
    map_d: bool,
    threads: int | None = None,
    clusters: int | None = None,
    ahead: bool | None = None,
) -> Plan:
    """`source` is NAME.cu or sNN_NAME.cu with the kernel NAME. With `map_d` it takes a tensor map of D, which is a map
    of A where the copy engine does not store D; without, it stores D from registers.

    By default a cluster for each cluster of tiles of D, and the threads of a ring. `ahead`: whether the kernel makes
    the copies itself; None: it cannot.
    """
    output = tiling.output_of(problem) if map_d else tiling.FROM_REGISTERS
    tile = tiling.Tiling.of(problem, config, output)
    boxes = [
        tiling.box(problem, "a", tile.bm // tile.cluster_n),
        tiling.box(problem, "b", tile.bn // tile.cluster_m),
    ]
    if map_d:
        by_engine = output == tiling.BY_ENGINE
        boxes.append(tiling.output_box(problem, tile.columns) if by_engine else boxes[0])
    defines = tiling.defines(problem, config, output)
    crowded = {"c", "residual"} <= problem.operands().keys()
    defines["KEEP_BIAS"] = "false" if crowded or output == tiling.FROM_REGISTERS else "true"
    defines["GROUP_M"] = declaring.integer(config, "GROUP_M")
    copies = () if ahead else alignment.copying(problem)
    defines["COPIED"] = "true" if copies else "false"
    if ahead is not None:
        defines["CHUNK"] = alignment.CHUNK
        defines |= alignment.shifts(problem, ahead)
    wanted = tile.clusters(problem) if clusters is None else clusters
    launch = Launch(
        source=Source(path=source, defines=tuple(defines.items())),
        entry=re.sub(r"^s\d\d_", "", source.removesuffix(".cu")),
        grid=(wanted * tile.cluster, 1, 1),
        block=(threads or tile.threads, 1, 1),
        cluster=(tile.cluster, 1, 1),
        arguments=(
            *(alignment.redirected(problem, box) for box in boxes),
            *tiling.epilogue_arguments(problem),
            *(() if ahead is None else alignment.copied_ahead(problem, ahead)),
        ),
        shared_bytes=tile.shared_bytes + (tiling.BARRIER_BYTES if ahead else 0),
        overlaps=bool(copies),
        together=bool(ahead),
    )
    steps = (*copies, launch)
    return Plan(
        steps=steps,
        workspaces=alignment.workspaces(problem, bool(ahead)),
        kernels=len(steps),
        tile=(tile.bm, tile.bn),
    )
