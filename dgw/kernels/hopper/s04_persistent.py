"""Stage 4, persistent: one CTA an SM, the ring carried from tile to tile, tiles of operands shared in clusters."""

from __future__ import annotations

from dgw.kernels.declaring import integer
from dgw.kernels.hopper import alignment, selector, tile_launch, tiling
from dgw.model import Claim, Config, Device, Epilogue, Plan, Problem, Variant

BESIDE: Config = {"PINGPONG": 0, "BM": 256, "BN": 128, "SPLIT": 1, "OVERLAP": 1, "SETMAXNREG": 1}
"""Where operands are copied while they are multiplied: a tile that takes long, for which copies come in time."""

WIDEST_BESIDE = 192  # columns of one wgmma: ptxas does not place more sums in the registers that are left
BESIDE_START = 3.0e-6  # s: to clear the counts of chunks, and until the first chunk is there
BESIDE_RATE = 1.2e12  # B/s that the blocks which copy beside others do at least
COPY_RATE = 2.3e12  # B/s that copies are made at before


def choose(problem: Problem, pinned: Config, device: Device) -> tuple[Config, tuple[str, ...]] | None:
    """The config that the selector estimates to be the fastest, and why.

    Plain sums that the copy engine stores need no more registers than a thread has, so that none are moved to those
    that multiply.
    """
    found = selector.choose(problem, pinned, device)
    if found is None:
        return None
    beside = _beside(problem, pinned, found, device)
    plain = beside is None and _is_plain(problem) and tiling.output_of(problem) == tiling.BY_ENGINE
    chosen = beside or found
    reasons = [*chosen.reasons, *alignment.reasons(problem)]
    reasons += ["the copies are made while they are multiplied"] if beside else []
    reasons.append("registers stay where they are: plain sums take few" if plain else "registers move to the sums")
    moved = {"OVERLAP": 0 if beside is None else 1, "SETMAXNREG": 0 if plain else 1}
    return {**chosen.config, **moved}, tuple(reasons)


def _is_plain(problem: Problem) -> bool:
    return problem.epilogue == Epilogue() and not {"c", "bias", "residual"} & problem.operands().keys()


def _beside(problem: Problem, pinned: Config, other: selector.Choice, device: Device) -> selector.Choice | None:
    """What is chosen if copies are made beside; None if they are better made before `other`, or not at all. A pin
    decides. Sums that are not plain need the registers, and copies shall be made before all products are."""
    size = sum(alignment.workspaces(problem).values())
    if not size or not pinned.get("OVERLAP", 1):
        return None
    own = {"BM", "BN", "PINGPONG"} & pinned.keys()
    found = selector.choose(problem, pinned if own and "OVERLAP" in pinned else {**BESIDE, **pinned}, device)
    if found is None or "OVERLAP" in pinned:
        return found
    kept = all(pinned.get(name, value) == value for name, value in BESIDE.items())
    in_time = size / BESIDE_RATE <= selector.products(problem, device)
    sooner = found.seconds + BESIDE_START < other.seconds + size / COPY_RATE
    return found if kept and in_time and sooner and _is_plain(problem) else None


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    """Why the kernel cannot run `problem` with `config` on `device`."""
    found = tiling.refuses_fused(problem, config, device)
    if found or not integer({"OVERLAP": 0, **config}, "OVERLAP"):
        return found
    if not alignment.copied(problem):
        return "OVERLAP=1, but no operand has to be copied"
    if integer(config, "SPLIT") > 1:
        return "OVERLAP=1 needs SPLIT=1: CTAs that share k begin in the middle of it"
    if not integer(config, "SETMAXNREG"):
        return "OVERLAP=1 needs SETMAXNREG=1: threads start with few registers and leave some to those that copy"
    wide = integer(config, "BN")
    return f"OVERLAP=1 leaves too few registers for BN={wide}; {WIDEST_BESIDE} fit" if wide > WIDEST_BESIDE else None


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    """At most one CTA an SM in whole clusters, or with SPLIT a cluster for every tile."""
    tile = tiling.Tiling.of(problem, config, tiling.output_of(problem))
    if tile.split > 1:
        return tile_launch.plan(problem, config, "split_k.cu", map_d=True)
    clusters = min(tile.clusters(problem), selector.resident(device, tile.cluster) // tile.cluster)
    beside = bool(integer({"OVERLAP": 0, **config}, "OVERLAP"))
    return tile_launch.plan(problem, config, "s04_persistent.cu", map_d=True, clusters=clusters, beside=beside)


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
        tiling.OVERLAP,
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
