"""A group of alike operations bound to the registers of a batch: NumPy views for sources, targets and masks.

Arrays have the shape of the group, (n,) or (p, q), then lanes. A register operand whose rows form an arithmetic
progression along each axis is a strided view and costs nothing; other operands are gathered and scattered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.operation import Operation, Source, Thunk
from dgw.workbench.emulator.ptx.operands import Immediate, Not, Register, Special, Symbol
from dgw.workbench.emulator.schedule import Arrangement, Rows, register_of
from dgw.workbench.emulator.state import Lanes, Registers, register_class

if TYPE_CHECKING:
    from dgw.workbench.emulator.engine import Engine

Array = NDArray[Any]
BOOL = np.dtype(np.bool_)
U16, U32, U64 = np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint64)
I16, I32, I64 = np.dtype(np.int16), np.dtype(np.int32), np.dtype(np.int64)
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)


@dataclass(slots=True)
class Context:
    """What groups of one block variant are bound to. `active` is the mask buffer [lanes] of the masked variant."""

    engine: Engine
    registers: Registers
    lanes: Lanes
    rows: Rows
    active: NDArray[np.bool_] | None


class Values:
    """A source: `array` when it is a view or constant that stays valid, else `fetch` gathers it anew."""

    __slots__ = ("array", "fetch")

    def __init__(self, array: Array | None, fetch: Callable[[], Array] | None = None) -> None:
        self.array = array
        self.fetch: Callable[[], Array] = fetch if fetch is not None else (lambda: array)  # type: ignore[return-value, assignment]

    def map(self, function: Callable[[Array], Array]) -> Values:
        """The source after `function`, computed at each fetch (at once for constants: read-only arrays)."""
        if self.array is not None and not self.array.flags.writeable:
            result = function(self.array)
            result.flags.writeable = False
            return Values(result)
        fetch = self.fetch
        return Values(None, lambda: function(fetch()))


class Target:
    """A destination: `view` when its rows are regular, else rows are scattered; `store(value)` obeys the mask."""

    __slots__ = ("store", "view")

    def __init__(self, view: Array | None, store: Callable[[Array], None]) -> None:
        self.view = view
        self.store = store


def affine(rows: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Steps along each axis when `rows` (in C order) is an arithmetic progression along every axis, else None."""
    first = rows[0]
    steps: list[int] = []
    span = 1
    expected = [first]
    for size in reversed(shape):
        step = rows[span] - first if size > 1 else 0
        expected = [start + place * step for place in range(size) for start in expected]
        steps.append(step)
        span *= size
    return tuple(reversed(steps)) if expected == list(rows) else None


