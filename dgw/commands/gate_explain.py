"""Why head is slower, in sentences: what the recipes make of the records of both sides."""

from __future__ import annotations

from dgw.errors import NotComparable
from dgw.model import Record


def sentences(base: Record, head: Record) -> tuple[str, ...]:
    """The explanation of the recipes; empty where no cycles were counted."""
    from dgw.recipes.explain import explain

    try:
        found = explain(base, head)
    except NotComparable:
        return ()
    return found.sentences if found.measured else ()
