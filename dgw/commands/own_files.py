"""`--kernel` takes one file. Several are a folder, and which of its kernels are meant is said by name."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from dgw.errors import DgwError, UsageError
from dgw.recipes.retyping import kernel_options


def one_file(typed: Sequence[str]) -> None:
    """Raises UsageError with the command that works where `--kernel` or `--kernels` was typed more than once: the
    option parser would keep the last only."""
    given = kernel_options(typed)
    options, values = given[::2], given[1::2]
    for option in ("--kernel", "--kernels"):
        several = [value for name, value in zip(options, values, strict=False) if name == option]
        if len(several) > 1:
            raise UsageError(
                f"{option} was given {len(several)} times ({', '.join(several)}), and takes one",
                _folder(typed, several) if option == "--kernel" else "one folder with all of them: --kernels DIR",
            )


def _folder(typed: Sequence[str], files: Sequence[str]) -> str:
    folders = {Path(file).parent for file in files}
    if len(folders) > 1:
        return "put them into one folder: --kernels DIR, and name them by --variant"
    names = [name for file in files for name in _declared(Path(file))]
    rest = [word for place, word in enumerate(typed) if not _is_kernel(typed, place)]
    chosen = names if rest[:1] == ["compare"] else ["--variant", ",".join(names)]
    return shlex.join(["dgw", *rest[:1], *chosen, "--kernels", str(folders.pop()), *rest[1:]])


def _is_kernel(typed: Sequence[str], place: int) -> bool:
    return typed[place].partition("=")[0] == "--kernel" or (place > 0 and typed[place - 1] == "--kernel")


def _declared(file: Path) -> list[str]:
    """The ids in a declaration; its file's name as an idea where it cannot be read."""
    from dgw.kernels.loader import load

    declaration = file.with_suffix(".py").resolve()
    try:
        return [one.id for one in load([file]).values() if one.declaration == declaration]
    except DgwError:
        return [f"mine/{file.stem}"]