class Group:
    """One arrangement bound to a context. Builders ask it for sources and targets and return a thunk."""

    def __init__(self, arrangement: Arrangement, context: Context) -> None:
        self.operations: list[Operation] = arrangement.operations
        self.shape = arrangement.shape
        self.context = context
        self.lanes = context.lanes
        self.engine = context.engine
        self.first = arrangement.operations[0]
        self.detail = self.first.detail
        self.mask: NDArray[np.bool_] | None = context.active
        self._prepare: Thunk | None = None
        if self.first.instruction.guard is not None:
            self._bind_guard()

    @property
    def n(self) -> int:
        """How many operations there are."""
        return len(self.operations)

    def _bind_guard(self) -> None:
        guards = [operation.instruction.guard for operation in self.operations]
        one = all(guard is guards[0] for guard in guards)
        values = self._registers(
            [g for g in guards if g is not None][: 1 if one else None], () if one else self.shape, BOOL
        )
        negated, active = self.first.instruction.negated, self.context.active
        if not negated and active is None and values.array is not None:
            self.mask = values.array
            return
        scratch = np.empty((*(() if one else self.shape), self.lanes.count), dtype=np.bool_)
        fetch = values.fetch

        def prepare() -> None:
            guard = fetch()
            if negated:
                np.logical_not(guard, out=scratch)
                guard = scratch
            if active is not None:
                np.logical_and(guard, active, out=scratch)
            elif not negated:
                scratch[...] = guard

        self.mask, self._prepare = scratch, prepare

    def finish(self, thunk: Thunk) -> Thunk:
        """`thunk` preceded by the computation of the mask where there is one."""
        prepare = self._prepare
        if prepare is None:
            return thunk

        def both() -> None:
            prepare()
            thunk()

        return both

    def _registers(self, registers: Sequence[Register], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Values:
        bits = register_class(registers[0].bits)
        row_of = self.context.rows.of
        rows = [row_of(register) for register in registers]
        if dtype.itemsize * 8 > max(bits, 8):  # read wider than the register: zero-extended
            narrow = self._registers(registers, shape, self.context.registers.arrays[bits].dtype)
            return narrow.map(lambda a: a.astype(dtype))
        base = self.context.registers.view(bits, dtype)
        steps = affine(rows, shape)
        if steps is None:
            places = np.array(rows, dtype=np.int64).reshape(shape)
            return Values(None, lambda: base[places])
        return Values(_strided(base, rows[0], shape, steps))

    def source(self, position: int, dtype: np.dtype[Any]) -> Values:
        """Read position `position` of every operation, as `dtype`."""
        return self._read([operation.reads[position] for operation in self.operations], self.shape, dtype)

    def vector(self, positions: Sequence[int], dtype: np.dtype[Any]) -> Values:
        """Several read positions: shape of the group, then len(positions), then lanes."""
        reads = [operation.reads[position] for operation in self.operations for position in positions]
        return self._read(reads, (*self.shape, len(positions)), dtype)

    def side(self, axis: int, positions: Sequence[int], dtype: np.dtype[Any]) -> Values:
        """Read positions that vary along one axis of a (p, q) group only: [p or q, len(positions), lanes]."""
        q = self.shape[1]
        chosen = self.operations[::q] if axis == 0 else self.operations[:q]
        reads = [operation.reads[position] for operation in chosen for position in positions]
        return self._read(reads, (self.shape[axis], len(positions)), dtype)

    def _read(self, reads: Sequence[Source], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Values:
        first = reads[0]
        registers = [register_of(read) for read in reads]
        if all(register is not None for register in registers):
            if len({register.bits for register in registers if register is not None}) > 1:
                return self._mixed(reads, shape, dtype)
            values = self._registers([register for register in registers if register is not None], shape, dtype)
            return values.map(np.logical_not) if isinstance(first, Not) else values
        if isinstance(first, Special) and all(read == first for read in reads):
            return Values(self.engine.special(first.name, dtype).reshape(*(1 for _ in shape), self.lanes.count))
        if any(isinstance(read, Register | Special | Not) for read in reads):
            return self._mixed(reads, shape, dtype)
        constants = np.array([self._constant(read, dtype) for read in reads], dtype=dtype)
        constants = constants.reshape(*shape, 1)
        constants.flags.writeable = False
        return Values(constants)

    def _mixed(self, reads: Sequence[Source], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Values:
        parts = [self._read([read], (1,), dtype) for read in reads]
        lanes = self.lanes.count

        def fetch() -> Array:
            rows = [np.broadcast_to(part.fetch().reshape(-1), (lanes,)) for part in parts]
            return np.stack(rows).reshape(*shape, lanes)

        return Values(None, fetch)

    def _constant(self, read: Source, dtype: np.dtype[Any]) -> Any:
        if isinstance(read, Symbol):
            value, float_bits = self.engine.address_of(read, self.first.instruction.line), 0
        elif isinstance(read, Immediate):
            value, float_bits = read.value, read.float_bits
        else:
            raise TypeError("not a constant")
        size = dtype.itemsize
        if dtype == BOOL:
            return bool(value)
        if float_bits == 64 and size == 4:
            return np.array(value, dtype=np.uint64).view(np.float64).astype(np.float32).view(dtype)
        bits = np.array([value & ((1 << 8 * size) - 1)], dtype=f"u{size}") if size <= 8 else np.array([value], dtype)
        return bits.view(dtype)[0]

    def target(self, position: int, dtype: np.dtype[Any]) -> Target:
        """Write position `position` of every operation."""
        registers = [operation.writes[position] for operation in self.operations]
        return self._target(registers, self.shape, dtype)

    def vector_target(self, positions: Sequence[int], dtype: np.dtype[Any]) -> Target:
        """Several write positions: shape of the group, then len(positions), then lanes."""
        registers = [operation.writes[position] for operation in self.operations for position in positions]
        return self._target(registers, (*self.shape, len(positions)), dtype)

    def _target(self, registers: Sequence[Register | None], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Target:
        mask = self.mask
        if mask is not None and len(shape) > len(self.shape) and mask.ndim > 1:
            mask = mask[..., None, :]
        kept = [register for register in registers if register is not None]
        if len(kept) < len(registers):
            return self._partial_target(registers, shape, dtype)
        bits = register_class(kept[0].bits)
        rows = [self.context.rows.of(register) for register in kept]
        array = self.context.registers.arrays[bits]
        base = array if bits == 1 else array.view(_widened(dtype, array.itemsize))
        steps = affine(rows, shape)
        if steps is None:
            places = np.array(rows, dtype=np.int64).reshape(shape)
            return Target(None, partial(_scatter, base, places, mask))
        view = _strided(base, rows[0], shape, steps)
        if mask is None:
            return Target(view, partial(view.__setitem__, ...))
        return Target(view, partial(_copy_where, view, mask))

    def _partial_target(
        self, registers: Sequence[Register | None], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Target:
        if all(register is None for register in registers):
            return Target(None, lambda value: None)
        flat = [
            None if register is None else self._target([register], tuple(1 for _ in shape), dtype)
            for register in registers
        ]
        indices = list(np.ndindex(*shape))

        def store(value: Array) -> None:
            value = np.broadcast_to(value, (*shape, value.shape[-1]))
            for index, place in zip(indices, flat, strict=True):
                if place is not None:
                    place.store(value[index])

        return Target(None, store)

    def apply(self, function: Callable[..., Any], sources: Sequence[Values], target: Target) -> Thunk:
        """A thunk that stores `function(*sources)`; a ufunc writes straight into the registers where it can."""
        view, mask = target.view, self.mask
        arrays = [source.array for source in sources if source.array is not None]
        if isinstance(function, np.ufunc) and view is not None and len(arrays) == len(sources):
            dtypes = tuple(array.dtype for array in arrays)
            if all(dtype == dtypes[0] for dtype in dtypes) and _result(function, dtypes) == view.dtype:
                if mask is None:
                    return self.finish(partial(function, *arrays, out=view))
                return self.finish(partial(function, *arrays, out=view, where=mask))
        fetches = [source.fetch for source in sources]
        store = target.store
        if len(fetches) == 1:
            (one,) = fetches
            return self.finish(lambda: store(function(one())))
        if len(fetches) == 2:
            one, two = fetches
            return self.finish(lambda: store(function(one(), two())))
        return self.finish(lambda: store(function(*[fetch() for fetch in fetches])))

    def __repr__(self) -> str:
        return f"Group({self.first.instruction.name} {self.shape})"


_RESULTS: dict[tuple[Any, ...], np.dtype[Any]] = {}


def _result(function: np.ufunc, dtypes: tuple[np.dtype[Any], ...]) -> np.dtype[Any]:
    """The type that a ufunc gives; object where it takes no such types."""
    key = (function, dtypes)
    found = _RESULTS.get(key)
    if found is None:
        try:
            found = np.dtype(function.resolve_dtypes((*dtypes, None))[-1])
        except TypeError:
            found = np.dtype(object)
        _RESULTS[key] = found
    return found


def _widened(dtype: np.dtype[Any], size: int) -> np.dtype[Any]:
    """`dtype`, or the integer type of the same signedness that fills the register."""
    if dtype.itemsize == size:
        return dtype
    return np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}{size}")


def _strided(base: Array, row: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    """Rows of `base` [rows, lanes] from `row` on, `steps` rows apart along each axis: a view [*shape, lanes]."""
    stride, inner = base.strides
    owner = base if base.base is None else base.base
    view: Array = np.ndarray(
        (*shape, base.shape[1]), base.dtype, owner, row * stride, (*(step * stride for step in steps), inner)
    )
    return view


def _copy_where(view: Array, mask: Array, value: Array) -> None:
    np.copyto(view, value, where=mask, casting="unsafe")


def _scatter(base: Array, rows: NDArray[np.int64], mask: Array | None, value: Array) -> None:
    if mask is None:
        base[rows] = value
        return
    old = base[rows]
    np.copyto(old, value, where=mask, casting="unsafe")
    base[rows] = old
