"""Rewrites the generated tables of README.md and docs/*.md from docs/h200/*.json: `make docs`.

A table stands between `<!-- generated: TOPIC PART [SHAPE] -->` and `<!-- end -->`. PART is `shows` (each claim, its
value and whether it holds), `run` (the card of the timed cases of a shape), `ladder` (the same cases, a row for each
stage), `speeds` (a row for each problem and kernel, beside cuBLAS), `choices` (what each choice of a kernel gave),
`rows` (the table that the evidence keeps beside its run; values are counted where there are several), `transcript`
(what a walk printed) or `picture` (the map drawn from it). TOPIC/NAME means one part of a topic. `demo output` is what
the command of `make demo` prints without a GPU. No number in between is typed by hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from dgw.kernels.loader import load
from dgw.model import Record, Run
from dgw.recipes.ladder import BASELINE, PREVIOUS, RATE, ladder
from dgw.reports import gate_schema
from dgw.reports.heatmap import Axes, grid, svg
from dgw.reports.markdown import card, escape, table
from dgw.reports.tables import Block, build
from dgw.reports.units import UNIT_STYLE, Style, show

ROOT = Path(__file__).resolve().parents[1]
MARKER = re.compile(
    r"(<!-- generated: (\S+) (shows|run|rows|ladder|speeds|choices|transcript|picture|output)(?: (\S+))? -->\n)"
    r".*?(<!-- end -->)",
    re.DOTALL,
)


def documents(root: Path = ROOT) -> list[Path]:
    """The files that may hold generated tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def rewritten(text: str, links: str = "docs/h200", evidence: Path = ROOT / "docs" / "h200") -> str:
    """`text` with every table between markers generated anew; `links` is where the text reaches the evidence."""
    return MARKER.sub(lambda found: found[1] + _part(evidence, links, found[2], found[3], found[4]) + found[5], text)


def _part(evidence: Path, links: str, topic: str, part: str, shape: str | None) -> str:
    if part == "output":
        return demo()
    topic, _, name = topic.partition("/")
    path = evidence / f"{topic}.json"
    if not path.is_file():
        return f"Not measured yet: there is no `docs/h200/{topic}.json`. `make evidence TOPIC={topic}` writes it.\n"
    content = json.loads(path.read_text(encoding="utf-8"))
    if part == "picture":
        return "".join(f"![{drawn_of(file)}]({file})\n" for file, drawn in PICTURES.items() if drawn[0] == topic)
    if name and name not in content.get("parts", {}):
        return (
            f"Not measured yet: `docs/h200/{topic}.json` has no part {name}. `make evidence TOPIC={topic}` adds it.\n"
        )
    if name:
        content = _of_part(content, name)
    if part in CARDS:
        body = _run(content, shape, CARDS[part])
    else:
        tables = {"shows": _shows, "rows": _rows, "transcript": _transcript, "speeds": _speeds, "choices": _choices}
        body = tables[part](content)
    return f"{body}\n\n{_measured(content['measured'], f'{links}/{topic}.json')}{_other_days(content)}\n"


def _of_part(content: dict[str, Any], name: str) -> dict[str, Any]:
    """One part of a topic as if it were all of it: its run, what is kept beside, and where it was measured."""
    part = content["parts"][name]
    run = content["run"] if content.get("run_of") == name else part.get("run")
    rows = [row for row in content["shows"] if row.get("part") == name]
    return {**part, "shows": rows, "run": run, "measured": part.get("measured") or content["measured"], "parts": {}}


DEMO = ("profile", "--variant", "swizzled", "--shape", "4096x4096x4096")
SHOWN_PARAGRAPHS = 5


