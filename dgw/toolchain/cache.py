"""The compile cache: one readable folder per compiled program.

    tiled-sm_80-0123456789abcdef/
        meta.json      what it was made from, and the SHA-256 of the files below
        kernel.cu      the source text
        kernel.ptx     kernel.cubin     ptxas.log

An entry is written beside its place and renamed into it, so a reader sees all of it or nothing, and processes that
compile the same thing at the same time do no harm. An entry that does not match its own meta.json is a miss and is
replaced. Entries may be deleted by hand at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath

import msgspec

from dgw.model import digest
from dgw.toolchain.headers import Header
from dgw.toolchain.nvrtc import Compiled

_SCHEMA = "dgw.compile/1"


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """meta.json of an entry. `seconds` is what the compiler took, `files` maps file names to their SHA-256."""

    schema: str
    key: str
    source: str
    arch: str
    compiler: str
    defines: tuple[tuple[str, int | str], ...]
    flags: tuple[str, ...]
    headers: tuple[str, ...]
    seconds: float
    files: dict[str, str]


@dataclass(frozen=True)
class Recipe:
    """Everything a compiled program depends on. `source` is the file's name, for people; it does not enter the key."""

    source: str
    text: str
    headers: tuple[Header, ...]
    defines: tuple[tuple[str, int | str], ...]
    flags: tuple[str, ...]
    arch: str
    compiler: str

    @cached_property
    def key(self) -> str:
        """SHA-256 over source, headers as spelled and their texts, defines and flags in order, arch and compiler."""
        headers = [(header.spelling, header.text) for header in self.headers]
        return digest([_SCHEMA, self.text, headers, self.defines, self.flags, self.arch, self.compiler])


class CompileCache:
    """A folder of compiled programs; it is created when the first program is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entry_folder(self, recipe: Recipe) -> Path:
        """Where the entry of `recipe` is, or would be."""
        return self.folder / f"{PurePath(recipe.source).stem}-{recipe.arch}-{recipe.key[:16]}"

    def get(self, recipe: Recipe) -> tuple[Compiled, float] | None:
        """The compiled program and the seconds it once took; None when there is no entry or a damaged one."""
        return _read(self.entry_folder(recipe), recipe.key)

    def put(self, recipe: Recipe, compiled: Compiled, seconds: float) -> bool:
        """Keep a compiled program; False when the folder cannot be written, which costs a compile next time."""
        files = {
            "kernel.cu": recipe.text.encode(),
            "kernel.ptx": compiled.ptx.encode(),
            "kernel.cubin": compiled.cubin,
            "ptxas.log": compiled.log.encode(),
        }
        meta = Meta(
            schema=_SCHEMA,
            key=recipe.key,
            source=recipe.source,
            arch=recipe.arch,
            compiler=recipe.compiler,
            defines=recipe.defines,
            flags=recipe.flags,
            headers=tuple(header.spelling for header in recipe.headers),
            seconds=seconds,
            files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        )
        files["meta.json"] = msgspec.json.format(msgspec.json.encode(meta), indent=2) + b"\n"
        place = self.entry_folder(recipe)
        draft = self.folder / f".{place.name}.{uuid.uuid4().hex}"
        try:
            draft.mkdir(parents=True)
            for name, content in files.items():
                (draft / name).write_bytes(content)
            return _install(draft, place, recipe.key)
        except OSError:
            return False
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _install(draft: Path, place: Path, key: str) -> bool:
    """Rename `draft` to `place`; a sound entry that is already there stays, a damaged one is moved away first."""
    for _ in range(3):
        with contextlib.suppress(OSError):  # a folder that is not empty is never replaced by a rename
            os.rename(draft, place)
            return True
        if _read(place, key) is not None:
            return True
        aside = draft.with_name(f"{draft.name}.old")
        with contextlib.suppress(OSError):  # another process may move it first
            os.rename(place, aside)
        _remove(aside)
    return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _read(place: Path, key: str) -> tuple[Compiled, float] | None:
    try:
        meta = msgspec.json.decode((place / "meta.json").read_bytes(), type=Meta)
        if meta.schema != _SCHEMA or meta.key != key:
            return None
        contents = _sound_files(place, meta, ("kernel.ptx", "kernel.cubin", "ptxas.log"))
        if contents is None:
            return None
        ptx, cubin, log = contents
        return Compiled(ptx=ptx.decode(), cubin=cubin, log=log.decode()), meta.seconds
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _sound_files(place: Path, meta: Meta, names: Sequence[str]) -> list[bytes] | None:
    contents = [(place / name).read_bytes() for name in names]
    sound = all(
        hashlib.sha256(content).hexdigest() == meta.files.get(name)
        for name, content in zip(names, contents, strict=True)
    )
    return contents if sound else None
