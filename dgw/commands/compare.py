"""`dgw compare`: variants side by side, what changed from rung to rung, and whether each stage kept its word."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from dgw.commands import options
from dgw.commands.options import Ask, split
from dgw.commands.profile import measure
from dgw.model import Finding, Problem, Record

if TYPE_CHECKING:
    from dgw.commands.session import Session

app = typer.Typer(rich_markup_mode=None, add_completion=False)

MIX_ROWS = 24
"""Opcodes shown in an instruction mix; the rest is one row."""


@app.command()
@options.spread
def compare(
    ctx: typer.Context,
    ask: Ask,
    names: Annotated[list[str] | None, typer.Argument(metavar="[VARIANT]...", help="Two or more variants.")] = None,
    family: options.Family = "",
    against: options.Against = None,
    counters: options.Counters = "std",
    by_line: options.ByLine = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also why each is slower or faster than the one before: cycles by cause.")
    ] = False,
    lock_clocks: options.LockClocks = 0,
    sass: Annotated[bool, typer.Option("--sass", help="Also the instruction mixes of their machine code.")] = False,
) -> None:
    """Variants side by side, sorted as a ladder: by family, lowest stage first, baselines last.

    Below the table stand each rung's speed-up over the one before, and what each stage claims of its counters: held,
    or did not hold, with the figures.
    """
    wanted = split([*(names or ()), *(ask.variant or ())])
    below = [text for text, on in ((differences, explain), (mixes, sass)) if on]
    told = with_differences if explain and ask.json else explained
    measure(
        ctx, ask, wanted, against, counters, by_line, family, lock_mhz=lock_clocks, explain=told,
        listings=_joined(below),
    )  # fmt: skip


def _joined(texts: Sequence[Callable[[Session], str]]) -> Callable[[Session], str] | None:
    return (lambda session: "\n\n".join(text(session) for text in texts)) if texts else None


def with_differences(session: Session) -> tuple[Finding, ...]:
    """What `explained` finds, and the differences as findings too: JSON has no paragraphs below it."""
    said = [Finding(recipe="difference", verdict=" ".join(lines)) for lines in _differences(session)]
    return (*explained(session), *said)


def differences(session: Session) -> str:
    """Where the difference of each two neighbours of a problem's ladder went, in sentences."""
    from dgw.commands.console import colour, width
    from dgw.reports.terminal import Paint, wrapped

    paint, lines = Paint(colour()), []
    for first, *rest in _differences(session):
        lines += [paint.head(line) for line in wrapped(first, width(), "", "  ")]
        lines += [line for sentence in rest for line in wrapped(sentence, width(), "  ", "    ")]
    return "\n".join(lines)


def _differences(session: Session) -> Iterator[tuple[str, ...]]:
    from dgw.errors import NotComparable
    from dgw.recipes.explain import explain

    for records in _ladders(session):
        for base, head in pairwise(records):
            try:
                yield explain(base, head, session.machine.device).sentences
            except NotComparable as error:
                yield (f"{base.case.variant} and {head.case.variant} are not compared: {error.message}.",)


def _ladders(session: Session) -> list[list[Record]]:
    """The records of each problem, lowest rung first."""
    from dgw.commands.request import rank

    order = rank(session.variants)
    by_problem: dict[Problem, list[Record]] = {}
    for record in sorted(session.records, key=lambda r: order.get(r.case.variant, len(order))):
        by_problem.setdefault(record.case.problem, []).append(record)
    return list(by_problem.values())


def explained(session: Session) -> tuple[Finding, ...]:
    """The ladder of every problem: speed-ups, then claims, lowest rung first."""
    from dgw.recipes import claims, ladder

    declared = {variant.id: variant.claims for variant in session.variants.values()}
    found: list[Finding] = []
    for records in _ladders(session):
        rates = [rate for r in records if (rate := r.number("mma_sync_rate")) is not None]
        if session.machine.engine == "gpu":
            found += ladder.ladder(records, session.machine.device, mma_rate=rates[0] if rates else None)
        found += claims.check(records, declared, session.machine.device)
    return tuple(found)


def mixes(session: Session) -> str:
    """Static instruction counts of the machine code of every case that has some, opcodes down, cases across."""
    from dgw.commands.console import colour, width
    from dgw.reports.terminal import listing

    mixed = [(record.case.variant, mix) for record in session.records if (mix := _mix(session, record))]
    families = {variant.partition("/")[0] for variant, _ in mixed}
    columns = [(v.partition("/")[2] if len(families) == 1 else v, mix) for v, mix in mixed]
    if not columns:
        return "No case has machine code of its own."
    totals = {op: sum(mix.get(op, 0) for _, mix in columns) for _, mix in columns for op in mix}
    shown = sorted(totals, key=lambda op: -totals[op])[:MIX_ROWS]
    rows = [(op, *(str(mix.get(op, 0)) for _, mix in columns)) for op in shown]
    rows.append(("others", *(str(_others(mix, shown)) for _, mix in columns)))
    return listing(("opcode", *(name for name, _ in columns)), rows, width(), colour())


def _others(mix: dict[str, int], shown: Sequence[str]) -> int:
    return sum(count for op, count in mix.items() if op not in shown)


def _mix(session: Session, record: Record) -> dict[str, int]:
    from dgw.commands.session import cache_folder
    from dgw.toolchain.build import build
    from dgw.toolchain.cache import CompileCache
    from dgw.toolchain.sass import disassemble, histogram

    variant, device = session.variants[record.case.variant], session.machine.device
    counts: dict[str, int] = {}
    if record.plan is None or record.outcome not in ("ok", "wrong"):
        return counts
    for launch in record.plan.launches:
        cubin = build(
            launch.source, variant.root, variant.includes, device.arch, CompileCache(cache_folder())
        ).cubin  # fmt: skip
        for opcode, count in histogram(disassemble(cubin, launch.entry)).items():
            counts[opcode] = counts.get(opcode, 0) + count
    return counts
