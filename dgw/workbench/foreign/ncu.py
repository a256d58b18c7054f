"""Kernels of an Nsight Compute report or its CSV as records: one each launch, or one each range of domain dgw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dgw.model import Case, Config, Environment, Measurement, Problem, Record
from dgw.workbench.collectors import ncu
from dgw.workbench.collectors.ncu import KernelCounters
from dgw.workbench.foreign.naming import Lookup, dimensions, foreign_case, gpu_environment
from dgw.workbench.metrics import ARCHITECTURES, METRICS, counter_name

PROTOCOL = "ncu-foreign/1"
"""Replay, caches and clocks as the maker of the report chose them, which the report does not tell."""

_NAME, _SMS = "device__attribute_display_name", "device__attribute_multiprocessor_count"
_MAJOR, _MINOR = "device__attribute_compute_capability_major", "device__attribute_compute_capability_minor"


def records(kernels: Sequence[KernelCounters], problem: Problem, lookup: Lookup) -> list[Record]:
    """The records of a report, in order of first launch.

    A range of domain dgw whose key `lookup` knows is that case; any other kernel is a case `foreign/NAME`
    of `problem`. Counters that the report lacks are left out; the others are in base units.
    """
    groups: dict[str, list[tuple[int, KernelCounters]]] = {}
    for number, kernel in enumerate(kernels):
        groups.setdefault(kernel.key or f"launch {number}", []).append((number, kernel))
    known = lookup(key for key in groups if " " not in key)
    return [_record(key, same, problem, known) for key, same in groups.items()]


def _record(
    key: str, numbered: Sequence[tuple[int, KernelCounters]], problem: Problem, known: Mapping[str, Case]
) -> Record:
    number, first = numbered[0]
    case = known.get(key) or foreign_case(first.name, problem, _config(number, first))
    kernels = [kernel for _, kernel in numbered]
    measured = ncu.measurements(kernels, METRICS.values(), architecture(first), protocol=PROTOCOL)
    names = tuple(
        Measurement(metric="kernel_name", value=kernel.name, unit="text", scope=f"kernel {position}", collector="ncu",
                    protocol=PROTOCOL)
        for position, kernel in enumerate(kernels)
    )  # fmt: skip
    lines = ncu.line_measurements(kernels, PROTOCOL)
    found = (*names, *(one for one in measured if not one.absent), *lines)
    return Record(case=case, outcome="ok", environment=environment(first), measurements=found)


def _config(number: int, kernel: KernelCounters) -> Config:
    config: Config = {"LAUNCH": number}
    for name, prefix in (("GRID", "launch__grid_dim"), ("BLOCK", "launch__block_dim")):
        size = [kernel.values.get(f"{prefix}_{axis}") for axis in "xyz"]
        if all(isinstance(part, int | float) for part in size):
            x, y, z = (int(part) for part in size if isinstance(part, int | float))
            config[name] = dimensions((x, y, z))
    return config


def environment(kernel: KernelCounters) -> Environment:
    """The GPU that a kernel ran on, as far as its counters say."""
    values = kernel.values
    return gpu_environment(
        str(values.get(_NAME, "")), (_whole(kernel, _MAJOR), _whole(kernel, _MINOR)), _whole(kernel, _SMS)
    )


def _whole(kernel: KernelCounters, name: str) -> int:
    value = kernel.values.get(name)
    return int(value) if isinstance(value, int | float) else 0


def architecture(kernel: KernelCounters) -> str:
    """The architecture by whose names the counters are looked up: the GPU's, else the one that knows most of them."""
    told = environment(kernel).arch
    if told:
        return told
    table = {arch: {counter_name(metric, arch) for metric in METRICS.values()} for arch in ARCHITECTURES}
    return max(ARCHITECTURES, key=lambda arch: sum(name in table[arch] for name in kernel.values))
