"""Launches whose last details only the compiler knows: Triton decides shared memory, warps and scratch of a kernel; and
what no device will launch, whoever compiled it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import msgspec

from dgw.model import DECIDED_LATER, Argument, Device, Fill, Launch, Plan, Scalar, Source, Workspace
from dgw.toolchain.build import Build
from dgw.toolchain.occupancy import MAX_THREADS_PER_BLOCK, occupancy
from dgw.toolchain.triton_compiler import facts

MOST_BLOCKS = (2**31 - 1, 65535, 65535)
MOST_DEEP = 64
"""Threads of a block along z."""


def complete(plan: Plan, builds: Mapping[Source, Build]) -> Plan:
    """`plan` with what the compiler decided: block size, dynamic shared memory, hidden arguments and their scratch.

    Launches compiled by NVRTC are left as they are, so it is safe to call it for every plan, also twice.
    """
    workspaces = dict(plan.workspaces)
    steps: list[Launch | Fill] = []
    for number, step in enumerate(plan.steps):
        known = facts(builds[step.source].log) if isinstance(step, Launch) else None
        if not isinstance(step, Launch) or known is None or step.shared_bytes != DECIDED_LATER:
            steps.append(step)
            continue
        hidden: list[Argument] = [Scalar(name="null", dtype="i64", value=0)] * known.hidden_pointers
        if known.scratch_bytes:
            name = f"scratch_{number}"
            workspaces[name] = known.scratch_bytes * prod(step.grid)
            hidden[0] = Workspace(name=name)
        steps.append(
            msgspec.structs.replace(
                step,
                block=(32 * known.warps, 1, 1),
                shared_bytes=known.shared_bytes,
                arguments=(*step.arguments, *hidden),
            )
        )
    return msgspec.structs.replace(plan, steps=tuple(steps), workspaces=workspaces)


def too_large(plan: Plan, device: Device) -> str:
    """Why `device` cannot hold a block of a complete plan whose compiler chose more shared memory than there is.

    Such a case is refused, and not launch-failed as what `unlaunchable` finds: a declaration says itself what its
    launch takes, and refuses what is too much (declaring.refuses_launch), but of Triton's kernels only the compiler
    knows it. This is the refusal that they would give, and so a row of a sweep and no failure.
    """
    for launch in plan.launches:
        if launch.source.language == "triton" and launch.shared_bytes > device.shared_per_block:
            return (
                f"needs {launch.shared_bytes} bytes of shared memory a block, "
                f"but {device.name} has {device.shared_per_block} ({device.arch})"
            )
    return ""


def unlaunchable(plan: Plan, builds: Mapping[Source, Build], device: Device) -> str:
    """Why `device` refuses a launch of a complete plan, in words with both figures; empty where it takes them all.

    Such a case is launch-failed: its declaration took the problem and then asked for what cannot be.
    """
    for launch in plan.launches:
        if reason := _refused(launch, builds[launch.source], device):
            return f"{device.name} cannot launch {launch.entry}: {reason}"
    return ""


def _refused(launch: Launch, build: Build, device: Device) -> str:
    needs, threads = build.resources(launch.entry), prod(launch.block)
    shared = needs.shared_bytes + launch.shared_bytes
    if not threads or not prod(launch.grid):
        return f"a grid of {_sizes(launch.grid)} blocks of {_sizes(launch.block)} threads is empty"
    if threads > MAX_THREADS_PER_BLOCK:
        return f"{threads:,} threads a block, and no block has more than {MAX_THREADS_PER_BLOCK:,}"
    if launch.block[2] > MOST_DEEP:
        return f"a block of {_sizes(launch.block)} threads, of which no more than {MOST_DEEP} may lie along z"
    if any(size > most for size, most in zip(launch.grid, MOST_BLOCKS, strict=True)):
        return f"a grid of {_sizes(launch.grid)} blocks, and none has more than {_sizes(MOST_BLOCKS)}"
    if shared > device.shared_per_block:
        return f"{shared:,} bytes of shared memory a block, and {device.arch} allows {device.shared_per_block:,}"
    if occupancy(device, threads, needs.registers).blocks_per_sm == 0:
        return f"{threads:,} threads of {needs.registers} registers a block, more than an SM has registers for"
    if threads > needs.max_threads:
        return f"{threads:,} threads a block, and it is compiled for {needs.max_threads:,} (__launch_bounds__)"
    return ""


def _sizes(sizes: tuple[int, int, int]) -> str:
    return " x ".join(f"{size:,}" for size in sizes)
