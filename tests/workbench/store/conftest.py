from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workbench.store.postgresql import running_server


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DGW_ARTIFACTS", str(tmp_path / "artifacts"))
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/dgw.db"
    url = request.getfixturevalue("postgresql_server")
    _empty(url)
    return url


def _empty(url: str) -> None:
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
