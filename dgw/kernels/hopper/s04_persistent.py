"""Stage 4, persistent: one CTA an SM, the ring carried from tile to tile, tiles of operands shared in clusters."""

from __future__ import annotations

from dataclasses import replace

from dgw.kernels.hopper import alignment, selector, tile_launch, tiling
from dgw.model import Claim, Config, Device, Epilogue, Plan, Problem, Variant

LEAST_COPIED = 8e6
"""Bytes of copies that are made ahead: set by hand, between two sizes of which a stored run has both ways (cliff)."""
LONGEST_FIRST = 8
"""Chunks of k with which copies still come first where CTAs compute several tiles: set by hand, in the same way."""


def choose(problem: Problem, pinned: Config, device: Device) -> tuple[Config, tuple[str, ...]] | None:
    """The config that the selector estimates to be the fastest, and why.

    Plain sums that the copy engine stores need no more registers than a thread has, so that none are moved to those
    that multiply.
    """
    found = _choose_ahead(problem, pinned, device)
    ahead = found is not None
    found = found or selector.choose(problem, pinned, device)
    if found is None:
        return None
    plain = problem.epilogue == Epilogue() and not {"c", "bias", "residual"} & problem.operands().keys()
    plain = plain and tiling.output_of(problem) == tiling.BY_ENGINE and not ahead
    reason = "registers stay where they are: plain sums take few" if plain else "registers move to the sums"
    config = {**found.config, "COPY_AHEAD": int(ahead), "SETMAXNREG": 0 if plain else 1}
    return config, (*found.reasons, *alignment.reasons(problem, ahead), reason)


def _choose_ahead(problem: Problem, pinned: Config, device: Device) -> selector.Choice | None:
    """The config for copies that the kernel makes itself; None where that is not asked for, or does not pay.

    It pays where there is much to copy and most of the SMs have something to compute: one tile, or several if the
    first, during which all wait for chunks, is a long one. Copies and tiles of operands come and go on the same way
    between L2 and SMs, so that pairs of CTAs share tiles, but where both operands lie across k: that is set by hand,
    like the rows of tiles that are taken together. Wide tiles wait less than the narrow ones of turns.
    """
    wanted, size = pinned.get("COPY_AHEAD"), sum(alignment.workspaces(problem).values())
    if wanted == 0 or size == 0 or not (wanted or size >= LEAST_COPIED):
        return None
    long = problem.k > LONGEST_FIRST * alignment.CHUNK

    def possible(config: Config) -> bool:
        return _refuses_ahead(problem, {**pinned, **config}, device) is None

    def pays(config: Config) -> bool:
        tile, at_once = tiling.Tiling.of(problem, config, tiling.output_of(problem)), _at_once(problem, config, device)
        alone = at_once and not tile.a_k_major and not tile.b_k_major
        enough = device.sms <= 2 * tile.clusters(problem) * tile.cluster
        fits = enough and (at_once or (long and not tile.pingpong))
        return fits and tile.cluster == (1 if alone else 2) and possible(config)

    found = selector.choose(problem, pinned, device, pays)
    if found is None:
        return selector.choose(problem, pinned, device, possible) if wanted else None
    if "GROUP_M" in pinned or not _at_once(problem, found.config, device):
        return found
    # half as many rows of tiles together as otherwise: nothing has to stay in L2 for tiles that come later
    return replace(found, config={**found.config, "GROUP_M": max(1, int(found.config["GROUP_M"]) // 2)})


def _at_once(problem: Problem, config: Config, device: Device) -> bool:
    """Whether each CTA computes one tile of D at most."""
    tile = tiling.Tiling.of(problem, config, tiling.output_of(problem))
    return tile.clusters(problem) * tile.cluster <= device.sms


def _refuses_ahead(problem: Problem, config: Config, device: Device) -> str | None:
    """Why a CTA cannot copy operands ahead of what it multiplies."""
    tile = tiling.Tiling.of(problem, config, tiling.output_of(problem))
    if tile.split > 1 or tile.cluster > 2:
        return "COPY_AHEAD=1 needs CTAs that all run at the same time: SPLIT=1, and clusters of two at most"
    if tile.output == tiling.FROM_REGISTERS:
        return f"COPY_AHEAD=1 takes the memory where D is staged, which D in {problem.d.dtype} is not"
    if tile.consumers == 2 and not int(config.get("SETMAXNREG", 1)):
        return "COPY_AHEAD=1 leaves the sums too few registers without SETMAXNREG=1"
    if tile.consumers * 4 * alignment.AHEAD_BYTES > tile.stages * tile.slot_bytes:
        return f"COPY_AHEAD=1 copies through the ring, in which {tile.stages} tiles of {tile.bm}x{tile.bn} are too few"
    if tile.shared_bytes + tiling.BARRIER_BYTES > device.shared_per_block:
        return f"COPY_AHEAD=1 needs {tiling.BARRIER_BYTES} bytes of shared memory that STAGES={tile.stages} leaves not"
    return None


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why `persistent` cannot run `problem` with `config` on `device`."""
    if not config.get("COPY_AHEAD"):
        return tiling.refuses_fused(problem, config, device)
    if not alignment.copied(problem):
        return "COPY_AHEAD=1 has nothing to copy: the copy engine reaches A and B"
    return tiling.refuses_fused(problem, config, device) or _refuses_ahead(problem, config, device)


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """At most one CTA an SM in whole clusters, or with SPLIT a cluster for every tile."""
    tile = tiling.Tiling.of(problem, config, tiling.output_of(problem))
    if tile.split > 1:
        return tile_launch.plan(problem, config, "split_k.cu", map_d=True)
    clusters = min(tile.clusters(problem), selector.resident(device, tile.cluster) // tile.cluster)
    ahead = bool(config.get("COPY_AHEAD", 0))
    return tile_launch.plan(problem, config, "s04_persistent.cu", map_d=True, clusters=clusters, ahead=ahead)


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
        tiling.COPY_AHEAD,
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
