"""From what was typed to cases: shapes, types and layouts to problems, names to variants, tunables to configs."""

from __future__ import annotations

import difflib
import importlib.util
import math
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dgw.commands.options import Ask, split
from dgw.commands.suites import shapes_file, suite
from dgw.errors import UsageError
from dgw.model import Case, Config, Device, Epilogue, Operand, Problem, Tunable, Variant, gemm
from dgw.operands.suites import Suite, Wanted

if TYPE_CHECKING:
    from dgw.commands.session import Machine

LAYOUTS = ("nn", "nt", "tn", "tt")
OUT = {"s8": "s32", "s4": "s32", "e4m3": "f16"}
"""The type of D where it is not that of the inputs."""
ACTIVATIONS = ("none", "relu", "gelu", "gelu-tanh", "silu")
QUANTISATIONS = ("none", "tensor", "row")
QUANTISED = ("s8", "e4m3")
"""Types of D that a scale goes with."""
ACCUMULATOR = {"s8": "s32", "s4": "s32", "f64": "f64"}


def nearest(name: str, known: Sequence[str]) -> str:
    """Up to three known names that resemble `name`, else all of them if few, else nothing."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    return " or ".join(close) if close else ", ".join(known) if len(known) <= 12 else ""


def typed(ask: Ask, command: str) -> str:
    """The command with the kernels, variants, problem and device asked for, as the beginning of a hint."""
    words = [command]
    given: Sequence[tuple[str, Sequence[object]]] = (
        ("--kernels", [ask.kernels] if ask.kernels is not None else []),
        ("--kernel", [ask.kernel] if ask.kernel is not None else []),
        ("--variant", split(ask.variant)),
        ("--shape", split(ask.shape)),
        ("--shapes", [ask.shapes] if ask.shapes is not None else []),
        ("--suite", [ask.suite] if ask.suite else []),
        ("--dtype", split(ask.dtype)),
        ("--layout", split(ask.layout)),
        ("--out", [ask.out] if ask.out else []),
        ("--activation", [ask.activation] if ask.activation != "none" else []),
        ("--quantise", [ask.quantise] if ask.quantise != "none" else []),
        ("--zero-point", [ask.zero_point] if ask.zero_point else []),
        ("--alpha", [f"{ask.alpha:g}"] if ask.alpha != 1.0 else []),
        ("--beta", [f"{ask.beta:g}"] if ask.beta else []),
        *((f"--ld{name}", [lead] if lead else []) for name, lead in (("a", ask.lda), ("b", ask.ldb), ("d", ask.ldd))),
        ("--device", [ask.device] if ask.device else []),
    )
    words += [f"{option} {shlex.quote(','.join(map(str, values)))}" for option, values in given if values]
    words += [option for option, on in (("--bias", ask.bias), ("--residual", ask.residual)) if on]
    return " ".join(words)


def problems(ask: Ask, command: str, default_shapes: Sequence[str] = ()) -> list[Problem]:
    """The problems asked for: every shape with every type and layout. Raises UsageError."""
    chosen = suite(ask.suite) if ask.suite else None
    listed = _listed(ask, command, default_shapes, chosen)
    layouts = split(ask.layout) or (list(chosen.layouts) if chosen else []) or ["nn"]
    dtypes = split(ask.dtype) or (list(chosen.dtypes) if chosen else []) or [""]
    for layout in layouts:
        if layout not in LAYOUTS:
            raise UsageError(f"no layout is named {layout!r}", f"--layout {' or '.join(LAYOUTS)}")
    found = []
    for dtype in dtypes:
        for layout in layouts:
            found += [_problem(ask, item, item.dtype or dtype or "f16", item.layout or layout) for item in listed]
    return list(dict.fromkeys(found))


def _listed(ask: Ask, command: str, default: Sequence[str], chosen: Suite | None) -> list[Wanted]:
    wanted = [Wanted(shape) for shape in split(ask.shape)]
    if ask.shapes is not None:
        wanted += shapes_file(ask.shapes)
    if chosen is not None:
        wanted += chosen.shapes
    if not wanted:
        wanted = [Wanted(shape) for shape in default]
    if not wanted:
        asked = typed(replace(ask, variant=None), command)  # what is typed has its names in it
        raise UsageError("no shape was given", f"{asked} --shape 4096x4096x4096")
    return wanted


def _problem(ask: Ask, item: Wanted, dtype: str, layout: str) -> Problem:
    from dgw.operands.data import DATA_SETS
    from dgw.operands.dtypes import check_dtype
    from dgw.operands.shapes import parse_shape

    batch, m, n, k = parse_shape(item.shape)
    check_dtype(dtype)
    out = check_dtype(ask.out) if ask.out else OUT.get(dtype)
    if layout not in LAYOUTS:
        raise UsageError(f"no layout is named {layout!r}", f"use {' or '.join(LAYOUTS)}")
    for option, value in (("--alpha", ask.alpha), ("--beta", ask.beta)):
        if not math.isfinite(value):
            raise UsageError(f"{option} {value} is no finite number", f"{option} 1.0")
    if ask.data not in DATA_SETS:
        raise UsageError(f"no data set is named {ask.data!r}", f"--data {nearest(ask.data, DATA_SETS)}")
    fields: dict[str, Any] = {"accumulator": ACCUMULATOR.get(dtype, "f32"), "alpha": ask.alpha, "beta": ask.beta}
    if batch > 1:
        fields |= {"op": "batched", "batch": batch}
    fields |= _epilogue(ask, dtype, out)
    problem = gemm(m, n, k, dtype, layout, out, data=_same(ask.data), seed=ask.seed, **fields)
    if ask.beta != 0.0:
        problem = msgspec.structs.replace(problem, c=Operand(dtype=problem.d.dtype))
    if ask.zero_point:
        problem = msgspec.structs.replace(problem, d=_shifted(ask, problem.d))
    return _strided(problem, {"a": ask.lda, "b": ask.ldb, "c": ask.ldd, "d": ask.ldd})


def _epilogue(ask: Ask, dtype: str, out: str | None) -> dict[str, Any]:
    """Fields of the Problem for what follows alpha A @ B + beta C. Bias and residual have the type of the inputs."""
    for option, value, known in (
        ("--activation", ask.activation, ACTIVATIONS),
        ("--quantise", ask.quantise, QUANTISATIONS),
    ):
        if value not in known:
            raise UsageError(f"{option} cannot be {value!r}", f"{option} {nearest(value, known)}")
    if (ask.quantise != "none") != (out in QUANTISED and dtype not in QUANTISED):
        raise UsageError(
            f"--quantise {ask.quantise} does not go with an output of {out or dtype}",
            "--quantise row --out s8, or --quantise tensor --out e4m3",
        )
    stored = "f32" if dtype == "tf32" else dtype
    side = Operand(dtype=stored)
    epilogue: Any = {"activation": _same(ask.activation), "quantise": _same(ask.quantise)}
    found: dict[str, Any] = {"epilogue": Epilogue(**epilogue)}
    return found | ({"bias": side} if ask.bias else {}) | ({"residual": side} if ask.residual else {})


def _same(text: str) -> str:
    """The one object for a word: msgspec leaves a default out of a key only where it is the very object."""
    return sys.intern(text)


def _shifted(ask: Ask, operand: Operand) -> Operand:
    """D with the zero point asked for. Raises UsageError where D has none, or it lies outside s8."""
    if ask.quantise == "none" or operand.dtype != "s8":
        raise UsageError(
            f"--zero-point {ask.zero_point} needs a D that is quantised to s8, which has integers only",
            f"--quantise row --out s8 --zero-point {ask.zero_point}",
        )
    if not -128 <= ask.zero_point <= 127:
        raise UsageError(f"zero point {ask.zero_point} is no s8", "--zero-point -128 to 127")
    return msgspec.structs.replace(operand, zero_point=ask.zero_point)


def _strided(problem: Problem, leads: Mapping[str, int | None]) -> Problem:
    for name, lead in leads.items():
        operand = problem.operands().get(name)
        if lead is None or operand is None:
            continue
        least = problem.leading_dimension(name)
        if lead < least:
            option = "--ldd" if name == "c" else f"--ld{name}"
            raise UsageError(
                f"leading dimension {lead} of {name} is below its width {least} at {problem.shape} {problem.layout}",
                f"{option} {least} or more",
            )
        replaced: Any = {name: msgspec.structs.replace(operand, ld=lead)}
        problem = msgspec.structs.replace(problem, **replaced)
    return problem


def library(ask: Ask) -> dict[str, Variant]:
    """Every variant known, the user's own included."""
    from dgw.kernels.loader import load

    return load(extra_paths(ask.kernels, ask.kernel))


