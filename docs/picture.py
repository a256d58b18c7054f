"""Draws docs/report.png, the picture of a report in README.md: `python docs/picture.py`. Needs Chromium.

The report is that of the stored run of docs/h200/ladder.json, or of first-profile.json until there is one.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from PIL import Image

from dgw.commands.report import rendered
from dgw.model import Run

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "report.png"
TOPICS = ("ladder", "first-profile")
WIDTH, HEIGHT = 1320, 2215
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def topic(evidence: Path = ROOT / "docs" / "h200") -> str:
    """The topic whose run is shown."""
    return next(name for name in TOPICS if (evidence / f"{name}.json").is_file())


def page(evidence: Path = ROOT / "docs" / "h200") -> str:
    """The report of that run: of its largest problem, if it has several."""
    content = json.loads((evidence / f"{topic(evidence)}.json").read_text(encoding="utf-8"))
    run = msgspec.convert(content["run"], type=Run)
    counts = {record.case.problem: 0 for record in run.records}
    for record in run.records:
        counts[record.case.problem] += record.number("time_cold") is not None
    shown = max(counts, key=lambda problem: (counts[problem], problem.flops))
    records = tuple(record for record in run.records if record.case.problem == shown)
    text = rendered(msgspec.structs.replace(run, records=records), ".html")
    assert isinstance(text, str)
    return text


def photograph(text: str) -> bytes:
    """The top of the page as a PNG of few colours. Raises FileNotFoundError where there is no Chromium."""
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        raise FileNotFoundError("no Chromium here: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="dgw-picture-") as folder:
        source, target = Path(folder) / "report.html", Path(folder) / "report.png"
        source.write_text(text, encoding="utf-8")
        subprocess.run(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={target}",
             f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={folder}/profile", source.as_uri()],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        few = Image.open(target).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        out = io.BytesIO()
        few.save(out, "png", optimize=True)
    return out.getvalue()


def main() -> None:
    """Write the picture."""
    PICTURE.write_bytes(photograph(page()))
    sys.stderr.write(f"wrote {PICTURE.relative_to(ROOT)} from {topic()}.json\n")


if __name__ == "__main__":
    main()
