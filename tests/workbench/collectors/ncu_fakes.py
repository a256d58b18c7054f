"""The objects that a reader of reports hands out, as far as dgw uses them: for SASS, which no written file holds."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from dgw.workbench.collectors.ncu import Instance, KernelCounters

STUBS = Path(__file__).parents[2] / "data" / "stubs"


def report_writer() -> ModuleType:
    """The module that writes report files."""
    import sys

    spec = importlib.util.spec_from_file_location("dgw_tests_ncu_file", STUBS / "ncu_file.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Metric:
    """A counter with instances, whose `has_value` lies about them as the real one does."""

    ValueKind_STRING, ValueKind_FLOAT, ValueKind_DOUBLE, ValueKind_UINT32, ValueKind_UINT64 = 2, 3, 4, 5, 6

    def __init__(self, value: Any, unit: str = "", parts: Mapping[Any, Any] | None = None) -> None:
        self._value, self._unit, self._parts = value, unit, dict(parts or {})

    def _at(self, *index: int) -> Any:
        return list(self._parts.values())[index[0]] if index else self._value

    def has_value(self, *index: int) -> bool:
        return not index and self._value is not None

    def kind(self, *index: int) -> int:
        return {str: 2, float: 4, int: 6, type(None): 0}[type(self._at(*index))]

    def as_double(self, *index: int) -> float:
        return float(self._at(*index))

    def as_uint64(self, *index: int) -> int:
        return int(self._at(*index))

    def as_string(self, *index: int) -> str:
        return str(self._at(*index))

    def unit(self) -> str:
        return self._unit

    def num_instances(self) -> int:
        return len(self._parts)

    def correlation_ids(self) -> Metric | None:
        return Metric(None, parts=dict(enumerate(self._parts))) if self._parts else None


class _Named:
    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._answers[name]


class Action:
    """One launch, with SASS and source lines by address."""

    def __init__(self, key: str, metrics: dict[str, Metric], sass: Mapping[int, tuple[str, str, int]]) -> None:
        self._key, self._metrics, self._sass = key, metrics, sass

    def name(self) -> str:
        return "gemm"

    def metric_names(self) -> tuple[str, ...]:
        return tuple(self._metrics)

    def metric_by_name(self, name: str) -> Metric | None:
        return self._metrics.get(name)

    def nvtx_state(self) -> Any:
        domain = _Named(name="dgw", push_pop_ranges=(), start_end_ranges=(self._key,))
        return _Named(domains=(1,), domain_by_id=domain)

    def sass_by_pc(self, address: int) -> str:
        return self._sass[address][0]

    def source_info(self, address: int) -> Any:
        return _Named(file_name=self._sass[address][1], line=self._sass[address][2])


class Reader:
    """A module like `ncu_report` that has these actions in one range."""

    def __init__(self, *actions: Action) -> None:
        self.actions = actions

    def load_report(self, path: str) -> Any:
        part = self

        class Context:
            def num_ranges(self) -> int:
                return 1

            def range_by_idx(self, index: int) -> Any:
                return part

        return Context()

    def num_actions(self) -> int:
        return len(self.actions)

    def action_by_idx(self, index: int) -> Action:
        return self.actions[index]


def kernel(values: Mapping[str, Any], **instances: Mapping[str, float]) -> KernelCounters:
    """Counters as if read; `actual` and `ideal` map an opcode to wavefronts."""
    names = {"actual": "memory_l1_wavefronts_shared", "ideal": "memory_l1_wavefronts_shared_ideal"}
    parts = {
        names.get(name, name): tuple(
            Instance(opcode, f"gemm.cu:{n}", value) for n, (opcode, value) in enumerate(i.items())
        )
        for name, i in instances.items()
    }
    totals = {name: sum(part.value for part in found) for name, found in parts.items()}
    return KernelCounters("0123456789abcdef", "gemm", {**totals, **values}, {}, parts)
