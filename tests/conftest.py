from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from dgw.toolchain.cache import CompileCache


def pytest_configure() -> None:
    """A shell starts what it puts into the background with Ctrl-C ignored; tests that send it need it to be heard."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the whole run, the workers of pytest-xdist together."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def cache(shared_folder: Path) -> CompileCache:
    """What one test has compiled, no other compiles again."""
    return CompileCache(shared_folder / "compiled")


@pytest.fixture(scope="session")
def listings(shared_folder: Path) -> Path:
    """Where disassembled machine code is kept."""
    return shared_folder / "listings"
