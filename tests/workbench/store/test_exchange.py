from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dgw.errors import DgwError, StoreError
from dgw.workbench.store.exchange import export_run, import_run
from tests.workbench.store.samples import a_record, a_run


def test_an_exported_run_is_read_back_equal(tmp_path: Path) -> None:
    run = a_run(records=(a_record(), a_record(m=65, outcome="wrong")))
    path = tmp_path / "x.json"
    path.write_bytes(export_run(run))
    assert import_run(path) == run
    assert msgspec.json.decode(path.read_bytes())["schema"] == "dgw.run/1"


def test_fields_of_a_newer_minor_version_are_ignored(tmp_path: Path) -> None:
    content = msgspec.json.decode(export_run(a_run(records=(a_record(),))))
    content["records"][0]["invented_later"] = 1
    path = tmp_path / "x.json"
    path.write_bytes(msgspec.json.encode(content))
    assert import_run(path) == a_run(records=(a_record(),))


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(export_run(a_run()).replace(b"dgw.run/1", b"dgw.run/2"))
    with pytest.raises(StoreError, match="newer dgw"):
        import_run(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"schema": "other/1"}', b'{"schema": "dgw.run/1"}', b"\xff\xfe",
     b'{"schema": "dgw.run/1", "id": "x", "created": 3, "command": [], "version": ""}'],
)  # fmt: skip
def test_anything_else_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(DgwError) as caught:
        import_run(path)
    assert caught.value.hint


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DgwError, match="cannot read"):
        import_run(tmp_path / "none.json")
