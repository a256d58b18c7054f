"""What a gate is tested with on a machine: A/A runs that must not fail, and counters that must repeat."""

from __future__ import annotations

import shutil
from typing import NoReturn

import msgspec
import typer

from dgw.commands.console import note, say
from dgw.commands.gate_sides import head_side
from dgw.commands.gate_time import TimePick, calibration_subject, compare, place, policy_of, self_test
from dgw.errors import Exit, Missing, NotComparable, worst


def run_self_test(pick: TimePick, count: int, arguments: tuple[str, ...], as_json: bool) -> NoReturn:
    """`--self-test N`: N gates of head against itself; exits with 1 when one of them failed (typer.Exit)."""
    from dgw.reports.gate_text import verdict
    from dgw.reports.units import percent
    from dgw.workbench.gate.verdict import exit_code

    reports, tally = self_test(pick, count, arguments)
    codes: list[Exit] = [exit_code(report) for report in reports]
    if as_json:
        content = {
            "schema": "dgw.gate-self-test/1",
            "tally": msgspec.to_builtins(tally) if tally is not None else None,
            "gates": [msgspec.to_builtins(report) for report in reports],
        }
        say(msgspec.json.format(msgspec.json.encode(content), indent=1).decode())
    else:
        for number, report in enumerate(reports, start=1):
            say(f"A/A gate {number} of {count}: {verdict(report)}, {report.seconds or 0:.1f} s")
        if tally is not None:
            say(
                f"all A/A gates in the store: {tally.runs}, of which {tally.false_fails} failed and "
                f"{tally.inconclusive} were inconclusive; the true rate of false alarms is at most "
                f"{percent(tally.upper_bound)} (95 %)"
            )
    decisive: list[Exit] = [code for code in codes if code != Exit.INCONCLUSIVE]
    raise typer.Exit(int(worst(decisive or codes)))


def calibrate_counters(pick: TimePick, as_json: bool) -> NoReturn:
    """`--calibrate`: count every case several times; keep which counters never moved (typer.Exit).

    Raises Missing without ncu, NotComparable when nothing could be counted.
    """
    from dgw.commands.console import progress
    from dgw.commands.session import stamp
    from dgw.workbench.gate import counting
    from dgw.workbench.gate.measure import counted_repeatedly
    from dgw.workbench.store.gates import KeptGate, keep

    head = head_side(pick)
    with place(pick) as where, progress("calibrate") as bar:
        setup = compare(where, head, head, policy_of(pick), explained=False)
        try:
            if setup.lane is None:
                raise Missing(setup.no_lane or "counters were not asked for", "dgw doctor")
            counts = counted_repeatedly(setup, counting.CALIBRATIONS, bar)
        finally:
            shutil.rmtree(setup.folder, ignore_errors=True)
        if not counts.cases:
            raise NotComparable(f"nothing was counted: {counts.absent}", "dgw doctor")
        driver = where.where.environment.driver if where.where.environment else ""
        found = counting.calibrate(counts, where.device, driver, setup.lane.version)
        name, created = stamp()
        text = msgspec.json.encode(found).decode()
        if where.store is not None:
            subject = calibration_subject(where, setup.lane.version)
            keep(where.store, KeptGate(id=name, created=created, kind="calibration", subject=subject, body=text))
    if as_json:
        say(msgspec.json.format(text, indent=1))
    else:
        say(f"{found.says} on {found.device}, driver {found.driver}, ncu {found.ncu}:")
        say("  constant  " + (", ".join(found.constant) or "none"))
        for metric, band in found.bands.items():
            say(f"  within    {metric} {100 * band:.2f} %")
        if where.store is not None:
            note("kept: the next gates on this GPU model compare the constant ones exactly")
    raise typer.Exit(int(Exit.OK))
