"""From what was typed to the configs of a sweep: `--space BM=64,128`, `--fix STAGES=3`, `--space BK=16..128`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dgw.errors import UsageError
from dgw.model import Tunable, Variant

if TYPE_CHECKING:
    from dgw.commands.options import Names

Value = int | str
Narrowed = dict[str, tuple[Value, ...]]


def narrowed(space: Names, fix: Names, variants: Sequence[Variant], command: str) -> Narrowed:
    """The values that tunables may take: those of `--space`, one each of `--fix`. Raises UsageError, whose hint is
    `command` with what may be typed behind it.

    `--fix default` leaves every tunable that neither option names at the default of the first variant that has it.
    """
    tunables = {tunable.name: tunable for variant in reversed(variants) for tunable in variant.space}
    found: Narrowed = {}
    for text in space or ():
        for name, values in _assignments(text, f"{command} --space {_example(tunables, 2)}"):
            tunable = _tunable(name, tunables, f"{command} --space", 2)
            taken = (value for part in values for value in _values(tunable, part, f"{command} --space", len(values)))
            found[name] = tuple(dict.fromkeys(taken))
    fixed = [text for text in fix or () if text != "default"]
    for text in fixed:
        for name, values in _assignments(text, f"{command} --fix {_example(tunables, 1)}"):
            tunable = _tunable(name, tunables, f"{command} --fix", 1)
            if len(values) != 1:
                again = f"{command} --space {name}={','.join(values)}"
                raise UsageError(f"--fix {name} takes one value, not {len(values)}", again)
            found[name] = _values(tunable, values[0], f"{command} --fix", 1)[:1]
    if len(fixed) < len(fix or ()):
        found |= {name: (tunable.default,) for name, tunable in tunables.items() if name not in found}
    return found


def _assignments(text: str, example: str) -> Iterable[tuple[str, list[str]]]:
    """`BM=64,128,BN=128` as (BM, [64, 128]), (BN, [128]); blanks separate like commas."""
    found: list[tuple[str, list[str]]] = []
    for part in text.replace(",", " ").split():
        name, equals, value = part.partition("=")
        if equals:
            found.append((name, [value] if value else []))
        elif found:
            found[-1][1].append(part)
        else:
            raise UsageError(f"{text!r} does not begin with NAME=VALUE", example)
    if not found or any(not name or not values for name, values in found):
        raise UsageError(f"{text!r} is not NAME=VALUE[,VALUE]", example)
    return found


def _example(tunables: Mapping[str, Tunable], most: int, name: str = "") -> str:
    """The tunable whose name resembles `name` most, else the first, with `most` of its values, the default first."""
    if not tunables:
        return "NAME=VALUE"
    near = difflib.get_close_matches(name, list(tunables), n=1, cutoff=0.4)
    tunable = tunables[near[0]] if near else next(iter(tunables.values()))
    values = list(dict.fromkeys((tunable.default, *tunable.values)))[:most]
    return f"{tunable.name}={','.join(map(str, values))}"


def _tunable(name: str, tunables: Mapping[str, Tunable], command: str, most: int) -> Tunable:
    if name not in tunables:
        raise UsageError(_no_tunable(name, tunables), f"{command} {_example(tunables, most, name)}")
    return tunables[name]


def _no_tunable(name: str, tunables: Iterable[str]) -> str:
    """That there is no such tunable, and which there are."""
    known = ", ".join(tunables)
    return f"no variant has a tunable {name}" + (f", only {known}" if known else ", nor any other")


def _values(tunable: Tunable, text: str, command: str, most: int) -> tuple[Value, ...]:
    """The value of a text, or all of the tunable's values from one to another: `16..128`."""
    low, dots, high = text.partition("..")
    if dots and low.isdigit() and high.isdigit():
        between = tuple(v for v in tunable.values if isinstance(v, int) and int(low) <= v <= int(high))
        if between:
            return between
    value: Value = int(text) if text.lstrip("-").isdigit() else text
    if value in tunable.values:
        return (value,)
    allowed = ", ".join(map(str, tunable.values))
    raise UsageError(
        f"{tunable.name} cannot be {text} ({tunable.meaning}), only {allowed}",
        f"{command} {_example({tunable.name: tunable}, most)}",
    )


def axis(name: str, variants: Sequence[Variant], command: str) -> str:
    """The tunable of this name, whatever its case. Raises UsageError: `command` ends with the option that takes it."""
    known = {tunable.name: tunable for variant in variants for tunable in variant.space}
    match = next((one for one in known if one.lower() == name.lower()), None)
    if match is None:
        near = _example(known, 0, name).partition("=")[0] if known else "TUNABLE"
        raise UsageError(_no_tunable(name, known), f"{command} {near}")
    return match
