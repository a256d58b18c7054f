"""Which configs there are: the product of a variant's tunables, split into what can run and what cannot."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dgw.errors import UsageError
from dgw.model import Case, Config, Device, Problem, Variant
from dgw.workbench.prepare import refusal

MOST = 400_000
"""Configs that are asked one by one whether they can run; a larger space has to be narrowed."""

Values = Mapping[str, Sequence[int | str]]


@dataclass(frozen=True)
class Field:
    """The cases of one problem: those that can run, and those that cannot with the reason."""

    problem: Problem
    cases: tuple[Case, ...]
    refused: tuple[tuple[Case, str], ...] = ()


def size(variant: Variant, narrowed: Values) -> int:
    """How many configs there are when the tunables in `narrowed` take only those values."""
    return prod(len(narrowed.get(tunable.name, tunable.values)) for tunable in variant.space)


def configs(variant: Variant, narrowed: Values) -> Iterator[Config]:
    """Every config, the last tunable fastest. Tunables that `narrowed` does not name take all their values."""
    names = [tunable.name for tunable in variant.space]
    values = [narrowed.get(tunable.name, tunable.values) for tunable in variant.space]
    for chosen in itertools.product(*values):
        yield dict(zip(names, chosen, strict=True))


def field(
    problem: Problem,
    variants: Sequence[Variant],
    narrowed: Values,
    device: Device,
    sample: int = 0,
    seed: int = 0,
) -> Field:
    """Every config of every variant on `problem`. With `sample` only so many of those that can run, at random.

    The default config is in a sample where it can run. Raises UsageError for a space that is too large to go through.
    """
    total = sum(size(variant, narrowed) for variant in variants)
    if total > MOST:
        raise UsageError(f"{total:,} configs are more than the {MOST:,} that a sweep goes through", "--space BM=64,128")
    able: list[Case] = []
    refused: list[tuple[Case, str]] = []
    for variant in variants:
        for config in configs(variant, narrowed):
            case = Case(problem=problem, variant=variant.id, version=variant.version, config=config)
            try:
                reason = refusal(case, variant, device)
            except Exception as error:  # a declaration that raises costs its own case only
                reason = f"the declaration of {variant.id} raised {type(error).__name__}: {error}"
            if reason:
                refused.append((case, reason))
            else:
                able.append(case)
    if not sample:
        return Field(problem, tuple(able), tuple(refused))
    defaults = {variant.id: default(variant, problem, device) for variant in variants}
    return Field(problem, tuple(_sampled(able, defaults, sample, seed)))


def default(variant: Variant, problem: Problem, device: Device) -> Config:
    """The config that a variant takes when nobody tunes it."""
    try:
        return variant.config_for(problem, device)
    except Exception:  # a declaration that raises has no choice of its own
        return variant.defaults()


def _sampled(cases: Sequence[Case], defaults: Mapping[str, Config], sample: int, seed: int) -> list[Case]:
    """`sample` of the cases in their order, the defaults among them."""
    if len(cases) <= sample:
        return list(cases)
    kept = [n for n, case in enumerate(cases) if case.config == defaults[case.variant]][:sample]
    rest = [n for n in range(len(cases)) if n not in kept]
    kept += random.Random(seed).sample(rest, sample - len(kept))
    return [cases[n] for n in sorted(kept)]
