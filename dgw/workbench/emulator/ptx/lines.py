"""Source lines of `.loc` directives, and where in the kernel's own file inlined code comes from.

`.loc 3 39 13, function_name L, inlined_at 1 73 17` says that what follows is line 39 of file 3, inlined at line 73 of
file 1. That place was named by a `.loc` before, which may be inlined itself; the last link of this chain lies in the
kernel.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from dgw.workbench.emulator.observer import SourceLine

_LOC = re.compile(
    r"\.loc\s+(\d{1,9})\s+(\d{1,9})(?:\s+(\d{1,9}))?(?:.*\binlined_at\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9}))?"
)
_DEEPEST = 64  # links followed; a compiler writes a handful

Place = tuple[int, int, int]  # file, line, column


class Lines:
    """The current line while a function is read: `source`, the innermost, and `site`, in the kernel's own file."""

    def __init__(self, files: dict[int, str]) -> None:
        self.files = files
        self.begin()

    def begin(self) -> None:
        """A new function: no line yet."""
        self.source = self.site = SourceLine()
        self._callers: dict[Place, Place] = {}
        self._known: dict[tuple[Place, Place | None], tuple[SourceLine, SourceLine]] = {}

    def read(self, directive: str) -> bool:
        """Take over a `.loc`; False when it is malformed."""
        found = _LOC.match(directive)
        if not found:
            return False
        numbers = [int(part or 0) for part in found.groups()]
        here: Place = (numbers[0], numbers[1], numbers[2])
        caller: Place | None = (numbers[3], numbers[4], numbers[5]) if found[4] else None
        if caller is not None:
            self._callers[here] = caller
        else:
            self._callers.pop(here, None)
        if (here, caller) not in self._known:
            self._known[here, caller] = self._resolved(here)
        self.source, self.site = self._known[here, caller]
        return True

    def _resolved(self, here: Place) -> tuple[SourceLine, SourceLine]:
        chain = [here]
        while chain[-1] in self._callers and len(chain) < _DEEPEST:
            chain.append(self._callers[chain[-1]])
        own = next(place for place in chain if place[0] == chain[-1][0])
        source = self._line(here)
        if own == here:
            return source, source
        inlined = "" if own[0] == here[0] else f"{PurePath(source.file).name}:{source.line}"
        return source, SourceLine(self.files.get(own[0], ""), own[1], inlined)

    def _line(self, place: Place) -> SourceLine:
        return SourceLine(self.files.get(place[0], ""), place[1])
