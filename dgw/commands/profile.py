"""`dgw profile`: measure variants on shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from dgw.commands import options
from dgw.commands.options import Ask, split
from dgw.model import Finding

if TYPE_CHECKING:
    from dgw.commands.session import Session

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
@options.spread
def profile(
    ctx: typer.Context,
    ask: Ask,
    against: options.Against = None,
    counters: options.Counters = "std",
    by_line: options.ByLine = False,
    timeline: options.Timeline = False,
    verify_time: options.VerifyTime = False,
    no_time: options.NoTime = False,
    tuned: options.Tuned = "",
    lock_clocks: options.LockClocks = 0,
) -> None:
    """Measure variants on shapes: time, counters and static facts in one table.

    Without a GPU the kernels run in the emulator: results, conflicts, traffic, registers and occupancy are real, time
    is not measured, and a lower bound is printed instead.
    """
    if no_time:
        from dgw.commands.locking import nothing_to_lock

        nothing_to_lock(lock_clocks, "--no-time takes none")
    measure(
        ctx,
        ask,
        split(ask.variant),
        against,
        counters,
        by_line,
        timeline=timeline,
        verify_time=verify_time,
        no_time=no_time,
        tuned=tuned,
        lock_mhz=lock_clocks,
    )


def measure(
    ctx: typer.Context,
    ask: Ask,
    names: list[str],
    against: list[str] | None,
    counters: str,
    by_line: bool,
    family: str = "",
    timeline: bool = False,
    verify_time: bool = False,
    no_time: bool = False,
    tuned: str = "none",
    lock_mhz: int = 0,
    explain: Callable[[Session], tuple[Finding, ...]] | None = None,
    listings: Callable[[Session], str] | None = None,
) -> None:
    """What `profile` and `compare` share: everything, given the names.

    Tuned configs are taken from the file `tuned`, where it is not `none`. `lock_mhz` locks the SM clock, 0 leaves it
    alone. `explain` draws conclusions from the finished records, `listings` adds text below them.
    """
    from dgw.commands import lanes, request
    from dgw.commands.console import progress
    from dgw.commands.ending import finish
    from dgw.commands.locking import machine_to_lock
    from dgw.commands.session import Session, execute
    from dgw.commands.tuning import tuned_cases
    from dgw.workbench.metrics import resolve

    command = f"dgw {ctx.info_name} {' '.join(f'--variant {name}' for name in names)}".strip()
    where = machine_to_lock(ask, lock_mhz)
    resolve(counters, where.device.arch)
    problems = request.problems(ask, command)
    variants = request.library(ask)
    wanted = request.wanted(ask, names, family, variants, where)
    beside = request.baselines(against, variants, where)
    configs = request.configs(ask.config)
    cases = [case for problem in problems for case in request.cases(problem, wanted, configs, where.device)]
    cases = tuned_cases(cases, variants, where, tuned, bool(ask.config))
    cases += [case for problem in problems for case in request.cases(problem, beside, [{}])]
    cases = list({case.key: case for case in cases}.values())
    passes = (*(lanes.timeline(where) if timeline else ()), *(lanes.lines(where) if by_line else ()))
    if by_line and where.engine == "gpu" and counters != "none":
        counters = f"{counters},lines"
    wanted_lanes = {"time": not no_time, "counters": counters != "none"}
    session = Session(
        ask, tuple(ctx.obj or ()), variants, where, counters,
        lanes=frozenset({"check", *(p.lane for p in passes), *(lane for lane, on in wanted_lanes.items() if on)}),
        baselines=tuple(v.id for v in beside), passes=passes, verify_time=verify_time,
        lock_mhz=lock_mhz,
    )  # fmt: skip
    with progress(ctx.info_name or "dgw") as bar:
        execute(session, cases, bar)
    finish(session, len(cases), by_line, explain(session) if explain else (), listings)
