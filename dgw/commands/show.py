"""`dgw show`: one variant from its idea to its machine code."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from dgw.commands import options
from dgw.commands.console import colour, say, width
from dgw.errors import UsageError
from dgw.model import Case, Device, Launch, Plan, Variant

if TYPE_CHECKING:
    from dgw.toolchain.build import Build
    from dgw.toolchain.sass import SassInstruction

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SHAPE = "4096x4096x4096"


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="VARIANT", help="An id, or the bare name of an idea.")],
    source: Annotated[bool, typer.Option("--source", help="The source text.")] = False,
    ptx: Annotated[bool, typer.Option("--ptx", help="The PTX of one config.")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="Machine code of one config, and its instruction mix.")] = False,
    configs: Annotated[bool, typer.Option("--configs", help="Tunables, and what each config needs.")] = False,
    config: options.Config = None,
    shape: options.Shapes = None,
    dtype: options.Dtypes = None,
    layout: options.Layouts = None,
    out: options.Out = "",
    beta: options.Beta = 0.0,
    bias: options.Bias = False,
    activation: options.Activation = "none",
    residual: options.Residual = False,
    quantise: options.Quantise = "none",
    device: options.Device = "",
    kernels: options.Kernels = None,
    kernel: options.Kernel = None,
    json: options.AsJson = False,
) -> None:
    """One variant: its idea, tunables and claims, or its source, PTX or machine code for one config and problem."""
    from dgw.commands import request
    from dgw.commands.session import DEFAULT_DEVICE
    from dgw.kernels.loader import select
    from dgw.reports.json import render
    from dgw.toolchain import devices

    ask = options.Ask(
        kernels=kernels, kernel=kernel, shape=shape, dtype=dtype, layout=layout, out=out, beta=beta, bias=bias,
        activation=activation, residual=residual, quantise=quantise,
    )  # fmt: skip
    where = devices.device(device or DEFAULT_DEVICE)
    variant = select(request.library(ask), name, where, "static")
    problem = request.problems(ask, f"dgw show {name}", (SHAPE,))[0]
    cases = request.cases(problem, [variant], request.configs(config), where)
    if source:
        texts = _sources(variant, cases[0], where)
        say(render({"id": variant.id, "sources": texts}) if json else "\n".join(texts.values()))
    elif ptx:
        texts = {launch.entry: build.ptx for launch, build in _builds(variant, cases[0], where)}
        say(render({"id": variant.id, "ptx": texts}) if json else "\n".join(texts.values()))
    elif sass:
        code = _sass(variant, cases[0], where)
        say(render({"id": variant.id, "sass": code}) if json else _sass_text(code, where))
    elif configs:
        say(render(_config_facts(variant, cases, where)) if json else _configs(variant, cases, where))
    else:
        asked = cases[0] if shape else None
        say(render(_facts(variant, asked, where)) if json else _overview(variant, where, asked, ask))


def _facts(variant: Variant, asked: Case | None, device: Device) -> dict[str, object]:
    chosen = {}
    if asked:
        refused = _reason(variant, asked, device)
        chosen = {"chosen": _choice(variant, asked, device), "refused": refused}
    return {
        "id": variant.id, "version": variant.version, "stage": variant.stage, "idea": variant.idea,
        "dtypes": variant.dtypes, "architectures": variant.architectures, "needs": variant.needs,
        "tunables": variant.space, "claims": variant.claims, "notes": variant.notes, **chosen,
    }  # fmt: skip


def _overview(variant: Variant, device: Device, asked: Case | None, ask: options.Ask) -> str:
    from dgw.reports.terminal import listing

    stage = f"stage {variant.stage} of {variant.family}" if variant.stage is not None else variant.family
    runs = "runs on" if variant.runs_on(device.arch) else "does not run on"
    rows = [
        ("what", stage),
        ("idea", variant.idea),
        ("types", " ".join(variant.dtypes)),
        ("architectures", f"{' '.join(variant.architectures)}; {runs} {device.name} ({device.arch})"),
        (
            "needs",
            " ".join(variant.needs) or ("nothing but a GPU or the emulator" if variant.emulated else "a GPU to run"),
        ),
        *(("claims", f"{c.metric} {c.relation} {c.value:g}: {c.why}") for c in variant.claims),
        *([("notes", variant.notes)] if variant.notes else []),
    ]
    text = listing((variant.id, f"version {variant.version}"), rows, width(), colour())
    answer = _answer(variant, asked, device, ask) if asked else ""
    parts = [text, _tunables(variant) if variant.space else "", answer]
    return "\n\n".join(part for part in parts if part)


def _answer(variant: Variant, asked: Case, device: Device, ask: options.Ask) -> str:
    """Which config the problem gets, or why it is refused and what to type instead."""
    from dgw.reports.tables import config_text

    reason = _reason(variant, asked, device)
    if reason:
        return f"refused for {asked.problem.shape}: {reason}\n  try: {_instead(variant, asked, device, ask)}"
    config = config_text(asked.config)
    return (
        _chosen(variant, asked, device) or f"config for {asked.problem.shape}: {config or 'there is nothing to tune'}"
    )


def _reason(variant: Variant, case: Case, device: Device) -> str:
    """Why the variant refuses a case, empty where it does not. A kernel may leave its types to its declaration."""
    from dgw.workbench.prepare import other_type

    return other_type(case, variant) or variant.refuses(case.problem, case.config, device) or ""


def _instead(variant: Variant, case: Case, device: Device, ask: options.Ask) -> str:
    """What to type after a refusal: the same in a type that the variant takes, else what its configs need."""
    from dgw.commands import request
    from dgw.recipes.retyping import knowing, show

    given = {"--kernel": ask.kernel, "--kernels": ask.kernels}
    own = [word for option, path in given.items() if path is not None for word in (option, str(path))]
    for dtype in variant.dtypes if case.problem.a.dtype not in variant.dtypes else ():
        with contextlib.suppress(UsageError):  # a type that does not go with the others that were asked for
            problem = request.problems(replace(ask, dtype=[dtype]), "")[0]
            config = variant.config_for(problem, device)
            if not _reason(variant, msgspec.structs.replace(case, problem=problem, config=config), device):
                return knowing(show(msgspec.structs.replace(case, problem=problem, config={})), own)
    return knowing(_configs_of(case), own)


def _configs_of(case: Case) -> str:
    from dgw.recipes.retyping import show

    return f"{show(case, '--configs')}; or another --shape, --dtype or --layout"


def _tunables(variant: Variant) -> str:
    from dgw.reports.terminal import listing

    rows = [(t.name, str(t.default), " ".join(map(str, t.values)), t.meaning) for t in variant.space]
    return listing(("tunable", "default", "values", "meaning"), rows, width(), colour())


def _launches(variant: Variant, case: Case, device: Device) -> Sequence[Launch]:
    """The launches of a case. Raises UsageError where the variant refuses it or has no kernel of its own."""
    if variant.plan is None:
        raise UsageError(f"{variant.id} calls foreign code and has no source of its own", f"dgw show {variant.id}")
    reason = _reason(variant, case, device)
    if reason:
        refused = f"{variant.id} refuses {case.problem.shape} {case.problem.layout}: {reason}"
        raise UsageError(refused, _configs_of(case))
    return variant.plan(case.problem, case.config, device).launches


def _builds(variant: Variant, case: Case, device: Device) -> list[tuple[Launch, Build]]:
    from dgw.commands.session import cache_folder
    from dgw.toolchain.build import build
    from dgw.toolchain.cache import CompileCache
    from dgw.toolchain.launches import complete

    cache = CompileCache(cache_folder())
    plan = Plan(steps=tuple(_launches(variant, case, device)))
    sources = dict.fromkeys(launch.source for launch in plan.launches)
    builds = {source: build(source, variant.root, variant.includes, device.arch, cache) for source in sources}
    return [(launch, builds[launch.source]) for launch in complete(plan, builds).launches]


def _sources(variant: Variant, case: Case, device: Device) -> dict[str, str]:
    """Path below the variant's folder to text. Raises UsageError where a file cannot be read."""
    paths = dict.fromkeys(launch.source.path for launch in _launches(variant, case, device))
    try:
        return {str(path): (variant.root / path).read_text(encoding="utf-8") for path in paths}
    except OSError as error:
        raise UsageError(f"cannot read the source of {variant.id}: {error.strerror}", "dgw list") from error


