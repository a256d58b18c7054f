"""The constants of the Hopper selector, searched anew so that its picks lose least among candidates that were timed.

`python evidence/selector-fit.py [GENERATIONS]` reads tests/data/hopper-candidates.json.gz and the timings that part
`regret` of docs/h200/hopper.json has, and prints constants and what each shape would lose. It needs no GPU and
changes nothing: what it finds is looked at, and typed into the selector with a rounding that loses nothing
(tests/kernels/test_hopper.py).
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import differential_evolution

from dgw.kernels.hopper import selector
from dgw.model import Config, Problem, gemm
from dgw.toolchain.devices import device

ROOT = Path(__file__).resolve().parents[1]
H200 = device("h200")
CONSTANTS = (
    "START", "TILE", "STORE", "EXCHANGE", "EXCHANGED", "SM_BYTES", "DRAM_BYTES", "FAR", "STRADDLE", "LATENCY",
    "SLOWDOWN", "NARROW", "UNEVEN", "CLUSTERED", "CLUSTER_START", "OVERLAP",
)  # fmt: skip
AT_LEAST_ONE = ("FAR", "STRADDLE", "SLOWDOWN", "CLUSTERED")  # factors
REACH = 2.0  # of a constant's present value, up and down
SPREAD = 0.012  # estimates so close share the blame of their times: the device is not the one of the fit
NOISE = 0.01  # a loss that a second timing would not show
UNTIMED = 0.25  # what a candidate without a time is taken to lose
TAIL, NEAR = 4.0, 1.5  # what a loss beyond 6 % counts more; estimates of times up to so much of the best shall be right
OF_ESTIMATES = 0.35  # what their error counts beside the loss of the picks

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Timed:
    """A problem, its candidates, and the seconds of those that were timed (NaN: were not)."""

    problem: Problem
    configs: tuple[Config, ...]
    seconds: F64


def load() -> list[Timed]:
    """Every problem of which candidates were timed; of two timings the later."""
    with gzip.open(ROOT / "tests" / "data" / "hopper-candidates.json.gz") as file:
        stored = json.load(file)
    found = {shape: (stored["tunables"], one["candidates"]) for shape, one in stored["shapes"].items()}
    evidence = ROOT / "docs" / "h200" / "hopper.json"
    part: dict[str, Any] = json.loads(evidence.read_text())["parts"].get("regret", {}) if evidence.is_file() else {}
    found |= {shape: (part["tunables"], rows) for shape, rows in part.get("timings", {}).items()}
    return [_timed(shape, tunables, rows) for shape, (tunables, rows) in found.items()]


def _timed(shape: str, tunables: list[str], rows: list[list[float]]) -> Timed:
    m, n, k = map(int, shape.split("x"))
    problem = gemm(m, n, k, layout="nt")
    configs = selector.candidates(problem, {} if "PINGPONG" in tunables else {"PINGPONG": 0}, H200)
    seconds = {tuple(row[:-1]): row[-1] for row in rows}
    times = [seconds.get(tuple(int(config[name]) for name in tunables), np.nan) for config in configs]
    return Timed(problem, configs, np.array(times, np.float64))


def loss(values: F64, problems: list[Timed]) -> float:
    """What the picks of these constants lose on average (a logarithm), and how far off the estimates are."""
    for name, value in zip(CONSTANTS, values, strict=True):
        setattr(selector, name, float(value))
    total = 0.0
    for one in problems:
        estimated = np.log(selector.estimate(one.problem, one.configs, H200))
        share = np.exp(-(estimated - estimated.min()) / SPREAD)
        lost = np.log(one.seconds / np.nanmin(one.seconds))
        mean = float((share / share.sum() * np.maximum(np.nan_to_num(lost, nan=UNTIMED) - NOISE, 0.0)).sum())
        error = (estimated - np.log(one.seconds))[lost < np.log(NEAR)]
        total += mean + TAIL * max(mean - 0.06, 0.0) + OF_ESTIMATES * float(np.sqrt(np.mean(error**2)))
    return total / len(problems)


def picked(one: Timed) -> tuple[float, Config]:
    """The seconds of the selector's pick over the best time, and the pick."""
    best = int(selector.estimate(one.problem, one.configs, H200).argmin())
    return float(one.seconds[best] / np.nanmin(one.seconds)), one.configs[best]


def main(generations: int) -> None:
    """Search, and print what was found."""
    problems = load()
    now = np.array([getattr(selector, name) for name in CONSTANTS])
    bounds = [
        (max(value / REACH, 1.0 if name in AT_LEAST_ONE else 0.0), value * REACH)
        for name, value in zip(CONSTANTS, now, strict=True)
    ]
    print(f"{len(problems)} problems; loss with the present constants {loss(now, problems):.4f}", flush=True)
    best = differential_evolution(
        loss, bounds, args=(problems,), x0=now, seed=1, maxiter=generations, popsize=8, tol=1e-6, polish=False
    )
    print(f"loss after {best.nit} generations {loss(best.x, problems):.4f}")
    for name, value in zip(CONSTANTS, best.x, strict=True):
        print(f"{name:14s} {value:.4g}")
    picks = {one.problem.shape: picked(one) for one in problems}
    ratios = [ratio for ratio, _ in picks.values()]
    for shape, (ratio, config) in picks.items():
        print(f"{shape:18s} {ratio:.3f}  {' '.join(f'{name}={value}' for name, value in config.items())}")
    print(f"geometric mean {np.exp(np.mean(np.log(ratios))):.4f}, worst {max(ratios):.3f} (nan: a pick was not timed)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 250)
