"""Runs and records, durable one by one."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dgw.errors import StoreError
from dgw.model import Case, Environment, Noun, Record, Run
from dgw.workbench.store import rows
from dgw.workbench.store.artifacts import ArtifactFolder
from dgw.workbench.store.engine import is_absent, open_engine, shown, sqlite_file, store_url, translated

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Executable, Table

DEFAULT_STORE = ".dgw/dgw.db"


class RunSummary(Noun, frozen=True, kw_only=True):
    """A run as `dgw runs` lists it."""

    id: str
    created: str
    command: tuple[str, ...]
    version: str
    commit: str
    records: int
    not_ok: int
    device: str


class RunHead(Noun, frozen=True, kw_only=True):
    """Which run a record is of, and when that began."""

    id: str
    created: str


class Pruned(Noun, frozen=True, kw_only=True):
    """What `prune` deleted."""

    runs: int
    files: int
    bytes: int


def open_store(url: str | None = None, looking: bool = False) -> Store:
    """The store at `url` (URL or SQLite path), else at DGW_STORE, else `.dgw/dgw.db`; made if it does not exist.

    Whoever is only `looking` at one that does not exist gets an empty one in memory, and nothing is made.
    Raises StoreError when it cannot be opened or was written by a newer dgw.
    """
    where = store_url(url or os.environ.get("DGW_STORE") or DEFAULT_STORE)
    engine = open_engine("sqlite://" if looking and is_absent(where) else where)
    folder = os.environ.get("DGW_ARTIFACTS")
    beside = sqlite_file(where).parent if engine.dialect.name == "sqlite" else Path(".dgw")
    return Store(engine, where, ArtifactFolder(Path(folder) if folder else beside / "artifacts"))


class Store:
    """What was measured, kept in SQLite or PostgreSQL. Every method may raise StoreError."""

    def __init__(self, engine: Engine, url: str, artifacts: ArtifactFolder) -> None:
        self._engine = engine
        self._url = url
        self.artifacts = artifacts

    @property
    def location(self) -> str:
        """Where the store is, without a password."""
        return shown(self._url)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def begin(self, run: Run) -> None:
        """Write the head of a run (its records follow by `put`); a run that exists is left as it is."""
        from dgw.workbench.store.schema import run as table

        values = {"id": run.id, "created": run.created, "version": run.version, "commit": run.commit}
        values["command"] = msgspec.json.encode(run.command).decode()
        with translated(self._url), self._engine.begin() as connection:
            _insert_unless_there(connection, table, values, "id")
        for record in run.records:
            self.put(run.id, record)

    def put(self, run_id: str, record: Record) -> None:
        """Write a record, replacing the one of the same case in this run. Durable when it returns."""
        with translated(self._url), self._engine.begin() as connection:
            _write(connection, run_id, record)

    def put_many(self, run_id: str, records: Iterable[Record]) -> None:
        """Write records as `put` does, all of them or none."""
        with translated(self._url), self._engine.begin() as connection:
            for record in records:
                _write(connection, run_id, record)

    def run(self, run_id: str) -> Run:
        """The run with this id, or the only one whose id starts with it; `last` is the one made last, wherever."""
        from sqlalchemy import select

        from dgw.workbench.store.schema import run as table

        with translated(self._url), self._reading() as connection:
            found = _the_run(connection, run_id)
            row = connection.execute(select(table).where(table.c.id == found)).mappings().one()
            records = tuple(_records(connection, found))
        return Run(
            id=row["id"],
            created=row["created"],
            command=tuple(msgspec.json.decode(row["command"])),
            version=row["version"],
            commit=row["commit"],
            records=records,
        )

    def runs(self, limit: int | None = None) -> list[RunSummary]:
        """Every run, newest first."""
        with translated(self._url), self._reading() as connection:
            return _summaries(connection, limit)

    def finished(
        self, resume_keys: Iterable[str], usable: Callable[[Record], bool] = lambda record: True
    ) -> dict[str, Record]:
        """The newest `ok` record of each resume key that has one which is `usable`."""
        from sqlalchemy import select

        from dgw.workbench.store.schema import record as table

        wanted = sorted({key for key in resume_keys if key})
        found: dict[str, Record] = {}
        with translated(self._url), self._reading() as connection:
            for start in range(0, len(wanted), 500):
                part = table.c.resume_key.in_(wanted[start : start + 500])
                known = select(table.c.resume_key, table.c.id).where(part, table.c.outcome == "ok")
                ids: dict[str, list[int]] = {}
                for key, number in connection.execute(known.order_by(table.c.id)):
                    ids.setdefault(key, []).append(number)
                while ids:  # what was measured often is read once, unless the newest is not usable
                    newest = table.c.id.in_([numbers.pop() for numbers in ids.values()])
                    for record in _assembled(connection, select(table).where(newest).order_by(table.c.id)):
                        if usable(record):
                            found[record.resume_key] = record
                    ids = {key: numbers for key, numbers in ids.items() if numbers and key not in found}
        return found

    def of_shape(self, shape: str) -> list[tuple[RunHead, Record]]:
        """Every `ok` record of a shape with the head of its run, newest run first."""
        from sqlalchemy import select

        from dgw.workbench.store import schema

        run, record = schema.run, schema.record
        found: list[tuple[RunHead, Record]] = []
        with translated(self._url), self._reading() as connection:
            heads = connection.execute(
                select(run.c.id, run.c.created)
                .where(run.c.id.in_(select(record.c.run_id).where(record.c.shape == shape)))
                .order_by(run.c.created.desc(), run.c.id.desc())
            )
            for head in [RunHead(id=row.id, created=row.created) for row in heads]:
                here = (record.c.run_id == head.id) & (record.c.shape == shape) & (record.c.outcome == "ok")
                query = select(record).where(here).order_by(record.c.position)
                found += [(head, one) for one in _assembled(connection, query)]
        return found

    def cases(self, keys: Iterable[str]) -> dict[str, Case]:
        """The case of each key of which there is a record in any run."""
        from sqlalchemy import select

        from dgw.workbench.store.schema import record as table

        wanted = sorted(set(keys))
        found: dict[str, Case] = {}
        with translated(self._url), self._reading() as connection:
            for start in range(0, len(wanted), 500):
                part = table.c.case_key.in_(wanted[start : start + 500])
                query = select(table.c.case_key, table.c.body).where(part).order_by(table.c.id)
                found |= {row.case_key: rows.case_of(row.body) for row in connection.execute(query)}
        return found

    def prune(self, keep: int) -> Pruned:
        """Delete all but the newest `keep` runs, and every artifact that no remaining record names."""
        from sqlalchemy import delete, select

        from dgw.workbench.store.schema import artifact
        from dgw.workbench.store.schema import run as table

        with translated(self._url), self._engine.begin() as connection:
            newest = select(table.c.id).order_by(table.c.created.desc(), table.c.id.desc())
            old = list(connection.execute(newest).scalars())[keep:]
            for run_id in old:
                connection.execute(delete(table).where(table.c.id == run_id))
            used = set(connection.execute(select(artifact.c.sha256).distinct()).scalars())
        files, size = self.artifacts.prune(used)
        return Pruned(runs=len(old), files=files, bytes=size)

    def _reading(self) -> Connection:
        return self._engine.connect().execution_options(dgw_reading=True)


def _write(connection: Connection, run_id: str, record: Record) -> None:
    from sqlalchemy import delete, func, insert, select

    from dgw.workbench.store import schema

    table = schema.record
    # writers of one run wait for each other, so that a case stays one and places stay apart (SQLite has one anyway)
    connection.execute(select(schema.run.c.id).where(schema.run.c.id == run_id).with_for_update())
    same = (table.c.run_id == run_id) & (table.c.case_key == record.case.key)
    position = connection.execute(select(table.c.position).where(same)).scalar()
    if position is None:
        highest = select(func.max(table.c.position)).where(table.c.run_id == run_id)
        last = connection.execute(highest).scalar()
        position = 0 if last is None else last + 1
    connection.execute(delete(table).where(same))
    environment = rows.environment_row(record.environment)
    _insert_unless_there(connection, schema.environment, environment, "sha256")
    inserted = connection.execute(insert(table).values(rows.record_row(run_id, position, record)))
    key = inserted.inserted_primary_key
    if key is None:
        raise StoreError(f"the record of case {record.case.key} got no id", "dgw store info")
    if record.measurements:
        connection.execute(insert(schema.measurement), rows.measurement_rows(key[0], record.measurements))
    if record.artifacts:
        connection.execute(insert(schema.artifact), rows.artifact_rows(key[0], record.artifacts))


def _insert_unless_there(connection: Connection, table: Table, values: Mapping[str, Any], key: str) -> None:
    """One statement, because another writer may insert the same between a look and an insert."""
    dialect = "sqlite" if connection.dialect.name == "sqlite" else "postgresql"
    insert = import_module(f"sqlalchemy.dialects.{dialect}").insert  # each takes long to import, and one is needed
    connection.execute(insert(table).values(values).on_conflict_do_nothing(index_elements=[key]))


def _the_run(connection: Connection, wanted: str) -> str:
    from sqlalchemy import select

    from dgw.workbench.store.schema import run as table

    newest = select(table.c.id).order_by(table.c.created.desc(), table.c.id.desc())
    known = list(connection.execute(newest).scalars())
    if wanted == "last" and known:
        return str(known[0])
    matches = [wanted] if wanted in known else [run_id for run_id in known if run_id.startswith(wanted)]
    if len(matches) == 1:
        return str(matches[0])
    if matches:
        raise StoreError(f"several runs start with {wanted}: {', '.join(matches[:4])}", "dgw runs")
    if not known:
        raise StoreError("the store holds no run yet", "dgw profile --variant swizzled --shape 4096x4096x4096")
    raise StoreError(f"no run {wanted} in the store", "dgw runs")


def _records(connection: Connection, run_id: str) -> list[Record]:
    from sqlalchemy import select

    from dgw.workbench.store.schema import record as table

    query = select(table).where(table.c.run_id == run_id).order_by(table.c.position)
    return _assembled(connection, query)


def _assembled(connection: Connection, query: Executable) -> list[Record]:
    from sqlalchemy import select

    from dgw.workbench.store import schema

    found = list(connection.execute(query).mappings())
    ids = [row["id"] for row in found]
    measured = _by_record(connection, schema.measurement, ids)
    kept = _by_record(connection, schema.artifact, ids)
    query = select(schema.environment).where(schema.environment.c.sha256.in_({row["environment"] for row in found}))
    environments = {
        row["sha256"]: msgspec.json.decode(row["body"], type=Environment)
        for row in connection.execute(query).mappings()
    }
    return [
        rows.record(dict(row), environments[row["environment"]], measured[row["id"]], kept[row["id"]]) for row in found
    ]


def _by_record(connection: Connection, table: Any, ids: Sequence[int]) -> dict[int, list[Mapping[str, Any]]]:
    from sqlalchemy import select

    grouped: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for start in range(0, len(ids), 500):
        part = table.c.record_id.in_(ids[start : start + 500])
        query = select(table).where(part).order_by(table.c.record_id, table.c.position)
        for row in connection.execute(query).mappings():
            grouped[row["record_id"]].append(dict(row))
    return grouped


def _summaries(connection: Connection, limit: int | None) -> list[RunSummary]:
    from sqlalchemy import case, func, select

    from dgw.workbench.store import schema

    run, record, environment = schema.run, schema.record, schema.environment
    query = (
        select(
            run,
            func.count(record.c.id).label("records"),
            func.coalesce(func.sum(case((record.c.outcome.not_in(("ok", "refused")), 1), else_=0)), 0).label("not_ok"),
            func.max(environment.c.device).label("device"),
        )
        .outerjoin(record, record.c.run_id == run.c.id)
        .outerjoin(environment, environment.c.sha256 == record.c.environment)
        .group_by(*run.c)
        .order_by(run.c.created.desc(), run.c.id.desc())
    )
    return [
        RunSummary(
            id=row["id"],
            created=row["created"],
            command=tuple(msgspec.json.decode(row["command"])),
            version=row["version"],
            commit=row["commit"],
            records=row["records"],
            not_ok=row["not_ok"],
            device=row["device"] or "",
        )
        for row in connection.execute(query.limit(limit)).mappings()
    ]
