"""Print how fast the emulator is: `python tests/speed.py [--repeat N]`. Nothing is judged; a busy machine says little.

Whole processes are timed from outside with Python's bytecode cached, first against an empty compile cache (cold), then
again (warm). The engine is timed inside one process, after a run that compiles its code: one launch, with counting.
Every figure is the median of N; `cpu` is user + system of the process and its children.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it also runs where dgw is not installed

PROFILE = ("profile", "--variant", "swizzled", "--shape", "4096x4096x4096")
FULL_GRID = ("check", "--variant", "tensor-core", "--shape", "1024x1024x1024", "--full-grid")
Times = tuple[float, float]  # wall and CPU seconds


def process(arguments: tuple[str, ...], folder: Path) -> Times:
    """One `dgw` process in `folder`, which holds its compile cache and its store."""
    keep = {"PYTHONDONTWRITEBYTECODE": "", "DGW_CACHE": str(folder / "cache"), "DGW_STORE": str(folder / "dgw.db")}
    environment = {**os.environ, **keep, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "dgw", *arguments, "--engine", "emulator"]
    quiet, before = subprocess.DEVNULL, os.times()
    start = time.perf_counter()
    subprocess.run(command, env=environment, cwd=folder, stdout=quiet, stderr=quiet, check=True)
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu


def engine(name: str, shape: tuple[int, int, int], config: dict[str, int | str], folder: Path) -> Callable[[], Times]:
    """A launch of a stage on a problem, every CTA of it, with counting."""
    from dgw.kernels.loader import load
    from dgw.model import Case, Source, gemm
    from dgw.toolchain.cache import CompileCache
    from dgw.toolchain.devices import device
    from dgw.workbench.emulator.launching import PlanRun
    from dgw.workbench.prepare import prepare

    variant = load()[name]
    case = Case(problem=gemm(*shape), variant=name, config=variant.defaults() | config)
    prepared = prepare(case, variant, device("h200"), CompileCache(folder / "cache"))
    plan = prepared.plan
    if plan is None or not prepared.runnable:
        raise SystemExit(f"{name} cannot run {shape}: {prepared.record.reason}")

    def ptx_of(source: Source) -> str:
        return prepared.builds[source].ptx

    def once() -> Times:
        run = PlanRun(case, plan, ptx_of, full_grid=True)
        run.buffers.fill((0, slice(0, shape[0]), slice(0, shape[1])))
        wall, cpu = time.perf_counter(), time.process_time()
        run.run()
        return time.perf_counter() - wall, time.process_time() - cpu

    once()
    return once


def show(label: str, times: list[Times]) -> None:
    wall, cpu = (statistics.median(each) for each in zip(*times, strict=True))
    print(f"{label:<58} {1000 * wall:8.0f} ms wall {1000 * cpu:8.0f} ms cpu")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="How fast the emulator is.")
    parser.add_argument("--repeat", type=int, default=5)
    repeat = max(1, parser.parse_args(arguments).repeat)
    with tempfile.TemporaryDirectory(prefix="dgw-speed-") as name:
        folder = Path(name)
        cold = []
        for index in range(max(1, repeat // 2)):
            (folder / f"cold{index}").mkdir()
            cold.append(process(PROFILE, folder / f"cold{index}"))
        show("dgw profile swizzled 4096^3, empty compile cache", cold)
        process(PROFILE, folder)
        show("dgw profile swizzled 4096^3, warm", [process(PROFILE, folder) for _ in range(repeat)])
        show("dgw check tensor-core 1024^3, every CTA", [process(FULL_GRID, folder)])
        square: dict[str, int | str] = {"BM": 128, "BN": 128}
        for label, variant, shape, config in (
            ("engine: tensor-core 128x128x128, one CTA", "cuda/tensor-core", (128, 128, 128), square),
            ("engine: swizzled 128x128x128, one CTA", "cuda/swizzled", (128, 128, 128), {}),
        ):
            once = engine(variant, shape, config, folder)
            show(label, [once() for _ in range(2 * repeat)])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
