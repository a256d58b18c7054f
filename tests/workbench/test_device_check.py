"""The kernels that compute the reference and judge, executed on the CPU: their verdict is that of the NumPy model."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import dgw.workbench.device as package
from dgw.model import Epilogue, Operand, Problem, Source, gemm
from dgw.operands import bounds, data, quantisation, references
from dgw.toolchain.build import build
from dgw.workbench.device.check import PARTIAL, Chunk, comparison, reference_task, unsupported, verdict
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory

FOLDER = Path(package.__file__).parent
M, N, K = 37, 70, 45


def quantised(out: str, per: str, zero_point: int = 0, **fields: Any) -> Problem:
    epilogue = msgspec.convert({"activation": "gelu", "quantise": per}, Epilogue)
    plain = gemm(M, N, K, out=out, epilogue=epilogue, **fields)
    return msgspec.structs.replace(plain, d=Operand(dtype=out, zero_point=zero_point))


PROBLEMS = {
    "f16": gemm(M, N, K),
    "s8 a row, zero point": quantised("s8", "row", 3, bias=Operand(dtype="f16")),
    "s8 a tensor, outliers": quantised("s8", "tensor", data="outliers"),
    "e4m3 a row": quantised("e4m3", "row"),
    "e4m3 a tensor, NaN and Inf": quantised("e4m3", "tensor", data="naninf"),
}


@cache
def ptx_of(entry: str) -> str:
    return build(Source(path=f"{entry}.cu"), FOLDER, (), "sm_90a").ptx


class Judge:
    """The reference of one problem in emulated device memory."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.memory = problem, Memory()
        self.chunk = Chunk(0, 1, 0, M)
        names = [name for name in problem.operands() if name != "d"]
        inputs = {name: self._place(name, np.ascontiguousarray(data.generate(problem, name))) for name in names}
        value, magnitude, linear = (self._place(name, np.zeros(M * N)) for name in ("value", "magnitude", "linear"))
        self.arrays = (value, magnitude, linear if problem.epilogue.activation != "none" else 0)
        self._run("reference", (2, 1, 1), reference_task(problem, self.chunk, inputs.__getitem__, self.arrays))
        factors = quantisation.scale_arrays(problem)
        self.scale = self._place("scale", factors["d_scale"]) if factors else 0

    def _place(self, name: str, values: np.ndarray[Any, Any], writable: bool = True) -> int:
        return self.memory.register(name, values.reshape(-1).view(np.uint8), writable=writable)

    def _run(self, entry: str, grid: tuple[int, int, int], packed: bytes) -> None:
        ran = EmulatedLaunch(ptx_of(entry), entry, grid, (256, 1, 1), [packed], self.memory).run()
        assert ran.findings == ()

    def __call__(self, stored: np.ndarray[Any, Any]) -> Any:
        memory, self.memory = self.memory, self.memory
        partials = np.zeros(11, PARTIAL)
        d, result = self._place("d", stored.copy(), False), self._place("partials", partials)
        packed = comparison(self.problem, self.chunk, d, self.arrays, result, self.scale)
        self._run("compare", (len(partials), 1, 1), packed)
        self.memory = memory
        return verdict(self.problem, [(self.chunk, partials)])


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_verdict_of_the_device_code_is_that_of_the_model(name: str) -> None:
    problem = PROBLEMS[name]
    assert unsupported(problem) == ""
    judge, expected = Judge(problem), references.block_reference(problem)
    right = np.ascontiguousarray(references.stored_output(problem, expected.value, expected.scale))
    two_steps_off, unwritten = right.copy(), right.copy()
    two_steps_off.view(np.uint8).reshape(M, -1)[20, 33] ^= 2
    unwritten.view(np.uint8)[:] = 0xFF
    for output, passes in ((right, True), (two_steps_off, False), (unwritten, False)):
        found, model = judge(output), bounds.compare(problem, output, expected)
        assert (found.passed, model.passed) == (passes, passes), (found.detail, model.detail)
        assert found.worst == model.worst
        assert (found.relative_error is None) == (model.relative_error is None)
        assert found.relative_error is None or found.relative_error == pytest.approx(model.relative_error, rel=1e-9)
        if found.error is not None:
            assert found.error == pytest.approx(model.error, rel=1e-9)
            assert found.bound == pytest.approx(model.bound, rel=1e-9)


def test_a_scaled_input_is_left_to_the_host() -> None:
    scaled = msgspec.structs.replace(gemm(M, N, K, "s8", out="s32"), a=Operand(dtype="s8", scale="row"))
    assert unsupported(scaled)
    shifted = msgspec.structs.replace(gemm(M, N, K, "s8", out="s32"), a=Operand(dtype="s8", zero_point=1))
    assert unsupported(shifted)
