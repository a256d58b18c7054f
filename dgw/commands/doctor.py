"""`dgw doctor`: what is missing on this machine, and what to do about it."""

from __future__ import annotations

import typer

from dgw.commands import options
from dgw.commands.console import colour, say, width
from dgw.errors import Exit

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def doctor(json: options.AsJson = False) -> None:
    """What is missing on this machine for a complete profile, and what to do about each; nothing is changed.

    The exit code is 6 when `dgw profile` cannot run completely here.
    """
    from dgw.reports.json import render
    from dgw.reports.terminal import listing
    from dgw.workbench.doctor import examine, main_job_possible

    symptoms = examine()
    if json:
        say(render(symptoms))
    elif not symptoms:
        say("Everything that dgw profile needs is here.")
    else:
        rows = [(symptom.severity, symptom.area, f"{symptom.cause} {symptom.cure}") for symptom in symptoms]
        say(listing(("", "area", "what, and what to do"), rows, width(), colour()))
    raise typer.Exit(int(Exit.OK if main_job_possible(symptoms) else Exit.MISSING))
