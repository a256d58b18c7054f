"""A topic in parts that can be measured one by one: after each the file is written, and the other parts stay in it.

`python evidence/ladder.py` measures everything, `python evidence/ladder.py rungs fused` these parts. A row says which
part it belongs to; `parts` says when, with what and in how many seconds each was measured. A part that fails leaves a
row that does not hold and the rows that it had.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from topic import RELATIONS, ROOT, Topic, measured, today

from dgw.errors import DgwError
from dgw.model import Measurement, Run

Part = Callable[[Topic], Mapping[str, Any]]
"""Measures, adds rows to the topic, and returns what is kept; tables are made of the first part's `run`."""

FAILURES = (
    SystemExit, subprocess.SubprocessError, LookupError, StopIteration, TypeError, ValueError, OSError, DgwError,
    msgspec.MsgspecError,
)  # fmt: skip


def measure(name: str, parts: Mapping[str, Part], chosen: Sequence[str] | None = None) -> int:
    """Measure the parts named on the command line, or all; 2 for a name that is none, else 0."""
    chosen = list(sys.argv[1:] if chosen is None else chosen) or list(parts)
    unknown = [part for part in chosen if part not in parts]
    if unknown:
        sys.stderr.write(f"error: {name} has no part {' or '.join(unknown)}\n  try: {' '.join(parts)}\n")
        return 2
    folder = Topic(name).folder
    try:
        for part in chosen:
            _measure(Topic(name, folder=folder), part, parts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _measure(topic: Topic, part: str, parts: Mapping[str, Part]) -> None:
    started = time.monotonic()
    kept: Mapping[str, Any] = {}
    try:
        kept = parts[part](topic)
    except FAILURES as error:
        sys.stderr.write(traceback.format_exc())
        topic.show(f"{part}: measured to its end", f"{type(error).__name__}: {error}"[:300], "", "==", "yes")
    seconds = time.monotonic() - started
    sys.stderr.write(f"{seconds:7.1f} s  part {part}\n")
    keep(topic, part, kept, seconds, tuple(parts))


def keep(topic: Topic, part: str, kept: Mapping[str, Any], seconds: float, order: Sequence[str]) -> None:
    """Put what a part found into the topic's file, in the place of what the part left there before."""
    path = ROOT / "docs" / "h200" / f"{topic.name}.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    run = kept.get("run") or next((value for value in kept.values() if isinstance(value, Run)), None)
    parts = content.get("parts", {})
    if content.get("run_of") in parts:
        parts[content["run_of"]]["run"] = content["run"]
    parts[part] = {
        "seconds": seconds,
        "measured": measured(run) if run is not None and run.records else {"date": today()},
        **{name: msgspec.to_builtins(value) for name, value in kept.items()},
    }
    rows = {name: [row for row in content.get("shows", []) if row.get("part") == name] for name in order}
    rows[part] = [{**row, "part": part} for row in topic.shows]
    known = {name: parts[name] for name in order if name in parts}
    run_of = next((name for name in known if "run" in known[name]), "")
    save(topic, {
        "schema": "dgw.evidence/1", "topic": topic.name,
        "measured": max((one["measured"] for one in known.values()), key=_where_and_when),
        "shows": [row for name in order for row in rows[name]],
        "run_of": run_of, "run": known[run_of].pop("run") if run_of else None, "parts": known,
    })  # fmt: skip


def _where_and_when(found: Mapping[str, str]) -> tuple[bool, str]:
    """The later the day the larger, and what says on which GPU before what only says when."""
    return "gpu" in found, found.get("date", "")


def save(topic: Topic, content: Mapping[str, Any]) -> None:
    """Write the topic's file, a record a line, without the folders of this machine."""
    path = ROOT / "docs" / "h200" / f"{topic.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, separators=(",", ":")).replace('{"case":', '\n{"case":')
    for folder in (topic.folder, ROOT):
        text = text.replace(f"{folder}/", "")
    path.write_text(text + "\n", encoding="utf-8")
    sys.stderr.write(f"wrote {path.relative_to(ROOT)}\n")


def ratio(topic: Topic, claim: str, found: Measurement | None, bar: float) -> None:
    """A paired ratio: its point at or above the bar, and the lower end of its interval at most 1 % below it."""
    value = found.value if found is not None and isinstance(found.value, int | float) else None
    topic.show(claim, value, "ratio", ">=", bar)
    low = found.low if found is not None else None
    if value is not None and low is not None and RELATIONS[">="](value, bar) and low < 0.99 * bar:
        topic.shows[-1] |= {"holds": False, "low": low}
        sys.stderr.write(f"FAILS  {claim}: the lower end {low} is more than 1 % below {bar}\n")
    elif low is not None:
        topic.shows[-1] |= {"low": low}
