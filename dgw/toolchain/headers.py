"""Which project headers a source includes, directly or through other headers, for the key of the compile cache.

Headers of the CUDA toolkit are found in none of the project's folders and are left out: the compiler's version stands
for them. Comments and conditionals are not evaluated, so a header that is only sometimes included counts always; the
price is a compile too many, never a stale program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include\b[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|([A-Za-z_]\w*))', re.MULTILINE)
_PROBE = re.compile(r'__has_include[ \t]*\([ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)')


@dataclass(frozen=True)
class Header:
    """A project header: the `spelling` in the include line, the file, and its text."""

    spelling: str
    path: Path
    text: str


def project_headers(
    text: str, folder: Path, include_dirs: Sequence[Path], first: Sequence[str] = ()
) -> tuple[Header, ...] | None:
    """Every header that `text` (a source in `folder`) reaches, in order of discovery, each file once.

    `first` are headers included before the first line. None: a macro names a header, so that the set cannot be known
    without preprocessing, and the result of a compile must not be reused.
    """
    found: dict[Path, Header] = {}
    pending = [(f'#include "{name}"\n', folder) for name in first] + [(text, folder)]
    while pending:
        body, here = pending.pop(0)
        spellings = _spellings(body)
        if spellings is None:
            return None
        for spelling, quoted in spellings:
            path = _resolve(spelling, ([here] if quoted else []) + list(include_dirs))
            if path is not None and path not in found:
                found[path] = Header(spelling, path, path.read_text(encoding="utf-8", errors="replace"))
                pending.append((found[path].text, path.parent))
    return tuple(found.values())


def _spellings(body: str) -> list[tuple[str, bool]] | None:
    """(name, written in quotes) of each include line; None when one of them is a macro."""
    names = []
    for quoted, angled, macro in _INCLUDE.findall(body):
        if macro:
            return None
        names.append((quoted or angled, bool(quoted)))
    names += [(quoted or angled, bool(quoted)) for quoted, angled in _PROBE.findall(body)]
    return names


def _resolve(spelling: str, folders: Sequence[Path]) -> Path | None:
    for folder in folders:
        path = folder / spelling
        if path.is_file():
            return path.resolve()
    return None
