"""Whether the arguments that a declaration passes are the parameters of the compiled kernel: their number and sizes.

On a GPU nothing else asks: the driver copies as many bytes as the kernel declares, from wherever an argument begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dgw.model import SCALAR_BYTES, Argument, Plan, Scalar, Source, TensorMap
from dgw.toolchain.build import Build

MISDECLARED = "the declaration does not fit the kernel"
_ADDRESS_BYTES = 8
_TENSOR_MAP_BYTES = 128


@dataclass(frozen=True)
class Miscount:
    """A launch of `entry` passes `passed` arguments, and the kernel takes `taken`."""

    entry: str
    taken: int
    passed: int

    def __str__(self) -> str:
        return f"{self.entry} takes {self.taken} parameters, and the Launch has {self.passed} arguments"


@dataclass(frozen=True)
class Missize:
    """`argument` is passed for the parameter at `place` (from 0) of `entry`, which has another size (both in bytes)."""

    entry: str
    place: int
    taken: int
    passed: int
    argument: Argument

    def __str__(self) -> str:
        return (
            f"parameter {self.place + 1} of {self.entry} has {self.taken} bytes, "
            f"and {_spelt(self.argument)} passes {self.passed}"
        )


def argument_size(argument: Argument) -> int:
    """Bytes that an argument of a launch is passed as."""
    if isinstance(argument, Scalar):
        return SCALAR_BYTES[argument.dtype]
    return _TENSOR_MAP_BYTES * argument.phases if isinstance(argument, TensorMap) else _ADDRESS_BYTES


def misfit(plan: Plan, builds: Mapping[Source, Build]) -> Miscount | Missize | None:
    """The first argument of a complete plan that is none of its kernel's parameters; None where all of them are, or
    the compiled kernel does not say what it takes."""
    for launch in plan.launches:
        taken = builds[launch.source].parameters(launch.entry)
        if taken is None:
            continue
        if len(taken) != len(launch.arguments):
            return Miscount(launch.entry, len(taken), len(launch.arguments))
        for place, (size, argument) in enumerate(zip(taken, launch.arguments, strict=True)):
            if size != argument_size(argument):
                return Missize(launch.entry, place, size, argument_size(argument), argument)
    return None


def misdeclared(plan: Plan, builds: Mapping[Source, Build]) -> str:
    """The reason of a case whose arguments do not fit; empty where they do. It begins with `MISDECLARED`."""
    found = misfit(plan, builds)
    return f"{MISDECLARED}: {found}" if found else ""


def _spelt(argument: Argument) -> str:
    if isinstance(argument, Scalar):
        return f'Scalar(name="{argument.name}", dtype="{argument.dtype}")'
    return type(argument).__name__
