"""`--kernel` takes one file. Several are a folder, and which of its kernels are meant is said by name."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from dgw.errors import UsageError
from dgw.recipes.retyping import kernel_options


def one_file(typed: Sequence[str]) -> None:
    """Raises UsageError with the command that works where `--kernel` or `--kernels` was typed more than once: the
    option parser would keep the last only. What does not exist, or has no declaration, is told instead."""
    given = kernel_options(typed)
    options, values = given[::2], given[1::2]
    for option in ("--kernel", "--kernels"):
        several = [value for name, value in zip(options, values, strict=False) if name == option]
        if len(several) < 2:
            continue
        missing = [value for value in dict.fromkeys(several) if not Path(value).exists()]
        if missing:
            there = list(dict.fromkeys(value for value in several if value not in missing))
            told = f"{' and '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist"
            raise UsageError(told, _without(typed, option, there, missing))
        raise UsageError(
            f"{option} was given {len(several)} times ({', '.join(several)}), and takes one",
            _folder(typed, several) if option == "--kernel" else "one folder with all of them: --kernels DIR",
        )


def _without(typed: Sequence[str], option: str, there: Sequence[str], missing: Sequence[str]) -> str:
    """The command with what is there; where nothing is, how a kernel and its declaration are made."""
    if len(there) == 1:
        rest = _rest(typed, option)
        return shlex.join(["dgw", *rest[:1], option, *there, *rest[1:]])
    if there:
        return _folder(typed, there) if option == "--kernel" else "one folder with all of them: --kernels DIR"
    first = Path(missing[0])
    if option == "--kernel" and first.parent.is_dir():
        return shlex.join(["dgw", "new", str(first.with_suffix(".cu"))])
    return "--kernels DIR or --kernel FILE with a declaration in it"


def _folder(typed: Sequence[str], files: Sequence[str]) -> str:
    folders = {Path(file).parent for file in files}
    if len(folders) > 1:
        return "put them into one folder: --kernels DIR, and name them by --variant"
    names = [name for file in dict.fromkeys(files) for name in _declared(Path(file))]
    rest = _rest(typed, "--kernel")
    chosen = names if rest[:1] == ["compare"] else ["--variant", ",".join(names)]
    return shlex.join(["dgw", *rest[:1], *chosen, "--kernels", str(folders.pop()), *rest[1:]])


def _rest(typed: Sequence[str], option: str) -> list[str]:
    """What was typed without an option and its values."""
    return [
        word for place, word in enumerate(typed)
        if word.partition("=")[0] != option and (place == 0 or typed[place - 1] != option)
    ]  # fmt: skip


def _declared(file: Path) -> list[str]:
    """The ids in a declaration. Raises UsageError where there is none beside the file, or it is broken."""
    from dgw.kernels.loader import load

    declaration = file.with_suffix(".py").resolve()
    return [one.id for one in load([file]).values() if one.declaration == declaration]
