"""fma.rn.f32 on whole groups: outer products of registers, one exact rounding, no work for factors that need none."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgw.workbench.emulator import rounding
from dgw.workbench.emulator.group import F32, Group
from dgw.workbench.emulator.operation import Thunk
from dgw.workbench.emulator.schedule import register_of

Array = Any  # a NumPy array


def build(group: Group) -> Thunk:
    """Sources a (may vary along the first axis only), b (second axis only) and c; destination of the group's shape.

    When both factors were converted from f16 their product has at most 22 bits and is exact in float32, so a float32
    multiply and add round once. The same holds for bf16 where no product leaves the normal range.
    """
    kinds = [_kind(group, position) for position in (0, 1)]
    if kinds == ["f16", "f16"]:
        return _short_products(group, check_range=False)
    if all(kinds):
        return _short_products(group, check_range=True)
    return _long_products(group)


def _kind(group: Group, position: int) -> str:
    narrow = group.engine.kernel.narrow_values
    registers = [register_of(operation.reads[position]) for operation in group.operations]
    kinds = {"" if register is None else narrow.get(register, "") for register in registers}
    if "" in kinds:
        return ""
    return "f16" if kinds == {"f16"} else "bf16"


def _short_products(group: Group, check_range: bool) -> Thunk:
    a, b, c = (group.source(position, F32).fetch for position in range(3))
    target = group.target(0, F32)
    shape = (*group.shape, group.lanes.count)
    product = np.empty(shape, dtype=np.float32)
    view = target.view if group.mask is None else None
    exact = _Exact(shape)

    def run() -> None:
        left, right = a(), b()
        if check_range and not _product_in_range(left, right):
            target.store(exact(left, right, c()))
            return
        np.multiply(left, right, out=product)
        if view is not None:
            np.add(product, c(), out=view)
        else:
            target.store(product + c())

    return group.finish(run)


def _product_in_range(a: Array, b: Array) -> bool:
    x, y = np.abs(a), np.abs(b)
    if not (float(x.max()) * float(y.max()) < 2.0**127):
        return False
    return _least(x) * _least(y) >= 2.0**-110


def _least(x: Array) -> float:
    """The smallest magnitude that is not zero."""
    least = float(x.min())
    return least if least > 0 else float(np.min(x, initial=1.0, where=x > 0))


class _Exact:
    """fma of float32 arrays rounded once, with scratch arrays of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.product = np.empty(shape, dtype=np.float64)
        self.total = np.empty(shape, dtype=np.float64)
        self.bits = np.empty(shape, dtype=np.uint64)
        self.flags = np.empty(shape, dtype=np.bool_)
        self.result = np.empty(shape, dtype=np.float32)

    def __call__(self, a: Array, b: Array, c: Array) -> Array:
        np.multiply(a.astype(np.float64), b.astype(np.float64), out=self.product)
        np.add(self.product, c, out=self.total)
        result = self.result
        np.copyto(result, self.total, casting="same_kind")
        tied = rounding.ties(self.total, self.bits, self.flags)
        # Below this product bound the sum may have bits under the smallest float32 subnormal number.
        if not _least(np.abs(a)) * _least(np.abs(b)) >= 2.0**-102:
            self.flags |= (np.abs(self.total) < 2.0**-126) & (self.total != 0)
            tied = True
        if tied:
            rounding.repair(self.flags, self.product, c, self.total, result)
        return result


def _long_products(group: Group) -> Thunk:
    a, b, c = (group.source(position, F32).fetch for position in range(3))
    store = group.target(0, F32).store
    exact = _Exact((*group.shape, group.lanes.count))
    return group.finish(lambda: store(exact(a(), b(), c())))
