"""What a kernel of a foreign report is called as a case, and what GPU it ran on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from dgw.model import Case, Config, Environment, Problem
from dgw.toolchain import devices
from dgw.workbench.environment import arch_of

FAMILY = "foreign"
LONGEST = 100
Lookup = Callable[[Iterable[str]], Mapping[str, Case]]
"""Gives the cases of keys, as far as they are known."""

_ANONYMOUS = "(anonymous namespace)"
_RETURNS = re.compile(r"^(?:void|auto|int|float|bool) ")


def base_name(name: str) -> str:
    """The name of a kernel without return type, template arguments and parameters: at most 100 characters."""
    name = _RETURNS.sub("", name.replace(_ANONYMOUS, "anonymous").strip())
    short = re.split(r"[<(]", name, maxsplit=1)[0].strip() or name or "unnamed"
    return short if len(short) <= LONGEST else short[: LONGEST - 3] + "..."


def foreign_case(name: str, problem: Problem, config: Config) -> Case:
    """The case of a kernel: its variant is `foreign/NAME`; `config` tells launches of one name apart."""
    return Case(problem=problem, variant=f"{FAMILY}/{base_name(name)}", config=config)


def gpu_environment(name: str, compute: tuple[int, int], sms: int) -> Environment:
    """The environment of a GPU as a report names it; empty where the report does not. Nothing else is known of it."""
    known = devices.identify(name, sms) if name else None
    arch = known.arch if known is not None else arch_of(*compute) if compute[0] else ""
    plain = name.lower().removeprefix("nvidia ").strip().replace(" ", "-")
    return Environment(device=known.name if known is not None else plain, arch=arch, engine="gpu")


def dimensions(size: tuple[int, int, int]) -> str:
    """`132x1x1`."""
    return "x".join(str(number) for number in size)
