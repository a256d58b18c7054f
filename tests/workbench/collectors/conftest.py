from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    """The module `ncu_fakes` beside this file."""
    spec = importlib.util.spec_from_file_location("dgw_tests_ncu_fakes", Path(__file__).parent / "ncu_fakes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
