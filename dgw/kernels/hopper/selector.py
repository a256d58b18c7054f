"""Which tile, cluster and split of k a problem gets: the candidates' times, estimated from what would hold them up.

The estimate of a candidate (seconds): a start, then for each wave of CTAs the k tiles of a tile of D, each about as
slow as the slowest of the tensor cores, the SM's share of L2, and the latency of a ring of that depth; then what a tile
costs beside its products, and the exchange of sums where k is split. Where warpgroups take turns, what a tile costs
beside its products is hidden behind those of the next. Nothing is faster than DRAM delivers A, B and D, and what far
SMs ask for at the same time is delivered more than once.

The constants are a fit, not measurements of what they are named for: evidence/selector-fit.py searched them so that the
choice loses least among candidates timed on an H200 (tests/data/hopper-candidates.json.gz; a test says how much). No
candidates in turn are among these: IN_TURN and when turns are considered are set by hand. How far the choice is from
the best of the whole space, turns included, is for part `regret` of evidence/hopper.py to show, in a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

from dgw.kernels.declaring import ceil_div, element_bytes, k_major
from dgw.kernels.hopper import alignment, tiling
from dgw.model import Config, Device, Problem, Tunable

F64 = npt.NDArray[np.float64]

CLOCK = 1.70e9  # Hz, of the fit
START = 0.86e-6  # s: launch, barriers, the first tile from DRAM
TILE = 0.73e-6  # s a tile of D: the pipeline drains and fills
STORE = 0.086  # cycles an element of a tile: finishing and storing
EXCHANGE = 2.1e-6  # s: two meetings of a cluster
EXCHANGED = 0.176  # cycles an element of a tile that is exchanged
SM_BYTES = 100.0  # B a cycle an SM takes from L2
DRAM_BYTES = 4.28e12  # B/s
FAR = 1.77  # times an operand leaves DRAM that CTAs ask for at the same time, other than neighbours or a cluster's
STRADDLE = 2.0  # of what L2 moves, where the lines of an operand do not begin at multiples of its 128 bytes
LATENCY = 1.46e-6  # s from asking for a tile to having it
SLOWDOWN = 1.023  # of the tensor cores, against their rate
IN_TURN = 0.96  # of that, where warpgroups take turns
NARROW = 12.2  # columns: a narrow tile reads more of A for each product, which costs power and so clock
UNEVEN = 0.082  # of the products' time, where the columns are an odd multiple of 16
CLUSTERED = 1.053  # where CTAs share tiles and so wait for each other
CLUSTER_START = 0.37e-6  # s
OVERLAP = 7.8  # exponent of the mean of what holds a k tile up: 1 would add them, infinity take the slowest
BOUND = 6.0  # the same of what a CTA does and what DRAM does
LINE_BYTES = 128  # of L2
GROUP_ROWS = 2048  # of D that CTAs take together
TURNS = (128, 128)  # the tile of warpgroups that take turns: the fewest cycles of those in docs/h200/hopper.json
LEAST_TURNS = 4  # tiles of a CTA, without which turns hide little
PRODUCTS = 2.0  # times as long as DRAM takes the tensor cores must, so that they are what turns keep busy


@dataclass(frozen=True)
class Choice:
    """A config, its estimated seconds, and the reasons in words."""

    config: Config
    seconds: float
    reasons: tuple[str, ...]


@lru_cache(maxsize=64)
def _candidates(
    a_along_k: bool, b_along_k: bool, output: str, limit: int, pinned: tuple[tuple[str, int | str], ...]
) -> tuple[Config, ...]:
    """The configs that fit `limit` bytes of shared memory, each with as deep a ring as fits."""
    fixed = dict(pinned)

    def values(tunable: Tunable, among: tuple[int, ...]) -> tuple[int, ...]:
        return (int(fixed[tunable.name]),) if tunable.name in fixed else among

    found: list[Config] = []
    tiles = product(
        values(tiling.PINGPONG, (0, 1)),
        values(tiling.BM, (64, 128, 256)),
        values(tiling.BN, tuple(range(32, 257, 16))),
        values(tiling.SPLIT, (1, 2, 4, 8)),
        values(tiling.CLUSTER_M, (1, 2)),
        values(tiling.CLUSTER_N, (1, 2)),
    )
    for pingpong, bm, bn, split, cluster_m, cluster_n in tiles:
        if cluster_m * cluster_n > 2 and not {"CLUSTER_M", "CLUSTER_N"} & fixed.keys():
            continue
        if pingpong and "PINGPONG" not in fixed and (bm, bn) != TURNS:
            continue
        tile = tiling.Tiling(bm, bn, 2, cluster_m, cluster_n, split, a_along_k, b_along_k, output, bool(pingpong))
        tile = replace(tile, stages=int(fixed.get("STAGES", min(8, tile.deepest(limit)))))
        if tile.refuses() is None and tile.shared_bytes <= limit:
            found.append(
                {
                    "BM": bm, "BN": bn, "STAGES": tile.stages, "CLUSTER_M": cluster_m, "CLUSTER_N": cluster_n,
                    "SPLIT": split, "GROUP_M": fixed.get("GROUP_M", max(1, GROUP_ROWS // bm)), "PINGPONG": pingpong,
                }
            )  # fmt: skip
    return tuple(found)


def resident(device: Device, cluster: int) -> int:
    """CTAs of clusters of that size that run at the same time, one an SM.

    A cluster lies within a GPC. Pairs always find room; of larger ones an eighth of the SMs is left over, because GPCs
    have different numbers of SMs. That share is inferred from times: 32 clusters of four took as long as two waves.
    """
    return device.sms // cluster * cluster if cluster <= 2 else device.sms * 7 // 8 // cluster * cluster


def estimate(problem: Problem, configs: tuple[Config, ...], device: Device) -> F64:
    """Seconds of `problem` with each of `configs`."""
    bm, bn, cluster_m, cluster_n, split, stages, pingpong = (
        np.array([int(config.get(name, 0)) for config in configs], np.float64)
        for name in ("BM", "BN", "CLUSTER_M", "CLUSTER_N", "SPLIT", "STAGES", "PINGPONG")
    )
    rows, columns = np.ceil(problem.m / bm), np.ceil(problem.n / bn)
    shared = cluster_m * cluster_n
    ctas = np.ceil(rows / cluster_m) * np.ceil(columns / cluster_n) * shared * split
    slots = np.array([resident(device, int(size)) for size in shared * split], np.float64)
    tiles_k = np.ceil(ceil_div(problem.k, tiling.DEPTH) / split)

    step = _mean((_products(bm, bn), _from_l2(problem, bm, bn, cluster_m, cluster_n), LATENCY / stages), OVERLAP)
    step = step * np.where(shared > 1, CLUSTERED, 1.0) * np.where(pingpong > 0, IN_TURN, 1.0)
    exchange = np.where(split > 1, EXCHANGE + bm * bn * EXCHANGED / CLOCK * (split - 1) / split, 0.0)
    beside = TILE + bm * bn * STORE / CLOCK + exchange
    tiles = np.ceil(ctas / slots)  # of a CTA
    products = tiles_k * step
    together, in_turn = tiles * (products + beside), tiles * np.maximum(products, (products + beside) / 2) + beside
    # CTAs of no cluster that compute two tiles, one below the other, run on neighbouring SMs
    once_a, once_b = columns <= cluster_n, (rows <= cluster_m) | ((rows <= 2) & (shared * split == 1))
    busy = _mean((np.where(pingpong > 0, in_turn, together), _from_dram(problem, once_a, once_b)), BOUND)
    found: F64 = START + busy + np.where(shared > 1, CLUSTER_START, 0.0)
    return found


def _mean(seconds: tuple[F64, ...], exponent: float) -> F64:
    """What takes these times at once: a little more than the longest."""
    found: F64 = sum(one**exponent for one in seconds) ** (1 / exponent)
    return found


def _products(bm: F64, bn: F64) -> F64:
    """Seconds of a k tile on the tensor cores."""
    uneven = np.where(bn % 32 == 16, UNEVEN, 0.0)
    found: F64 = bm / 64 * 4 * np.maximum(bn / 2, 16 + bn / 4) * (SLOWDOWN + NARROW / bn + uneven) / CLOCK
    return found


def _from_l2(problem: Problem, bm: F64, bn: F64, cluster_m: F64, cluster_n: F64) -> F64:
    """Seconds in which an SM takes a k tile of both operands from L2, one copy for a cluster."""
    taken = np.zeros_like(bm)
    for name, extents, sharers in (("a", bm, cluster_n), ("b", bn, cluster_m)):
        along_k = k_major(problem, name)
        tile = np.array([tiling.tile_bytes(int(extent), along_k) for extent in extents], np.float64)
        taken += tile / sharers * (STRADDLE if _straddles(problem, name) else 1.0)
    found: F64 = taken / SM_BYTES / CLOCK
    return found


def _from_dram(problem: Problem, once_a: npt.NDArray[np.bool_], once_b: npt.NDArray[np.bool_]) -> F64:
    """Seconds in which DRAM delivers everything; `once`: no two far SMs ask for the same of the operand."""
    again = np.zeros(once_a.shape, np.float64)
    for name, once in (("a", once_a), ("b", once_b)):
        again += np.where(once, 0.0, (FAR - 1) * problem.bytes_of(name))
    return (problem.compulsory_bytes + again) / DRAM_BYTES


def _straddles(problem: Problem, name: str) -> bool:
    if name in alignment.copied(problem):
        return False
    operand = problem.operands()[name]
    step, first = (count * element_bytes(operand.dtype) for count in (problem.leading_dimension(name), operand.offset))
    return step % LINE_BYTES != 0 or first % LINE_BYTES != 0


def candidates(problem: Problem, pinned: Config, device: Device) -> tuple[Config, ...]:
    """The space of the selector for `problem`: configs that keep what is `pinned` and fit `device`."""
    found = _candidates(
        k_major(problem, "a"), k_major(problem, "b"), tiling.output_of(problem), device.shared_per_block,
        tuple(sorted(pinned.items())),
    )  # fmt: skip
    tiles_k = ceil_div(problem.k, tiling.DEPTH)
    possible = tuple(config for config in found if int(config["SPLIT"]) <= tiles_k)
    possible = tuple(config for config in possible if not _is_crowded(problem, config)) or possible
    if "PINGPONG" not in pinned and not _has_turns(problem, device):
        possible = tuple(config for config in possible if not config["PINGPONG"])
    return possible


def _has_turns(problem: Problem, device: Device) -> bool:
    """Whether warpgroups that take turns have enough of them, and tensor cores to keep busy rather than DRAM."""
    tiles = ceil_div(problem.m, TURNS[0]) * ceil_div(problem.n, TURNS[1])
    rate = device.tensor_flops_per_sm_per_clock[tiling.INPUTS[0]]  # the same for both types
    products = problem.flops / (device.sms * rate * CLOCK)
    return tiles >= LEAST_TURNS * device.sms and products >= PRODUCTS * problem.compulsory_bytes / DRAM_BYTES


def _is_crowded(problem: Problem, config: Config) -> bool:
    """Whether the compiler finds too few registers: for what is added by rows to pieces of 32 bytes, which an odd
    multiple of 16 columns makes (staged_pieces.cuh); for C and a residual beside 128 sums of two rows a lane, which
    warpgroups in turn have, too: not even for a residual alone."""
    added = {"c", "residual"} & problem.operands().keys()
    if (len(added) == 2 and int(config["BM"]) == 256) or ("residual" in added and config["PINGPONG"]):
        return True
    narrow = int(config["BN"]) // int(config["SPLIT"]) % 32 != 0 and element_bytes(problem.d.dtype) == 2
    return bool(added) and narrow and tiling.output_of(problem) == tiling.BY_ROWS


def choose(
    problem: Problem, pinned: Config, device: Device, allowed: Callable[[Config], bool] = lambda config: True
) -> Choice | None:
    """The candidate with the least estimate of those that are `allowed`; None where nothing fits."""
    possible = tuple(config for config in candidates(problem, pinned, device) if allowed(config))
    if not possible:
        return None
    seconds = estimate(problem, possible, device)
    best = int(seconds.argmin())
    return Choice(possible[best], float(seconds[best]), _reasons(problem, possible, seconds, best, device))


def _reasons(problem: Problem, configs: tuple[Config, ...], seconds: F64, best: int, device: Device) -> tuple[str, ...]:
    config = configs[best]
    bm, bn, split = int(config["BM"]), int(config["BN"]), int(config["SPLIT"])
    tiles = ceil_div(problem.m, bm) * ceil_div(problem.n, bn)
    slots = resident(device, int(config["CLUSTER_M"]) * int(config["CLUSTER_N"]) * split)
    waves = ceil_div(tiles * split, slots)
    covered = problem.m * problem.n / (ceil_div(problem.m, bm) * bm * ceil_div(problem.n, bn) * bn)
    other = min(
        (i for i in range(len(configs)) if (configs[i]["BM"], configs[i]["BN"]) != (bm, bn)),
        key=lambda i: float(seconds[i]),
        default=best,
    )
    parts = f", k in {split} parts" if split > 1 else ""
    turns = ("warpgroups take turns: one finishes a tile while the other multiplies the next",)
    return (
        f"{tiles} tiles of {bm}x{bn}{parts}: waves of {slots} CTAs: {waves}, "
        f"the last {100 * _last(tiles * split, slots):.0f} % full",
        f"{100 * covered:.0f} % of the tiles' area is D; ring of {config['STAGES']} slots",
        f"estimated {seconds[best] * 1e6:.1f} us; next best tile {configs[other]['BM']}x{configs[other]['BN']} "
        f"{seconds[other] * 1e6:.1f} us, of {len(configs)} candidates",
        *(turns if config["PINGPONG"] else ()),
    )


def _last(ctas: int, slots: int) -> float:
    return (ctas - 1) % slots / slots + 1 / slots
