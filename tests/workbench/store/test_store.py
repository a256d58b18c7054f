from __future__ import annotations

import multiprocessing
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import select

from dgw.errors import StoreError
from dgw.model import Environment, Record
from dgw.workbench.store import open_store
from dgw.workbench.store.engine import file_system, shown
from dgw.workbench.store.schema import record
from tests.workbench.store.samples import a_record, a_run


def test_a_run_comes_back_as_it_was_written(store_url: str) -> None:
    records = (a_record(), a_record(m=65, outcome="wrong"), a_record(variant="cuda/tiled"))
    store = open_store(store_url)
    store.begin(a_run(records=records))
    store.close()
    assert open_store(store_url).run("r1") == a_run(records=records)


def test_the_types_of_values_survive(store_url: str) -> None:
    store = open_store(store_url)
    store.begin(a_run(records=(a_record(),)))
    read = store.run("r1").records[0]
    assert [type(m.value) for m in read.measurements] == [float, int, float, str, type(None)]
    assert read.measurements[0].samples == (1.2e-4, 0.1 + 0.2)


def test_a_record_replaces_the_one_of_the_same_case_and_keeps_its_place(store_url: str) -> None:
    store = open_store(store_url)
    store.begin(a_run(records=(a_record(outcome="crashed"), a_record(m=65))))
    store.put("r1", a_record())
    assert [(r.case.problem.m, r.outcome) for r in store.run("r1").records] == [(64, "ok"), (65, "ok")]


def test_runs_are_listed_newest_first_with_their_faults(store_url: str) -> None:
    store = open_store(store_url)
    store.begin(a_run("old", (a_record(), a_record(m=65, outcome="timed-out"), a_record(m=66, outcome="refused"))))
    store.begin(a_run("new", created="2026-01-02T00:00:00Z"))
    listed = store.runs()
    assert [(r.id, r.records, r.not_ok, r.device) for r in listed] == [("new", 0, 0, ""), ("old", 3, 1, "NVIDIA H200")]
    assert store.run("last").id == "new"


def test_a_run_is_found_by_the_start_of_its_id_and_ambiguity_is_an_error(store_url: str) -> None:
    store = open_store(store_url)
    for name in ("abc1", "abd2"):
        store.begin(a_run(name))
    assert store.run("abc").id == "abc1"
    with pytest.raises(StoreError, match="several runs start with ab"):
        store.run("ab")
    with pytest.raises(StoreError, match="no run zzz"):
        store.run("zzz")


def test_only_finished_cases_are_offered_for_resuming(store_url: str) -> None:
    store = open_store(store_url)
    store.begin(a_run(records=(a_record(), a_record(m=65, outcome="crashed"))))
    found = store.finished(["resume-64-cuda/naive", "resume-65-cuda/naive", "unknown", ""])
    assert list(found) == ["resume-64-cuda/naive"]


def test_the_newest_record_that_is_usable_is_offered_for_resuming(store_url: str) -> None:
    store = open_store(store_url)
    for name, driver in (("r1", "1"), ("r2", "2"), ("r3", "3")):
        made = msgspec.structs.replace(a_record(), environment=Environment(driver=driver))
        store.begin(a_run(name, (made,)))
    key, seen = a_record().resume_key, list[str]()

    def usable(record: Record) -> bool:
        seen.append(record.environment.driver)
        return record.environment.driver < "3"

    assert store.finished([key], usable)[key].environment.driver == "2"
    assert seen == ["3", "2"]
    assert store.finished([key], lambda record: False) == {}


def test_pruning_deletes_old_runs_and_files_that_nobody_names(store_url: str) -> None:
    store = open_store(store_url)
    kept = store.artifacts.add(b"report", "ncu-rep", "profile")
    store.artifacts.add(b"orphan", "cubin")
    record = a_record()
    record = type(record)(**{f: getattr(record, f) for f in record.__struct_fields__} | {"artifacts": (kept,)})
    for day in range(1, 5):
        store.begin(a_run(f"r{day}", (record,), created=f"2026-01-0{day}T00:00:00Z"))
    pruned = store.prune(keep=2)
    assert (pruned.runs, pruned.files, pruned.bytes) == (2, 1, 6)
    assert [r.id for r in store.runs()] == ["r4", "r3"]
    assert store.artifacts.path(kept).read_bytes() == b"report"
    assert store.artifacts.path(kept).suffix == ".ncu-rep"


