"""Tuned configs in the commands that run cases: where there is one for a problem it stands in for the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dgw.commands.console import note
from dgw.model import Case, Variant

if TYPE_CHECKING:
    from dgw.commands.session import Machine


def tuned_cases(
    cases: Sequence[Case], variants: Mapping[str, Variant], where: Machine, named: str, typed: bool
) -> list[Case]:
    """The cases with tuned configs where there are any, which is said; none where configs were typed.

    `named` is a file, `none`, or empty: then the default file, if it is there. Raises UsageError for a bad file.
    """
    from dgw.reports.tables import config_text
    from dgw.workbench import tuned
    from dgw.workbench.locked_clock import locked_at

    path = Path(named) if named else tuned.default_path()
    if typed or named == "none" or path is None:
        return list(cases)
    entries = tuned.load(path)
    found = []
    for case in cases:
        variant = variants[case.variant]
        entry = tuned.find(entries, case.problem, variant, where.device) if variant.space else None
        if entry is None:
            found.append(case)
            continue
        found.append(msgspec.structs.replace(case, config=dict(entry.config)))
        what = f"{case.variant} at {case.problem.shape} {case.problem.a.dtype}"
        text = f"{what}: tuned config {config_text(entry.config)}"
        clock = f", SM clock locked at {hertz * 1e-6:.0f} MHz" if (hertz := locked_at(entry.protocol)) else ""
        where_from = f"measured {entry.measured[:10]} on {entry.device}{clock}"
        note(f"{text} from {path}, {where_from}; --tuned none for the default")
    return found
