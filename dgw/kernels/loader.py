"""Finds the variants: every declaration in the family folders, and those the user adds by path."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from dgw.errors import UsageError
from dgw.kernels.declaring import INCLUDE
from dgw.model import Device, Variant

HERE = Path(__file__).parent
STAGE_FILE = re.compile(r"s(\d\d)_([a-z0-9_]+)")
FAMILY_ORDER = ("hopper", "cuda", "triton")  # which family a bare name means where several can run it


def load(extra: Sequence[Path] = ()) -> dict[str, Variant]:
    """All variants by id: the ladder's stages, the baselines, and what `extra` adds.

    A path in `extra` is a folder of declarations (its name is the family), one declaration, or a `.cu` file whose
    declaration of the same name lies beside it. Raises UsageError naming the file when a declaration is broken.
    """
    variants: dict[str, Variant] = {}
    for path, read in [*_own(), *_extra(extra)]:
        variant = _variant(path, read)
        if variant.id in variants:
            first = variants[variant.id].declaration
            raise UsageError(
                f"{path.name}: the id {variant.id} is already taken by {first.name}", "give one of them another id"
            )
        variants[variant.id] = variant
    return dict(sorted(variants.items(), key=lambda item: (item[1].family, item[1].stage or 0, item[0])))


def _own() -> Iterator[tuple[Path, Callable[[Path], ModuleType]]]:
    stages = sorted(path for path in HERE.glob("*/s[0-9][0-9]_*.py") if not path.stem.endswith("_kernel"))
    baselines = sorted(path for path in HERE.glob("baselines/*.py") if path.name != "__init__.py")
    for path in [*stages, *baselines]:
        yield path, lambda path: importlib.import_module(f"dgw.kernels.{path.parent.name}.{path.stem}")


def _extra(extra: Sequence[Path]) -> Iterator[tuple[Path, Callable[[Path], ModuleType]]]:
    for given in extra:
        path = given.resolve()
        if path.is_dir():
            found = sorted(file for file in path.glob("*.py") if file.name != "__init__.py")
            found = [file for file in found if not file.stem.endswith("_kernel")]
            if not found:
                raise UsageError(f"{given} holds no declaration", "put a NAME.py with a VARIANT beside each kernel")
            for file in found:
                yield file, _import_file
            continue
        declaration = path if path.suffix == ".py" else path.with_suffix(".py")
        if not declaration.is_file():
            raise UsageError(f"{given} has no declaration: {declaration.name} is not beside it", f"dgw new {given}")
        yield declaration, _import_file


def _import_file(path: Path) -> ModuleType:
    name = f"dgw_extra_{sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _variant(path: Path, read: Callable[[Path], ModuleType]) -> Variant:
    """The VARIANT of one declaration, with its file, root and includes filled in."""
    hint = "docs/own-kernels.md says what a declaration has; dgw/kernels/cuda/s01_naive.py is a complete one"
    try:
        variant = getattr(read(path), "VARIANT", None)
    except Exception as error:
        raise UsageError(f"{path.name}: {_why_not_loaded(path, error)}", hint) from error
    if not isinstance(variant, Variant):
        raise UsageError(f"{path.name}: the declaration has no VARIANT of type dgw.model.Variant", hint)
    wrong = _what_is_wrong(path, variant)
    if wrong:
        raise UsageError(f"{path.name}: {wrong}", hint)
    root = path.parent if variant.root == Path() else variant.root
    return replace(variant, root=root, includes=(*variant.includes, INCLUDE), declaration=path)


def _why_not_loaded(path: Path, error: Exception) -> str:
    """What a declaration raised when it was read, with the line that did; a missing field of a noun by its name."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename) == path]
    place = f"line {frames[-1].lineno}: " if frames else ""
    missing = re.fullmatch(r"Missing required argument '(\w+)'", str(error))
    if frames and missing:
        line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0)
        made = re.match(r"[\w.]+", line[frames[-1].colno or 0 :])
        return f"{place}{made[0] if made else 'a declaration'} lacks {missing[1]}="
    return f"{place}the declaration does not load: {type(error).__name__}: {error}"


def _what_is_wrong(path: Path, variant: Variant) -> str | None:
    if not variant.family or not variant.name:
        return f"the id {variant.id!r} is not family/idea"
    if (variant.plan is None) == (variant.bind is None):
        return "exactly one of plan and bind must be set"
    if HERE in path.parents:
        stage = STAGE_FILE.fullmatch(path.stem)
        expected = f"{path.parent.name}/{(stage.group(2) if stage else path.stem).replace('_', '-')}"
        if variant.id != expected:
            return f"the id is {variant.id}, but the file is named for {expected}"
        if variant.stage != (int(stage.group(1)) if stage else None):
            return f"the stage is {variant.stage}, but the file is named for another"
    for tunable in variant.space:
        if tunable.default not in tunable.values:
            return f"the default {tunable.default} of {tunable.name} is not among its values"
    return None


def select(variants: Mapping[str, Variant], name: str, device: Device | None, engine: str) -> Variant:
    """The variant that `name` means: an id, or the name of an idea.

    A bare name means the best family that `device` and `engine` (`gpu`, `emulator` or `none`) can run; where none can,
    the first of those that have it, so that the refusal names it. Raises UsageError with the nearest names.
    """
    if name in variants:
        return variants[name]
    found = sorted((v for v in variants.values() if v.name == name), key=lambda v: (_rank(v.family), v.id))
    if not found:
        known = [*variants, *(variant.name for variant in variants.values())]
        near = sorted(set(get_close_matches(name, known, n=5, cutoff=0.5)))
        nearest = f"; nearest: {', '.join(near)}" if near else ""
        raise UsageError(f"there is no variant {name}{nearest}", "dgw list")
    return next((v for v in found if _runs(v, device, engine)), found[0])


def _rank(family: str) -> int:
    return FAMILY_ORDER.index(family) if family in FAMILY_ORDER else len(FAMILY_ORDER)


def _runs(variant: Variant, device: Device | None, engine: str) -> bool:
    """Whether `engine` is for it. Without a GPU a bare name means a stage of many devices: Hopper's have ids."""
    if device is not None and not variant.runs_on(device.arch):
        return False
    return engine == "gpu" or (variant.plan is not None and variant.portable)
