"""Files kept by content: `artifacts/ab/<sha256>.<kind>`; the suffix lets ncu-ui and friends open them by path."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Collection
from pathlib import Path

from dgw.errors import StoreError
from dgw.model import Artifact


class ArtifactFolder:
    """A content-addressed folder. Writing is atomic; writing the same content twice keeps one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, content: bytes | Path, kind: str, name: str = "") -> Artifact:
        """Keep `content` (bytes, or the file at a path) and return its description. Raises StoreError."""
        try:
            data = content.read_bytes() if isinstance(content, Path) else content
            sha256 = hashlib.sha256(data).hexdigest()
            target = self._target(sha256, kind)
            if not target.exists():
                _write_atomically(target, data)
        except OSError as error:
            raise StoreError(f"cannot keep a {kind} file: {error.strerror}", "dgw store prune --keep 20") from error
        return Artifact(kind=kind, sha256=sha256, bytes=len(data), name=name)

    def path(self, artifact: Artifact) -> Path:
        """Where the content lies. Raises StoreError when it was pruned or made on another machine."""
        target = self._target(artifact.sha256, artifact.kind)
        if not target.exists():
            message = f"the {artifact.kind} file {artifact.sha256[:12]} is not in {self.folder}"
            raise StoreError(message, "dgw profile ...   # makes it again")
        return target

    def prune(self, keep: Collection[str]) -> tuple[int, int]:
        """Delete every file whose SHA-256 is not in `keep`; returns (files, bytes) deleted."""
        files = size = 0
        for path in self.folder.glob("??/*"):
            if path.name.partition(".")[0] not in keep:
                with contextlib.suppress(OSError):
                    size += path.stat().st_size
                    path.unlink()
                    files += 1
        return files, size

    def _target(self, sha256: str, kind: str) -> Path:
        return self.folder / sha256[:2] / f"{sha256}.{kind}"


def _write_atomically(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