def extra_paths(*paths: Path | None) -> tuple[Path, ...]:
    """The folders and files of the user's own kernels, made absolute because a child reads them too."""
    given = [path for path in paths if path is not None]
    for path in given:
        if not path.exists():
            raise UsageError(f"{path} does not exist", "--kernels DIR or --kernel FILE with a declaration in it")
    return tuple(path.resolve() for path in given)


def wanted(
    ask: Ask, names: Sequence[str], family: str, variants: Mapping[str, Variant], where: Machine, every: bool = False
) -> list[Variant]:
    """The variants of these names, of a family, of the user's own file, or of the suite; with `every` else all stages.

    Raises UsageError with the nearest names for an unknown one, and where nothing is named.
    """
    from dgw.kernels.loader import select

    if names and family:
        raise UsageError(
            f"--family {family} and {', '.join(names)} both say what runs", f"--family {family} alone, or the variants"
        )
    if names:
        found = [select(variants, name, where.device, where.engine) for name in names]
        return list({variant.id: variant for variant in found}.values())
    if family:
        return ladder(variants, family)
    if ask.kernel is not None or ask.kernels is not None:
        own = {path if path.is_dir() else path.parent for path in extra_paths(ask.kernels, ask.kernel)}
        found = [v for v in variants.values() if _declared_in(v, own, ask.kernel)]
        if found:
            return found
    if ask.suite and (listed := suite(ask.suite).variants):
        return wanted(ask, listed, "", variants, where)
    if every:
        stages = [v for v in variants.values() if v.stage is not None and v.runs_on(where.device.arch)]
        return sorted(stages, key=lambda v: (v.family, v.stage or 0, v.id))
    raise UsageError("no variant was named", "--variant swizzled; dgw list shows them all")


