"""Kernels of FMA units and plain loads in the emulator: what a few lines of a first course in CUDA suffer from."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgw.commands.without_gpu import CpuEngine
from dgw.model import (
    Case,
    Config,
    Device,
    Finding,
    Launch,
    Plan,
    Pointer,
    Problem,
    Record,
    Scalar,
    Source,
    Variant,
    gemm,
)
from dgw.recipes.diagnosis import diagnose
from dgw.toolchain.cache import CompileCache
from dgw.toolchain.devices import device

HERE = Path(__file__).parent


def sums(side: int, down: bool = False) -> Variant:
    """sums.cu with so many rows and columns of sums a thread."""

    def plan(problem: Problem, config: Config, device: Device) -> Plan:
        launch = Launch(
            source=Source(path="sums.cu", defines=(("SIDE", side), ("DOWN", int(down)))), entry="sums",
            grid=(problem.n // (16 * side), problem.m // (16 * side), 1), block=(16, 16, 1),
            arguments=(
                Pointer(operand="a"), Pointer(operand="b"), Pointer(operand="d"), Scalar(name="n"), Scalar(name="k"),
                Scalar(name="alpha", dtype="f32"),
            ),
        )  # fmt: skip
        return Plan(steps=(launch,), tile=(16 * side, 16 * side))

    return Variant(
        id=f"sums/{side}-{down}", version=1, idea="sums in registers", dtypes=("f32",), refuses=lambda *_: None,
        plan=plan, root=HERE,
    )  # fmt: skip


def found(variant: Variant, cache: CompileCache) -> tuple[Finding, ...]:
    kept: list[Record] = []
    engine = CpuEngine({variant.id: variant}, device("h200"), cache.folder, "emulator", "there is no GPU")
    case = Case(problem=gemm(1408, 1536, 64, "f32"), variant=variant.id, config={})
    engine.run([case], kept.append, lambda done, total, doing: None)
    assert kept[0].outcome == "ok", kept[0].reason
    return diagnose(kept[0], unknown=False)


@pytest.mark.parametrize(("side", "times"), [(1, 8.0), (4, 2.0)])
def test_banks_that_take_longer_than_the_products_are_named(side: int, times: float, cache: CompileCache) -> None:
    """By 4 (r + c) / (r c), what r x c sums a thread cost."""
    first = found(sums(side), cache)[0]
    assert (first.recipe, first.confidence == "low") == ("shared-memory-bound", False)
    assert f"the banks take {times:.1f} times as long as the products" in first.verdict


def test_eight_by_eight_sums_a_thread_are_enough(cache: CompileCache) -> None:
    assert [
        f.recipe for f in found(sums(8), cache) if f.recipe == "shared-memory-bound" or f.confidence == "high"
    ] == []


def test_loads_that_waste_sectors_are_named_although_another_pipe_is_busier_by_a_hair(cache: CompileCache) -> None:
    first = found(sums(8, down=True), cache)[0]
    assert first.recipe == "uncoalesced"
    assert "overlap of pipes" in [evidence.metric for evidence in first.evidence]
