"""The static lane: what the compiler, the device's limits and the problem say without running anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod

from dgw.model import Device, Launch, Measurement, Plan, Problem, Source
from dgw.toolchain.build import Build
from dgw.toolchain.limits import lower_bound
from dgw.toolchain.occupancy import Occupancy, occupancy
from dgw.toolchain.sass import disassemble, histogram

COLLECTOR = "static"


def _number(metric: str, value: float | int | str | None, unit: str, scope: str = "case", why: str = "") -> Measurement:
    return Measurement(metric=metric, value=value, unit=unit, scope=scope, collector=COLLECTOR, absent=why)


def problem_measurements(problem: Problem, device: Device) -> tuple[Measurement, ...]:
    """flops (FLOP), compulsory_bytes (B), and the lower bound of the time on `device`: bound_time (s), bound_pipe."""
    bound = lower_bound(problem, device)
    return (
        _number("flops", problem.flops, "FLOP"),
        _number("compulsory_bytes", problem.compulsory_bytes, "B"),
        _number("bound_time", bound.seconds, "s"),
        _number("bound_pipe", bound.binds, "text"),
    )


def launch_measurements(launch: Launch, build: Build, device: Device, scope: str) -> tuple[Measurement, ...]:
    """Registers, spills, shared memory, occupancy and its limiter of one launch.

    Shared memory is what the kernel asks for, static and dynamic, without what the system reserves.
    """
    needs = build.resources(launch.entry)
    threads, shared = prod(launch.block), needs.shared_bytes + launch.shared_bytes
    fits = occupancy(device, threads, needs.registers, shared, needs.barriers)
    unsaid = "the compiler's log says nothing of spills"
    return (
        _number("registers_per_thread", needs.registers, "register", scope),
        _number("spill_store_bytes", needs.spill_store_bytes, "B", scope, _why(needs.spill_store_bytes, unsaid)),
        _number("spill_load_bytes", needs.spill_load_bytes, "B", scope, _why(needs.spill_load_bytes, unsaid)),
        _number("local_bytes", needs.local_bytes, "B", scope),
        _number("shared_mem_per_block", shared, "B", scope),
        _number("threads_per_block", threads, "thread", scope),
        _number("blocks", prod(launch.grid), "block", scope),
        *_occupancy_measurements(fits, scope),
    )


def _why(value: int | None, reason: str) -> str:
    return reason if value is None else ""


def _occupancy_measurements(fits: Occupancy, scope: str) -> Iterable[Measurement]:
    yield _number("theoretical_occupancy", fits.ratio, "ratio", scope)
    yield _number("occupancy_limiter", ", ".join(fits.limiters), "text", scope)
    yield _number("blocks_per_sm", fits.blocks_per_sm, "block", scope)
    limits = {"registers": "occ_limit_registers", "shared memory": "occ_limit_shared_mem", "warps": "occ_limit_warps"}
    for resource, metric in {**limits, "blocks": "occ_limit_blocks"}.items():
        if resource in fits.limits:
            yield _number(metric, fits.limits[resource], "block", scope)


def plan_measurements(plan: Plan, builds: Mapping[Source, Build], device: Device) -> tuple[Measurement, ...]:
    """The figures of every launch (`kernel i`), and for the case those of the launch with the most work (threads)."""
    launches = plan.launches
    if not launches:
        return ()
    main = plan.largest
    found = launch_measurements(launches[main], builds[launches[main].source], device, "case")
    if len(launches) == 1:
        return found
    each = [
        measured
        for number, launch in enumerate(launches)
        for measured in launch_measurements(launch, builds[launch.source], device, f"kernel {number}")
    ]
    return (*found, *each)


def instruction_mix(plan: Plan, builds: Mapping[Source, Build]) -> Measurement:
    """`inst_mix`: static count of SASS instructions by opcode over all launches, most frequent first (`FFMA 512 ...`).

    Costs a run of nvdisasm (50 ms or more) per cubin, so it is only made when asked for.
    """
    counts: Counter[str] = Counter()
    for launch in plan.launches:
        counts.update(histogram(disassemble(builds[launch.source].cubin, launch.entry)))
    text = " ".join(f"{opcode} {count}" for opcode, count in counts.most_common())
    return _number("inst_mix", text or None, "text", why="" if text else "foreign code has no SASS here")


def remarks(builds: Iterable[Build]) -> tuple[str, ...]:
    """Remarks of ptxas with a C75xx code: they mean that wgmma was serialised or starved of registers."""
    return tuple(dict.fromkeys(f"ptxas: {line}" for build in builds for line in build.coded_remarks))
