"""Launches whose last details only the compiler knows: Triton decides shared memory, warps and scratch of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import msgspec

from dgw.model import DECIDED_LATER, Argument, Device, Fill, Launch, Plan, Scalar, Source, Workspace
from dgw.toolchain.build import Build
from dgw.toolchain.triton_compiler import facts


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
    """Why `device` cannot hold a block of a complete plan whose compiler chose more shared memory than there is."""
    for launch in plan.launches:
        if launch.source.language == "triton" and launch.shared_bytes > device.shared_per_block:
            return (
                f"needs {launch.shared_bytes} bytes of shared memory a block, "
                f"but {device.name} has {device.shared_per_block} ({device.arch})"
            )
    return ""
