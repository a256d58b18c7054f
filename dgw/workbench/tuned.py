"""Tuned configs: a small JSON file of winners that `dgw best` writes and `dgw profile` takes its configs from.

One entry for each device, problem and variant. The data and its seed do not count: they change no time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dgw.errors import UsageError
from dgw.model import Config, Device, Noun, Problem, Variant

SCHEMA = "dgw.tuned/1"
DEFAULT = Path(".dgw") / "tuned.json"


class Tuned(Noun, frozen=True, kw_only=True):
    """The best config of a variant for a problem on a device; `seconds` under `protocol`, when and in which run."""

    device: str
    problem: Problem
    variant: str
    version: int
    config: Config
    seconds: float
    protocol: str
    driver: str = ""
    measured: str = ""
    run: str = ""


class TunedFile(Noun, frozen=True, kw_only=True, omit_defaults=False):
    """The file. `schema` is checked when it is read."""

    schema: str = SCHEMA
    dgw: str = ""
    entries: tuple[Tuned, ...] = ()


def plain(problem: Problem) -> Problem:
    """The problem whatever its data."""
    return msgspec.structs.replace(problem, data="normal", seed=0)


def default_path() -> Path | None:
    """The file that is used without being asked for: DGW_TUNED, else `.dgw/tuned.json`; None where there is none."""
    named = os.environ.get("DGW_TUNED")
    path = Path(named) if named else DEFAULT
    return path if named or path.is_file() else None


def load(path: Path) -> tuple[Tuned, ...]:
    """The entries of a file. Raises UsageError with what to do where it is none."""
    hint = f"dgw best SHAPE -o {path}"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=TunedFile)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} holds no tuned configs: {error}", hint) from error
    if found.schema != SCHEMA:
        raise UsageError(f"{path} holds no tuned configs of a kind known here (schema {found.schema})", hint)
    return found.entries


def merged(known: Sequence[Tuned], fresh: Sequence[Tuned]) -> tuple[Tuned, ...]:
    """Both, in order; a fresh entry replaces the one of the same device, problem and variant."""
    by_place = {_place(entry): entry for entry in (*known, *fresh)}
    return tuple(by_place.values())


def _place(entry: Tuned) -> tuple[str, bytes, str]:
    return entry.device, msgspec.json.encode(plain(entry.problem), order="sorted"), entry.variant


def encode(entries: Sequence[Tuned], version: str) -> bytes:
    """The file's content (UTF-8, newline at the end)."""
    content = msgspec.json.encode(TunedFile(dgw=version, entries=tuple(entries)))
    return msgspec.json.format(content, indent=1) + b"\n"


def find(entries: Sequence[Tuned], problem: Problem, variant: Variant, device: Device) -> Tuned | None:
    """The entry for this problem, variant and device that the variant of today can still take; None where none."""
    for entry in entries:
        same = entry.device == device.name and entry.variant == variant.id and entry.version == variant.version
        if not same or plain(entry.problem) != plain(problem):
            continue
        space = {tunable.name: tunable.values for tunable in variant.space}
        fits = entry.config.keys() == space.keys() and all(entry.config[name] in space[name] for name in space)
        if fits and not variant.refuses(problem, entry.config, device):
            return entry
    return None