def demo() -> str:
    """What `make demo` prints without a GPU: the beginning of it."""
    cache = os.environ.get("DGW_CACHE") or str(ROOT / ".dgw" / "cache")
    with tempfile.TemporaryDirectory(prefix="dgw-demo-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "dgw", *DEMO, "--engine", "emulator", "--device", "h200", "--no-store"],
            check=True, capture_output=True, text=True, cwd=folder,
            env={**os.environ, "DGW_CACHE": cache, "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
        )  # fmt: skip
    said = "\n\n".join(done.stdout.split("\n\n")[:SHOWN_PARAGRAPHS])
    return f"```text\n$ dgw {' '.join(DEMO)}\n{said}\n...\n```\n"


def _measured(measured: dict[str, Any], link: str) -> str:
    names = (("gpu", ""), ("driver", "driver "), ("cuda", "CUDA "), ("torch", "torch "), ("ncu", "ncu "), ("date", ""))
    facts = [f"{prefix}{measured[name]}" for name, prefix in names if measured.get(name)]
    return f"Measured on {escape(', '.join(facts))}; all of it is in [{link}]({link})."


RELATION = {"<": "below ", "<=": "at most ", ">=": "at least ", ">": "above "}
"""How a value has to stand to its bar; without a word both are the same."""


def _shows(content: dict[str, Any]) -> str:
    rows = []
    for row in content["shows"]:
        style = UNIT_STYLE.get(row.get("unit", ""), "count")
        value, bar = (_text(row.get(name), style) for name in ("value", "bar"))
        judged = (f"{RELATION.get(row.get('relation', ''), '')}{bar}", "yes" if row.get("holds") else "**no**")
        rows.append((str(row["claim"]), value, *(("-", "-") if _is_figure(row) else judged)))
    return table(("claim", "measured", "bar", "holds"), rows)


def _is_figure(row: dict[str, Any]) -> bool:
    """Whether nothing was asked of a row: it has no bar, or as in files that know no such rows, one that asks for
    nothing: a known value above 0, a known speed-up that may be a slowdown."""
    bar, value = row.get("bar"), row.get("value")
    if bar is None:
        return True
    if not row.get("holds") or isinstance(bar, str) or value is None:
        return False
    relation = row.get("relation")
    return (relation == ">" and bar == 0) or (relation == ">=" and row.get("unit") == "x" and bar < 1)


def _transcript(content: dict[str, Any]) -> str:
    """What a walk printed, step by step, as its part of the evidence keeps it."""
    said = [part["transcript"] for part in content.get("parts", {}).values() if part.get("transcript")]
    return "\n\n".join(f"```text\n{text.strip()}\n```" for text in said) or "No walk was measured yet."


def _text(value: Any, style: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return show(value, style) if isinstance(value, int | float | str) else show(None, style)


def _rows(content: dict[str, Any]) -> str:
    """A row a dict; the column `time_s` is headed `time` and shown as seconds."""
    rows: list[dict[str, Any]] = content.get("rows", [])
    if not rows:
        return "The evidence holds no table of rows."
    return table(
        [_heading(name)[0] for name in rows[0]], [[_cell(name, row.get(name)) for name in rows[0]] for row in rows]
    )


def _heading(name: str) -> tuple[str, str]:
    """The heading of a column and the style of its values."""
    base, _, unit = name.rpartition("_")
    style = UNIT_STYLE.get(unit, "") if base else ""
    return ((base if style else name).replace("_", " "), style or "count")


def _cell(name: str, value: Any) -> str:
    if isinstance(value, list | dict):
        names = f" ({', '.join(value)})" if value else ""
        return f"{len(value)}{names}"
    return _text(value, _heading(name)[1])


def _records(content: dict[str, Any]) -> list[Record]:
    return list(msgspec.convert(content["run"], type=Run).records) if content.get("run") else []


def _speeds(content: dict[str, Any]) -> str:
    """A row for each problem and kernel: its rate, that of cuBLAS of the same group, and their paired ratio."""
    records = _records(content)
    theirs = {r.case.problem: r.number("tflops") for r in records if r.case.variant == CUBLAS}
    rows = []
    for record in records:
        problem, ratio = record.case.problem, record.get("ratio_to_cublas")
        if record.case.variant == CUBLAS:
            continue
        ends = (ratio.low, ratio.high) if ratio is not None else (None, None)
        interval = " .. ".join(show(end, "percent") for end in ends) if None not in ends else show(None, "percent")
        rows.append((
            record.case.variant, problem.shape, problem.a.dtype, problem.layout,
            show(record.number("time_cold"), "seconds"), show(record.number("tflops"), "rate"),
            show(theirs.get(problem), "rate"), show(record.number("ratio_to_cublas"), "percent"), interval,
        ))  # fmt: skip
    heads = ("kernel", "shape", "type", "layout", "time cold", "rate", "cuBLAS", "of cuBLAS", "95 % interval")
    return table(heads, rows) if rows else "Nothing of it was timed."


def _choices(content: dict[str, Any]) -> str:
    """A row for each choice, the first being what the others are held against.

    They are compared through cuBLAS, which every group of them was timed in turn with.
    """
    names: dict[str, str] = content.get("choices", {})
    records = {record.case.key: record for record in _records(content)}
    chosen = [(what, records[key]) for key, what in names.items() if key in records]
    first = chosen[0][1].number("ratio_to_cublas") if chosen else None
    rows = []
    for what, record in chosen:
        ratio = record.number("ratio_to_cublas")
        against = ratio / first if ratio is not None and first else None
        shown = [show(record.number(metric), style) for _, metric, style in COUNTED]
        rows.append((what, show(against, "percent"), show(ratio, "percent"), *shown))
    heads = ("choice", "speed against the first", "of cuBLAS", *(head for head, *_ in COUNTED))
    return table(heads, rows) if rows else "No choice was measured yet."


def _other_days(content: dict[str, Any]) -> str:
    """Which parts of a topic were measured on another day than its last, and of which the day was not noted."""
    days = {name: part["measured"].get("date", "") for name, part in content.get("parts", {}).items()}
    other = ", ".join(f"{name} ({day})" for name, day in days.items() if day and day != content["measured"].get("date"))
    unknown = ", ".join(name for name, day in days.items() if not day)
    said = f" Measured on another day: {other}." if other else ""
    return f"{said} The day was not noted: {unknown}." if unknown else said


def _run(content: dict[str, Any], shape: str | None, shown: Callable[[Block], str]) -> str:
    """`shown` for every problem of the run that was timed, under its name."""
    if not content["run"]:
        return "Nothing of it was timed."
    run = msgspec.convert(content["run"], type=Run)
    timed = [r for r in run.records if r.number("time_cold") is not None or r.number("time_hot") is not None]
    blocks = build([record for record in timed if shape in (None, record.case.problem.shape)])
    if not blocks:
        return f"The run holds no timed case{f' of {shape}' if shape else ''}."
    return "\n\n".join(f"{escape(block.title)}\n\n{shown(block)}" for block in blocks)


CUBLAS = "baselines/cublas"
COUNTED: tuple[tuple[str, str, Style], ...] = (
    ("tensor pipe", "tensor_pipe_util", "percent"),
    ("L2 hits", "l2_hit_rate", "percent"),
    ("DRAM", "dram_bytes", "bytes"),
    ("cycles", "elapsed_cycles", "count"),
)
COLUMNS: tuple[tuple[str, str, Style], ...] = (
    ("time cold", "time_cold", "seconds"),
    ("rate", "tflops", "rate"),
    ("load conflicts", "conflict_ratio_ld", "percent"),
    ("store conflicts", "conflict_ratio_st", "percent"),
    ("tensor pipe", "tensor_pipe_util", "percent"),
    ("FMA pipe", "fma_pipe_util", "percent"),
    ("L2 hits", "l2_hit_rate", "percent"),
    ("DRAM", "dram_bytes", "bytes"),
    ("registers", "registers_per_thread", "count"),
)
ALWAYS = 5
"""Columns of a ladder that stand in any case: its name, time, rate, and what it gained. The others are left out where
less than half is known."""
STEPS = (("of the rung before", PREVIOUS), ("of cuBLAS", BASELINE), ("of mma.sync", RATE))


def rungs(block: Block) -> str:
    """A row for every stage, lowest first, and for the baselines below: figures, and how much each idea brought."""
    stages = {variant.id: variant.stage or 0 for variant in load().values() if variant.stage is not None}
    records = sorted(
        (column.record for column in block.columns),
        key=lambda r: (r.case.variant not in stages, stages.get(r.case.variant, 0), r.case.variant),
    )
    steps = {finding.verdict.partition(":")[0]: finding.evidence for finding in ladder(records)}
    rows = []
    for record in records:
        known = {evidence.metric: evidence.value for evidence in steps.get(record.case.variant, ())}
        known[RATE] = record.number(RATE)
        cells = [show(record.number(metric), style) for _, metric, style in COLUMNS]
        times = [show(known.get(metric), "percent" if metric != PREVIOUS else "times") for _, metric in STEPS]
        rows.append((record.case.variant, *cells[:2], *times, *cells[2:]))
    names = [head for head, *_ in COLUMNS]
    heads = ("stage", *names[:2], *(head for head, _ in STEPS), *names[2:])
    unknown = show(None, "percent")
    kept = [i for i in range(len(heads)) if i < ALWAYS or 2 * sum(row[i] != unknown for row in rows) >= len(rows)]
    return table([heads[i] for i in kept], [[row[i] for i in kept] for row in rows])


CARDS: dict[str, Callable[[Block], str]] = {"run": card, "ladder": rungs}


PICTURES = {"heatmap.svg": ("heatmap", "run", "tflops", ("BN", "BK"))}
"""Maps drawn from evidence: the file, its topic, which run of it, the metric, and the axes."""


def drawn_of(name: str) -> str:
    """What the picture of that name shows."""
    x, y = PICTURES[name][3]
    return f"A map of {y} against {x}"


def picture(name: str, evidence: Path = ROOT / "docs" / "h200") -> str:
    """The map of that name as SVG; empty where it is not measured yet."""
    topic, run, metric, (x, y) = PICTURES[name]
    path = evidence / f"{topic}.json"
    if not path.is_file():
        return ""
    records = msgspec.convert(json.loads(path.read_text(encoding="utf-8"))[run], type=Run).records
    return svg(grid(records, metric, Axes(x, y)))


def main() -> None:
    """Rewrite every document, and every picture, that changed."""
    for name in PICTURES:
        drawn, path = picture(name), ROOT / "docs" / name
        if drawn and (not path.is_file() or path.read_text(encoding="utf-8") != drawn):
            path.write_text(drawn, encoding="utf-8")
            sys.stderr.write(f"rewrote {path.relative_to(ROOT)}\n")
    texts = {
        path: rewritten(path.read_text(encoding="utf-8"), "docs/h200" if path.parent == ROOT else "h200")
        for path in documents()
    }
    texts[ROOT / "docs" / "gate.schema.json"] = gate_schema.render()
    for path, new in texts.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != new:
            path.write_text(new, encoding="utf-8")
            sys.stderr.write(f"rewrote {path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
