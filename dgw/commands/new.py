"""`dgw new`: a kernel of one's own to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dgw.commands import options
from dgw.commands.console import say
from dgw.errors import UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE.cu", help="Your kernel; one that exists stays as it is.")],
    like: Annotated[str, typer.Option("--like", metavar="STAGE", help="Start from the source of a stage.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite what exists.")] = False,
    json: options.AsJson = False,
) -> None:
    """Write a kernel and the declaration that says how it is launched; then `dgw check --kernel FILE.cu` runs it.

    For a kernel that exists only the declaration is written: its entry and parameters are read from the source.
    """
    from dgw.kernels import scaffold
    from dgw.kernels.loader import load, select
    from dgw.reports.json import render

    if file.suffix != ".cu":
        raise UsageError(f"{file} is not the name of a CUDA source", f"dgw new {file.with_suffix('.cu')}")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}", f"mkdir -p {file.parent}")
    declaration = file.with_suffix(".py")
    if declaration.exists() and not force:
        raise UsageError(f"{declaration} exists", f"dgw new {file} --force, or dgw check --kernel {file}")
    if like and file.exists() and not force:
        raise UsageError(f"{file} exists, and --like would replace it", f"dgw new {file} --like {like} --force")
    if like:
        files = scaffold.like(file, select(load(), like, None, "none"))
    elif file.exists():
        files = scaffold.declared(file, _text(file))
    else:
        files = scaffold.fresh(file)
    wrote = [declaration] if files.source is None else [file, declaration]
    try:
        if files.source is not None:
            file.write_text(files.source, encoding="utf-8")
        declaration.write_text(files.declaration, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename}: {error.strerror}", "dgw new in a folder of your own"
        ) from error
    following = f"dgw check --kernel {file} --shape 127x255x96"
    if json:
        say(render({"wrote": [str(path) for path in wrote], "fill_in": files.open_points, "next": following}))
        return
    for path in wrote:
        say(f"wrote {path}")
    for point in files.open_points:
        say(f"fill in {point}")
    say(f"next: {following}")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {file}: {reason}", "dgw new FILE.cu") from error
