"""Opening a database: URL, SQLite pragmas, migrations, and errors that say what to do.

SQLite runs in WAL mode with `synchronous=FULL` and takes the write lock at BEGIN, so that writers wait for each other
instead of failing. The import of SQLAlchemy happens here and below, never when only `--help` is asked.
"""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgw.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

BUSY_TIMEOUT_S = 60
_MIGRATION_LOCK = 0x646777  # one advisory lock for all dgw migrations on a PostgreSQL server
_SHARED_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "9p", "fuse.sshfs"}


def store_url(text: str) -> str:
    """A database URL from what the user gave: a URL, or the path of a SQLite file."""
    return text if "://" in text else f"sqlite:///{Path(text).absolute()}"


def sqlite_file(url: str) -> Path:
    """The file of a SQLite URL; `.` for a store in memory."""
    from sqlalchemy.engine import make_url

    return Path(make_url(url).database or "")


def is_absent(url: str) -> bool:
    """Whether the URL names a SQLite file that is not there."""
    return url.startswith("sqlite") and not sqlite_file(url).exists()


def shown(url: str) -> str:
    """The URL without its password, or the bare path of a SQLite file."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError:
        return url.partition("://")[0] + "://..."
    if parsed.get_backend_name() == "sqlite":
        path = Path(parsed.database or "")
        return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    return parsed.render_as_string(hide_password=True)


def open_engine(url: str) -> Engine:
    """Connect, migrate if the store is older, refuse if it is newer. Raises StoreError with the next step."""
    from sqlalchemy import create_engine
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        if url.startswith("sqlite"):
            engine = _sqlite(url)
        else:
            engine = create_engine(
                url, pool_pre_ping=True, connect_args={"connect_timeout": 10, "client_encoding": "utf8"}
            )
    except (ArgumentError, NoSuchModuleError) as error:
        raise StoreError(
            f"not a store URL: {shown(url)}", "DGW_STORE=postgresql+psycopg://user@host/database"
        ) from error
    except ModuleNotFoundError as error:
        hint = "pip install 'deepgemm-workbench[postgresql]'"
        raise StoreError(f"the driver for {shown(url)} is not installed ({error.name})", hint) from error
    with translated(url):
        _bring_up_to_date(engine, url)
    return engine


def _sqlite(url: str) -> Engine:
    from sqlalchemy import create_engine, event

    path = sqlite_file(url)
    _refuse_shared_file_system(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "DGW_STORE=PATH/dgw.db with a folder that you may write"
        raise StoreError(f"cannot create the store's folder {path.parent}: {error.strerror}", hint) from error
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _: object) -> None:
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get("dgw_reading", False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _refuse_shared_file_system(path: Path) -> None:
    kind = file_system(path)
    if kind in _SHARED_FILE_SYSTEMS:
        hint = "DGW_STORE=postgresql+psycopg://..., or a path on a local disk"
        raise StoreError(f"{path} lies on {kind}; SQLite's WAL needs a local disk", hint)


def file_system(path: Path, mounts: str = "/proc/mounts") -> str:
    """The type of the file system that holds `path` (by the longest mount point), or an empty string."""
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path(mounts).read_text().splitlines():
            _, point, found, *_ = line.split(" ")
            if path.absolute().is_relative_to(point) and len(point) >= len(best):
                best, kind = point, found
    return kind


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn database errors inside the block into StoreError, with the password left out."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        raise _store_error(url, error.orig) from error
    except sqlite3.Error as error:
        raise _store_error(url, error) from error


def _store_error(url: str, error: BaseException | None) -> StoreError:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    where = shown(url)
    if "not a database" in text or "malformed" in text:
        return StoreError(f"the store {where} is corrupt: {text}", f"mv {where} {where}.broken   # then run again")
    if "readonly" in text or "unable to open" in text:
        hint = "DGW_STORE=PATH/dgw.db with a folder that you may write"
        return StoreError(f"the store {where} cannot be written: {text}", hint)
    if "locked" in text:
        hint = f"fuser {where}   # shows who holds it; then run again"
        return StoreError(f"the store {where} is held by another process", hint)
    if "disk is full" in text:
        return StoreError(f"no space left for the store {where}", "dgw store prune --keep 20")
    return StoreError(f"the store {where} failed: {text}", "dgw store info")


def _bring_up_to_date(engine: Engine, url: str) -> None:
    from dgw.workbench.store.schema import HEAD

    found = _revision(engine)
    if found == HEAD:
        return
    with _migration_lock(engine), engine.connect() as connection:
        found = _revision(engine)
        if found is not None and found > HEAD:
            raise _newer(engine, url)
        if found != HEAD:
            _migrate(connection)


def _revision(engine: Engine) -> str | None:
    from sqlalchemy import inspect, text

    with engine.connect().execution_options(dgw_reading=True) as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _newer(engine: Engine, url: str) -> StoreError:
    from sqlalchemy import text

    with engine.connect().execution_options(dgw_reading=True) as connection:
        writer = connection.execute(text("SELECT value FROM about WHERE key = 'written_by'")).scalar()
    hint = f"pip install 'deepgemm-workbench>={writer}'" if writer else "pip install -U deepgemm-workbench"
    return StoreError(f"the store {shown(url)} was written by a newer dgw ({writer or 'unknown'})", hint)


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import text

    import dgw

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.execute(text("DELETE FROM about WHERE key = 'written_by'"))
    connection.execute(text("INSERT INTO about VALUES ('written_by', :version)"), {"version": dgw.__version__})
    connection.commit()


@contextlib.contextmanager
def _migration_lock(engine: Engine) -> Iterator[None]:
    """Only one process migrates: a lock file beside a SQLite store, an advisory lock on PostgreSQL."""
    from sqlalchemy import text

    if engine.dialect.name == "sqlite" and not engine.url.database:
        yield
        return
    if engine.dialect.name == "sqlite":
        with Path(f"{engine.url.database}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        return
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        yield
