"""Collects what a run must not do: one Finding per kind, place and other place, with a count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dgw.workbench.emulator.observer import Finding, InstructionInfo, SourceLine
from dgw.workbench.emulator.state import Lanes

LIMIT = 200
ASTRAY = ("out-of-bounds", "misaligned", "uninitialised-shared", "uninitialised-local", "uninitialised-register")
HOPELESS = 10_000
"""Accesses of threads astray after which nobody learns anything from another batch of CTAs."""
SHOWN_THREADS = 8


class Findings:
    """The findings of a run, in the order in which they happened first."""

    def __init__(self, infos: tuple[InstructionInfo, ...]) -> None:
        self._infos = infos
        self._found: dict[tuple[str, int, int], Finding] = {}
        self._astray = 0

    def add(
        self,
        kind: str,
        message: str,
        instruction: int,
        lanes: Lanes,
        members: Any = (),
        address: int | None = None,
        space: str = "",
        other: int | None = None,
    ) -> None:
        """Record a finding at an instruction index; `members` are lane numbers, `other` an earlier instruction."""
        key = (kind, instruction, -1 if other is None else other)
        numbers = np.unique(np.asarray(members, dtype=np.int64))
        amount = max(len(numbers), 1)
        self._astray += amount if kind in ASTRAY else 0
        old = self._found.get(key)
        if old is not None:
            self._found[key] = replace(old, count=old.count + amount)
            return
        if len(self._found) >= LIMIT:
            return
        info = self._infos[instruction]
        cta = int(numbers[0]) // lanes.per_cta if len(numbers) else 0
        threads = tuple(int(t) % lanes.per_cta for t in numbers if int(t) // lanes.per_cta == cta)[:SHOWN_THREADS]
        earlier = self._infos[other] if other is not None else None
        self._found[key] = Finding(
            kind=kind,
            message=message,
            line=info.line,
            source=info.source,
            site=info.site,
            cta=lanes.ctas[cta],
            threads=threads,
            address=address,
            space=space,
            count=amount,
            other_line=earlier.line if earlier is not None else 0,
            other_source=earlier.source if earlier is not None else SourceLine(),
        )

    @property
    def hopeless(self) -> bool:
        """Whether threads went astray so often that it is no use to go on."""
        return self._astray >= HOPELESS

    def all(self) -> tuple[Finding, ...]:
        """Every finding."""
        return tuple(self._found.values())
