"""Why head is slower, in sentences: what the recipes make of the records of both sides."""

from __future__ import annotations

from dgw.errors import NotComparable
from dgw.model import Record


def sentences(base: Record, head: Record) -> tuple[str, ...]:
    """The explanation of the recipes; empty where nothing was counted that could explain anything."""
    from dgw.recipes.explain import explain

    try:
        return explain(base, head).sentences
    except NotComparable:
        return ()
