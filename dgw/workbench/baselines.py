"""Approved facts: `perf/baselines/ARCH/TOOLCHAIN/FAMILY.json` in the repository, reviewed like code.

A file holds the facts of cases and the history of approvals. Only `approve` writes it: it appends to the history and
never changes what is there. Every entry of the history names the one before it and the cases as it left them by hash,
so a file that was edited or merged by hand is noticed and refused.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from dgw.errors import NotComparable, UsageError
from dgw.model import Noun, digest
from dgw.workbench.gate.facts import Facts

SCHEMA = "dgw.baseline/1"
FOLDER = Path("perf") / "baselines"


class Approval(Noun, frozen=True, kw_only=True):
    """One act of approval. `changes` says in words what it changed; `suites` what it was made with.

    `until` (YYYY-MM-DD, inclusive) is how long what it approved is valid; empty: always. `previous` is the hash of the
    entry before, `cases` that of the cases as this one left them.
    """

    approved: str  # YYYY-MM-DD
    reason: str
    dgw: str
    commit: str = ""
    suite: str = ""
    until: str = ""
    changes: tuple[str, ...] = ()
    previous: str = ""
    cases: str = ""


class Approved(Noun, frozen=True, kw_only=True):
    """Facts, the suites in which they are used, and the number of the approval (from 0) that wrote them."""

    facts: Facts
    suites: tuple[str, ...] = ()
    by: int = 0


class BaselineFile(Noun, frozen=True, kw_only=True):
    """Everything approved of one family for one architecture and compiler; `cases` by Facts.key."""

    family: str
    arch: str
    toolchain: str
    compiler: str
    cases: dict[str, Approved] = {}
    history: tuple[Approval, ...] = ()
    schema: str = SCHEMA

    def expired(self, key: str, today: date) -> str:
        """When the approval of a case ended; empty while it holds."""
        by = self.cases[key].by
        until = self.history[by].until if by < len(self.history) else ""
        return until if until and date.fromisoformat(until) < today else ""


class Baselines:
    """The folder of baseline files. `shown` is how it is called in messages."""

    def __init__(self, folder: Path, shown: str = FOLDER.as_posix()) -> None:
        self.folder, self.shown = folder, shown

    def path(self, arch: str, toolchain: str, family: str) -> Path:
        """Where the file of a family is, or would be."""
        return self.folder / arch / toolchain / f"{family}.json"

    def name(self, arch: str, toolchain: str, family: str) -> str:
        """The same for messages, which name no folder of a machine."""
        return f"{self.shown}/{arch}/{toolchain}/{family}.json"

    def read(self, arch: str, toolchain: str, family: str) -> BaselineFile | None:
        """The file, or None where there is none. Raises NotComparable when `approve` did not write it as it is."""
        path, name = self.path(arch, toolchain, family), self.name(arch, toolchain, family)
        if not path.is_file():
            return None
        try:
            raw = msgspec.json.decode(path.read_bytes())
            found = msgspec.convert(raw, type=BaselineFile)
        except (OSError, msgspec.DecodeError) as error:
            raise NotComparable(f"{name} cannot be read: {error}", f"git checkout {name}") from error
        if found.schema != SCHEMA:
            raise NotComparable(
                f"{name} has the schema {found.schema}, not {SCHEMA}", "pip install -U deepgemm-workbench"
            )
        if (found.arch, found.toolchain, found.family) != (arch, toolchain, family):
            raise NotComparable(f"{name} is that of {found.arch}/{found.toolchain}/{found.family}", f"git mv {name}")
        if why := _tampered(raw):
            raise NotComparable(
                f"{name} was not written by dgw baseline approve: {why}",
                f"git checkout one side of {name}, then dgw baseline approve --reason ...",
            )
        return found

    def toolchains(self, arch: str, family: str) -> list[str]:
        """The compilers for which a family has approved facts on an architecture."""
        return sorted(path.parent.name for path in self.folder.glob(f"{arch}/*/{family}.json"))

    def files(self) -> list[BaselineFile]:
        """All files, by architecture, compiler and family. Raises NotComparable as `read` does."""
        paths = sorted(self.folder.glob("*/*/*.json"))
        found = [self.read(path.parent.parent.name, path.parent.name, path.stem) for path in paths]
        return [one for one in found if one is not None]

    def missing(self, arch: str, toolchain: str, family: str) -> str:
        """Why there is nothing to compare with: other compilers there are, or nothing at all."""
        others = self.toolchains(arch, family)
        if others:
            return f"{family} was approved with {' and '.join(others)}, and here is {toolchain}"
        return f"there is no {self.name(arch, toolchain, family)}"

    def write(self, file: BaselineFile) -> Path:
        """Write a file that `approve` made: all of it or nothing. Raises UsageError where that is not possible."""
        path = self.path(file.arch, file.toolchain, file.family)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        content = {"schema": file.schema, **msgspec.to_builtins(file)}
        content["cases"] = {key: content["cases"][key] for key in _ordered(file.cases)}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
            draft.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise UsageError(f"cannot write {self.shown}: {error.strerror}", "--baselines DIR") from error
        return path


def _ordered(cases: Mapping[str, Approved]) -> list[str]:
    """Keys in an order that does not move when a case is added: by label."""
    return sorted(cases, key=lambda key: (cases[key].facts.label, key))


def _tampered(raw: dict[str, Any]) -> str:
    """Why this is not what `approve` wrote; empty when it is. `raw` is the text as it is, whatever the nouns know."""
    history, cases = raw.get("history", []), raw.get("cases", {})
    if not history:
        return "it has no history"
    previous = ""
    for number, entry in enumerate(history):
        if entry.get("previous", "") != previous:
            return f"entry {number} of its history does not follow the one before"
        previous = digest(entry)
    if history[-1].get("cases") != digest(cases):
        return "its cases are not those that were approved last"
    return ""


def approve(
    file: BaselineFile | None,
    facts: Sequence[Facts],
    entry: Approval,
    place: tuple[str, str, str, str],
    gone: Sequence[str] = (),
) -> BaselineFile:
    """The file after an approval of `facts`: cases replaced or added, the keys `gone` dropped, one entry more.

    `place` is architecture, toolchain, family and the compiler's identity, for a file that does not exist yet.
    """
    arch, toolchain, family, compiler = place
    old = file or BaselineFile(arch=arch, toolchain=toolchain, family=family, compiler=compiler)
    kept = old.cases if old.compiler == compiler else {}  # facts of another compiler are facts of other code
    cases = {key: one for key, one in kept.items() if key not in gone}
    for one in facts:
        before = cases.get(one.key)
        suites = dict.fromkeys([*(before.suites if before else ()), *([entry.suite] if entry.suite else [])])
        cases[one.key] = Approved(facts=one, suites=tuple(sorted(suites)), by=len(old.history))
    previous = digest(old.history[-1]) if old.history else ""
    entry = msgspec.structs.replace(entry, previous=previous, cases=digest(cases))
    return msgspec.structs.replace(old, compiler=compiler, cases=cases, history=(*old.history, entry))
