"""`dgw side`: the hidden command that says what one side of a gate would launch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dgw.commands.child import Extra, TreeOption, use_tree

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def side(
    question: Annotated[Path, typer.Argument(help="The file that says what is wanted.")],
    answer: Annotated[Path, typer.Argument(help="Where to answer.")],
    extra: Extra = None,
    tree: TreeOption = None,
) -> None:
    """Plan and compile the cases of a gate; the gate starts this, nobody types it."""
    use_tree(tree)
    from dgw.kernels.loader import load
    from dgw.workbench.gate.sides import serve

    serve(load(tuple(extra or ())), question, answer)
