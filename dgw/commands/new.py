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
    entry: Annotated[
        str, typer.Option("--entry", metavar="NAME", help="The kernel to launch, of a source with several.")
    ] = "",
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
        files = scaffold.declared(file, _text(file), entry)
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
    following, why = _first_check(file)
    if json:
        told = {"left_out": files.left_out, "fill_in": files.open_points, "next": following, "why": why}
        say(render({"wrote": [str(path) for path in wrote], **told}))
        return
    for path in wrote:
        say(f"wrote {path}")
    if files.left_out:
        others = ", ".join(files.left_out)
        say(f"{file} has {len(files.left_out) + 1} kernels: {files.entry} is declared, {others} left out")
        say("  --entry NAME takes another, and a plan may launch several")
    for point in files.open_points:
        say(f"fill in {point}")
    say(why)
    say("what a declaration can say: docs/own-kernels.md")
    say(f"next: {following}")


SHAPES = ("127x255x96", "256x256x128", "512x512x512")
"""What a kernel is checked at first: edges that no tile divides, then whole tiles."""


def _first_check(file: Path) -> tuple[str, str]:
    """The command that checks the kernel for the first time, and why it takes this shape."""
    import shlex

    from dgw.commands.session import DEFAULT_DEVICE
    from dgw.kernels.loader import load
    from dgw.model import gemm
    from dgw.operands.shapes import parse_shape
    from dgw.toolchain.devices import device

    declaration = file.with_suffix(".py").resolve()
    variant = next(one for one in load([file]).values() if one.declaration == declaration)
    dtype, where, reasons = variant.dtypes[0], device(DEFAULT_DEVICE), []
    for shape in SHAPES:
        _, m, n, k = parse_shape(shape)
        problem = gemm(m, n, k, dtype)
        reasons.append(variant.refuses(problem, variant.config_for(problem, where), where))
        if reasons[-1] is None:
            break
    else:
        shape = SHAPES[0]
    words = ["dgw", "check", "--kernel", str(file), "--shape", shape, *(["--dtype", dtype] if dtype != "f16" else [])]
    if shape != SHAPES[0]:
        return shlex.join(words), f"{shape} because {SHAPES[0]} is refused: {reasons[0]}"
    why = f"{shape} because no tile divides it, so that the edges are checked; a kernel of whole tiles only refuses it"
    return shlex.join(words), f"{why} in {file.with_suffix('.py').name}, and is checked at {SHAPES[1]}"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {file}: {reason}", "dgw new FILE.cu") from error
