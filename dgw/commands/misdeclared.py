"""Faults of a declaration that show only when its kernel is to be run, and where they are mended."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from dgw.kernels.declaring import UNFINISHED
from dgw.model import Argument, Plan, Record, Scalar, Variant

MISDECLARED = "the declaration does not fit the kernel"
_SIZE = re.compile(r"parameter (\w+)_param_(\d+) has (\d+) bytes, the launch passes (\d+)")
_COUNT = re.compile(r"(\w+) takes (\d+) parameters, the launch passes (\d+)")


def misdeclared(message: str, plan: Plan) -> str:
    """What the emulator said of a launch whose arguments are not those of the kernel, in words of the declaration;
    empty for any other message."""
    if found := _COUNT.search(message):
        return f"{MISDECLARED}: {found[1]} takes {found[2]} parameters, and the Launch has {found[3]} arguments"
    found = _SIZE.search(message)
    if found is None:
        return ""
    place = int(found[2])
    launch = next(one for one in plan.launches if one.entry == found[1])
    return (
        f"{MISDECLARED}: parameter {place + 1} of {found[1]} has {found[3]} bytes, and "
        f"{_spelt(launch.arguments[place])} passes {found[4]}"
    )


def _spelt(argument: Argument) -> str:
    if isinstance(argument, Scalar):
        return f'Scalar(name="{argument.name}", dtype="{argument.dtype}")'
    return type(argument).__name__


def mended_in(record: Record, variants: Mapping[str, Variant]) -> str:
    """Where to mend the declaration of a case that failed for it; empty where it did not."""
    variant = variants.get(record.case.variant)
    if variant is None or not record.reason.startswith((MISDECLARED, UNFINISHED)):
        return ""
    near = os.path.relpath(variant.declaration)
    file = str(variant.declaration) if near.startswith("..") else near
    if record.reason.startswith(UNFINISHED):
        return f"write its Pointer, Scalar or Workspace into {file}, instead of declaring.fill_in"
    return f'the arguments of the Launch in {file}: dtype "i64" is 8 bytes, "i32", "u32" and "f32" are 4'
