"""The sides of a time gate from what was typed: head is what lies here, base a commit, tree, file or interpreter."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dgw.errors import UsageError

if TYPE_CHECKING:
    from dgw.commands.gate_time import TimePick
    from dgw.workbench.gate.sides import SideSetup
    from dgw.workbench.gate.trees import Tree

PACKAGE = Path(__file__).resolve().parents[2]
"""The folder that holds this dgw."""


def head_side(pick: TimePick) -> SideSetup:
    """The working tree: this dgw's kernels, or those of the repository that one stands in."""
    from dgw.workbench.gate.sides import SideSetup
    from dgw.workbench.gate.trees import project, working_tree

    tree = working_tree(project(Path.cwd(), PACKAGE, pick.kernels or pick.kernel))
    own = tree.kernels is None or tree.folder.resolve() == PACKAGE
    selects = [] if own else ["--tree", str(tree.folder)]
    return SideSetup("head", tree.about, _program(sys.executable), [*selects, *_extras(pick.kernels, pick.kernel)])


def head_commit(own: Path | None) -> str:
    """The commit of the repository that is gated: the one that one stands in, not dgw's where that is another.

    `own` is the folder or file of kernels of one's own. DGW_COMMIT counts where git knows nothing.
    """
    from dgw.workbench.gate.trees import project, working_tree

    return working_tree(project(Path.cwd(), PACKAGE, own)).about.commit


def shown(source: Path, roots: Sequence[Path]) -> str:
    """A kernel's file as the first of the folders that holds it calls it; only its name where it lies elsewhere."""
    path = source.resolve()
    root = next((root.resolve() for root in roots if path.is_relative_to(root.resolve())), None)
    return path.relative_to(root).as_posix() if root is not None else path.name


def _program(python: str) -> list[str]:
    return [python, "-m", "dgw"]


def _extras(*paths: Path | None) -> list[str]:
    from dgw.commands.request import extra_paths

    return [part for path in extra_paths(*paths) for part in ("--extra", str(path))]


@contextlib.contextmanager
def base_side(pick: TimePick, head: SideSetup) -> Iterator[SideSetup]:
    """The base that was asked for; a checkout of a commit lives as long as the block."""
    from dgw.workbench.gate.sides import SideSetup
    from dgw.workbench.gate.trees import commit_tree, folder_tree
    from dgw.workbench.gate.verdict import Side

    if pick.base_kernel is not None:
        about = Side(label=pick.base_kernel.name, kind="kernel")
        yield SideSetup("base", about, _program(sys.executable), _extras(pick.base_kernel))
    elif pick.base_python is not None:
        yield _other_python(pick, head, pick.base_python)
    elif pick.base_tree is not None:
        yield _from_tree(pick, folder_tree(pick.base_tree))
    else:
        with commit_tree(Path.cwd(), pick.base) as tree:
            yield _from_tree(pick, tree)


def _other_python(pick: TimePick, head: SideSetup, path: Path) -> SideSetup:
    """Another interpreter, or a folder of packages that come first; this dgw measures in it."""
    from dgw.workbench.gate.sides import SideSetup
    from dgw.workbench.gate.verdict import Side

    if not path.exists():
        raise UsageError(f"{path} does not exist", "--base-python with an interpreter, or a folder of packages")
    folder = path.is_dir()
    paths = [str(path.resolve())] if folder else []
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    variables = {"PYTHONPATH": os.pathsep.join([*paths, str(PACKAGE), *inherited])}
    label = path.resolve().name if folder else path.absolute().parent.parent.name or path.name
    program = _program(sys.executable if folder else str(path.absolute()))
    return SideSetup("base", Side(label=label, kind="python"), program, head.selects, variables)


def _from_tree(pick: TimePick, tree: Tree) -> SideSetup:
    from dgw.workbench.gate.sides import SideSetup
    from dgw.workbench.gate.trees import inside, repository

    top = repository(Path.cwd()) or Path.cwd()
    own = [inside(path, top, tree.folder) for path in (pick.kernels, pick.kernel) if path is not None]
    moved = any(path.is_relative_to(tree.folder) for path in own)
    if tree.kernels is None and not moved:
        raise UsageError(
            f"{tree.about.label} holds no kernels: neither dgw/kernels nor what --kernels and --kernel name",
            "--kernels DIR or --kernel FILE inside the repository",
        )
    selects = [] if tree.kernels is None else ["--tree", str(tree.kernels)]
    missing = [path.name for path in own if not path.exists()]
    if missing:
        raise UsageError(f"{tree.about.label} has no {', '.join(missing)}", "--base with a commit that has it")
    return SideSetup("base", tree.about, _program(sys.executable), [*selects, *_extras(*own)])
