"""What keeps a kernel from being faster: every recipe on one stored record, the costliest cause first."""

from __future__ import annotations

from collections.abc import Sequence

from dgw.errors import DgwError
from dgw.model import Device, Finding, Record
from dgw.recipes.facts import Facts
from dgw.recipes.recipe import CANNOT_TELL, MEDIUM_SHARE
from dgw.recipes.registry import recipes
from dgw.toolchain import devices


def diagnose(
    record: Record, device: Device | None = None, others: Sequence[Record] = (), unknown: bool = True
) -> tuple[Finding, ...]:
    """The findings on `record`: causes by the share of the time they cost, then notes, then what cannot be told.

    `device` is taken from the record's environment where it is not given. `others` are the other records of the run,
    with which a few recipes compare. A record that is not ok has no findings. Without `unknown`, what cannot be told is
    left out.
    """
    if record.outcome != "ok":
        return ()
    facts = Facts(record, device or of(record), tuple(other for other in others if other is not record))
    found = [finding for recipe in recipes() if (finding := recipe.look(facts)) is not None]
    kept = [finding for finding in found if unknown or not untold(finding)]
    return tuple(sorted(kept, key=_place))


def untold(finding: Finding) -> bool:
    """Whether the finding says that it cannot be told."""
    return finding.verdict.startswith(CANNOT_TELL)


def serious(finding: Finding) -> bool:
    """Whether it names a cause that costs enough for high or medium confidence, or a note that is sure."""
    least = ("high",) if finding.cost is None else ("high", "medium")
    return not untold(finding) and finding.confidence in least


def clean(found: Sequence[Finding]) -> str:
    """That nothing serious is among these findings, which include what cannot be told; empty where something is."""
    if any(serious(finding) for finding in found):
        return ""
    unknown = sorted(finding.recipe for finding in found if untold(finding))
    lacking = f"; cannot be told here: {', '.join(unknown)}" if unknown else ""
    least = f"{100 * MEDIUM_SHARE:.0f} %"
    return f"nothing serious found: no cause that can be told costs {least} of the time or more{lacking}"


def _place(finding: Finding) -> tuple[bool, bool, float, str]:
    return untold(finding), finding.cost is None, -(finding.cost or 0.0), finding.recipe


def of(record: Record) -> Device:
    """The device of the table that a record was made on or for; the H200 where it does not say."""
    try:
        return devices.device(record.environment.device)
    except DgwError:
        return devices.device_for_arch(record.environment.arch or "sm_90a")