def _declared_in(variant: Variant, folders: Collection[Path], one: Path | None) -> bool:
    declaration = variant.declaration.resolve()
    if one is not None:
        return declaration.with_suffix("") == one.resolve().with_suffix("")
    return any(folder in declaration.parents for folder in folders)


def baselines(against: Sequence[str] | None, variants: Mapping[str, Variant], where: Machine) -> list[Variant]:
    """The baselines to time beside; by default cuBLAS where there is a GPU and torch.

    Without a GPU there are none, but an unknown name is refused there too. Raises UsageError.
    """
    from dgw.kernels.loader import select

    names = split(against)
    if names == ["none"]:
        return []
    if not names and where.engine == "gpu":
        names = ["cublas"] if importlib.util.find_spec("torch") is not None else []
    found = [select(variants, name, where.device, where.engine) for name in names]
    return found if where.engine == "gpu" else []


def ladder(variants: Mapping[str, Variant], family: str) -> list[Variant]:
    """The stages of a family, lowest first. Raises UsageError with the families there are."""
    stages = [v for v in variants.values() if v.family == family and v.stage is not None]
    if not stages:
        families = sorted({v.family for v in variants.values() if v.stage is not None})
        raise UsageError(f"no family is named {family!r}", f"--family {nearest(family, families)}")
    return sorted(stages, key=lambda v: (v.stage or 0, v.id))


def rank(variants: Mapping[str, Variant]) -> dict[str, int]:
    """Position of every variant in a table: stages by family and stage, then everything else by name."""
    ordered = sorted(variants.values(), key=lambda v: (v.stage is None, v.family, v.stage or 0, v.id))
    return {variant.id: position for position, variant in enumerate(ordered)}


def configs(texts: Sequence[str] | None) -> list[Config]:
    """The configs typed, one for each `--config`; one empty config where there is none. Raises UsageError."""
    return [_config(text) for text in texts or ()] or [{}]


def _config(text: str) -> Config:
    config: Config = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise UsageError(f"config {text!r}: {part.strip()!r} is not NAME=VALUE", "--config BM=128,BN=256")
        config[name] = int(value) if value.lstrip("-").isdigit() else value
    return config


def cases(
    problem: Problem, variants: Sequence[Variant], configs: Sequence[Config], device: Device | None = None
) -> list[Case]:
    """Every variant with every config on `problem`; a tunable that one of several variants lacks is left to the others.

    On a `device`, tunables that are not given are what the variant chooses for the problem. Raises UsageError for a
    tunable that no variant has, and for a value outside its range.
    """
    known = {tunable.name for variant in variants for tunable in variant.space}
    for name in (name for config in configs for name in config if name not in known and variants):
        text = f"{variants[0].id} has no tunable {name}" if len(variants) == 1 else f"no variant has a tunable {name}"
        raise UsageError(text, _allowed(variants))
    found = []
    for variant in variants:
        space = {tunable.name: tunable for tunable in variant.space}
        for config in configs:
            taken = {name: _value(variant, space[name], value) for name, value in config.items() if name in space}
            full = variant.config_for(problem, device, taken) if device else {**variant.defaults(), **taken}
            found.append(Case(problem=problem, variant=variant.id, version=variant.version, config=full))
    return list({case.key: case for case in found}.values())


def _value(variant: Variant, tunable: Tunable, value: int | str) -> int | str:
    if value not in tunable.values:
        allowed = ",".join(str(v) for v in tunable.values)
        raise UsageError(
            f"{variant.id} does not take {tunable.name}={value} ({tunable.meaning})",
            f"--config {tunable.name}={tunable.default}; allowed: {allowed}",
        )
    return value


def _allowed(variants: Sequence[Variant]) -> str:
    variant = next((v for v in variants if v.space), None)
    if variant is None:
        return "leave --config out: there is nothing to tune"
    names = " ".join(tunable.name for tunable in variant.space)
    return f"dgw show {variant.id} --configs; it takes {names}"
