"""Where a gate's report goes: standard output, files, the summary of a step on GitHub, and annotations."""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dgw.errors import UsageError

if TYPE_CHECKING:
    from dgw.workbench.gate.verdict import GateReport

AsJson = Annotated[bool, typer.Option("--json", help="The report as JSON on standard output (docs/gate.schema.json).")]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="The same JSON in a file, beside the table.")
]
Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="JUnit XML: a test case per comparison.")]
Markdown = Annotated[
    Path | None,
    typer.Option(
        "--markdown", metavar="FILE", help="Markdown, worst first. On GitHub the summary of the step gets it anyway."
    ),
]
Annotations = Annotated[
    bool | None,
    typer.Option(
        "--annotations/--no-annotations", help="Annotations of GitHub on standard error. [default: on GitHub Actions]"
    ),
]


@dataclass(frozen=True)
class Outputs:
    """What was asked for besides the table."""

    json: bool = False
    report: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None
    annotations: bool | None = None

    def files(self) -> list[Path]:
        """The files that will be written."""
        return [file for file in (self.report, self.junit, self.markdown) if file is not None]

    def demand(self) -> None:
        """Raises UsageError before anything is measured when a file could not be written afterwards."""
        for file in self.files():
            folder = file.parent
            if file.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
                raise UsageError(
                    f"cannot write {file}: there is no such folder, or it is not writable", f"mkdir {folder}"
                )
        if len(set(self.files())) < len(self.files()):
            raise UsageError("two reports would go to the same file", "--report gate.json --junit gate.xml")


def publish(report: GateReport, outputs: Outputs) -> None:
    """Print and write the report everywhere it is wanted, and leave with its exit code (typer.Exit)."""
    from dgw.commands.console import colour, note, say, width
    from dgw.reports import gate_annotations, gate_junit, gate_markdown, gate_terminal
    from dgw.workbench.gate.verdict import encode, exit_code

    if outputs.report is not None:
        _write(outputs.report, encode(report))
    if outputs.junit is not None:
        _write(outputs.junit, gate_junit.render(report).encode())
    if outputs.markdown is not None:
        _write(outputs.markdown, gate_markdown.render(report).encode())
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as step:
                step.write(gate_markdown.render(report))
        except OSError as error:
            note(f"warning: the summary of the step was not written: {error.strerror}")
    wanted = os.environ.get("GITHUB_ACTIONS") == "true" if outputs.annotations is None else outputs.annotations
    if wanted and (text := gate_annotations.render(report)):
        note(text.rstrip("\n"))
    say(encode(report).decode() if outputs.json else gate_terminal.render(report, width(), colour()))
    raise typer.Exit(int(exit_code(report)))


def _write(file: Path, content: bytes) -> None:
    """All of the file or nothing: written beside its place and renamed into it."""
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        draft.write_bytes(content)
        draft.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise UsageError(f"cannot write {file}: {error.strerror}", "give a file in a folder that exists") from error
