"""What evidence scripts share: dgw's own commands in a fresh store and cache, computed verdicts, one file.

Run on a GPU machine as `make evidence TOPIC=first-profile`. Writes `docs/h200/TOPIC.json`:
`{"schema": "dgw.evidence/1", "topic", "measured", "shows": [{"claim", "value", "unit", "bar", "relation", "holds"}],
"run"}`. A row of `shows` without bar and verdict is a figure of which nothing was asked.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dgw import __version__
from dgw.model import Record, Run

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 30.0
"""Seconds that a command has to end in after Ctrl-C."""
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda value, bar: value < bar,
    "<=": lambda value, bar: value <= bar,
    ">=": lambda value, bar: value >= bar,
    "==": lambda value, bar: value == bar,
    ">": lambda value, bar: value > bar,
}


@dataclass(frozen=True)
class Done:
    """One finished command. `seconds` is the whole process, its start included."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def printed(self) -> Any:
        """What `--json` printed. Raises SystemExit with what the command said when it printed something else."""
        try:
            return json.loads(self.out)
        except json.JSONDecodeError:
            raise SystemExit(f"no JSON on standard output (exit {self.code}):\n{self.err[-2000:]}") from None

    @property
    def run(self) -> Run:
        """The run printed by `--json`. Raises SystemExit with what the command said when there is none."""
        try:
            return msgspec.json.decode(self.out, type=Run)
        except msgspec.DecodeError:
            raise SystemExit(f"no run on standard output (exit {self.code}):\n{self.err[-2000:]}") from None


@dataclass
class Topic:
    """One topic under way. Everything is kept in a temporary folder until `write`."""

    name: str
    shows: list[dict[str, Any]] = field(default_factory=list)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="dgw-evidence-")))

    def dgw(self, *arguments: str, limit_s: float = 480.0, folder: Path | None = None) -> Done:
        """Run a dgw command in the topic's own store and cache, in `folder` (default: where this was started).

        Raises TimeoutExpired after `limit_s`, when the command has stopped its own children as at Ctrl-C: they would
        hold the GPU of what comes next.
        """
        environment = dict(os.environ, DGW_STORE=str(self.folder / "dgw.db"), DGW_CACHE=str(self.folder / "cache"))
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "dgw", *arguments]
        started = time.monotonic()
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
        )
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _stop(process)
            raise
        seconds = time.monotonic() - started
        sys.stderr.write(f"{seconds:7.1f} s  exit {process.returncode}  dgw {' '.join(arguments)}\n")
        return Done(process.returncode, out, err, seconds)

    def show(self, claim: str, value: float | str | None, unit: str, relation: str, bar: float | str) -> None:
        """One claim: `value relation bar` decides whether it holds; an unknown value never does."""
        holds = value is not None and (
            value == bar if isinstance(value, str) or isinstance(bar, str) else RELATIONS[relation](value, bar)
        )
        row = {"claim": claim, "value": value, "unit": unit, "bar": bar, "relation": relation, "holds": bool(holds)}
        self.shows.append(row)
        sys.stderr.write(f"{'holds' if holds else 'FAILS'}  {claim}: {value} {relation} {bar} {unit}\n")

    def figure(self, claim: str, value: float | None, unit: str) -> None:
        """One figure that is to be known and has no bar. Where it is not known the row says so, and does not hold."""
        if value is None:
            self.show(claim, None, unit, "==", "known")
            return
        self.shows.append({"claim": claim, "value": value, "unit": unit})
        sys.stderr.write(f"figure {claim}: {value} {unit}\n")

    def write(self, run: Run, **more: Any) -> None:
        """Write the evidence file; `more` are further exported runs or tables."""
        content = {
            "schema": "dgw.evidence/1",
            "topic": self.name,
            "measured": measured(run),
            "shows": self.shows,
            "run": {"schema": "dgw.run/1", **msgspec.to_builtins(run)},
            **{name: msgspec.to_builtins(value) for name, value in more.items()},
        }
        target = ROOT / "docs" / "h200" / f"{self.name}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, separators=(",", ":")).replace('{"case":', '\n{"case":')  # a record a line
        for folder in (self.folder, ROOT):  # command lines name files; where those lay is nobody's business
            text = text.replace(f"{folder}/", "")
        target.write_text(text + "\n")
        sys.stderr.write(f"wrote {target.relative_to(ROOT)}\n")


def _stop(process: subprocess.Popen[str]) -> None:
    """End a command as Ctrl-C does, and by force when that does not help."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def measured(run: Run) -> dict[str, str]:
    """Where and with what: from the records themselves."""
    environments = [record.environment for record in run.records if record.environment.device]
    known = [e for e in environments if e.driver] or environments  # a case that was refused saw no driver
    found = known[0] if known else run.records[0].environment
    torch = next((e.torch for e in environments if e.torch), "")
    return {
        "gpu": found.device,
        "driver": found.driver,
        "cuda": found.cuda,
        "torch": torch or _version("torch"),
        "ncu": next((e.ncu for e in environments if e.ncu), "") or ncu_version(),
        "dgw": __version__,
        "commit": run.commit,
        "date": today(),
    }


def today() -> str:
    """The day on which something is measured."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def ncu_version() -> str:
    """The version that ncu prints, such as 2025.3.1; empty without ncu."""
    from dgw.workbench.tools import find_tool

    tool = find_tool("ncu")
    if tool is None:
        return ""
    text = subprocess.run([str(tool), "--version"], capture_output=True, text=True, check=False).stdout
    return next((word for line in text.splitlines() if line.startswith("Version") for word in line.split()[1:2]), "")


def _version(package: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def of(run: Run, variant: str) -> Record:
    """The record of the variant with this name."""
    return next(record for record in run.records if record.case.variant.partition("/")[2] == variant)


def sample(run: Run) -> Run:
    """The run with one of its records, which says where it was measured."""
    return thin(msgspec.structs.replace(run, records=tuple(r for r in run.records if r.outcome == "ok")[:1]))


def outcomes(records: Iterable[Record]) -> dict[str, int]:
    """How often each outcome occurs."""
    return dict(Counter(record.outcome for record in records))


def verdicts(run: Run) -> dict[str, Any]:
    """Thousands of checked cases as one table: what was computed, its outcome, and the worst error over its bound."""
    rows = []
    for record in run.records:
        problem, check = record.case.problem, record.check
        share = check.error / check.bound if check and check.error and check.bound else 0.0
        row = (record.case.variant, problem.a.dtype, problem.d.dtype, problem.layout, problem.shape, problem.data)
        rows.append([*row, record.outcome, round(share, 3)])
    columns = ("variant", "in", "out", "layout", "shape", "data", "outcome", "worst error of bound")
    return {"command": list(run.command), "columns": columns, "rows": rows}


def thin(run: Run, keep: Sequence[str] = ()) -> Run:
    """The run without plans and with only the measurements named, so that thousands of records stay readable."""
    records = tuple(
        msgspec.structs.replace(
            record, plan=None, artifacts=(), measurements=tuple(m for m in record.measurements if m.metric in keep)
        )
        for record in run.records
    )
    return msgspec.structs.replace(run, records=records)
