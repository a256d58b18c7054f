"""`dgw child`: the hidden command in which cases run, alone or under a profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)
Extra = Annotated[list[Path] | None, typer.Option("--extra", help="A folder or file of further declarations.")]
TreeOption = Annotated[Path | None, typer.Option("--tree", help="A checkout whose kernels replace those of this dgw.")]


def use_tree(tree: Path | None) -> None:
    """Load the kernels, their declarations and headers from another checkout; everything else stays this dgw's.

    Before anything of `dgw.kernels` is imported. Raises UsageError when the checkout has no kernels.
    """
    if tree is None:
        return
    import dgw.kernels
    from dgw.errors import UsageError

    folder = tree.resolve() / "dgw" / "kernels"
    if not (folder / "loader.py").is_file():
        raise UsageError(f"{tree.name} holds no kernels of dgw", "--base-tree DIR with a checkout of the repository")
    dgw.kernels.__path__[:] = [str(folder)]


@app.command()
def child(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    fifo: Annotated[Path, typer.Argument(help="The pipe on which to answer.")],
    extra: Extra = None,
    tree: TreeOption = None,
) -> None:
    """Run the cases of a job file; the runner starts this, nobody types it."""
    use_tree(tree)
    from dgw.kernels.loader import load
    from dgw.workbench.child import serve

    raise typer.Exit(serve(load(tuple(extra or ())), job, fifo))
