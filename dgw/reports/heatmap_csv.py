"""A map as CSV: a row for each cell, values in base units."""

from __future__ import annotations

import csv
import io

from dgw.reports.heatmap import Grid
from dgw.reports.tables import config_text


def render(grid: Grid) -> str:
    """One row a cell: facets, y, x, the value in base units, state, standing, the config, and why there is no value."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    about = ("problem", "device", "protocol")
    rows.writerow(
        (*grid.facets, grid.y[0], grid.x[0], grid.metric, "state", "standing", "config", "configs", "wrong", "reason",
         *about)
    )  # fmt: skip
    for panel in grid.panels:
        for y, squares in zip(grid.y[1], panel.rows, strict=True):
            for x, square in zip(grid.x[1], squares, strict=True):
                config = config_text(square.record.case.config) if square.record is not None else ""
                value = "" if square.value is None else repr(square.value)
                at = [one for _, one in panel.at]
                rows.writerow(
                    (*at, y, x, value, square.state, square.standing, config, square.configs, square.bad,
                     square.reason, grid.problem.shape, grid.machine, grid.protocol)
                )  # fmt: skip
    return out.getvalue()
