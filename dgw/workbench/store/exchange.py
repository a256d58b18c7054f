"""A Run as a JSON file: what `dgw report -o x.json` writes and `dgw import x.json` reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from dgw.errors import StoreError, UsageError
from dgw.model import Run

SCHEMA = "dgw.run/1"
EVIDENCE = "dgw.evidence/1"
"""The schema of docs/h200/*.json, which hold the run that they are computed from."""


def export_run(run: Run) -> bytes:
    """The run as indented JSON (UTF-8, newline at the end)."""
    content = {"schema": SCHEMA, **msgspec.to_builtins(run)}
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def import_run(path: Path) -> Run:
    """Read a run written by `export_run`, or the one that a file of evidence holds.

    Raises UsageError or StoreError, each with the next step.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "dgw import FILE.json") from error
    schema = _schema_of(content, path)
    if schema == EVIDENCE:
        return _decoded(content, path, _Evidence).run
    if schema != SCHEMA:
        newer = re.fullmatch(r"dgw\.run/(\d+)", schema)
        if newer and int(newer[1]) > 1:
            raise StoreError(f"{path} was written by a newer dgw ({schema})", "pip install -U deepgemm-workbench")
        raise UsageError(f"{path} is not a dgw run (schema {schema or 'missing'})", "dgw report RUN -o FILE.json")
    return _decoded(content, path, Run)


class _Evidence(msgspec.Struct):
    run: Run


_T = TypeVar("_T")


def _decoded(content: bytes, path: Path, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is not a valid dgw run: {error}", "dgw report RUN -o FILE.json") from error


def _schema_of(content: bytes, path: Path) -> str:
    class Head(msgspec.Struct):
        schema: str = ""

    try:
        head = msgspec.json.decode(content, type=Head)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not JSON of a dgw run: {error}", "dgw report RUN -o FILE.json") from error
    return head.schema
