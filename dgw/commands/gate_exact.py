"""The exact gate: every case against what was approved, as a report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from dgw.commands.exact import Compared, Examination, Pick, examination
from dgw.commands.gate_explain import sentences
from dgw.commands.gate_sides import PACKAGE, shown

if TYPE_CHECKING:
    from dgw.workbench.gate.verdict import GateCase, GateReport


def exact_gate(
    pick: Pick, arguments: tuple[str, ...], on_missing: Literal["fail", "record"], explain: bool = True
) -> GateReport:
    """Examine and compare; Ctrl-C keeps what is finished. Raises UsageError, Missing, NotComparable.

    With `explain` the recipes say of every regressed case what its lower bound is made of now, and was before.
    """
    from dgw.commands.console import progress

    begun = time.monotonic()
    subject = examination(pick, "dgw gate --exact")
    compared: list[Compared] = []
    interrupted = False
    with progress("gate") as bar:
        try:
            for one in subject.run(bar):
                compared.append(one)
        except KeyboardInterrupt:
            interrupted = True
    seconds = time.monotonic() - begun
    return report(subject, compared, arguments, on_missing, interrupted, seconds, explain)


def report(
    subject: Examination,
    compared: list[Compared],
    arguments: tuple[str, ...],
    on_missing: Literal["fail", "record"],
    interrupted: bool,
    seconds: float,
    explain: bool = False,
) -> GateReport:
    """What was compared, as a report of the gate."""
    from dgw import __version__
    from dgw.commands.gate_sides import head_commit
    from dgw.commands.session import stamp
    from dgw.model import digest
    from dgw.workbench.emulator.grid import PROTOCOL
    from dgw.workbench.gate.verdict import GateReport, Side

    cases = [_judged(one, subject, explain) for one in compared]
    if not interrupted:
        seen = {one.known.facts.key for one in compared}
        cases += _gone(subject, seen, {one.known.toolchain for one in compared})
    identity, created = stamp()
    approved = sorted(file.history[-1].cases for file in subject.files.values() if file is not None)
    return GateReport(
        id=identity,
        created=created,
        command=("dgw", *arguments),
        dgw=__version__,
        gate="exact",
        base=Side(label=subject.baselines.shown, kind="baseline", digest=digest(approved)),
        head=Side(label="this tree", kind="tree", commit=head_commit(subject.pick.kernels or subject.pick.kernel)),
        suite=subject.pick.named,
        device=subject.device.name,
        toolchain=", ".join(dict.fromkeys(one.known.compiler for one in compared)),
        protocol=PROTOCOL,
        cases=tuple(cases),
        policy={f"floor of {name}": floor for name, floor in subject.floors.items()},
        notes=tuple(_notes(cases, subject.pick)),
        on_missing=on_missing,
        interrupted=interrupted,
        seconds=round(seconds, 3),
    )


def _judged(one: Compared, subject: Examination, explain: bool) -> GateCase:
    from dgw.workbench.gate.exact import judge
    from dgw.workbench.gate.facts import record_of

    found = judge(one.base, one.known, subject.floors, one.missing)
    if one.until and found.status in ("identical", "unchanged", "improved"):
        reason = f"its approval ended on {one.until}"
        found = msgspec.structs.replace(found, status="not-comparable", reasons=(reason, *found.reasons))
    if explain and found.status == "regressed" and one.base is not None and one.known.outcome == "ok":
        told = sentences(record_of(one.base), record_of(one.known.facts), subject.device, bounds=True)
        found = msgspec.structs.replace(found, explanation=told)
    roots = (subject.baselines.folder.parent.parent, Path.cwd(), PACKAGE)
    source = shown(one.known.source, roots) if one.known.source is not None else ""
    return msgspec.structs.replace(found, source=source)


def _gone(subject: Examination, seen: set[str], toolchains: set[str]) -> list[GateCase]:
    from dgw.workbench.gate.verdict import GateCase

    return [
        GateCase(
            key=facts.key, label=facts.label, status="missing", variant=facts.variant, problem=facts.problem,
            config=dict(facts.config), stage="exact",
            reasons=("it was approved, and does not exist any more; dgw baseline approve drops it",),
        )
        for facts in subject.left(seen, toolchains)
    ]  # fmt: skip


def _notes(cases: list[GateCase], pick: Pick) -> list[str]:
    """What to type where something has to be approved."""
    wanted = {"improved", "unchanged", "missing", "regressed"}
    if not any(case.status in wanted for case in cases):
        return []
    typed = f" {pick.typed}" if pick.typed else ""
    return [f'to approve what is here: dgw baseline approve{typed} --reason "..."']
