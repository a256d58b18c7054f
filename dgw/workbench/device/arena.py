"""Everything a group's members share on the GPU: buffer sets of one problem, its inputs, its checker."""

from __future__ import annotations

from collections.abc import Mapping

from dgw.model import Check, Problem
from dgw.workbench.collectors.timing import Rotation, rotation
from dgw.workbench.device.buffers import BufferSet, slab_layout
from dgw.workbench.device.check import Checker
from dgw.workbench.device.context import Gpu
from dgw.workbench.device.driver import CudaError
from dgw.workbench.device.inputs import Inputs
from dgw.workbench.device.launch import Kernels


class Arena:
    """Buffer sets of `problem`; `sets[0]` is filled from the start, the others are copies of it."""

    def __init__(
        self,
        gpu: Gpu,
        kernels: Kernels,
        inputs: Inputs,
        device_code: Mapping[str, str],
        problem: Problem,
        judged: bool = True,
    ) -> None:
        """Allocate and fill one set. Raises CudaError (out of memory).

        Where nothing will be judged, as under a profiler, there is no checker, and no kernel of its own is launched.
        """
        self.gpu, self.problem, self._inputs = gpu, problem, inputs
        self._layout = slab_layout(problem)
        self._rotation: Rotation | None = None
        self.sets: list[BufferSet] = []
        self._before = set(gpu.allocated)
        try:
            self.sets.append(BufferSet(gpu, problem, self._layout))
            inputs.fill(self.sets[0])
            if judged:
                self.checker = Checker(gpu, kernels, inputs, device_code, self.sets[0])
        except CudaError:
            self.free()
            raise

    def rotate(self, l2_bytes: int, max_sets: int) -> Rotation:
        """Add the sets that cold samples need, the first time; `sets` then has as many as the answer says."""
        if self._rotation is None:
            self._rotation = self._rotate(l2_bytes, max_sets)
        return self._rotation

    def _rotate(self, l2_bytes: int, max_sets: int) -> Rotation:
        wanted = rotation(self._layout.payload, l2_bytes, self.gpu.free_bytes(), max_sets)
        try:
            while len(self.sets) < wanted.sets:
                self.sets.append(BufferSet(self.gpu, self.problem, self._layout))
                self.sets[-1].copy_from(self.sets[0])
        except CudaError as error:
            if error.outcome != "out-of-memory":
                raise
            for extra in self.sets[1:]:
                extra.free()
            del self.sets[1:]
            wanted = Rotation(1, f"{wanted.sets} buffer sets of {self._layout.size} B do not fit into memory: hot only")
        self.gpu.synchronise()
        return wanted

    def poison(self) -> None:
        """Make D of every set NaN again."""
        for buffers in self.sets:
            buffers.poison("d")
        self.gpu.synchronise()

    def check(self, roundings: int = 0) -> Check:
        """The verdict on D of every set: the first that fails, else that of the first set."""
        first = None
        for number, buffers in enumerate(self.sets):
            found = self.checker.check(buffers, roundings)
            if not found.passed:
                return found
            first = found if number == 0 else first
        assert first is not None
        return first

    def restore(self) -> None:
        """Write every input anew, after a kernel that overwrote something."""
        for number, buffers in enumerate(self.sets):
            if number:
                buffers.copy_from(self.sets[0])
                continue
            self.gpu.fill(buffers.base, 0xFF, self._layout.size)
            self._inputs.fill(buffers)
        self.checker.forget()
        self.gpu.synchronise()

    def free(self) -> None:
        """Give back all memory that was taken since this arena began, tables of input data excepted."""
        kept = self._inputs.addresses()
        for address in set(self.gpu.allocated) - self._before - kept:
            self.gpu.free(address)
        self.sets.clear()
