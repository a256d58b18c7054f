"""A real PostgreSQL server for the tests: its own data folder, a Unix socket, no TCP port, never as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def server_folder() -> Path | None:
    """The folder with `initdb` and `postgres`: from PATH, else Debian's versioned folders."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Start a server and yield a SQLAlchemy URL of its database; stop it and remove its files afterwards."""
    binaries = server_folder()
    assert binaries is not None, "no PostgreSQL server: apt-get install postgresql"
    with tempfile.TemporaryDirectory(prefix="dgw-pg-") as folder:
        owner = _owner()
        if owner:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = Path(folder) / "data"
        _as(owner, [binaries / "initdb", "-D", data, "-U", "dgw", "-A", "trust", "-E", "UTF8", "--no-sync"])
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        start = [binaries / "pg_ctl", "-D", data, "-l", f"{folder}/log", "-o", options, "-w", "start"]
        _as(owner, start)
        try:
            yield f"postgresql+psycopg://dgw@/postgres?host={folder}"
        finally:
            _as(owner, [binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"])


def _owner() -> pwd.struct_passwd | None:
    """The user that the server runs as: somebody who is not root, since PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("neither user postgres nor nobody exists")


def _as(owner: pwd.struct_passwd | None, command: list[object]) -> None:
    identity = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if owner else {}
    words = [str(word) for word in command]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    done = subprocess.run(
        words, cwd="/", env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=False, **identity,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode()
