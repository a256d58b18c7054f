"""From what was typed to the configs of a sweep: `--space BM=64,128`, `--fix STAGES=3`, `--space BK=16..128`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dgw.commands.request import nearest
from dgw.errors import UsageError
from dgw.model import Tunable, Variant

if TYPE_CHECKING:
    from dgw.commands.options import Names

Value = int | str
Narrowed = dict[str, tuple[Value, ...]]


def narrowed(space: Names, fix: Names, variants: Sequence[Variant]) -> Narrowed:
    """The values that tunables may take: those of `--space`, one each of `--fix`. Raises UsageError.

    `--fix default` leaves every tunable that neither option names at the default of the first variant that has it.
    """
    tunables = {tunable.name: tunable for variant in reversed(variants) for tunable in variant.space}
    found: Narrowed = {}
    for text in space or ():
        for name, values in _assignments(text, "--space BM=64,128 BN=128..256"):
            tunable = _tunable(name, tunables)
            found[name] = tuple(dict.fromkeys(value for part in values for value in _values(tunable, part)))
    fixed = [text for text in fix or () if text != "default"]
    for text in fixed:
        for name, values in _assignments(text, "--fix STAGES=3,GROUP_M=8"):
            if len(values) != 1:
                raise UsageError(f"--fix {name} takes one value, not {len(values)}", f"--space {name}=...")
            found[name] = _values(_tunable(name, tunables), values[0])[:1]
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


def _tunable(name: str, tunables: Mapping[str, Tunable]) -> Tunable:
    if name not in tunables:
        raise UsageError(f"no variant has a tunable {name}", nearest(name, list(tunables)) or "dgw list")
    return tunables[name]


def _values(tunable: Tunable, text: str) -> tuple[Value, ...]:
    """The value of a text, or all of the tunable's values from one to another: `16..128`."""
    low, dots, high = text.partition("..")
    if dots and low.isdigit() and high.isdigit():
        between = tuple(v for v in tunable.values if isinstance(v, int) and int(low) <= v <= int(high))
        if between:
            return between
    value: Value = int(text) if text.lstrip("-").isdigit() else text
    if value in tunable.values:
        return (value,)
    allowed = ",".join(map(str, tunable.values))
    raise UsageError(f"{tunable.name} cannot be {text} ({tunable.meaning})", f"{tunable.name}={allowed}")


def axis(name: str, variants: Sequence[Variant]) -> str:
    """The tunable of this name, whatever its case. Raises UsageError with the nearest names."""
    known = list(dict.fromkeys(tunable.name for variant in variants for tunable in variant.space))
    match = next((one for one in known if one.lower() == name.lower()), None)
    if match is None:
        raise UsageError(f"no variant has a tunable {name}", nearest(name, known) or "dgw list")
    return match
