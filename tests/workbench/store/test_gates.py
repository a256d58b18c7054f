from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from dgw.workbench.store import open_store
from dgw.workbench.store.gates import KeptGate, keep, kept


def row(name: str, **changes: Any) -> KeptGate:
    fields: dict[str, Any] = {
        "id": name,
        "created": name,
        "kind": "gate",
        "subject": "s",
        "body": "{}",
        "data": b"\0\1",
    }
    return KeptGate(**{**fields, **changes})


def test_gates_come_back_oldest_first_by_kind_and_subject(store_url: str) -> None:
    store = open_store(store_url)
    rows = [row("2"), row("1", code=3), row("3", kind="self-test"), row("4", subject="t")]
    for one in rows:
        keep(store, one)
    assert kept(store, "gate", "s") == [rows[1], rows[0]]
    assert kept(store, "self-test") == [rows[2]]
    assert kept(store, "gate") == [rows[1], rows[0], rows[3]]


def test_a_gate_that_is_kept_again_replaces_itself(store_url: str) -> None:
    store = open_store(store_url)
    keep(store, row("1"))
    keep(store, row("1", code=1))
    assert [one.code for one in kept(store, "gate")] == [1]


def test_a_store_from_before_there_were_gates_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "dgw.db"
    open_store(str(path)).close()
    with sqlite3.connect(path) as old:
        old.execute("DROP TABLE gate")
        old.execute("UPDATE alembic_version SET version_num = '0001'")
    store = open_store(str(path))
    keep(store, row("1"))
    assert len(kept(store, "gate")) == 1
