"""Source trees to compare with: a commit checked out beside the repository, a folder, and what each is called."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dgw.errors import UsageError
from dgw.workbench.gate.verdict import Side

KERNELS = Path("dgw") / "kernels"


@dataclass(frozen=True)
class Tree:
    """A source tree: its folder, and what a report calls it."""

    folder: Path
    about: Side

    @property
    def kernels(self) -> Path | None:
        """The tree itself where it has kernels of dgw, else None: then dgw's own are the same on both sides."""
        return self.folder if (self.folder / KERNELS).is_dir() else None


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None when it says no (or there is no git)."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def repository(start: Path) -> Path | None:
    """The top folder of the repository that `start` lies in, or None."""
    top = _git(start, "rev-parse", "--show-toplevel")
    return Path(top) if top else None


def working_tree(folder: Path) -> Tree:
    """The tree as it lies there, with its commit (DGW_COMMIT where git knows none) and whether anything differs."""
    known = _git(folder, "rev-parse", "HEAD") or ""
    commit = known or os.environ.get("DGW_COMMIT", "")
    changed = bool(known) and bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    label = f"{commit[:12]}{' with changes' if changed else ''}" if commit else "the working tree"
    return Tree(folder, Side(label=label, kind="tree", commit=commit))


def project(start: Path, package: Path, own: Path | None = None) -> Path:
    """The folder whose commit says which code is gated: the repository that `start` lies in; outside of any that of the
    kernels named (`own`), or else the one of dgw (`package`), whose kernels these are."""
    if (top := repository(start)) is not None:
        return top
    if own is None:
        return package
    place = (own if own.is_dir() else own.parent).resolve()
    return repository(place) or place


def folder_tree(folder: Path) -> Tree:
    """A folder given by name. Raises UsageError when there is none."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", "--base-tree DIR with a checkout of the base")
    place = folder.resolve()
    return Tree(place, Side(label=folder.name, kind="tree", commit=_git(place, "rev-parse", "HEAD") or ""))


@contextlib.contextmanager
def commit_tree(start: Path, ref: str) -> Iterator[Tree]:
    """A checkout of `ref` that exists as long as the block runs. Raises UsageError where git cannot make one."""
    top = repository(start)
    if top is None:
        raise UsageError(f"--base {ref} needs a git repository, and this folder is in none", "--base-tree DIR")
    commit = _git(top, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if not commit:
        raise UsageError(f"no commit is named {ref!r}", f"git fetch origin {ref}, or --base with one of git branch -a")
    with tempfile.TemporaryDirectory(prefix="dgw-base-") as folder:
        place = Path(folder) / "tree"
        added = _git(top, "worktree", "add", "--detach", "--force", str(place), commit)
        if added is None:
            raise UsageError(f"git cannot check out {ref} beside the repository", f"git worktree add DIR {ref}")
        try:
            yield Tree(place, Side(label=ref, kind="commit", commit=commit))
        finally:
            _git(top, "worktree", "remove", "--force", str(place))


def latest_release(start: Path) -> str:
    """The newest tag that HEAD descends from. Raises UsageError where there is none."""
    top = repository(start)
    tag = _git(top, "describe", "--tags", "--abbrev=0", "HEAD") if top is not None else None
    if not tag:
        raise UsageError("no release is tagged in this repository", "--anchor REF with the commit to compare with")
    return tag


def inside(path: Path, tree: Path, base: Path) -> Path:
    """The place in `base` of a path of `tree`; a path outside of `tree` is the same on both sides."""
    resolved, top = path.resolve(), tree.resolve()
    return base / resolved.relative_to(top) if resolved.is_relative_to(top) else resolved