def _sass(variant: Variant, case: Case, device: Device) -> dict[str, list[SassInstruction]]:
    """Entry to the instructions of its machine code."""
    from dgw.toolchain.sass import disassemble

    return {launch.entry: disassemble(b.cubin, launch.entry) for launch, b in _builds(variant, case, device)}


def _sass_text(code: Mapping[str, list[SassInstruction]], device: Device) -> str:
    from dgw.reports.terminal import listing
    from dgw.toolchain.sass import histogram

    parts = []
    for entry, instructions in code.items():
        lines = [f"// {entry} for {device.arch}"]
        lines += [f"{i.address:6x}  {i.predicate:>5} {i.opcode:<20} {i.operands}  // {i.line}" for i in instructions]
        mix = [(opcode, str(count)) for opcode, count in histogram(instructions).items()]
        parts.append("\n".join(lines) + "\n\n" + listing(("opcode", "instructions"), mix, width(), colour()))
    return "\n\n".join(parts)


def _configs(variant: Variant, cases: Sequence[Case], device: Device) -> str:
    from dgw.reports.tables import config_text
    from dgw.reports.terminal import listing

    rows = []
    for case in cases:
        reason = _refusal(variant, case, device)
        needs = [reason] if reason else [_need_text(need) for need in _needs(variant, case, device)]
        rows.append((config_text(case.config) or "(none)", "; ".join(needs)))
    head = f"needs for {cases[0].problem.shape} {cases[0].problem.a.dtype} on {device.name}"
    text = listing(("config", head), rows, width(), colour())
    tunables = _tunables(variant) if variant.space else ""
    parts = (tunables, text, _chosen(variant, cases[0], device), _count(variant, cases[0], device))
    return "\n\n".join(part for part in parts if part)


