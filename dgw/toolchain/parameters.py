"""Whether the arguments that a declaration passes are the parameters of the compiled kernel: their number and sizes.

On a GPU nothing else asks: the driver copies as many bytes as the kernel declares, from wherever an argument begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dgw.model import SCALAR_BYTES, Argument, Launch, Plan, Scalar, Source, TensorMap
from dgw.toolchain.build import Build

MISDECLARED = "the declaration does not fit the kernel"
_ADDRESS_BYTES = 8
_TENSOR_MAP_BYTES = 128


def argument_size(argument: Argument) -> int:
    """Bytes that an argument of a launch is passed as."""
    if isinstance(argument, Scalar):
        return SCALAR_BYTES[argument.dtype]
    return _TENSOR_MAP_BYTES if isinstance(argument, TensorMap) else _ADDRESS_BYTES


def misdeclared(plan: Plan, builds: Mapping[Source, Build]) -> str:
    """Why the arguments of a complete plan are not its kernels' parameters, beginning with `MISDECLARED`.

    Empty where they are, or where the compiled kernel does not say what it takes.
    """
    for launch in plan.launches:
        taken = builds[launch.source].parameters(launch.entry)
        if taken is not None and (reason := _misfit(launch, taken)):
            return f"{MISDECLARED}: {reason}"
    return ""


def _misfit(launch: Launch, taken: Sequence[int]) -> str:
    """The first thing that does not fit parameters of so many bytes."""
    passed = len(launch.arguments)
    if len(taken) != passed:
        return f"{launch.entry} takes {len(taken)} parameters, and the Launch has {passed} arguments"
    for place, (size, argument) in enumerate(zip(taken, launch.arguments, strict=True), 1):
        if size != argument_size(argument):
            passes = f"{_spelt(argument)} passes {argument_size(argument)}"
            return f"parameter {place} of {launch.entry} has {size} bytes, and {passes}"
    return ""


def _spelt(argument: Argument) -> str:
    if isinstance(argument, Scalar):
        return f'Scalar(name="{argument.name}", dtype="{argument.dtype}")'
    return type(argument).__name__
