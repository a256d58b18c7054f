"""Why head is worse, in sentences: what the recipes make of the records of both sides."""

from __future__ import annotations

from dgw.errors import NotComparable
from dgw.model import Device, Record


def sentences(base: Record, head: Record, device: Device | None = None, bounds: bool = False) -> tuple[str, ...]:
    """The explanation of the recipes; empty where no cycles were counted, or the records cannot be compared.

    With `bounds` lower bounds of the cycles are explained too, where they differ: the exact gate has nothing else.
    """
    from dgw.recipes.explain import explain

    try:
        found = explain(base, head, device)
    except NotComparable:
        return ()
    return found.sentences if found.measured or (bounds and found.difference) else ()
