"""Gates in the store: reports, the pairs they measured, calibrations; written once and never changed."""

from __future__ import annotations

from typing import Literal

from dgw.model import Noun
from dgw.workbench.store.engine import translated
from dgw.workbench.store.store import Store

Kind = Literal["gate", "self-test", "anchor", "calibration"]


class KeptGate(Noun, frozen=True, kw_only=True):
    """One row. `body` is JSON (a report, or a calibration), `data` whatever belongs to it (the pairs, as JSON)."""

    id: str
    created: str
    kind: Kind
    subject: str
    code: int = 0
    body: str
    data: bytes = b""


def keep(store: Store, row: KeptGate) -> None:
    """Write one row; a row of the same id is replaced. Durable when it returns."""
    from sqlalchemy import delete, insert

    from dgw.workbench.store.schema import gate as table

    values = {name: getattr(row, name) for name in row.__struct_fields__}
    with translated(store._url), store._engine.begin() as connection:
        connection.execute(delete(table).where(table.c.id == row.id))
        connection.execute(insert(table).values(values))


def kept(store: Store, kind: Kind, subject: str = "") -> list[KeptGate]:
    """All rows of a kind (and of one subject), oldest first."""
    from sqlalchemy import select

    from dgw.workbench.store.schema import gate as table

    query = select(table).where(table.c.kind == kind).order_by(table.c.created, table.c.id)
    if subject:
        query = query.where(table.c.subject == subject)
    with translated(store._url), store._reading() as connection:
        return [KeptGate(**dict(row)) for row in connection.execute(query).mappings()]