def _write_many(url: str, worker: int, count: int) -> None:
    store = open_store(url)
    store.begin(a_run("shared"))
    for i in range(count):
        store.put("shared", a_record(m=1000 * (worker + 1) + i))


def test_eight_writers_lose_no_record(store_url: str) -> None:
    context = multiprocessing.get_context("forkserver")  # processes of their own that need not import everything anew
    context.set_forkserver_preload([__name__])
    workers = [context.Process(target=_write_many, args=(store_url, w, 12)) for w in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    records = open_store(store_url).run("shared").records
    assert len({record.case.key for record in records}) == len(records) == 96


def test_writers_of_the_same_cases_leave_one_record_of_each(store_url: str) -> None:
    together = threading.Barrier(4)

    def write(worker: int) -> None:
        store = open_store(store_url)
        for turn in range(5):
            together.wait(60)
            store.begin(a_run(f"shared-{turn}"))
            for m in (64, 65):
                store.put(f"shared-{turn}", a_record(m=m + worker % 2))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    store = open_store(store_url)
    for turn in range(5):
        assert sorted(r.case.problem.m for r in store.run(f"shared-{turn}").records) == [64, 65, 66]
    with store._engine.connect() as connection:
        places = select(record.c.run_id, record.c.position)
        assert len(connection.execute(places.distinct()).all()) == len(connection.execute(places).all()) == 15


def test_a_newer_store_is_refused_with_the_version_to_install(store_url: str) -> None:
    from sqlalchemy import text

    store = open_store(store_url)
    with store._engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(text("UPDATE about SET value = '7.3.0' WHERE key = 'written_by'"))
    with pytest.raises(StoreError, match="newer dgw") as caught:
        open_store(store_url)
    assert "7.3.0" in caught.value.hint


def test_a_corrupt_store_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "dgw.db"
    path.write_bytes(b"this is not a database, but something that a user may want back" * 50)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="corrupt") as caught:
        open_store(str(path))
    assert "mv " in caught.value.hint
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot create") as caught:
        open_store(str(tmp_path / "file" / "dgw.db"))
    assert "DGW_STORE" in caught.value.hint


def test_a_store_on_a_read_only_path_is_an_error_with_advice() -> None:
    with pytest.raises(StoreError) as caught:
        open_store("/proc/dgw.db")
    assert "DGW_STORE" in caught.value.hint


def test_a_locked_store_says_that_another_process_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgw.workbench.store.engine.BUSY_TIMEOUT_S", 0)
    store = open_store(str(tmp_path / "dgw.db"))
    other = sqlite3.connect(tmp_path / "dgw.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="held by another process"):
        store.begin(a_run())


def test_a_killed_writer_leaves_whole_records_only(tmp_path: Path) -> None:
    path = tmp_path / "dgw.db"
    store = open_store(str(path))
    store.begin(a_run(records=(a_record(),)))
    pid = os.fork()
    if pid == 0:
        dying = open_store(str(path))
        connection = dying._engine.connect()
        connection.exec_driver_sql("DELETE FROM measurement")
        os._exit(9)
    os.waitpid(pid, 0)
    assert len(store.run("r1").records[0].measurements) == 5


def test_passwords_never_show(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/none"
    assert "secret" not in shown(url)
    with pytest.raises(StoreError) as caught:
        open_store(url)
    assert "secret" not in caught.value.message + caught.value.hint


def test_nonsense_urls_are_errors() -> None:
    for url in ("nosuch://x", "://", "postgresql+nosuch://x"):
        with pytest.raises(StoreError):
            open_store(url)


def test_the_migrations_make_exactly_the_declared_tables(store_url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from dgw.workbench.store.schema import metadata

    store = open_store(store_url)
    with store._engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), metadata)
    assert found == []


def test_the_file_system_is_read_from_the_longest_mount_point(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("root / ext4 rw 0 0\nserver:/x /home/shared nfs4 rw 0 0\n")
    assert file_system(Path("/home/shared/a/dgw.db"), str(mounts)) == "nfs4"
    assert file_system(Path("/home/me/dgw.db"), str(mounts)) == "ext4"
