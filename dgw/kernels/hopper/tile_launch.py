"""The plan of every Hopper stage: copies where operands are not aligned, then the kernel."""

from __future__ import annotations

import re

import msgspec

from dgw.kernels import declaring
from dgw.kernels.hopper import alignment, lines, tiling
from dgw.model import Config, Launch, Plan, Problem, Source, TensorMap


def plan(
    problem: Problem,
    config: Config,
    source: str,
    *,
    map_d: bool,
    threads: int | None = None,
    clusters: int | None = None,
    defined: tuple[str, ...] = ("GROUP_M",),
) -> Plan:
    """`source` is NAME.cu or sNN_NAME.cu with the kernel NAME. With `map_d` it takes a tensor map of D, which is a map
    of A where the copy engine does not store D, and reads lines in phases; without, it stores D from registers.

    By default a cluster for each cluster of tiles of D, and the threads of a ring. `defined`: tunables that become
    defines beside those of the tiling.
    """
    output = tiling.output_of(problem, config) if map_d else tiling.FROM_REGISTERS
    tile = tiling.Tiling.of(problem, config, output)
    found = lines.phases(problem, config if map_d else None)
    boxes = [
        tiling.box(problem, "a", tile.bm, max(found["a"], 1), tile.cluster_n),
        tiling.box(problem, "b", tile.bn, max(found["b"], 1), tile.cluster_m),
    ]
    if map_d:
        by_engine = output == tiling.BY_ENGINE
        boxes.append(tiling.output_box(problem, tile.columns) if by_engine else _any_map(problem, boxes[0]))
    defines = tiling.defines(problem, config, output) | lines.defines(problem, found)
    crowded = {"c", "residual"} <= problem.operands().keys() or lines.takes_registers(problem, config)
    defines["KEEP_BIAS"] = "false" if crowded or output == tiling.FROM_REGISTERS else "true"
    defines |= {name: declaring.integer(config, name) for name in defined}
    copies = alignment.copying(problem, found)
    defines["COPIED"] = "true" if copies else "false"
    wanted = tile.clusters(problem) if clusters is None else clusters
    launch = Launch(
        source=Source(path=source, defines=tuple(defines.items())),
        entry=re.sub(r"^s\d\d_", "", source.removesuffix(".cu")),
        grid=(wanted * tile.cluster, 1, 1),
        block=(threads or tile.threads, 1, 1),
        cluster=(tile.cluster, 1, 1),
        arguments=(*(alignment.redirected(problem, box, found) for box in boxes), *tiling.epilogue_arguments(problem)),
        shared_bytes=tile.shared_bytes,
        overlaps=bool(copies),
    )
    steps = (*copies, launch)
    return Plan(
        steps=steps, workspaces=alignment.workspaces(problem, found), kernels=len(steps), tile=(tile.bm, tile.bn)
    )


def _any_map(problem: Problem, box: TensorMap) -> TensorMap:
    """A map that can be made, for a kernel that takes one and does not use it."""
    apart = problem.leading_dimension(box.operand) * box.phases
    return msgspec.structs.replace(box, phases=1, ld=apart) if box.phases > 1 else box