def _refusal(variant: Variant, case: Case, device: Device) -> str | None:
    return _reason(variant, case, device) or None if variant.plan else "foreign code"


def _config_facts(variant: Variant, cases: Sequence[Case], device: Device) -> dict[str, object]:
    """What `--configs` shows, for programs."""
    rows = []
    for case in cases:
        reason = _refusal(variant, case, device)
        rows.append({
            "config": case.config, "shape": case.problem.shape, "dtype": case.problem.a.dtype, "device": device.name,
            "refused": reason, "needs": [] if reason else _needs(variant, case, device),
        })  # fmt: skip
    chosen = _choice(variant, cases[0], device)
    return {"id": variant.id, "tunables": variant.space, "configs": rows, "chosen": chosen}


def _choice(variant: Variant, case: Case, device: Device) -> dict[str, object] | None:
    found = variant.choose(case.problem, {}, device) if variant.choose else None
    return {"config": found[0], "reasons": found[1]} if found else None


def _chosen(variant: Variant, case: Case, device: Device) -> str:
    """Why a variant that chooses its config by the problem takes this one."""
    found = variant.choose(case.problem, {}, device) if variant.choose else None
    if not found:
        return ""
    from dgw.reports.tables import config_text

    config, reasons = found
    return "\n  ".join((f"chosen for {case.problem.shape}: {config_text(config)}", *reasons))


def _needs(variant: Variant, case: Case, device: Device) -> list[dict[str, Any]]:
    """What each launch takes of an SM: threads a CTA, registers a thread, bytes shared and spilled, occupancy."""
    from dgw.toolchain.occupancy import occupancy

    found = []
    for launch, build in _builds(variant, case, device):
        used = build.resources(launch.entry)
        shared = used.shared_bytes + launch.shared_bytes
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        fits = occupancy(device, threads, used.registers, shared, used.barriers)
        spills = (used.spill_store_bytes or 0) + (used.spill_load_bytes or 0)
        found.append({
            "entry": launch.entry, "threads": threads, "registers": used.registers, "shared_bytes": shared,
            "spill_bytes": spills, "occupancy": fits.ratio, "limiter": fits.limiter,
        })  # fmt: skip
    return found


def _need_text(need: Mapping[str, Any]) -> str:
    from dgw.reports.units import show as text

    return (
        f"{need['entry']}: {need['threads']} threads, {need['registers']} registers, "
        f"{need['shared_bytes']:,} B shared, {need['spill_bytes']} B spilled, "
        f"occupancy {text(need['occupancy'], 'percent')} ({need['limiter']})"
    )


def _count(variant: Variant, case: Case, device: Device) -> str:
    """How many configs there are, and how many of them the variant accepts for this problem."""
    from dgw.workbench.sweep import space

    total = space.size(variant, {})
    if not variant.space or total > space.MOST:
        return f"{total:,} configs." if variant.space else ""
    fit = sum(variant.refuses(case.problem, config, device) is None for config in space.configs(variant, {}))
    return f"{total:,} configs, {fit:,} of which {variant.id} accepts for {case.problem.shape} {case.problem.a.dtype}."
